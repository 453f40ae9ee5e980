//! What `kvarto models info` says about a file.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use indicatif::HumanBytes;
use serde_json::{Value as Json, json};

use super::super::output::escaped;
use kvarto::Error;
use kvarto::model::config::ModelConfig;
use kvarto::model::gguf::{Array, GgmlType, Gguf, Value};
use kvarto::model::tokenizer::Tokenizer;

/// Longest text shown of a metadata value, in characters.
const SHOWN: usize = 64;

/// Everything about one file, ready to print.
pub(super) struct Report<'a> {
    path: &'a Path,
    gguf: &'a Gguf,
    /// What this build makes of the file; an error when it cannot run it.
    config: Result<ModelConfig, Error>,
    tokenizer: Result<Tokenizer, Error>,
    /// Count and bytes of the tensors of each type.
    types: BTreeMap<GgmlType, (usize, u64)>,
}

impl<'a> Report<'a> {
    /// Looks at everything; faults become part of the report, so that a file that cannot be run can still be
    /// looked into.
    pub fn of(path: &'a Path, gguf: &'a Gguf) -> Self {
        let mut types = BTreeMap::new();
        for tensor in gguf.tensors() {
            let (count, bytes) = types.entry(tensor.ty).or_insert((0, 0));
            *count += 1;
            *bytes += tensor.byte_len();
        }
        Report { path, gguf, config: ModelConfig::from_gguf(gguf), tokenizer: Tokenizer::from_gguf(gguf), types }
    }

    /// The value of a string key, escaped for a terminal.
    fn string(&self, key: &str) -> Option<String> {
        match self.gguf.get(key)? {
            Value::Str(text) => Some(escaped(text)),
            _ => None,
        }
    }

    fn integer(&self, key: &str) -> Option<i128> {
        self.gguf.get(key)?.integer()
    }

    fn parameters(&self) -> u64 {
        self.gguf.tensors().iter().map(|tensor| tensor.elements()).fold(0, u64::saturating_add)
    }

    /// Aligned text.
    pub fn text(&self) -> String {
        let mut rows: Vec<(String, String)> = Vec::new();
        let mut row = |name: &str, value: String| rows.push((name.to_owned(), value));
        let unknown = || "not stated".to_owned();
        row("file", escaped(&self.path.display().to_string()));
        row("size", format!("{} ({} bytes)", HumanBytes(self.gguf.file_len()), self.gguf.file_len()));
        row("format", format!("GGUF version {}, alignment {}", self.gguf.version(), self.gguf.alignment()));
        row("sha256", self.gguf.sha256().to_owned());
        row("name", self.string("general.name").unwrap_or_else(unknown));
        row("license", self.string("general.license").unwrap_or_else(unknown));
        row("architecture", self.string("general.architecture").unwrap_or_else(unknown));
        row("parameters", format!("{:.1} million", self.parameters() as f64 / 1e6));
        match &self.config {
            Ok(c) => {
                row("layers", c.layers.to_string());
                row("width", format!("{} (feed-forward {})", c.hidden, c.ffn));
                row("heads", format!("{} query, {} KV, of {} values", c.q_heads, c.kv_heads, c.head_dim));
                row("vocabulary", format!("{}{}", c.vocab, if c.tied_output { ", output tied" } else { "" }));
                row("context", format!("{} tokens", c.context_length));
                row("rope", format!("{} of {} values, base {}", c.rope.dim_count, c.head_dim, c.rope.base));
                if let Some(sliding) = &c.sliding {
                    let layers = (0..c.layers).filter(|&layer| c.slides(layer)).count();
                    let base = sliding.rope.base;
                    row("window", format!("{} tokens in {layers} layers, rope base {base} there", sliding.window));
                }
                row("cache", format!("{} a token at 16 bits", HumanBytes(c.kv_bytes_per_token_f16())));
                row("", format!("{} for the whole context", HumanBytes(c.kv_bytes_of_context_f16())));
            }
            Err(error) => row("cannot run", escaped(&error.to_string())),
        }
        let model = self.string("tokenizer.ggml.model").unwrap_or_else(unknown);
        let pre = self.string("tokenizer.ggml.pre").unwrap_or_else(unknown);
        row(
            "tokenizer",
            match &self.tokenizer {
                Ok(tokenizer) => format!("{model}, pre-tokenizer {pre}, {} tokens", tokenizer.len()),
                Err(error) => format!("{model}, pre-tokenizer {pre}; cannot be built: {}", escaped(&error.to_string())),
            },
        );
        let template = self.gguf.get("tokenizer.chat_template").is_some();
        row("chat template", if template { "yes" } else { "none" }.to_owned());
        let mut out = aligned(&rows);

        let _ = writeln!(out, "\ntensors: {}", self.gguf.tensors().len());
        for (ty, (count, bytes)) in &self.types {
            let bytes = if ty.block().is_some() { HumanBytes(*bytes).to_string() } else { "size unknown".to_owned() };
            let _ = writeln!(out, "  {ty:<8} {count:>6}  {bytes:>12}");
        }
        let _ = writeln!(out, "\nmetadata: {}", self.gguf.metadata().len());
        let rows: Vec<_> =
            self.gguf.metadata().iter().map(|(key, value)| (format!("  {}", escaped(key)), shown(value))).collect();
        out + &aligned(&rows)
    }

    /// The same, for programs.
    pub fn json(&self) -> Json {
        let types: Vec<_> = self
            .types
            .iter()
            .map(|(ty, (count, bytes))| {
                json!({ "type": ty.to_string(), "tensors": count, "bytes": ty.block().map(|_| bytes) })
            })
            .collect();
        let text = |key: &str| match self.gguf.get(key) {
            Some(Value::Str(text)) => Json::from(text.as_str()),
            _ => Json::Null,
        };
        let metadata: serde_json::Map<_, _> =
            self.gguf.metadata().iter().map(|(key, value)| (key.clone(), value_json(value))).collect();
        json!({
            "path": self.path.display().to_string(),
            "bytes": self.gguf.file_len(),
            "sha256": self.gguf.sha256(),
            "gguf_version": self.gguf.version(),
            "alignment": self.gguf.alignment(),
            "name": text("general.name"),
            "license": text("general.license"),
            "architecture": text("general.architecture"),
            "parameters": self.parameters(),
            "runs": self.config.is_ok(),
            "refused_because": self.config.as_ref().err().map(Error::to_string),
            "shape": self.config.as_ref().ok().map(|c| json!({
                "layers": c.layers,
                "hidden": c.hidden,
                "ffn": c.ffn,
                "q_heads": c.q_heads,
                "kv_heads": c.kv_heads,
                "head_dim": c.head_dim,
                "vocab": c.vocab,
                "tied_output": c.tied_output,
                "context_tokens": c.context_length,
                "rope_dims": c.rope.dim_count,
                "rope_base": c.rope.base,
                "window_tokens": c.sliding.as_ref().map(|s| s.window),
                "window_layers": (0..c.layers).filter(|&layer| c.slides(layer)).count(),
                "kv_bytes_per_token_f16": c.kv_bytes_per_token_f16(),
            })),
            "tokenizer": {
                "model": text("tokenizer.ggml.model"),
                "pre": text("tokenizer.ggml.pre"),
                "tokens": self.tokenizer.as_ref().ok().map(Tokenizer::len),
                "refused_because": self.tokenizer.as_ref().err().map(Error::to_string),
                "chat_template": self.gguf.get("tokenizer.chat_template").is_some(),
            },
            "file_type": self.integer("general.file_type").and_then(|v| i64::try_from(v).ok()),
            "tensor_types": types,
            "metadata": metadata,
        })
    }
}

/// Two columns.
fn aligned(rows: &[(String, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    rows.iter().fold(String::new(), |mut out, (name, value)| {
        let _ = writeln!(out, "{name:<width$}  {value}");
        out
    })
}

fn shown(value: &Value) -> String {
    match value {
        Value::Str(text) => {
            let cut: String = text.chars().take(SHOWN).collect();
            let more = text.chars().count().saturating_sub(SHOWN);
            if more > 0 { format!("{}… ({more} more characters)", escaped(&cut)) } else { escaped(&cut) }
        }
        Value::Unsigned(v) => v.to_string(),
        Value::Signed(v) => v.to_string(),
        Value::F32(v) => v.to_string(),
        Value::F64(v) => v.to_string(),
        Value::Bool(v) => v.to_string(),
        Value::Array(Array::Str(texts)) if texts.len() == 1 => escaped(&texts[0]),
        other => other.describe(),
    }
}

/// Single values as they are; arrays, which may hold the whole vocabulary, as what they are.
fn value_json(value: &Value) -> Json {
    match value {
        Value::Unsigned(v) => json!(v),
        Value::Signed(v) => json!(v),
        Value::F32(v) => json!(v),
        Value::F64(v) => json!(v),
        Value::Bool(v) => json!(v),
        Value::Str(v) => json!(v),
        array => json!({ "array": array.describe() }),
    }
}

//! `kvarto plan`: what a cache will take, and the context that a budget holds, without allocating it.

use super::cache_flags::CacheFlags;
use super::output;
use super::report::{bytes, figure};
use bytesize::ByteSize;
use clap::Args;
use kvarto::engine::Registry;
use kvarto::footprint::{Estimator, Footprint, NamedShape, OtherState};
use kvarto::model::config::ModelConfig;
use kvarto::model::gguf::Gguf;
use kvarto::model::store;
use kvarto::profile::Profile;
use kvarto::shape::{CacheShape, GroupKind};
use kvarto::{Error, ErrorKind};
use serde_json::{Value as Json, json};
use std::fmt::Write;

/// Bytes of a cache by context, and the context that fits a budget.
#[derive(Debug, Args)]
pub struct PlanCommand {
    /// smollm2-135m, gemma3-270m, llama-3.1-8b, qwen3-0.6b, qwen3.6-27b; q32k8d128l32; or a path that ends in .gguf
    #[arg(long, default_value = "smollm2-135m", value_name = "SHAPE")]
    shape: String,
    #[command(flatten)]
    cache: CacheFlags,
    /// Tokens of each sequence; may be given several times
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..=MOST_TOKENS))]
    context: Vec<u64>,
    /// Sequences
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    batch: u64,
    /// Say the longest context that fits, for example 16GiB
    #[arg(long, value_name = "SIZE")]
    budget: Option<ByteSize>,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// Positions that an engine addresses.
const MOST_TOKENS: u64 = 1 << 30;
/// Contexts of the table when none is asked for.
const CONTEXTS: [u64; 4] = [4096, 8192, 32_768, 131_072];

/// Runs the command.
pub fn run(command: &PlanCommand) -> anyhow::Result<()> {
    let registry = Registry::builtin();
    let profile = command.cache.profile(&registry)?;
    let named = named_shape(&command.shape, profile.page_tokens)?;
    let contexts = if command.context.is_empty() { CONTEXTS.to_vec() } else { command.context.clone() };
    let most = contexts.iter().copied().max().unwrap_or(0);
    check_size(&named, most, command.batch)?;
    let estimator = Estimator::new(&named.shape, &profile, &registry)?;
    let plain = Estimator::new(&named.shape, &Profile::dense(), &registry)?;
    let eight = Estimator::new(&named.shape, &Profile::formats("fp8", "fp8"), &registry)?.bytes_per_token().0;
    let rows = contexts.iter().map(|&tokens| Row { tokens, footprint: estimator.at(tokens) }).collect();
    let fitting = command.budget.map(|budget| {
        // What sequences share is in each one's count, and there once.
        let shared = estimator.at(1).shared_bytes;
        let each = budget.as_u64().saturating_sub(shared) / command.batch;
        let left = each.saturating_sub(named.other.bytes).saturating_add(shared);
        let fits = budget.as_u64() > shared;
        (budget.as_u64(), if fits { estimator.context_within(left, MOST_TOKENS) } else { 0 })
    });
    let plan = Plan { command, profile, named, per_token: estimator.bytes_per_token(), plain, eight, rows, fitting };
    Ok(output::write(&if command.json {
        output::json(&plan.json(), true)
    } else {
        output::escaped_lines(&plan.text())
    })?)
}

/// Refuses what no count of bytes can hold.
fn check_size(named: &NamedShape, tokens: u64, batch: u64) -> kvarto::Result<()> {
    let values = named.shape.values_per_token() as u128 * u128::from(tokens.next_multiple_of(128)) * u128::from(batch);
    // Every format takes less than 8 bytes a value, metadata and padding included.
    match values.checked_mul(8).is_some_and(|bytes| bytes < u128::from(u64::MAX / 2)) {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::Usage,
            format!("{values} values; at most {} can be counted", u64::MAX / 16),
            "give a smaller shape, --context or --batch",
        )),
    }
}

/// A name, a shorthand, or the shape of a model's file.
fn named_shape(word: &str, page_tokens: usize) -> kvarto::Result<NamedShape> {
    if !word.ends_with(".gguf") {
        return NamedShape::parse(word, page_tokens);
    }
    let gguf = Gguf::open(&store::resolve(word)?)?;
    let config = ModelConfig::from_gguf(&gguf)?;
    let shape = config.cache_shape(page_tokens);
    shape.validate()?;
    Ok(NamedShape { name: word.into(), source: "the model's GGUF", shape, other: OtherState::default() })
}

/// A context and what one sequence of it takes.
struct Row {
    tokens: u64,
    footprint: Footprint,
}

struct Plan<'a> {
    command: &'a PlanCommand,
    profile: Profile,
    named: NamedShape,
    /// Bytes of pages and of metadata.
    per_token: (f64, f64),
    /// The same cache at 16 bits.
    plain: Estimator,
    /// Bytes of pages that a token takes at 8 bits.
    eight: f64,
    rows: Vec<Row>,
    /// The budget, and the context that fits.
    fitting: Option<(u64, u64)>,
}

impl Plan<'_> {
    /// The basis that was asked for.
    fn basis(&self) -> &str {
        self.profile.k_basis.as_deref().unwrap_or("as the formats want")
    }

    fn text(&self) -> String {
        let (command, profile, named) = (self.command, &self.profile, &self.named);
        let mut out = String::new();
        // Writing to a String cannot fail.
        let mut line = |name: &str, text: String| {
            let _ = writeln!(out, "{name:<9} {text}");
        };
        line("shape", format!("{} ({})", named.name.escape_debug(), named.source));
        for text in layers(&named.shape) {
            line("", text);
        }
        if named.other.layers > 0 {
            let OtherState { layers, bytes: state } = named.other;
            line("", format!("{layers} layers of other state: {} a sequence, whatever its length", bytes(state)));
        }
        line("profile", format!("{}; selector {}, policy {}", profile.name, profile.selector, profile.policy));
        line("pages", format!("{} tokens, k={} v={}", profile.page_tokens, profile.k, profile.v));
        let (sink, tail) = (profile.exact_sink_tokens, profile.exact_tail_tokens);
        line("", format!("the first {sink} and the newest {tail} tokens exact; basis {}", self.basis()));
        let (slots, metadata) = self.per_token;
        let plain = self.plain.bytes_per_token().0;
        let times = (slots > 0.0).then(|| plain / slots);
        let ratio = format!("{} times as many at 16 bits", figure(times));
        line("a token", format!("{:.2} KiB in the long run, {ratio}; metadata {metadata:.0} bytes", slots / 1024.0));
        let batch = command.batch;
        let _ = writeln!(
            out,
            "\n{:>10}  {:>12}  {:>12}  {:>12}  {:>12}  {:>9}  {:>9}",
            "context", "pages", "metadata", "other state", "total", "bits", "of 16 bit"
        );
        for Row { tokens, footprint } in &self.rows {
            let slots = footprint.slot_bytes() * batch;
            let metadata = footprint.metadata_bytes * batch + footprint.shared_bytes;
            let other = named.other.bytes * batch;
            let plain = self.plain.at(*tokens).slot_bytes() * batch;
            let _ = writeln!(
                out,
                "{tokens:>10}  {:>12}  {:>12}  {:>12}  {:>12}  {:>9}  {:>8.1}%",
                bytes(slots),
                bytes(metadata),
                bytes(other),
                bytes(slots + metadata + other),
                figure(footprint.resident_bits_per_value()),
                slots as f64 / plain.max(1) as f64 * 100.0
            );
        }
        if batch > 1 {
            let _ = writeln!(out, "for {batch} sequences together");
        }
        out += "\n   context  KiB a token  x at 16 bits  x at fp8  pages by k/v\n";
        for Row { tokens, footprint } in &self.rows {
            let each = footprint.slot_bytes() as f64 / *tokens as f64;
            let times = |of: f64| figure((each > 0.0).then(|| of / each));
            let all: u64 = footprint.pages.values().map(|p| p.pages).sum();
            let share = |pages: u64| pages as f64 / all.max(1) as f64 * 100.0;
            let pages: Vec<String> =
                footprint.pages.iter().map(|((k, v), p)| format!("{:.2}% {k}/{v}", share(p.pages))).collect();
            let (plain, eight) = (times(plain), times(self.eight));
            let _ =
                writeln!(out, "{tokens:>10}  {:>11.2}  {plain:>12}  {eight:>8}  {}", each / 1024.0, pages.join(", "));
        }
        if let Some((budget, tokens)) = self.fitting {
            let each = if batch > 1 { format!(" for each of {batch} sequences") } else { String::new() };
            let _ = match tokens {
                0 => writeln!(out, "\n{} holds no token{each}", bytes(budget)),
                MOST_TOKENS => {
                    writeln!(out, "\n{} holds any context{each}, {MOST_TOKENS} tokens at most", bytes(budget))
                }
                _ => writeln!(out, "\n{} holds {tokens} tokens{each}", bytes(budget)),
            };
        }
        out
    }

    fn json(&self) -> Json {
        let batch = self.command.batch;
        let other = self.named.other;
        let groups: Vec<Json> = self
            .named
            .shape
            .groups
            .iter()
            .map(|g| {
                let window = match g.kind {
                    GroupKind::Window(w) => Some(w),
                    _ => None,
                };
                json!({
                    "layers": g.layers, "window_tokens": window, "q_heads": g.q_heads, "kv_heads": g.kv_heads,
                    "k_dim": g.k_dim, "v_dim": g.v_dim,
                })
            })
            .collect();
        let rows: Vec<Json> = self
            .rows
            .iter()
            .map(|Row { tokens, footprint: f }| {
                let pages: Vec<Json> = f
                    .pages
                    .iter()
                    .map(|((k, v), p)| json!({"k": k, "v": v, "pages": p.pages * batch, "bytes": p.bytes * batch}))
                    .collect();
                json!({
                    "context_tokens": tokens,
                    "pages": pages,
                    "slot_bytes": f.slot_bytes() * batch,
                    "metadata_bytes": f.metadata_bytes * batch + f.shared_bytes,
                    "other_state_bytes": other.bytes * batch,
                    "total_bytes": (f.total_bytes() - f.shared_bytes + other.bytes) * batch + f.shared_bytes,
                    "slot_bytes_per_token": f.slot_bytes() as f64 / *tokens as f64,
                    "f16_slot_bytes": self.plain.at(*tokens).slot_bytes() * batch,
                    "resident_bits_per_value": f.resident_bits_per_value(),
                    "metadata_bits_per_value": (f.values > 0).then(|| {
                        (f.metadata_bytes * batch + f.shared_bytes) as f64 * 8.0 / (f.values * batch) as f64
                    }),
                })
            })
            .collect();
        json!({
            "schema": 1,
            "shape": {"name": self.named.name, "source": self.named.source, "groups": groups,
                "other_state": {"layers": other.layers, "bytes": other.bytes}},
            "kv": {"k": self.profile.k, "v": self.profile.v},
            "basis": self.profile.k_basis,
            "profile": self.profile.name,
            "policy": self.profile.policy,
            "page_tokens": self.profile.page_tokens,
            "exact_sink_tokens": self.profile.exact_sink_tokens,
            "exact_tail_tokens": self.profile.exact_tail_tokens,
            "batch": batch,
            "bytes_per_token": {"slots": self.per_token.0, "metadata": self.per_token.1,
                "f16_slots": self.plain.bytes_per_token().0, "fp8_slots": self.eight},
            "contexts": rows,
            "budget": self.fitting.map(|(bytes, tokens)| json!({"bytes": bytes, "context_tokens": tokens})),
        })
    }
}

/// One line a group of layers.
fn layers(shape: &CacheShape) -> impl Iterator<Item = String> + '_ {
    shape.groups.iter().map(|g| {
        let kind = match g.kind {
            GroupKind::Window(w) => format!("attending to {w} tokens"),
            _ => "attending to all tokens".into(),
        };
        let size = if g.k_dim == g.v_dim { g.k_dim.to_string() } else { format!("{} / {}", g.k_dim, g.v_dim) };
        format!("{} layers {kind}: {} query and {} KV heads of {size}", g.layers.len(), g.q_heads, g.kv_heads)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        plan: PlanCommand,
    }

    #[test]
    fn sizes_are_read_with_their_units() {
        for (text, bytes) in [("16GiB", 16 << 30), ("16 GiB", 16 << 30), ("1GB", 1_000_000_000), ("4096", 4096)] {
            let line = Line::try_parse_from(["plan", "--budget", text]).unwrap();
            assert_eq!(line.plan.budget.map(|b| b.as_u64()), Some(bytes), "{text}");
        }
        for bad in ["", "x", "-1", "1XB", "nan"] {
            assert!(Line::try_parse_from(["plan", "--budget", bad]).is_err(), "{bad}");
        }
    }
}

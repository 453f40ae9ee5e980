//! What a model's file says about its shape, checked against the tensors it carries.

use super::gguf::{GgmlType, Gguf, dequantize};
use crate::error::{Error, ErrorKind, Result};
use crate::num::rope::{Pairing, RopeScaling};
use crate::shape::CacheShape;

mod tensors;

/// The architectures this build runs, as `general.architecture` spells them.
pub const ARCHITECTURES: &[&str] = &["llama"];

/// Shape and constants of a Llama-family model. All counts are in range and agree with the tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// `general.architecture`.
    pub architecture: String,
    /// Transformer blocks.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the feed-forward part.
    pub ffn: usize,
    /// Query heads a layer.
    pub q_heads: usize,
    /// KV heads a layer; divides `q_heads`.
    pub kv_heads: usize,
    /// Values a head, of K and V alike.
    pub head_dim: usize,
    /// Rows of the embedding, so the length of the logits.
    pub vocab: usize,
    /// Added to the mean square under the root.
    pub rms_eps: f32,
    /// Rotary position embedding.
    pub rope: Rope,
    /// Positions the model was trained for, in tokens.
    pub context_length: usize,
    /// True when `output.weight` is absent and `token_embd.weight` serves in its place.
    pub tied_output: bool,
    /// Cap of attention scores before the softmax; `None` for every Llama.
    pub attention_softcap: Option<f32>,
    /// Cap of the logits; `None` for every Llama.
    pub logit_softcap: Option<f32>,
}

/// Rotary position embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// How many of a head's values turn: even, at most `head_dim`. The rest pass unchanged.
    pub dim_count: usize,
    /// The base of the frequencies.
    pub base: f32,
    /// Which values form a pair.
    pub pairing: Pairing,
    /// How frequencies change for contexts past the first training.
    pub scaling: RopeScaling,
}

impl ModelConfig {
    /// Reads and checks the configuration. The architecture must be one of [`ARCHITECTURES`]; keys out of range
    /// are `File` errors, tensors that do not fit are `Shape` errors, and what would need other arithmetic
    /// (experts, biases, layers of unlike heads) is `Unsupported`. Each names its key or tensor.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self> {
        let architecture = gguf.str("general.architecture")?;
        if !ARCHITECTURES.contains(&architecture) {
            return Err(unsupported(
                format!("architecture `{}`; this build runs {}", architecture.escape_debug(), ARCHITECTURES.join(", ")),
                "use a Llama-family GGUF",
            ));
        }
        let keys = Keys { gguf, architecture };
        let layers = keys.count("block_count", 1, 4096)?;
        let hidden = keys.count("embedding_length", 1, 1 << 20)?;
        let ffn = keys.uniform("feed_forward_length", layers, None, 1 << 24)?;
        let q_heads = keys.uniform("attention.head_count", layers, None, 1 << 14)?;
        let kv_heads = keys.uniform("attention.head_count_kv", layers, Some(q_heads), 1 << 14)?;
        if !q_heads.is_multiple_of(kv_heads) {
            return Err(keys.wrong("attention.head_count", q_heads, &format!("a multiple of the {kv_heads} KV heads")));
        }
        let head_dim = keys.head_dim(hidden, q_heads)?;
        if let Some(experts @ 1..) = keys.optional_count("expert_count", 0, 1 << 20)? {
            return Err(unsupported(format!("a mixture of {experts} experts"), "use a dense Llama-family GGUF"));
        }
        let rms_eps = keys.float("attention.layer_norm_rms_epsilon", 1e-5, 0.0..=1.0)?;
        let (vocab, tied_output) =
            tensors::check(gguf, &tensors::Expected { layers, hidden, ffn, q_heads, kv_heads, head_dim })?;
        keys.check_vocab(vocab)?;
        Ok(ModelConfig {
            architecture: architecture.to_owned(),
            layers,
            hidden,
            ffn,
            q_heads,
            kv_heads,
            head_dim,
            vocab,
            rms_eps,
            rope: keys.rope(head_dim)?,
            context_length: keys.count("context_length", 1, 1 << 30)?,
            tied_output,
            attention_softcap: None,
            logit_softcap: None,
        })
    }

    /// The cache of the model's layers, in pages of `page_tokens` tokens.
    pub fn cache_shape(&self, page_tokens: usize) -> CacheShape {
        CacheShape::uniform(self.layers, self.q_heads, self.kv_heads, self.head_dim, page_tokens)
    }

    /// Bytes of K and V one token takes over all layers at 16 bits a value.
    pub fn kv_bytes_per_token_f16(&self) -> u64 {
        // At most 2^12 · 2^14 · 2^12 · 4: far from overflow.
        self.layers as u64 * self.kv_heads as u64 * self.head_dim as u64 * 2 * 2
    }
}

/// Keys of one architecture: `llama.` and so on stand before each name.
struct Keys<'a> {
    gguf: &'a Gguf,
    architecture: &'a str,
}

impl Keys<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    fn wrong(&self, name: &str, value: impl std::fmt::Display, wanted: &str) -> Error {
        Error::new(
            ErrorKind::File,
            format!("key `{}` is {value}; {wanted} is wanted", self.key(name)),
            "the file is damaged or was written by a faulty tool; convert the model anew",
        )
    }

    fn optional_count(&self, name: &str, least: usize, most: usize) -> Result<Option<usize>> {
        let Some(value) = self.gguf.optional::<u32>(&self.key(name))? else { return Ok(None) };
        let value = value as usize;
        if (least..=most).contains(&value) {
            Ok(Some(value))
        } else {
            Err(self.wrong(name, value, &format!("a number from {least} to {most}")))
        }
    }

    fn count(&self, name: &str, least: usize, most: usize) -> Result<usize> {
        match self.optional_count(name, least, most)? {
            Some(value) => Ok(value),
            None => Err(self.gguf.u32(&self.key(name)).err().unwrap_or_else(|| self.wrong(name, "absent", "a number"))),
        }
    }

    /// A count that may be given layer by layer, as long as all layers agree.
    fn uniform(&self, name: &str, layers: usize, absent: Option<usize>, most: usize) -> Result<usize> {
        let key = self.key(name);
        let values = self.gguf.per_layer_u32(&key, layers)?;
        let Some(values) = values else { return absent.map_or_else(|| self.count(name, 1, most), Ok) };
        let first = values.first().copied().unwrap_or(0);
        if let Some(other) = values.iter().find(|&&v| v != first) {
            return Err(unsupported(
                format!("key `{key}` differs between layers ({first} and {other}); only equal layers are run"),
                "use a model whose layers are alike",
            ));
        }
        let first = first as usize;
        if (1..=most).contains(&first) {
            Ok(first)
        } else {
            Err(self.wrong(name, first, &format!("a number from 1 to {most}")))
        }
    }

    fn float(&self, name: &str, absent: f32, range: std::ops::RangeInclusive<f32>) -> Result<f32> {
        let value = self.gguf.optional::<f32>(&self.key(name))?.unwrap_or(absent);
        // Written so that NaN fails.
        if range.contains(&value) {
            Ok(value)
        } else {
            Err(self.wrong(name, value, &format!("a number from {} to {}", range.start(), range.end())))
        }
    }

    fn head_dim(&self, hidden: usize, q_heads: usize) -> Result<usize> {
        const MOST: usize = 4096;
        let k = self.optional_count("attention.key_length", 1, MOST)?;
        let v = self.optional_count("attention.value_length", 1, MOST)?;
        let divided = || match hidden / q_heads {
            size @ 1..=MOST if hidden.is_multiple_of(q_heads) => Ok(size),
            _ => Err(self.wrong(
                "attention.head_count",
                q_heads,
                &format!("a divisor of the width {hidden} that leaves heads of 1 to {MOST}"),
            )),
        };
        let k = k.map_or_else(divided, Ok)?;
        let v = v.map_or_else(divided, Ok)?;
        if k != v {
            return Err(unsupported(
                format!("heads of {k} values in K and {v} in V; only equal sizes are run"),
                "use a model whose K and V heads are alike",
            ));
        }
        Ok(k)
    }

    fn check_vocab(&self, rows: usize) -> Result<()> {
        for (key, count) in [
            (self.key("vocab_size"), self.gguf.optional::<u32>(&self.key("vocab_size"))?.map(|v| v as usize)),
            ("tokenizer.ggml.tokens".into(), self.gguf.optional::<&[String]>("tokenizer.ggml.tokens")?.map(<[_]>::len)),
        ] {
            // Embeddings padded past the vocabulary are common; a token without a row is not.
            if let Some(count) = count.filter(|&count| count > rows) {
                return Err(Error::new(
                    ErrorKind::Shape,
                    format!("key `{key}` counts {count} tokens; tensor `token_embd.weight` has {rows} rows"),
                    "convert the model anew",
                ));
            }
        }
        Ok(())
    }

    fn rope(&self, head_dim: usize) -> Result<Rope> {
        let dim_count = self.optional_count("rope.dimension_count", 2, head_dim)?.unwrap_or(head_dim);
        if !dim_count.is_multiple_of(2) {
            return Err(self.wrong("rope.dimension_count", dim_count, "an even number"));
        }
        let base = self.float("rope.freq_base", 10_000.0, 1.001..=1e12)?;
        Ok(Rope { dim_count, base, pairing: Pairing::Adjacent, scaling: self.scaling(dim_count / 2)? })
    }

    fn scaling(&self, pairs: usize) -> Result<RopeScaling> {
        let key = self.key("rope.scaling.type");
        let kind = self.gguf.optional::<&str>(&key)?;
        // Older converters wrote the linear factor alone.
        let linear = self.float("rope.scale_linear", 1.0, 1e-6..=1e6)?;
        let factor = self.float("rope.scaling.factor", linear, 0.0..=1e6)?;
        let scaling = match kind {
            Some("yarn") => RopeScaling::Yarn {
                factor: if factor > 0.0 {
                    factor
                } else {
                    return Err(self.wrong("rope.scaling.factor", factor, "a positive number"));
                },
                original_context: self.count("rope.scaling.original_context_length", 1, 1 << 30)? as f32,
                beta_fast: self.float("rope.scaling.yarn_beta_fast", 32.0, 0.0..=1e6)?,
                beta_slow: self.float("rope.scaling.yarn_beta_slow", 1.0, 0.0..=1e6)?,
                // The file's factor comes on top of YaRN's own temperature correction.
                attn_factor: Some(
                    self.float("rope.scaling.attn_factor", 1.0, 1e-6..=1e6)? * (1.0 + 0.1 * factor.max(1.0).ln()),
                ),
            },
            // A factor of 0 means "none" to other readers.
            None | Some("linear") if factor != 1.0 && factor != 0.0 => RopeScaling::Linear { factor },
            None | Some("linear" | "none" | "") => RopeScaling::None,
            Some(other) => {
                return Err(unsupported(
                    format!("key `{key}` is `{}`; none, linear and yarn are run", other.escape_debug()),
                    "use another model",
                ));
            }
        };
        let Some(tensor) = self.gguf.find_tensor("rope_freqs.weight") else { return Ok(scaling) };
        if scaling != RopeScaling::None {
            return Err(unsupported(
                format!("tensor `rope_freqs.weight` together with scaling `{}`", kind.unwrap_or("linear")),
                "use a model with one of the two",
            ));
        }
        if tensor.ty != GgmlType::F32 || tensor.shape != [pairs as u64] {
            return Err(Error::new(
                ErrorKind::Shape,
                format!("tensor `rope_freqs.weight` is {} {:?}; F32 [{pairs}] is wanted", tensor.ty, tensor.shape),
                "convert the model anew",
            ));
        }
        let factors = dequantize(tensor, self.gguf.tensor_bytes(tensor)?)?;
        match factors.iter().find(|f| !(f.is_finite() && **f > 0.0)) {
            Some(bad) => Err(Error::new(
                ErrorKind::File,
                format!("tensor `rope_freqs.weight` holds {bad}; its factors must be positive and finite"),
                "the file is damaged; fetch it again",
            )),
            None => Ok(RopeScaling::Llama3 { factors }),
        }
    }
}

fn unsupported(message: String, remedy: &str) -> Error {
    Error::new(ErrorKind::Unsupported, message, remedy)
}

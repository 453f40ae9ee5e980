//! What a model's file says about its shape, checked against the tensors it carries.

use super::gguf::Gguf;
use crate::error::{Error, ErrorKind, Result};
use crate::num::rope::{Pairing, RopeScaling};
use crate::shape::{CacheShape, GroupKind};

mod architecture;
mod named;
mod rope;
mod tensors;

pub use architecture::{ARCHITECTURES, Architecture, SlidingPattern};

/// Shape and constants of a model. All counts are in range and agree with the tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// What sets its family apart.
    pub architecture: &'static Architecture,
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
    /// Rotary position embedding, of the layers that see all tokens.
    pub rope: Rope,
    /// Layers that see a window of the newest tokens; `None` where all see everything.
    pub sliding: Option<Sliding>,
    /// What scores are multiplied by.
    pub attention_scale: f32,
    /// Positions the model was trained for, in tokens.
    pub context_length: usize,
    /// True when `output.weight` is absent and `token_embd.weight` serves in its place.
    pub tied_output: bool,
}

/// Layers that see a window of the newest tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Sliding {
    /// Tokens seen, the query's own included.
    pub window: usize,
    /// Of each run of this many layers the last sees all tokens instead.
    pub full_every: usize,
    /// Rotary position embedding of the sliding layers.
    pub rope: Rope,
}

/// Rotary position embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// How many of a head's values turn: even; all of them in a `llama` file, as `llama.cpp` asks for too.
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
    /// (experts, biases where there should be none, capped logits, layers of unlike heads) is `Unsupported`. Each names
    /// its key or tensor.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self> {
        let name = gguf.str("general.architecture")?;
        let architecture = Architecture::find(name).ok_or_else(|| {
            unsupported(
                format!("architecture `{}`; this build runs {}", name.escape_debug(), Architecture::names()),
                "use a GGUF of one of these",
            )
        })?;
        let keys = Keys { gguf, architecture };
        let layers = keys.count("block_count", 1, 4096)?;
        let hidden = keys.count("embedding_length", 1, 1 << 20)?;
        let ffn = keys.uniform("feed_forward_length", layers, None, 1 << 24)?;
        let q_heads = keys.uniform("attention.head_count", layers, None, 1 << 14)?;
        let kv_heads = keys.uniform("attention.head_count_kv", layers, Some(q_heads), 1 << 14)?;
        if !q_heads.is_multiple_of(kv_heads) {
            return Err(keys.wrong(
                "attention.head_count",
                q_heads,
                &format!("a multiple of the {kv_heads} KV heads of key `{}`", keys.key("attention.head_count_kv")),
            ));
        }
        let (head_dim, head_source) = keys.head_dim(hidden, q_heads)?;
        if let Some(experts @ 1..) = keys.optional_count("expert_count", 0, 1 << 20)? {
            return Err(unsupported(format!("a mixture of {experts} experts"), "use a dense model"));
        }
        keys.refuse_caps()?;
        let rms_eps = keys.float("attention.layer_norm_rms_epsilon", 1e-5, 1e-10..=0.01)?;
        let expected =
            tensors::Expected { architecture, layers, hidden, ffn, q_heads, kv_heads, head_dim, head_source };
        let (vocab, tied_output) = tensors::check(&keys, &expected)?;
        keys.check_vocab(vocab)?;
        let context_length = keys.count("context_length", 1, 1 << 24)?;
        let rope = keys.rope(head_dim, &expected.head_source, context_length)?;
        Ok(ModelConfig {
            architecture,
            layers,
            hidden,
            ffn,
            q_heads,
            kv_heads,
            head_dim,
            vocab,
            rms_eps,
            sliding: keys.sliding(&rope, context_length)?,
            rope,
            attention_scale: keys.attention_scale(layers, hidden, q_heads, head_dim)?,
            context_length,
            tied_output,
        })
    }

    /// The cache of the model's layers, in pages of `page_tokens` tokens.
    pub fn cache_shape(&self, page_tokens: usize) -> CacheShape {
        let mut shape = CacheShape::uniform(self.layers, self.q_heads, self.kv_heads, self.head_dim, page_tokens);
        let Some(sliding) = &self.sliding else { return shape };
        let Some(mut full) = shape.groups.pop() else { return shape };
        let mut window = full.clone();
        window.kind = GroupKind::Window(sliding.window);
        window.layers.retain(|&layer| self.slides(layer));
        full.layers.retain(|&layer| !self.slides(layer));
        shape.groups.extend([window, full].into_iter().filter(|group| !group.layers.is_empty()));
        shape.groups.sort_by_key(|group| group.layers.first().copied());
        shape
    }

    /// Whether `layer` sees a window of the newest tokens only.
    pub fn slides(&self, layer: usize) -> bool {
        // As llama.cpp counts: the last of each run of layers sees everything.
        self.sliding.as_ref().is_some_and(|s| layer % s.full_every != s.full_every - 1)
    }

    /// What embeddings are multiplied by.
    pub fn embedding_scale(&self) -> f32 {
        if self.architecture.scaled_embedding { (self.hidden as f32).sqrt() } else { 1.0 }
    }

    /// Bytes of K and V that a sequence as long as the context takes at 16 bits a value: sliding layers hold no more
    /// tokens than their window (and the rest of a page).
    pub fn kv_bytes_of_context_f16(&self) -> u64 {
        let held = |layer| match &self.sliding {
            Some(sliding) if self.slides(layer) => sliding.window.min(self.context_length) as u64,
            _ => self.context_length as u64,
        };
        let tokens = (0..self.layers).map(held).sum::<u64>();
        (self.kv_bytes_per_token_f16() / self.layers.max(1) as u64).saturating_mul(tokens)
    }

    /// Bytes of K and V one token takes over all layers at 16 bits a value; those of sliding layers are freed once it
    /// has left their window.
    pub fn kv_bytes_per_token_f16(&self) -> u64 {
        // At most 2^12 · 2^14 · 2^12 · 4: far from overflow.
        self.layers as u64 * self.kv_heads as u64 * self.head_dim as u64 * 2 * 2
    }
}

/// Keys of one architecture: `llama.` and so on stand before each name.
struct Keys<'a> {
    gguf: &'a Gguf,
    architecture: &'static Architecture,
}

impl Keys<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture.name)
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

    /// Values a head, and the keys that say so.
    fn head_dim(&self, hidden: usize, q_heads: usize) -> Result<(usize, String)> {
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
        let source = |length: Option<usize>, name: &str| match length {
            Some(length) => format!("key `{}` {length}", self.key(name)),
            None => format!(
                "key `{}` {hidden} over key `{}` {q_heads}",
                self.key("embedding_length"),
                self.key("attention.head_count")
            ),
        };
        let (k_source, v_source) = (source(k, "attention.key_length"), source(v, "attention.value_length"));
        let k = k.map_or_else(divided, Ok)?;
        let v = v.map_or_else(divided, Ok)?;
        if k != v {
            return Err(unsupported(
                format!("heads of {k} values in K ({k_source}) and {v} in V ({v_source}); only equal sizes are run"),
                "use a model whose K and V heads are alike; where they are, the file is damaged",
            ));
        }
        if !k.is_multiple_of(2) {
            return Err(unsupported(
                format!("heads of {k} values ({k_source}); RoPE turns values in pairs"),
                "convert the model anew, or use one of even heads",
            ));
        }
        Ok((k, k_source))
    }

    /// Caps of scores and of logits, which other families have under the same names.
    fn refuse_caps(&self) -> Result<()> {
        for name in ["attn_logit_softcapping", "final_logit_softcapping"] {
            let cap = self.float(name, 0.0, 0.0..=1e6)?;
            if cap != 0.0 {
                return Err(unsupported(
                    format!("key `{}` is {cap}; caps are not run", self.key(name)),
                    "use a model without caps",
                ));
            }
        }
        Ok(())
    }

    fn attention_scale(&self, layers: usize, hidden: usize, q_heads: usize, head_dim: usize) -> Result<f32> {
        let wide = self.architecture.wide_scale_layers == Some(layers);
        let divisor = if wide { hidden as f32 / q_heads as f32 } else { head_dim as f32 };
        let scale = self.float("attention.scale", 0.0, 0.0..=1e6)?;
        // A scale of 0 means "none" to other readers.
        Ok(if scale == 0.0 { 1.0 / divisor.sqrt() } else { scale })
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
}

fn unsupported(message: String, remedy: &str) -> Error {
    Error::new(ErrorKind::Unsupported, message, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_gemma_scales_by_its_width() {
        let mut header = b"GGUF".to_vec();
        header.extend(3u32.to_le_bytes());
        header.extend([0; 16]);
        let gguf = Gguf::parse(header).unwrap();
        let scale = |name, layers| {
            let keys = Keys { gguf: &gguf, architecture: Architecture::find(name).unwrap() };
            keys.attention_scale(layers, 5376, 32, 128).unwrap()
        };
        assert_eq!(scale("gemma3", 62), 1.0 / 168f32.sqrt());
        assert_eq!((scale("gemma3", 48), scale("qwen3", 62)), (1.0 / 128f32.sqrt(), 1.0 / 128f32.sqrt()));
    }
}

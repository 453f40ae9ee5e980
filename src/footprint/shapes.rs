//! Cache shapes by name, and by the shorthand `q32k8d128l32`.

use crate::error::{Error, ErrorKind, Result};
use crate::format::words;
use crate::shape::{CacheGroup, CacheShape, GroupKind, KeySpace, VSource};

/// State of layers that keep no KV cache: it does not grow with the context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherState {
    /// Layers that hold it.
    pub layers: usize,
    /// Bytes of a sequence, all these layers together.
    pub bytes: u64,
}

/// A model's cache, without the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedShape {
    /// `qwen3-0.6b`, or the shorthand it was made from.
    pub name: String,
    /// Where the figures come from, in a few words.
    pub source: &'static str,
    /// Groups of layers with a KV cache.
    pub shape: CacheShape,
    /// Layers without.
    pub other: OtherState,
}

/// Names that [`NamedShape::parse`] knows.
pub const NAMES: [&str; 5] = ["smollm2-135m", "gemma3-270m", "llama-3.1-8b", "qwen3-0.6b", "qwen3.6-27b"];

/// One kind of layers of a named model.
struct Layers {
    kind: GroupKind,
    layers: Vec<usize>,
}

fn shape(groups: Vec<Layers>, (q_heads, kv_heads, head_dim): (usize, usize, usize), page_tokens: usize) -> CacheShape {
    let group = |g: Layers| CacheGroup {
        layers: g.layers,
        kind: g.kind,
        page_tokens,
        q_heads,
        kv_heads,
        k_dim: head_dim,
        v_dim: head_dim,
        v: VSource::Own,
        key_space: KeySpace::PostRope,
    };
    CacheShape { groups: groups.into_iter().map(group).collect() }
}

fn full(layers: impl Iterator<Item = usize>) -> Vec<Layers> {
    vec![Layers { kind: GroupKind::Full, layers: layers.collect() }]
}

impl NamedShape {
    /// Reads one of [`NAMES`], or `q{query heads}k{KV heads}d{head size}l{layers}`.
    ///
    /// # Errors
    /// `Usage` for a word that is neither, with the nearest names; `Shape` or `Unsupported`, as
    /// [`CacheShape::validate`], for counts that kernels are not defined for.
    pub fn parse(word: &str, page_tokens: usize) -> Result<Self> {
        let named = |source, shape, other| NamedShape { name: word.to_string(), source, shape, other };
        let none = OtherState::default();
        let found = match word {
            "smollm2-135m" => named("the model's GGUF", shape(full(0..30), (9, 3, 64), page_tokens), none),
            "llama-3.1-8b" => named("the model's card", shape(full(0..32), (32, 8, 128), page_tokens), none),
            "qwen3-0.6b" => named("the model's card", shape(full(0..28), (16, 8, 128), page_tokens), none),
            "gemma3-270m" => {
                // Every sixth layer attends to the whole context, the others to 512 tokens.
                let of = |kind, full| Layers { kind, layers: (0..18).filter(|l| (l % 6 == 5) == full).collect() };
                let groups = vec![of(GroupKind::Window(512), false), of(GroupKind::Full, true)];
                named("the model's GGUF", shape(groups, (4, 1, 256), page_tokens), none)
            }
            "qwen3.6-27b" => {
                // Three layers of four are gated delta networks: a matrix of 128 × 128 in f32 for each of 48 value
                // heads, and the last 3 inputs of a convolution over 16 + 16 + 48 heads of 128, in 16 bits.
                let bytes = 48 * (48 * 128 * 128 * 4 + 3 * (16 + 16 + 48) * 128 * 2);
                let layers = full((0..64).filter(|l| l % 4 == 3));
                named("the model's card", shape(layers, (24, 4, 256), page_tokens), OtherState { layers: 48, bytes })
            }
            _ => named("shorthand", CacheShape { groups: vec![shorthand(word, page_tokens)?] }, none),
        };
        found.shape.validate()?;
        Ok(found)
    }
}

/// `q32k8d128l32`.
fn shorthand(word: &str, page_tokens: usize) -> Result<CacheGroup> {
    let counts = || -> Option<[usize; 4]> {
        let mut rest = word;
        let mut counts = [0; 4];
        for (letter, count) in ['q', 'k', 'd', 'l'].into_iter().zip(&mut counts) {
            rest = rest.strip_prefix(letter)?;
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            // Six digits: products of all four stay far below 2⁶⁴.
            *count = Some(&rest[..digits]).filter(|d| d.len() <= 6)?.parse().ok()?;
            rest = &rest[digits..];
        }
        rest.is_empty().then_some(counts)
    };
    let Some([q_heads, kv_heads, head_dim, layers]) = counts() else {
        let remedy = format!(
            "{}; or give qQkKdDlL (query heads, KV heads, head size, layers), or a .gguf file",
            words::suggest(word, NAMES.into_iter())
        );
        return Err(Error::new(ErrorKind::Usage, format!("no shape is named `{}`", word.escape_debug()), remedy));
    };
    const MOST_LAYERS: usize = 4096;
    if layers > MOST_LAYERS || kv_heads > 1 << 14 {
        let message = format!("{layers} layers of {kv_heads} KV heads; at most {MOST_LAYERS} of {}", 1 << 14);
        return Err(Error::new(ErrorKind::Usage, message, "give a smaller shape"));
    }
    Ok(shape(full(0..layers), (q_heads, kv_heads, head_dim), page_tokens).groups.swap_remove(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_valid_shape() {
        for name in NAMES {
            let found = NamedShape::parse(name, 64).unwrap();
            assert_eq!(found.name, name);
        }
        let gemma = NamedShape::parse("gemma3-270m", 64).unwrap().shape;
        assert_eq!(gemma.groups.iter().map(|g| g.layers.len()).collect::<Vec<_>>(), [15, 3]);
        let qwen = NamedShape::parse("qwen3.6-27b", 64).unwrap();
        // 64 KiB a token at 16 bits (arXiv 2608.23834's base line).
        assert_eq!(qwen.shape.values_per_token() * 2, 64 * 1024);
    }

    #[test]
    fn shorthand_is_read_or_refused() {
        let found = NamedShape::parse("q32k8d128l32", 64).unwrap().shape;
        assert_eq!(found, NamedShape::parse("llama-3.1-8b", 64).unwrap().shape);
        for bad in ["", "q32", "q32k8d128", "q32k8d128l", "q32k8d128l32x", "k8q32d128l32", "q-1k8d128l32", "qwen", "é"]
        {
            let error = NamedShape::parse(bad, 64).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage, "{bad}");
        }
        for bad in ["q32k5d128l32", "q32k8d129l32", "q0k0d128l1", "q8k8d128l0", "q32k8d128l99999", "q9999999k1d64l1"] {
            assert!(NamedShape::parse(bad, 64).is_err(), "{bad}");
        }
    }
}

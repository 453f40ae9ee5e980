//! The architectures this build runs, each as data: what sets it apart from a plain Llama block.
//!
//! The forward pass, the check of tensors and the reader of keys look at this record and never at a name. The
//! arithmetic is llama.cpp's, whose converters write the files.

use crate::kernel::gated_mul::Activation;
use crate::num::rope::Pairing;

/// How a family of models differs from others.
#[derive(Debug, PartialEq)]
pub struct Architecture {
    /// `general.architecture`, which also leads the file's keys.
    pub name: &'static str,
    /// Which values of a head turn together.
    pub pairing: Pairing,
    /// Q, K and V have biases (`attn_q.bias`, ..).
    pub qkv_bias: bool,
    /// Each query and key head is normalised before it is turned (`attn_q_norm`, `attn_k_norm`).
    pub qk_norm: bool,
    /// What attention and feed-forward give is normalised before it is added (`post_attention_norm`, `post_ffw_norm`).
    pub post_norms: bool,
    /// What the feed-forward's gate goes through.
    pub activation: Activation,
    /// Embeddings are multiplied by the root of the width.
    pub scaled_embedding: bool,
    /// Some layers see a window of the newest tokens only.
    pub sliding: Option<SlidingPattern>,
    /// With this many layers, scores are divided by the root of width / query heads instead of the head size's. (The
    /// files do not say so; llama.cpp knows Gemma 3 27B by its layers too.)
    pub wide_scale_layers: Option<usize>,
}

/// Which layers slide, where the file names a window.
#[derive(Debug, PartialEq)]
pub struct SlidingPattern {
    /// Of each run of this many layers the last sees all tokens, the others a window.
    pub full_every: usize,
    /// Base of the rotary frequencies of sliding layers, which no scaling applies to.
    pub rope_base: f32,
}

const LLAMA: Architecture = Architecture {
    name: "llama",
    pairing: Pairing::Adjacent,
    qkv_bias: false,
    qk_norm: false,
    post_norms: false,
    activation: Activation::Silu,
    scaled_embedding: false,
    sliding: None,
    wide_scale_layers: None,
};

/// Every architecture this build runs.
pub static ARCHITECTURES: &[Architecture] = &[
    LLAMA,
    Architecture { name: "qwen2", pairing: Pairing::HalfSplit, qkv_bias: true, ..LLAMA },
    Architecture { name: "qwen3", pairing: Pairing::HalfSplit, qk_norm: true, ..LLAMA },
    Architecture {
        name: "gemma3",
        pairing: Pairing::HalfSplit,
        qk_norm: true,
        post_norms: true,
        activation: Activation::GeluTanh,
        scaled_embedding: true,
        sliding: Some(SlidingPattern { full_every: 6, rope_base: 10_000.0 }),
        wide_scale_layers: Some(62),
        ..LLAMA
    },
];

impl Architecture {
    /// The architecture called `name`.
    pub fn find(name: &str) -> Option<&'static Architecture> {
        ARCHITECTURES.iter().find(|a| a.name == name)
    }

    /// The names of all, with commas.
    pub fn names() -> String {
        ARCHITECTURES.iter().map(|a| a.name).collect::<Vec<_>>().join(", ")
    }
}

//! The tensors a model must carry, and their shapes.

use super::{Architecture, unsupported};
use crate::error::{Error, ErrorKind, Result};
use crate::model::gguf::{GgmlType, Gguf};

/// The sizes the metadata states.
pub(super) struct Expected {
    pub architecture: &'static Architecture,
    pub layers: usize,
    pub hidden: usize,
    pub ffn: usize,
    pub q_heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
}

/// Checks every tensor and returns the vocabulary's size and whether the output is tied to the embedding.
///
/// A tensor that is not expected (a bias, say) is refused: leaving it out would give wrong results in silence.
pub(super) fn check(gguf: &Gguf, expected: &Expected) -> Result<(usize, bool)> {
    let &Expected { architecture, layers, hidden, .. } = expected;
    let embedding = gguf.tensor("token_embd.weight")?;
    let vocab = match *embedding.shape.as_slice() {
        [_, rows @ 1..=0x7FFF_FFFF] => rows as usize,
        _ => {
            return Err(Error::new(
                ErrorKind::Shape,
                format!("tensor `token_embd.weight` has shape {:?}; [{hidden}, tokens] is wanted", embedding.shape),
                "convert the model anew",
            ));
        }
    };
    one(gguf, "token_embd.weight", &[hidden, vocab])?;
    one(gguf, "output_norm.weight", &[hidden])?;
    let tied = gguf.find_tensor("output.weight").is_none();
    if !tied {
        one(gguf, "output.weight", &[hidden, vocab])?;
    }
    let block = block(expected);
    for layer in 0..layers {
        for (part, shape) in &block {
            one(gguf, &format!("blk.{layer}.{part}"), shape)?;
        }
    }
    for tensor in gguf.tensors() {
        let part = tensor.name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        let known = match part {
            Some((layer, part)) => {
                let in_range = layer.parse::<usize>().is_ok_and(|l| l < layers);
                // attn_rot_embd: a table old converters stored; the frequencies are computed.
                in_range && (part == "attn_rot_embd.weight" || block.iter().any(|(name, _)| *name == part))
            }
            None => matches!(
                tensor.name.as_str(),
                "token_embd.weight" | "output_norm.weight" | "output.weight" | "rope_freqs.weight"
            ),
        };
        if !known {
            return Err(unsupported(
                format!(
                    "tensor `{}` has no place in a `{}` model as this build runs it",
                    tensor.name, architecture.name
                ),
                "use a file of the plain text model (no experts, no adapters, no vision tower)",
            ));
        }
    }
    Ok((vocab, tied))
}

/// A block's tensors and their shapes.
fn block(expected: &Expected) -> Vec<(&'static str, Vec<usize>)> {
    let &Expected { architecture, hidden, ffn, q_heads, kv_heads, head_dim, .. } = expected;
    let (q, kv) = (q_heads * head_dim, kv_heads * head_dim);
    let mut block = vec![
        ("attn_norm.weight", vec![hidden]),
        ("attn_q.weight", vec![hidden, q]),
        ("attn_k.weight", vec![hidden, kv]),
        ("attn_v.weight", vec![hidden, kv]),
        ("attn_output.weight", vec![q, hidden]),
        ("ffn_norm.weight", vec![hidden]),
        ("ffn_gate.weight", vec![hidden, ffn]),
        ("ffn_up.weight", vec![hidden, ffn]),
        ("ffn_down.weight", vec![ffn, hidden]),
    ];
    if architecture.qkv_bias {
        block.extend([("attn_q.bias", vec![q]), ("attn_k.bias", vec![kv]), ("attn_v.bias", vec![kv])]);
    }
    if architecture.qk_norm {
        block.extend([("attn_q_norm.weight", vec![head_dim]), ("attn_k_norm.weight", vec![head_dim])]);
    }
    if architecture.post_norms {
        block.extend([("post_attention_norm.weight", vec![hidden]), ("post_ffw_norm.weight", vec![hidden])]);
    }
    block
}

/// Checks that tensor `name` exists, has `shape` and a type with a known size.
fn one(gguf: &Gguf, name: &str, shape: &[usize]) -> Result<()> {
    let tensor = gguf.tensor(name)?;
    if !tensor.shape.iter().copied().eq(shape.iter().map(|&size| size as u64)) {
        return Err(Error::new(
            ErrorKind::Shape,
            format!("tensor `{name}` has shape {:?}; the metadata asks for {shape:?}", tensor.shape),
            "the file is damaged or was written by a faulty tool; convert the model anew",
        ));
    }
    if let GgmlType::Unknown(_) = tensor.ty {
        gguf.tensor_bytes(tensor)?;
    }
    Ok(())
}

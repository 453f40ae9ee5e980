//! The tensors a model must carry, and their shapes.

use super::{Architecture, Keys, unsupported};
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
    /// The keys that state `head_dim`, for messages.
    pub head_source: String,
}

/// A side of a tensor, and what states it, for messages.
type Side<'a> = (usize, &'a str);

/// Checks every tensor and returns the vocabulary's size and whether the output is tied to the embedding.
///
/// A tensor that is not expected (a bias, say) is refused: leaving it out would give wrong results in silence.
pub(super) fn check(keys: &Keys<'_>, expected: &Expected) -> Result<(usize, bool)> {
    let gguf = keys.gguf;
    let &Expected { architecture, layers, hidden, ffn, q_heads, kv_heads, head_dim, ref head_source } = expected;
    let stated = |name: &str, value: usize| format!("key `{}` {value}", keys.key(name));
    let heads = |name: &str, count: usize| format!("{} heads of {head_dim} ({head_source})", stated(name, count));
    let (width, inner) = (stated("embedding_length", hidden), stated("feed_forward_length", ffn));
    let (q, kv) = (heads("attention.head_count", q_heads), heads("attention.head_count_kv", kv_heads));
    let (width, inner) = ((hidden, width.as_str()), (ffn, inner.as_str()));
    let (q, kv) = ((q_heads * head_dim, q.as_str()), (kv_heads * head_dim, kv.as_str()));

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
    let tokens = (vocab, "rows of tensor `token_embd.weight`");
    one(gguf, "token_embd.weight", &[width, tokens])?;
    one(gguf, "output_norm.weight", &[width])?;
    let tied = gguf.find_tensor("output.weight").is_none();
    if !tied {
        one(gguf, "output.weight", &[width, tokens])?;
    }
    let head = (head_dim, head_source.as_str());
    let block = block(architecture, width, inner, (q, kv), head);
    let blocks = stated("block_count", layers);
    for layer in 0..layers {
        for (part, shape) in &block {
            let name = format!("blk.{layer}.{part}");
            one(gguf, &name, shape).map_err(|e| match gguf.find_tensor(&name) {
                None => e.context(format!("{blocks} asks for blocks 0 to {}", layers - 1)),
                Some(_) => e,
            })?;
        }
    }
    for tensor in gguf.tensors() {
        let part = tensor.name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        let known = match part {
            Some((layer, part)) => {
                if layer.parse::<usize>().is_ok_and(|l| l >= layers) {
                    return Err(Error::new(
                        ErrorKind::File,
                        format!("tensor `{}` is of a block past the last: {blocks}", tensor.name),
                        "the file is damaged or was written by a faulty tool; convert the model anew",
                    ));
                }
                // attn_rot_embd: a table old converters stored; the frequencies are computed.
                part == "attn_rot_embd.weight" || block.iter().any(|(name, _)| *name == part)
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

/// A block's tensors and their shapes: the width, the feed-forward's, those of all query and all KV heads, one head's.
fn block<'a>(
    architecture: &Architecture,
    width: Side<'a>,
    inner: Side<'a>,
    (q, kv): (Side<'a>, Side<'a>),
    head: Side<'a>,
) -> Vec<(&'static str, Vec<Side<'a>>)> {
    let mut block = vec![
        ("attn_norm.weight", vec![width]),
        ("attn_q.weight", vec![width, q]),
        ("attn_k.weight", vec![width, kv]),
        ("attn_v.weight", vec![width, kv]),
        ("attn_output.weight", vec![q, width]),
        ("ffn_norm.weight", vec![width]),
        ("ffn_gate.weight", vec![width, inner]),
        ("ffn_up.weight", vec![width, inner]),
        ("ffn_down.weight", vec![inner, width]),
    ];
    if architecture.qkv_bias {
        block.extend([("attn_q.bias", vec![q]), ("attn_k.bias", vec![kv]), ("attn_v.bias", vec![kv])]);
    }
    if architecture.qk_norm {
        block.extend([("attn_q_norm.weight", vec![head]), ("attn_k_norm.weight", vec![head])]);
    }
    if architecture.post_norms {
        block.extend([("post_attention_norm.weight", vec![width]), ("post_ffw_norm.weight", vec![width])]);
    }
    block
}

/// Checks that tensor `name` exists, has `shape` and a type with a known size.
fn one(gguf: &Gguf, name: &str, shape: &[Side<'_>]) -> Result<()> {
    let tensor = gguf.tensor(name)?;
    let wanted: Vec<u64> = shape.iter().map(|&(size, _)| size as u64).collect();
    if tensor.shape != wanted {
        // Only the sides that differ are at fault, where sides can be compared at all.
        let comparable = tensor.shape.len() == wanted.len();
        let differs = |at: usize| !comparable || tensor.shape[at] != wanted[at];
        let sources: Vec<&str> = (0..shape.len()).filter(|&at| differs(at)).map(|at| shape[at].1).collect();
        return Err(Error::new(
            ErrorKind::Shape,
            format!("tensor `{name}` has shape {:?}; {wanted:?} is wanted ({})", tensor.shape, sources.join(", ")),
            "the file is damaged or was written by a faulty tool; convert the model anew",
        ));
    }
    if let GgmlType::Unknown(_) = tensor.ty {
        gguf.tensor_bytes(tensor)?;
    }
    Ok(())
}

//! Weights on the device, as stored in the file; projections that share an input become one matrix.

use super::fallbacks::Fallback;
use super::stored::weight_type;
use crate::backend::{Backend, BufferSlice};
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::WeightSegment;
use crate::model::config::ModelConfig;
use crate::model::gguf::{Gguf, dequantize, widen};
use crate::num::weights::WeightType;
use std::borrow::Cow;

/// A matrix `[rows][columns]` in one or more segments below the adapter's binding limit.
pub(super) struct Matrix {
    pub weight: WeightType,
    pub columns: u32,
    pub rows: u32,
    pub segments: Vec<WeightSegment>,
}

/// One block's weights. `qkv` and `gate_up` hold one matrix each where the file's types agree. What an architecture
/// does not have is `None`.
pub(super) struct Block {
    pub attention_norm: BufferSlice,
    pub qkv: Vec<Matrix>,
    /// Biases of Q, K and V in a row.
    pub qkv_bias: Option<BufferSlice>,
    pub head_norms: Option<HeadNorms>,
    pub output: Matrix,
    pub post_attention_norm: Option<BufferSlice>,
    pub ffn_norm: BufferSlice,
    pub gate_up: Vec<Matrix>,
    pub down: Matrix,
    pub post_ffn_norm: Option<BufferSlice>,
}

/// Norms of each query head and of each key head.
pub(super) struct HeadNorms {
    pub q: BufferSlice,
    pub k: BufferSlice,
}

/// A model's weights.
pub(super) struct Weights {
    pub embedding: Matrix,
    pub blocks: Vec<Block>,
    pub output_norm: BufferSlice,
    /// `None` when the embedding serves as the output projection.
    pub output: Option<Matrix>,
    pub bytes: u64,
    /// Products that run in more parts than one.
    pub fallbacks: Vec<Fallback>,
}

impl Weights {
    pub fn load(gguf: &Gguf, config: &ModelConfig, backend: &mut dyn Backend) -> Result<Self> {
        let before = backend.allocated_bytes();
        let mut up = Uploader { gguf, backend };
        let embedding = up.matrix(&["token_embd.weight"])?.remove(0);
        let mut blocks = Vec::with_capacity(config.layers);
        for layer in 0..config.layers {
            let name = |part: &str| format!("blk.{layer}.{part}.weight");
            let bias = |part: &str| format!("blk.{layer}.{part}.bias");
            let family = config.architecture;
            let (q, k, v) = (name("attn_q"), name("attn_k"), name("attn_v"));
            let (gate, ffn_up) = (name("ffn_gate"), name("ffn_up"));
            blocks.push(Block {
                attention_norm: up.vector(&[&name("attn_norm")])?,
                qkv: up.matrix(&[&q, &k, &v])?,
                qkv_bias: match family.qkv_bias {
                    true => Some(up.vector(&[&bias("attn_q"), &bias("attn_k"), &bias("attn_v")])?),
                    false => None,
                },
                head_norms: match family.qk_norm {
                    true => Some(HeadNorms {
                        q: up.vector(&[&name("attn_q_norm")])?,
                        k: up.vector(&[&name("attn_k_norm")])?,
                    }),
                    false => None,
                },
                output: up.matrix(&[&name("attn_output")])?.remove(0),
                post_attention_norm: up.vector_if(family.post_norms, &name("post_attention_norm"))?,
                ffn_norm: up.vector(&[&name("ffn_norm")])?,
                gate_up: up.matrix(&[&gate, &ffn_up])?,
                down: up.matrix(&[&name("ffn_down")])?.remove(0),
                post_ffn_norm: up.vector_if(family.post_norms, &name("post_ffw_norm"))?,
            });
        }
        let output_norm = up.vector(&["output_norm.weight"])?;
        let output = match config.tied_output {
            true => None,
            false => Some(up.matrix(&["output.weight"])?.remove(0)),
        };
        let bytes = backend.allocated_bytes() - before;
        let limit = backend.caps().max_binding_bytes.min(backend.caps().max_buffer_bytes);
        let mut weights = Weights { embedding, blocks, output_norm, output, bytes, fallbacks: Vec::new() };
        weights.fallbacks = weights.in_parts(limit);
        Ok(weights)
    }

    /// Products that run in more parts than one, over bindings of `limit` bytes at most.
    fn in_parts(&self, limit: u64) -> Vec<Fallback> {
        let blocks = self.blocks.iter().enumerate().flat_map(|(layer, b)| {
            let products: [(&str, &[Matrix]); 4] = [
                ("Q, K and V", &b.qkv),
                ("the attention's output", std::slice::from_ref(&b.output)),
                ("gate and up", &b.gate_up),
                ("down", std::slice::from_ref(&b.down)),
            ];
            products.map(|(what, matrices)| Fallback::of_matrices(Some(layer), what, matrices, limit))
        });
        let head = Fallback::of_matrices(None, "the logits", std::slice::from_ref(self.head()), limit);
        blocks.chain([head]).flatten().collect()
    }

    /// The output projection.
    pub fn head(&self) -> &Matrix {
        self.output.as_ref().unwrap_or(&self.embedding)
    }
}

struct Uploader<'a> {
    gguf: &'a Gguf,
    backend: &'a mut dyn Backend,
}

impl Uploader<'_> {
    /// The vector `name`, where it is wanted.
    fn vector_if(&mut self, wanted: bool, name: &str) -> Result<Option<BufferSlice>> {
        wanted.then(|| self.vector(&[name])).transpose()
    }

    /// The named vectors, one after the other, in f32.
    fn vector(&mut self, names: &[&str]) -> Result<BufferSlice> {
        let mut values = Vec::new();
        for name in names {
            let tensor = self.gguf.tensor(name)?;
            values.extend(dequantize(tensor, self.gguf.tensor_bytes(tensor)?)?);
        }
        let bytes = values.len() as u64 * 4;
        let buffer = self.backend.alloc(names[0], bytes)?;
        self.backend.write(buffer, 0, bytemuck::cast_slice(&values))?;
        Ok(BufferSlice::whole(buffer, bytes))
    }

    /// The named tensors, one below the other in one matrix if their types agree, else a matrix each.
    fn matrix(&mut self, names: &[&str]) -> Result<Vec<Matrix>> {
        let mut parts = Vec::with_capacity(names.len());
        for name in names {
            let tensor = self.gguf.tensor(name)?;
            let weight = weight_type(name, tensor.ty)?;
            let &[columns, rows] = tensor.shape.as_slice() else {
                return Err(Error::new(ErrorKind::Shape, format!("tensor `{name}` is not a matrix"), ""));
            };
            let stored = self.gguf.tensor_bytes(tensor)?;
            let bytes = widen(tensor.ty, stored).map_or(Cow::Borrowed(stored), Cow::Owned);
            parts.push((weight, columns as usize, rows as usize, bytes));
        }
        let (weight, columns, ..) = parts[0];
        if parts.iter().all(|p| (p.0, p.1) == (weight, columns)) {
            let rows = parts.iter().map(|p| p.2).sum();
            let bytes = parts.iter().map(|p| &*p.3).collect::<Vec<_>>().concat();
            return Ok(vec![self.upload(names[0], weight, columns, rows, &bytes)?]);
        }
        let parts: Vec<_> = names.iter().zip(parts).collect();
        parts
            .into_iter()
            .map(|(name, (weight, columns, rows, bytes))| self.upload(name, weight, columns, rows, &bytes))
            .collect()
    }

    fn upload(&mut self, name: &str, weight: WeightType, columns: usize, rows: usize, bytes: &[u8]) -> Result<Matrix> {
        let caps = self.backend.caps();
        let limit = caps.max_binding_bytes.min(caps.max_buffer_bytes);
        let row_bytes = weight.row_bytes(columns).map_err(|e| e.context(format!("tensor `{name}`")))?;
        let most = weight.rows_per_segment(columns, limit).map_err(|e| e.context(format!("tensor `{name}`")))?;
        let mut segments = Vec::new();
        let mut first = 0;
        while first < rows {
            let count = most.min(rows - first);
            let part = &bytes[first * row_bytes..(first + count) * row_bytes];
            let padded = (part.len() as u64).next_multiple_of(4);
            let buffer = self.backend.alloc(name, padded)?;
            let whole = part.len() / 4 * 4;
            self.backend.write(buffer, 0, &part[..whole])?;
            if whole < part.len() {
                let mut last = [0u8; 4];
                last[..part.len() - whole].copy_from_slice(&part[whole..]);
                self.backend.write(buffer, whole as u64, &last)?;
            }
            segments.push(WeightSegment {
                slice: BufferSlice::whole(buffer, padded),
                first_row: first as u32,
                rows: count as u32,
            });
            first += count;
        }
        Ok(Matrix { weight, columns: columns as u32, rows: rows as u32, segments })
    }
}

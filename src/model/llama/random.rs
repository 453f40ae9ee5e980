//! Weights of random numbers, for measurements of shapes without a file: made a part at a time as they are written, and the
//! same each time.

use super::weights::{Block, Matrix, Weights};
use crate::backend::{Backend, BufferSlice};
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::WeightSegment;
use crate::model::config::ModelConfig;
use crate::num::weights::WeightType;
use half::{bf16, f16};
use rayon::prelude::*;

/// Bytes that are made at a time, about.
const PART_BYTES: usize = 32 << 20;

/// Random weights of a shape: products keep the size of what they multiply, norms are ones.
///
/// # Errors
/// `Unsupported` for shapes with more than plain Llama blocks, and for columns that the type does not take; `OutOfMemory`.
pub(super) fn weights(config: &ModelConfig, weight: WeightType, backend: &mut dyn Backend) -> Result<Weights> {
    let family = config.architecture;
    if family.qkv_bias || family.qk_norm || family.post_norms || config.sliding.is_some() {
        return Err(Error::new(ErrorKind::Unsupported, format!("random weights of a {} model", family.name), ""));
    }
    let before = backend.allocated_bytes();
    let (q, kv) = (config.q_heads * config.head_dim, config.kv_heads * config.head_dim);
    let (hidden, ffn, vocab) = (config.hidden, config.ffn, config.vocab);
    let mut made = Maker { backend, weight, matrices: 0 };
    let embedding = made.matrix("embedding", hidden, vocab)?;
    let mut blocks = Vec::with_capacity(config.layers);
    for _ in 0..config.layers {
        blocks.push(Block {
            attention_norm: made.ones(hidden)?,
            qkv: vec![made.matrix("Q, K and V", hidden, q + 2 * kv)?],
            qkv_bias: None,
            head_norms: None,
            output: made.matrix("attention output", q, hidden)?,
            post_attention_norm: None,
            ffn_norm: made.ones(hidden)?,
            gate_up: vec![made.matrix("gate and up", hidden, 2 * ffn)?],
            down: made.matrix("down", ffn, hidden)?,
            post_ffn_norm: None,
        });
    }
    let output_norm = made.ones(hidden)?;
    let output = if config.tied_output { None } else { Some(made.matrix("output", hidden, vocab)?) };
    let bytes = made.backend.allocated_bytes() - before;
    Ok(Weights { embedding, blocks, output_norm, output, bytes, fallbacks: Vec::new() })
}

struct Maker<'a> {
    backend: &'a mut dyn Backend,
    weight: WeightType,
    matrices: u64,
}

impl Maker<'_> {
    fn ones(&mut self, count: usize) -> Result<BufferSlice> {
        let buffer = self.backend.alloc("norm", count as u64 * 4)?;
        self.backend.write(buffer, 0, bytemuck::cast_slice(&vec![1f32; count]))?;
        Ok(BufferSlice::whole(buffer, count as u64 * 4))
    }

    fn matrix(&mut self, label: &str, columns: usize, rows: usize) -> Result<Matrix> {
        let weight = self.weight;
        if !columns.is_multiple_of(32) {
            return Err(Error::new(ErrorKind::Unsupported, format!("{label}: random rows of {columns} values"), ""));
        }
        let limit = self.backend.caps().max_binding_bytes.min(self.backend.caps().max_buffer_bytes);
        let (row_bytes, most) = (weight.row_bytes(columns)?, weight.rows_per_segment(columns, limit)?);
        // Rows of a part: their bytes are whole words by twos.
        let at_once = (PART_BYTES / row_bytes).max(2) / 2 * 2;
        let mut part = Vec::new();
        let mut segments = Vec::new();
        for first in (0..rows).step_by(most) {
            let count = most.min(rows - first);
            let bytes = ((count * row_bytes) as u64).next_multiple_of(4);
            let buffer = self.backend.alloc(label, bytes)?;
            for from in (0..count).step_by(at_once) {
                let here = at_once.min(count - from) * row_bytes;
                part.clear();
                part.resize(here.next_multiple_of(4), 0);
                let seed = mixed(self.matrices << 32 | (first + from) as u64);
                fill(weight, 1.0 / (columns as f32).sqrt(), seed, &mut part[..here]);
                self.backend.write(buffer, (from * row_bytes) as u64, &part)?;
            }
            let slice = BufferSlice::whole(buffer, bytes);
            segments.push(WeightSegment { slice, first_row: first as u32, rows: count as u32 });
        }
        self.matrices += 1;
        Ok(Matrix { weight, columns: columns as u32, rows: rows as u32, segments })
    }
}

/// SplitMix64's finaliser.
fn mixed(x: u64) -> u64 {
    let z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Whole blocks of numbers around 0 of standard deviation `size`, about.
fn fill(weight: WeightType, size: f32, seed: u64, out: &mut [u8]) {
    let block_bytes = weight.bytes_of_32();
    // The deviation of a uniform code, so that scales undo it.
    let scale = match weight {
        WeightType::Q4_0 | WeightType::Q4_1 => size / 4.61,
        WeightType::Q8_0 | WeightType::Wide => size / 73.9,
        WeightType::F32 | WeightType::F16 | WeightType::BF16 => size * 3f32.sqrt(),
    };
    out.par_chunks_mut(1024 * block_bytes).enumerate().for_each(|(at, blocks)| {
        let mut state = mixed(seed ^ (at as u64) << 40);
        let mut next = || {
            state = mixed(state);
            state
        };
        for block in blocks.chunks_exact_mut(block_bytes) {
            let codes_at = match weight {
                WeightType::Q4_0 | WeightType::Q8_0 => 2,
                WeightType::Q4_1 => 4,
                WeightType::Wide => 12,
                WeightType::F32 | WeightType::F16 | WeightType::BF16 => 0,
            };
            if codes_at == 0 {
                let mut bits = 0u64;
                for (at, value) in block.chunks_exact_mut(block_bytes / 32).enumerate() {
                    bits = if at % 4 == 0 { next() } else { bits >> 16 };
                    let x = f32::from(bits as i16) / 32_768.0 * scale;
                    match weight {
                        WeightType::F16 => value.copy_from_slice(&f16::from_f32(x).to_le_bytes()),
                        WeightType::BF16 => value.copy_from_slice(&bf16::from_f32(x).to_le_bytes()),
                        _ => value.copy_from_slice(&x.to_le_bytes()),
                    }
                }
                continue;
            }
            let (scales, codes) = block.split_at_mut(codes_at);
            for word in codes.chunks_mut(8) {
                let bytes = next().to_le_bytes();
                word.copy_from_slice(&bytes[..word.len()]);
            }
            let d = scale * (0.75 + (next() >> 40) as f32 / (1u64 << 25) as f32);
            match weight {
                WeightType::Wide => {
                    for (to, x) in scales.chunks_exact_mut(4).zip([d, d, 0.5 * d]) {
                        to.copy_from_slice(&x.to_le_bytes());
                    }
                }
                _ => {
                    scales[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
                    if weight == WeightType::Q4_1 {
                        scales[2..].copy_from_slice(&f16::from_f32(-7.5 * d).to_le_bytes());
                    }
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_the_size_that_was_asked_for() {
        for weight in WeightType::ALL {
            let columns = 32 * 3000;
            let mut bytes = vec![0; weight.row_bytes(columns).unwrap()];
            fill(weight, 0.02, 7, &mut bytes);
            let mut values = vec![0.0; columns];
            weight.decode_row(&bytes, &mut values);
            let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / columns as f64;
            let square = values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / columns as f64;
            assert!(mean.abs() < 0.003 && (square.sqrt() / 0.02 - 1.0).abs() < 0.05, "{}: {mean}", weight.as_str());
            let mut again = vec![0; bytes.len()];
            fill(weight, 0.02, 7, &mut again);
            assert!(bytes == again, "{}", weight.as_str());
            fill(weight, 0.02, 8, &mut again);
            assert!(bytes != again, "{}", weight.as_str());
        }
    }
}

//! ggml's block types of finer scales (`ggml-common.h`), spread out at load: see [`WeightType::Wide`].
//!
//! The products of a block's scale and its parts' are exact in f32 (11 and 6 or 8 bits), so nothing is lost.

use super::tensor::GgmlType;
use crate::num::weights::{WIDE_BYTES, wide_block};
use half::f16;
use rayon::prelude::*;

/// Whether `ty` is one that [`widen`] takes.
pub fn widens(ty: GgmlType) -> bool {
    source(ty).is_some()
}

/// A type's bytes a block, blocks of 32 that it holds, and how to spread one.
type Source = (usize, usize, fn(&[u8], &mut [u8]));

fn source(ty: GgmlType) -> Option<Source> {
    Some(match ty {
        GgmlType::Q5_0 => (22, 1, q5_0),
        GgmlType::Q5_1 => (24, 1, q5_1),
        GgmlType::Q4_K => (144, 8, q4_k),
        GgmlType::Q5_K => (176, 8, q5_k),
        GgmlType::Q6_K => (210, 8, q6_k),
        _ => return None,
    })
}

/// Blocks of `ty` as blocks of [`WeightType::Wide`](crate::num::weights::WeightType::Wide); `None` for types that are
/// used as they are stored. A last block that is not whole is left out.
pub fn widen(ty: GgmlType, bytes: &[u8]) -> Option<Vec<u8>> {
    let (size, blocks, spread) = source(ty)?;
    let mut out = vec![0; bytes.len() / size * blocks * WIDE_BYTES];
    let pairs = out.par_chunks_exact_mut(blocks * WIDE_BYTES).zip(bytes.par_chunks_exact(size));
    pairs.with_min_len(64).for_each(|(out, block)| spread(block, out));
    Some(out)
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// 32 codes of 5 bits: `low` holds nibbles as Q4_0 does, bit j of `high` is the fifth of code j.
fn five_bits(low: &[u8], high: &[u8]) -> [u8; 32] {
    std::array::from_fn(|j| {
        let nibble = if j < 16 { low[j] & 15 } else { low[j - 16] >> 4 };
        nibble | (high[j / 8] >> (j % 8) & 1) << 4
    })
}

/// f16 d, 4 bytes of fifth bits, 16 of nibbles: value `(q - 16) · d`.
fn q5_0(block: &[u8], out: &mut [u8]) {
    let d = half_at(block, 0);
    let codes = five_bits(&block[6..], &block[2..6]).map(|q| q as i8 - 16);
    out.copy_from_slice(&wide_block([d, d], 0.0, &codes));
}

/// f16 d, f16 m, 4 bytes of fifth bits, 16 of nibbles: value `q · d + m`.
fn q5_1(block: &[u8], out: &mut [u8]) {
    let d = half_at(block, 0);
    let codes = five_bits(&block[8..], &block[4..8]).map(|q| q as i8);
    out.copy_from_slice(&wide_block([d, d], half_at(block, 2), &codes));
}

/// The 6-bit scale and minimum of part `part` of 8, out of the 12 bytes that hold them.
fn scale_and_minimum(packed: &[u8], part: usize) -> (f32, f32) {
    let (scale, minimum) = if part < 4 {
        (packed[part] & 63, packed[part + 4] & 63)
    } else {
        (packed[part + 4] & 15 | packed[part - 4] >> 6 << 4, packed[part + 4] >> 4 | packed[part] >> 6 << 4)
    };
    (f32::from(scale), f32::from(minimum))
}

/// Parts of 32 with nibbles in `low` (two parts to 32 bytes) and, for five bits, one bit a part in each byte of `high`.
fn parts(block: &[u8], low: &[u8], high: Option<&[u8]>, out: &mut [u8]) {
    let (d, minimum) = (half_at(block, 0), half_at(block, 2));
    for (part, out) in out.chunks_exact_mut(WIDE_BYTES).enumerate() {
        let (scale, least) = scale_and_minimum(&block[4..16], part);
        let codes = std::array::from_fn(|j| {
            let byte = low[part / 2 * 32 + j];
            let nibble = if part % 2 == 0 { byte & 15 } else { byte >> 4 };
            (nibble | high.map_or(0, |high| (high[j] >> part & 1) << 4)) as i8
        });
        out.copy_from_slice(&wide_block([d * scale; 2], -(minimum * least), &codes));
    }
}

/// f16 d, f16 minimum, 12 bytes of scales, 128 of nibbles.
fn q4_k(block: &[u8], out: &mut [u8]) {
    parts(block, &block[16..], None, out);
}

/// f16 d, f16 minimum, 12 bytes of scales, 32 of fifth bits, 128 of nibbles.
fn q5_k(block: &[u8], out: &mut [u8]) {
    parts(block, &block[48..], Some(&block[16..48]), out);
}

/// 128 bytes of low nibbles, 64 of upper pairs of bits, 16 signed scales, f16 d: value `(q - 32) · scale · d`.
fn q6_k(block: &[u8], out: &mut [u8]) {
    let d = half_at(block, 208);
    for (part, out) in out.chunks_exact_mut(WIDE_BYTES).enumerate() {
        // Halves of 128 values; within one, four parts share bytes.
        let (low, high) = (&block[part / 4 * 64..], &block[128 + part / 4 * 32..]);
        let quarter = part % 4;
        let codes = std::array::from_fn(|j| {
            let byte = low[quarter % 2 * 32 + j];
            let nibble = if quarter < 2 { byte & 15 } else { byte >> 4 };
            (nibble | (high[j] >> (2 * quarter) & 3) << 4) as i8 - 32
        });
        let scale = |half: usize| d * f32::from(block[192 + 2 * part + half] as i8);
        out.copy_from_slice(&wide_block([scale(0), scale(1)], 0.0, &codes));
    }
}

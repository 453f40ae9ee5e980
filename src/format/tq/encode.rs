//! From a row to codes and γ. The shader (`text.rs`) runs the same operations in the same order.

use super::codebook::Book;
use crate::num::f16_bits;
use crate::shape::Side;

/// Least exponent field of a token's greatest magnitude (2⁻⁶³): below it γ is 0.
pub(super) const EXPONENT_MIN: u32 = 64;
/// Greatest one whose reciprocal power of two is a normal number.
pub(super) const EXPONENT_MAX: u32 = 253;
/// From this one on γ is certain to saturate: 2²⁰ · (γ of a row scaled to 1..2, at least 0.089) > 65504.
pub(super) const EXPONENT_SATURATED: u32 = 127 + 20;

/// Writes the codes of `row` and returns γ's f16 bits.
pub(super) fn quantise(book: &Book, side: Side, row: &[f32], codes: &mut [u8]) -> u16 {
    const INFINITY: u32 = 0x7f80_0000;
    // Magnitudes as integers: NaN as 0 (γ tells of it), infinities as f32::MAX.
    let mut nan = false;
    let mut peak = 0;
    for x in row {
        let a = x.to_bits() & 0x7fff_ffff;
        nan |= a > INFINITY;
        peak = peak.max(finite(a));
    }
    let exponent = (peak >> 23).min(EXPONENT_MAX);
    // A power of two brings the greatest magnitude to 1..4: no square overflows or vanishes.
    let down = if exponent < EXPONENT_MIN { 0.0 } else { f32::from_bits((254 - exponent) << 23) };
    let scaled = |x: f32| f32::from_bits(finite(x.to_bits() & 0x7fff_ffff)) * down;
    let mut square = 0f32;
    for x in row {
        let x = scaled(*x);
        square += x * x;
    }
    let mean = square * (1.0 / row.len() as f32);
    let levels = book.magnitudes.len();
    let limits = book.thresholds().map(|t| t * mean);
    let limits = &limits[..levels - 1];
    let (mut dot, mut norm) = (0f32, 0f32);
    for (x, code) in row.iter().zip(codes.iter_mut()) {
        let a = scaled(*x);
        let level = limits.iter().filter(|limit| a * a > **limit).count();
        let magnitude = book.magnitudes[level];
        dot += a * magnitude;
        norm += magnitude * magnitude;
        // NaN and zeros of either sign take the least positive value.
        let ascending = if *x < 0.0 { levels - 1 - level } else { levels + level };
        *code = ascending as u8;
    }
    if nan {
        return 0x7e00;
    }
    if exponent < EXPONENT_MIN {
        return 0;
    }
    let gamma = match side {
        Side::K => square * book.unit / dot,
        Side::V => (square / norm).sqrt() * book.unit,
    };
    f16_bits(gamma * f32::from_bits(exponent.min(EXPONENT_SATURATED) << 23))
}

/// Bits of a magnitude with NaN as 0 and infinities as f32::MAX.
fn finite(magnitude: u32) -> u32 {
    if magnitude > 0x7f80_0000 { 0 } else { magnitude.min(f32::MAX.to_bits()) }
}

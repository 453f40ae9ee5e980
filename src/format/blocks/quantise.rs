//! From 32 values to a scale and codes, and back. The shader (`text.rs`) computes the same bits.

use super::BLOCK;
use crate::num::f16_bits;

/// Blocks of greatest magnitudes below it (2⁻⁶³) get the codes of zeros.
const SMALL: f32 = f32::from_bits(64 << 23);

/// The f16 bits of a block's scale, and its codes: bytes of 8 bits, or pairs of 4, the lower channel low.
pub(super) fn block<const BITS: usize>(values: &[f32; BLOCK]) -> (u16, [u8; BLOCK]) {
    let nan = values.iter().any(|x| x.is_nan());
    let x = values.map(|x| if nan { 0.0 } else { x.clamp(-f32::MAX, f32::MAX) });
    // The first of the greatest magnitude.
    let peak = x.iter().fold(0f32, |peak, x| if x.abs() > peak.abs() { *x } else { peak });
    let scale = if BITS == 8 { peak.abs() / 127.0 } else { peak / -8.0 };
    let inverse = if peak.abs() < SMALL { 0.0 } else { 1.0 / scale };
    let bits = if nan { 0x7e00 } else { f16_bits(scale) };
    let mut codes = [0u8; BLOCK];
    if BITS == 8 {
        for (code, x) in codes.iter_mut().zip(x) {
            // Half away from zero; a float's conversion saturates.
            *code = (x * inverse).round() as i8 as u8;
        }
    } else {
        for (code, [a, b]) in codes.iter_mut().zip(x.as_chunks::<2>().0) {
            let [a, b] = [a, b].map(|x| ((x * inverse + 8.5) as u8).min(15));
            *code = a | (b << 4);
        }
    }
    (bits, codes)
}

/// The value of f16 bits, exact: [`f16_value`](crate::num::f16_value) in operations that vectorise.
#[inline(always)]
pub(super) fn scale_value(bits: u16) -> f32 {
    let magnitude = u32::from(bits & 0x7fff);
    // 2¹¹² moves the exponent's bias, of f16's subnormals too.
    let finite = (f32::from_bits(magnitude << 13) * f32::from_bits((127 + 112) << 23)).to_bits();
    let magnitude = if magnitude < 0x7c00 { finite } else { 0x7f80_0000 | (magnitude << 13) };
    f32::from_bits(magnitude | (u32::from(bits & 0x8000) << 16))
}

/// Sixteen values of 8-bit codes.
#[inline(always)]
pub(super) fn values8(codes: &[u8; 16], scale: f32, out: &mut [f32]) {
    for (x, code) in out.iter_mut().zip(codes) {
        *x = f32::from(*code as i8) * scale;
    }
}

/// 32 values of 4-bit codes, the lower channel of each word low.
#[inline(always)]
pub(super) fn values4(words: &[u32; 4], scale: f32, out: &mut [f32; 32]) {
    // Nibbles to bytes by halves, four words at a time: both steps are vector code.
    let bytes = words.map(|word| {
        let x = u64::from(word);
        let x = (x | (x << 16)) & 0x0000_ffff_0000_ffff;
        let x = (x | (x << 8)) & 0x00ff_00ff_00ff_00ff;
        (x | (x << 4)) & 0x0f0f_0f0f_0f0f_0f0f
    });
    let codes: &[u8] = bytemuck::cast_slice(&bytes);
    for (x, code) in out.iter_mut().zip(codes) {
        *x = (f32::from(*code) - 8.0) * scale;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::f16_value;

    #[test]
    fn scales_are_f16() {
        for bits in 0..=u16::MAX {
            let (got, want) = (scale_value(bits), f16_value(bits));
            assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{bits:#x}: {got} {want}");
        }
    }
}

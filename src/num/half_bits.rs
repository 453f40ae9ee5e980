//! 16-bit floats as pages store them: to nearest, ties to even, NaN kept.

use half::{bf16, f16};

/// f16 bits of `x`, saturated at ±65504: an infinity in a page would turn into NaN under a zero weight.
/// NaN becomes 0x7E00.
#[inline(always)]
pub fn f16_bits(x: f32) -> u16 {
    if x.is_nan() { 0x7e00 } else { f16::from_f32(x.clamp(-65504.0, 65504.0)).to_bits() }
}

/// f16 bits of a number not below `x`: the smallest such that is zero, normal or infinite. NaN becomes 0x7E00.
#[inline(always)]
pub fn f16_above(x: f32) -> u16 {
    let a = x.to_bits() & 0x7fff_ffff;
    if a > 0x7f80_0000 {
        0x7e00
    } else if x.to_bits() == a {
        magnitude_up(a)
    } else {
        negative(magnitude_down(a))
    }
}

/// f16 bits of a number not above `x`: the largest such that is zero, normal or infinite. NaN becomes 0x7E00.
#[inline(always)]
pub fn f16_below(x: f32) -> u16 {
    let a = x.to_bits() & 0x7fff_ffff;
    if a > 0x7f80_0000 {
        0x7e00
    } else if x.to_bits() == a {
        magnitude_down(a)
    } else {
        negative(magnitude_up(a))
    }
}

#[inline(always)]
fn magnitude_up(a: u32) -> u16 {
    match a {
        0 => 0,
        1..=0x3880_0000 => 0x400,
        0x3880_0001..=0x477f_e000 => (((a + 0x1fff) >> 13) - 0x1c000) as u16,
        _ => 0x7c00,
    }
}

#[inline(always)]
fn magnitude_down(a: u32) -> u16 {
    match a {
        0..=0x387f_ffff => 0,
        0x3880_0000..=0x477f_ffff => ((a >> 13) - 0x1c000) as u16,
        0x4780_0000..=0x7f7f_ffff => 0x7bff,
        _ => 0x7c00,
    }
}

#[inline(always)]
fn negative(magnitude: u16) -> u16 {
    if magnitude == 0 { 0 } else { magnitude | 0x8000 }
}

/// The value of f16 bits, exact for every code, subnormals, infinities and NaN included.
///
/// Without branches or calls, so that loops over it become vector code (`half` asks for the processor's features at each
/// call). Nothing inside is a subnormal f32, which processors are slow with.
#[inline(always)]
pub fn f16_value(bits: u16) -> f32 {
    let sign = (u32::from(bits) & 0x8000) << 16;
    let magnitude = (u32::from(bits) & 0x7fff) << 13;
    // The exponents' biases differ by 112.
    let normal = magnitude + (112 << 23);
    // For subnormals: 2^-14 and the fraction, less 2^-14.
    let subnormal = (f32::from_bits(normal + (1 << 23)) - f32::from_bits(113 << 23)).to_bits();
    let finite = if magnitude < 1 << 23 { subnormal } else { normal };
    let value = if magnitude >= 0x7c00 << 13 { magnitude | 0x7f80_0000 } else { finite };
    f32::from_bits(value | sign)
}

/// bf16 bits of `x`; NaN becomes 0x7FC0.
#[inline(always)]
pub fn bf16_bits(x: f32) -> u16 {
    if x.is_nan() { 0x7fc0 } else { bf16::from_f32(x).to_bits() }
}

/// The value of bf16 bits, exact.
#[inline(always)]
pub fn bf16_value(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shader's integer rounding to f16, word for word.
    fn wgsl_f16_bits(x: f32) -> u32 {
        let bits = x.to_bits();
        let sign = (bits >> 16) & 0x8000;
        let a = (bits & 0x7fff_ffff).min(0x477f_e000);
        let normal = ((a + 0xfff + ((a >> 13) & 1)) >> 13).wrapping_sub(0x1c000);
        let m = (a & 0x7f_ffff) | 0x80_0000;
        let s = (126 - (a >> 23).min(112)).min(25);
        let tiny = (m + (1 << (s - 1)) - 1 + ((m >> s) & 1)) >> s;
        if bits & 0x7fff_ffff > 0x7f80_0000 { 0x7e00 } else { sign | if a < 0x3880_0000 { tiny } else { normal } }
    }

    #[test]
    fn every_half_is_exact() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (f16_value(bits), f16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{bits:04x}");
        }
    }

    #[test]
    fn f16_keeps_every_value_and_saturates() {
        for bits in 0..=u16::MAX {
            let x = f16_value(bits);
            if x.is_nan() {
                assert!(f16_value(f16_bits(x)).is_nan());
            } else if x.is_finite() {
                assert_eq!(f16_bits(x), bits);
            } else {
                assert_eq!(f16_bits(x), 0x7bff | (bits & 0x8000));
            }
        }
        for x in [65505.0, 65520.0, 1e9, f32::MAX, f32::INFINITY] {
            assert_eq!((f16_bits(x), f16_bits(-x)), (0x7bff, 0xfbff));
        }
    }

    #[test]
    fn shader_rounding_equals_the_cpus() {
        // Every exponent and sign, mantissas around every kind of rounding boundary.
        for top in 0..=0x1ffu32 {
            for low in (0..0x80_0000u32).step_by(997).chain([0x7f_ffff, 0x1000, 0x0fff, 0x1001, 0x3000]) {
                let x = f32::from_bits((top << 23) | low);
                assert_eq!(wgsl_f16_bits(x), u32::from(f16_bits(x)), "{x:e}");
            }
        }
    }

    #[test]
    fn bounds_are_the_nearest_normal_numbers_on_their_side() {
        // Zero and every normal number, ascending, with the infinities at the ends.
        let mut grid: Vec<f32> = (0x0400..=0x7c00u16).flat_map(|m| [f16_value(m), f16_value(m | 0x8000)]).collect();
        grid.push(0.0);
        grid.sort_by(f32::total_cmp);
        let near = |bits: u32| [bits.wrapping_sub(1), bits, bits.wrapping_add(1)];
        let ends = grid.iter().flat_map(|x| near(x.to_bits())).chain([1, 2, 0x8000_0001, 0x7f7f_ffff, 0xff7f_ffff]);
        for x in ends.chain((0..=u32::MAX).step_by(65_521)).map(f32::from_bits) {
            if x.is_nan() {
                assert_eq!((f16_below(x), f16_above(x)), (0x7e00, 0x7e00));
                continue;
            }
            let above = grid.partition_point(|&y| y < x);
            let below = grid.partition_point(|&y| y <= x) - 1;
            assert_eq!(f16_value(f16_above(x)).to_bits(), grid[above].to_bits(), "above {x:e}");
            assert_eq!(f16_value(f16_below(x)).to_bits(), grid[below].to_bits(), "below {x:e}");
        }
    }

    #[test]
    fn bf16_rounds_to_even() {
        assert_eq!(bf16_bits(f32::from_bits(0x3f80_8000)), 0x3f80);
        assert_eq!(bf16_bits(f32::from_bits(0x3f81_8000)), 0x3f82);
        assert_eq!(bf16_bits(f32::from_bits(0x3f80_8001)), 0x3f81);
        assert!(bf16_value(bf16_bits(f32::NAN)).is_nan());
        assert_eq!(bf16_value(bf16_bits(f32::INFINITY)), f32::INFINITY);
    }
}

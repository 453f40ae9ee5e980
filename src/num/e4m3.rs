//! E4M3 without infinities: sign, four exponent bits (bias 7), three mantissa bits
//! (Micikevicius et al., arXiv 2209.05433).

/// The greatest finite value.
pub const E4M3_MAX: f32 = 448.0;

/// The value of a code. 0x7F and 0xFF are NaN.
pub fn e4m3_decode(code: u8) -> f32 {
    if code & 0x7f == 0x7f { f32::NAN } else { e4m3_decode_finite(code) }
}

/// The value of a code by the rule for finite ones: 0x7F and 0xFF, which pages never hold, read as ±480.
///
/// This is what the page decoders of every backend compute: a check a value would cost them time.
#[inline(always)]
pub fn e4m3_decode_finite(code: u8) -> f32 {
    let m = u32::from(code & 0x7f);
    // Below the smallest normal the value is m · 2⁻⁹: no f32 subnormal is formed on the way.
    let magnitude = if m < 8 { m as f32 * 0.001953125 } else { f32::from_bits((m << 20) + (120 << 23)) };
    f32::from_bits(magnitude.to_bits() | (u32::from(code & 0x80) << 24))
}

/// The code nearest to `x`, ties to even, saturated at ±448.
///
/// NaN becomes 0, never a NaN code: a page's scale carries it (see the `fp8` format).
#[inline(always)]
pub fn e4m3_encode(x: f32) -> u8 {
    let bits = x.to_bits();
    let sign = (bits >> 24) & 0x80;
    if bits & 0x7fff_ffff > 0x7f80_0000 {
        return 0;
    }
    let a = (bits & 0x7fff_ffff).min(E4M3_MAX.to_bits());
    let magnitude = if a < 0x3c80_0000 {
        // Below 2⁻⁶: the mantissa with its leading one, shifted to units of 2⁻⁹ and rounded. Shifts
        // past 25 leave nothing either way.
        let m = (a & 0x7f_ffff) | 0x80_0000;
        let s = (141 - (a >> 23)).min(25);
        (m + (1 << (s - 1)) - 1 + ((m >> s) & 1)) >> s
    } else {
        ((a + 0x7_ffff + ((a >> 20) & 1)) >> 20) - (120 << 3)
    };
    (sign | magnitude) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, in f64: (−1)^s · 2^(e−7) · (1 + m/8), and m · 2⁻⁹ for e = 0.
    fn definition(code: u8) -> f64 {
        let (e, m) = (i32::from(code >> 3) & 15, f64::from(code & 7));
        let magnitude = if e == 0 { m * 2f64.powi(-9) } else { 2f64.powi(e - 7) * (1.0 + m / 8.0) };
        if code & 0x80 != 0 { -magnitude } else { magnitude }
    }

    #[test]
    fn all_codes_decode_by_definition() {
        for code in 0..=255u8 {
            let got = e4m3_decode(code);
            if code & 0x7f == 0x7f {
                assert!(got.is_nan());
                continue;
            }
            assert_eq!(f64::from(got), definition(code), "{code:#x}");
            assert_eq!(got.is_sign_negative(), code & 0x80 != 0, "{code:#x}");
            assert_eq!(e4m3_encode(got), code);
        }
        for (code, value) in [(0x01, 0.001953125), (0x07, 0.013671875), (0x08, 0.015625), (0x7e, 448.0)] {
            assert_eq!(e4m3_decode(code), value);
        }
        assert_eq!(e4m3_decode(0x80).to_bits(), (-0f32).to_bits());
    }

    #[test]
    fn saturates_and_never_stores_nan_codes() {
        for (x, code) in [
            (447.0, 0x7e),
            (449.0, 0x7e),
            (1e6, 0x7e),
            (f32::MAX, 0x7e),
            (f32::INFINITY, 0x7e),
            (f32::NEG_INFINITY, 0xfe),
            (-1e6, 0xfe),
            (f32::NAN, 0),
            (f32::MIN_POSITIVE, 0),
            (1e-45, 0),
        ] {
            assert_eq!(e4m3_encode(x), code, "{x}");
        }
    }

    #[test]
    fn rounds_to_nearest_even() {
        // Between every two neighbours: the midpoint goes to the even code, its neighbours apart.
        for code in 0..0x7eu8 {
            let middle = ((definition(code) + definition(code + 1)) / 2.0) as f32;
            let even = if code & 1 == 0 { code } else { code + 1 };
            assert_eq!(e4m3_encode(middle), even, "{middle}");
            assert_eq!(e4m3_encode(f32::from_bits(middle.to_bits() - 1)), code);
            assert_eq!(e4m3_encode(f32::from_bits(middle.to_bits() + 1)), code + 1);
            assert_eq!(e4m3_encode(-middle), even | 0x80);
        }
    }
}

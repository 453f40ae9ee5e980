//! Random numbers and an exponential that are the same bits on every platform.

/// Steele, Lea and Flood's SplitMix64: one 64-bit state, any seed is a good one.
#[derive(Clone, Debug)]
pub(super) struct SplitMix64(u64);

impl SplitMix64 {
    pub fn new(seed: u64) -> Self {
        SplitMix64(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in [0, 1): 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// `e^x` for `x <= 0`, to within a few units in the last place; below -708 it is 0.
///
/// The standard library's goes to the platform's maths library, whose last bits differ from one to the next.
pub(super) fn exp(x: f64) -> f64 {
    const LN2_HIGH: f64 = 6.931_471_803_691_238e-1;
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    if x.is_nan() || x < -708.0 {
        return 0.0;
    }
    // x = n ln 2 + r with |r| <= ln 2 / 2; the high part of ln 2 has trailing zeros, so n·LN2_HIGH is exact.
    let n = (x * std::f64::consts::LOG2_E).round();
    let r = (x - n * LN2_HIGH) - n * LN2_LOW;
    // Taylor's series to r^13: the next term is below 2^-53.
    let series = (1..=13).rev().fold(1.0, |sum, k| 1.0 + r * sum / f64::from(k));
    // n is from -1022 to 0 here, so 2^n is a normal number.
    series * f64::from_bits(((1023 + n as i64) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close_to_the_standard_librarys() {
        for i in 0..70_000 {
            let x = -f64::from(i) / 100.0;
            let relative = (exp(x) - x.exp()).abs() / x.exp();
            assert!(relative < 1e-15, "e^{x}: {} against {}", exp(x), x.exp());
        }
        assert_eq!((exp(0.0), exp(-709.0), exp(f64::NEG_INFINITY), exp(f64::NAN)), (1.0, 0.0, 0.0, 0.0));
    }

    #[test]
    fn splitmix_gives_the_published_numbers() {
        let mut random = SplitMix64::new(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(expected.map(|_| random.next()), expected);
    }
}

//! Deterministic Gaussian numbers for tests.

/// N(0, 1) by Box and Muller over SplitMix64.
pub struct Normal {
    state: u64,
}

impl Normal {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Normal { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def0 }
    }

    /// 64 uniform bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next number.
    pub fn next(&mut self) -> f32 {
        let mut unit = || ((self.bits() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        let (u, v) = (unit(), unit());
        ((-2.0 * u.ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos()) as f32
    }

    /// `len` numbers.
    pub fn row(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.next()).collect()
    }
}

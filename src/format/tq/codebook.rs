//! The integer codebooks of the family, as the CPU and shader text use them.

use crate::num::{TQ_UNIT, TQ2, TQ3, TQ4, TQ4_UNIT};

/// Most magnitudes of a codebook.
pub(super) const LEVELS: usize = 8;

/// A codebook that is symmetric about 0: code c ascends with its value.
#[derive(Clone, Copy)]
pub(super) struct Book {
    /// Bits of a code.
    pub(super) bits: u32,
    /// Magnitudes, ascending, in units of 1/`unit` standard deviations; as many as half the codes.
    pub(super) magnitudes: &'static [f32],
    /// Units of a standard deviation.
    pub(super) unit: f32,
    /// The scale's factor, 1/unit: value = (γ · this) · integer.
    pub(super) unit_inverse: f32,
}

impl Book {
    /// The codebook of `bits`-bit codes: 2, 3 or 4.
    pub(super) const fn of(bits: u32) -> Book {
        let (magnitudes, unit): (&'static [f32], f32) = match bits {
            2 => (&TQ2, TQ_UNIT),
            3 => (&TQ3, TQ_UNIT),
            _ => (&TQ4, TQ4_UNIT),
        };
        Book { bits, magnitudes, unit, unit_inverse: 1.0 / unit }
    }

    /// Value of code c, in units.
    #[inline(always)]
    pub(super) fn integer(&self, code: usize) -> f32 {
        let levels = self.magnitudes.len();
        if code < levels { -self.magnitudes[levels - 1 - code] } else { self.magnitudes[(code - levels) % levels] }
    }

    /// Squares of the thresholds between magnitudes, in units of the row's mean square; past the last, infinity.
    pub(super) fn thresholds(&self) -> [f32; LEVELS - 1] {
        let mut squares = [f32::INFINITY; LEVELS - 1];
        for (square, pair) in squares.iter_mut().zip(self.magnitudes.windows(2)) {
            let middle = (f64::from(pair[0]) + f64::from(pair[1])) / 2.0 / f64::from(self.unit);
            *square = (middle * middle) as f32;
        }
        squares
    }
}

//! Codebooks of symmetric scalar quantisers, and what they cost on Gaussian values.

/// Units of the integer codebooks in one standard deviation: 40.9 makes [`TQ3`] Lloyd-Max but for
/// 1e-6 of its error, with integers that int8 and f16 hold exactly.
pub const TQ_UNIT: f32 = 40.9;

/// Magnitudes of the three-bit codebook, ascending, in units of 1/[`TQ_UNIT`] standard deviations.
///
/// The CPU's tables and the shaders' arithmetic are both made from it.
pub const TQ3: [f32; 4] = [10.0, 31.0, 55.0, 88.0];

/// Magnitudes of the two-bit codebook in the same units: near the middles of [`TQ3`]'s pairs, so that
/// codes of three bits without their last bit still mean what they should.
pub const TQ2: [f32; 2] = [20.0, 64.0];

/// Magnitudes of the four-bit codebook, in units of 1/[`TQ4_UNIT`] standard deviations.
///
/// The nearest to Lloyd-Max of those searched (units from 25 to 47, each level rounded either way, at most 127): 5.5e-4 of
/// its error.
pub const TQ4: [f32; 8] = [5.0, 15.0, 25.0, 36.0, 48.0, 62.0, 79.0, 104.0];

/// Units of [`TQ4`] in one standard deviation.
pub const TQ4_UNIT: f32 = 38.14;

/// A codebook that is symmetric about 0, with thresholds half-way between neighbours.
#[derive(Clone, Debug, PartialEq)]
pub struct Codebook {
    /// Magnitudes, ascending and positive, in standard deviations.
    pub magnitudes: Vec<f64>,
}

impl Codebook {
    /// The codebook of `magnitudes`, of which `unit` make a standard deviation.
    pub fn from_units(magnitudes: &[f32], unit: f32) -> Self {
        Codebook { magnitudes: magnitudes.iter().map(|m| f64::from(*m) / f64::from(unit)).collect() }
    }

    /// The best codebook of `levels` magnitudes for N(0, 1) (Lloyd, 1957; Max, 1960).
    pub fn lloyd_max(levels: usize) -> Self {
        let mut magnitudes: Vec<f64> = (0..levels).map(|i| (i as f64 + 0.5) * 2.5 / levels as f64).collect();
        for _ in 0..2000 {
            let book = Codebook { magnitudes: magnitudes.clone() };
            for (level, (low, high)) in book.cells().enumerate() {
                let moments = moments(low, high);
                magnitudes[level] = moments[1] / moments[0];
            }
        }
        Codebook { magnitudes }
    }

    /// Mean squared error on N(0, 1), relative to its variance.
    pub fn gaussian_nmse(&self) -> f64 {
        self.cells()
            .zip(&self.magnitudes)
            .map(|((low, high), m)| {
                let [zeroth, first, second] = moments(low, high);
                2.0 * (second - 2.0 * m * first + m * m * zeroth)
            })
            .sum()
    }

    /// Bounds of each magnitude's cell.
    fn cells(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let m = &self.magnitudes;
        (0..m.len()).map(move |i| {
            let low = if i == 0 { 0.0 } else { (m[i - 1] + m[i]) / 2.0 };
            // Beyond 10 standard deviations the Gaussian holds less than 1e-22.
            let high = if i + 1 == m.len() { 10.0 } else { (m[i] + m[i + 1]) / 2.0 };
            (low, high)
        })
    }
}

/// Zeroth, first and second moment of N(0, 1) over `low..high`, by Simpson's rule.
fn moments(low: f64, high: f64) -> [f64; 3] {
    const STEPS: usize = 400;
    let h = (high - low) / STEPS as f64;
    let mut sums = [0.0; 3];
    for i in 0..=STEPS {
        let x = low + i as f64 * h;
        let weight = if i == 0 || i == STEPS { 1.0 } else { 2.0 + 2.0 * (i % 2) as f64 };
        let density = weight * (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
        for (power, sum) in sums.iter_mut().enumerate() {
            *sum += density * x.powi(power as i32);
        }
    }
    sums.map(|s| s * h / 3.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integer_codebook_is_lloyd_max_but_for_a_millionth() {
        let best = Codebook::lloyd_max(4);
        for (got, want) in best.magnitudes.iter().zip([0.2451, 0.7561, 1.3440, 2.1520]) {
            assert!((got - want).abs() < 1e-4, "{:?}", best.magnitudes);
        }
        let (best, ours) = (best.gaussian_nmse(), Codebook::from_units(&TQ3, TQ_UNIT).gaussian_nmse());
        println!("NMSE: Lloyd-Max {best:.6}, integers {ours:.6}");
        assert!((best - 0.034548).abs() < 1e-6 && (ours - 0.034549).abs() < 1e-6);
        assert!((Codebook::lloyd_max(2).gaussian_nmse() - 0.117482).abs() < 1e-5);
    }

    #[test]
    fn the_other_integer_codebooks() {
        let of = |units: &[f32], unit| Codebook::from_units(units, unit).gaussian_nmse();
        let (best, ours) = (Codebook::lloyd_max(8), of(&TQ4, TQ4_UNIT));
        println!("4 bits: Lloyd-Max {:.7} {:?}, integers {ours:.7}", best.gaussian_nmse(), best.magnitudes);
        assert!((best.gaussian_nmse() - 0.009501).abs() < 1e-6, "{}", best.gaussian_nmse());
        // 5.5e-4 of it, and a local optimum: no neighbour of eight bits is better.
        assert!(ours / best.gaussian_nmse() - 1.0 < 5.6e-4, "{ours}");
        for level in 0..TQ4.len() {
            for step in [-1.0, 1.0] {
                let mut other = TQ4;
                other[level] += step;
                assert!(of(&other, TQ4_UNIT) > ours, "{other:?}");
            }
        }
        assert!(of(&TQ4, TQ4_UNIT - 0.1) > ours && of(&TQ4, TQ4_UNIT + 0.1) > ours);
        // Two bits give up a little for the sake of codes cut short.
        let two = of(&TQ2, TQ_UNIT) / Codebook::lloyd_max(2).gaussian_nmse() - 1.0;
        println!("2 bits: {two:.2e} above Lloyd-Max");
        assert!(two < 0.02, "{two}");
    }
}

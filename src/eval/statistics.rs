//! Means with what they are worth: quantiles, the bootstrap over windows, paired differences.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Draws of a bootstrap.
pub const DRAWS: usize = 20_000;

/// Mean of the numbers; `None` for none.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The `share`-quantile (0 to 1), linear between neighbours; `None` for no numbers.
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = share.clamp(0.0, 1.0) * sorted.len().checked_sub(1)? as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    // Equal neighbours may be infinite.
    Some(if low == high { low } else { low + (high - low) * at.fract() })
}

/// A 95 % interval for the mean of `values` by resampling them with replacement (percentiles of [`DRAWS`] means, drawn from
/// a fixed seed). The values are means of windows: tokens of a window are no independent draws. `None` below two.
pub fn bootstrap(values: &[f64]) -> Option<[f64; 2]> {
    if values.len() < 2 {
        return None;
    }
    let mut random = StdRng::seed_from_u64(0x6b76_6172_746f);
    let draw = |random: &mut StdRng| {
        let sum: f64 = (0..values.len()).map(|_| values[random.random_range(0..values.len())]).sum();
        sum / values.len() as f64
    };
    let means: Vec<f64> = (0..DRAWS).map(|_| draw(&mut random)).collect();
    Some([quantile(&means, 0.025)?, quantile(&means, 0.975)?])
}

/// Standard error of the mean of paired differences; `None` below two.
pub fn standard_error(differences: &[f64]) -> Option<f64> {
    let (count, mean) = (differences.len() as f64, mean(differences)?);
    let squares: f64 = differences.iter().map(|d| (d - mean).powi(2)).sum();
    (differences.len() > 1).then(|| (squares / (count - 1.0) / count).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_neighbours() {
        let values: Vec<f64> = (0..101).rev().map(f64::from).collect();
        assert_eq!(quantile(&values, 0.99), Some(99.0));
        assert_eq!(quantile(&[1.0, 2.0], 0.25), Some(1.25));
        assert_eq!(quantile(&[3.0], 0.99), Some(3.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn the_bootstrap_of_many_draws_is_as_wide_as_the_standard_error_says() {
        let values: Vec<f64> = (0..400).map(|i| f64::from(i * 7919 % 400) / 400.0).collect();
        let [low, high] = bootstrap(&values).unwrap();
        let (mean, error) = (mean(&values).unwrap(), standard_error(&values).unwrap());
        assert!((high - low - 2.0 * 1.96 * error).abs() < 0.1 * error, "{low} to {high}, {error}");
        assert!(low < mean && mean < high);
        assert_eq!(bootstrap(&values), bootstrap(&values), "the same each time");
        assert_eq!(bootstrap(&[1.0]), None);
        assert_eq!(bootstrap(&[2.0, 2.0]), Some([2.0, 2.0]));
    }

    #[test]
    fn the_standard_error_is_that_of_the_textbook() {
        // Deviations −1, 0, 1: variance 1, over 3.
        assert!((standard_error(&[1.0, 2.0, 3.0]).unwrap() - (1.0f64 / 3.0).sqrt()).abs() < 1e-15);
        assert_eq!(standard_error(&[1.0]), None);
    }
}

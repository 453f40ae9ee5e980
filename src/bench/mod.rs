//! Measurements of attention over real pages: verified first, then timed.
//!
//! Keys, values and queries are Gaussian-like numbers that any part can make again from their place alone, so that a
//! check needs no copy of the cache.

mod attention;
mod copy;
mod data;
#[cfg(feature = "model")]
mod generation;
mod mix;
mod suite;
mod verify;

pub use attention::{AttentionBench, AttentionReport, Work};
pub use copy::copy_bytes_per_s;
#[cfg(feature = "model")]
pub use generation::{Fill, GenerationBench, GenerationReport, check_depth, held_steps, prompt_unit};
pub use mix::{Mix, Share};
pub use suite::{Row, Suite};
pub use verify::Quality;

/// Work ahead of the first time taken, on hardware: a card that idled runs at a fifth of its clock, and takes a second
/// or two to leave that.
const SPIN_UP: std::time::Duration = std::time::Duration::from_secs(2);

/// Three of a sample's order statistics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantiles {
    /// The least.
    pub least: f64,
    /// The value that a tenth lies below.
    pub p10: f64,
    /// The middle.
    pub median: f64,
    /// The value that nine tenths lie below.
    pub p90: f64,
}

impl Quantiles {
    /// Of `samples`, nearest rank; `None` when there are none or one is not a number.
    pub fn of(mut samples: Vec<f64>) -> Option<Self> {
        if samples.is_empty() || samples.iter().any(|s| s.is_nan()) {
            return None;
        }
        samples.sort_by(f64::total_cmp);
        let rank = |share: f64| samples[((samples.len() - 1) as f64 * share).round() as usize];
        Some(Quantiles { least: rank(0.0), p10: rank(0.1), median: rank(0.5), p90: rank(0.9) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_order_statistics() {
        let q = Quantiles::of((0..=100).rev().map(f64::from).collect()).unwrap();
        assert_eq!((q.p10, q.median, q.p90), (10.0, 50.0, 90.0));
        assert_eq!(Quantiles::of(vec![7.0]).unwrap().p90, 7.0);
        assert!(Quantiles::of(vec![]).is_none() && Quantiles::of(vec![1.0, f64::NAN]).is_none());
    }
}

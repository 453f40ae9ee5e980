//! What runs by another route than was wanted, for reports: nothing falls back in silence.

use super::weights::Matrix;
use crate::engine::Stats;
use crate::profile::Profile;

/// One kernel that does its work by another route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// The model's layer; `None` where it concerns no single one.
    pub layer: Option<usize>,
    /// The kernel, by its declaration's name.
    pub kernel: &'static str,
    /// Formats of what it works on.
    pub format: String,
    /// What was wanted.
    pub wanted: String,
    /// What is done instead.
    pub used: String,
    /// Why.
    pub reason: String,
}

impl Fallback {
    /// Of projections `what` that should run as one product over one matrix, with bindings of `limit_bytes` at most.
    pub(super) fn of_matrices(
        layer: Option<usize>,
        what: &str,
        matrices: &[Matrix],
        limit_bytes: u64,
    ) -> Option<Fallback> {
        let types: Vec<&str> = matrices.iter().map(|m| m.weight.as_str()).collect();
        let segments: usize = matrices.iter().map(|m| m.segments.len()).sum();
        let reason = match (matrices.len(), segments) {
            (0 | 1, 0 | 1) => return None,
            (0 | 1, _) => format!("bindings of this adapter hold {limit_bytes} bytes"),
            _ => "the file stores them in unlike types".to_string(),
        };
        Some(Fallback {
            layer,
            kernel: "linear",
            format: types.join(", "),
            wanted: format!("one product for {what}"),
            used: format!("{segments} products"),
            reason,
        })
    }

    /// Of a cache whose newest step had no room to convert pages that were due.
    pub(super) fn of_cache(stats: &Stats, profile: &Profile) -> Option<Fallback> {
        (stats.deferred > 0).then(|| Fallback {
            layer: None,
            kernel: "convert",
            format: format!("{}, {}", profile.k, profile.v),
            wanted: "sealed pages".into(),
            used: format!("{} pages left as they were", stats.deferred),
            reason: "the budget of pages has no room for both copies".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_without_room_is_told() {
        let profile = Profile::formats("fp8", "tq3");
        assert_eq!(Fallback::of_cache(&Stats::default(), &profile), None);
        let stats = Stats { deferred: 3, ..Stats::default() };
        let told = Fallback::of_cache(&stats, &profile).expect("a record");
        assert_eq!((told.kernel, told.format.as_str()), ("convert", "fp8, tq3"));
        assert!(told.used.starts_with("3 pages"), "{told:?}");
    }
}

//! Checks that are known to fail on certain adapters, each with its reason.

use super::Verdict;
use crate::backend::Caps;

/// A check that is known to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedFailure {
    /// Stands in the adapter's name; empty for any.
    pub adapter: &'static str,
    /// Stands in the driver's name and version; empty for any.
    pub driver: &'static str,
    /// The check's id.
    pub case: &'static str,
    /// Why, with where it was reported.
    pub reason: &'static str,
}

/// What is known: nothing.
pub const EXPECTED_FAILURES: &[ExpectedFailure] = &[];

impl ExpectedFailure {
    /// Whether it speaks of this adapter and driver.
    pub fn concerns(&self, caps: &Caps) -> bool {
        caps.adapter.contains(self.adapter) && caps.driver.contains(self.driver)
    }

    /// The verdict on the listed check: a failure is expected, and a pass is a failure, so that the list stays true.
    pub fn judge(&self, found: Verdict) -> Verdict {
        match found {
            Verdict::Fail(found) => Verdict::ExpectedFailure { reason: self.reason, found },
            Verdict::Pass => Verdict::Fail(format!(
                "it passes, and is listed as an expected failure ({}): take it off the list",
                self.reason
            )),
            other => other,
        }
    }
}

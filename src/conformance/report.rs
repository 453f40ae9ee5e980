//! What a run of the suite found.

use crate::backend::Caps;
use std::time::Duration;

/// What became of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Within the tolerance, without a NaN, and the same bits twice.
    Pass,
    /// It is wrong, in words.
    Fail(String),
    /// It fails, and is listed as doing so.
    ExpectedFailure {
        /// Why it is listed.
        reason: &'static str,
        /// What was found.
        found: String,
    },
    /// The format does not take the geometry, for its own reason.
    Refused(String),
    /// It was not run, and why.
    Skipped(String),
}

impl Verdict {
    /// `pass`, `fail`, `expected failure`, `refused` or `skipped`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Fail(_) => "fail",
            Verdict::ExpectedFailure { .. } => "expected failure",
            Verdict::Refused(_) => "refused",
            Verdict::Skipped(_) => "skipped",
        }
    }

    /// Why it is none of the good ones; empty for a pass.
    pub fn reason(&self) -> String {
        match self {
            Verdict::Pass => String::new(),
            Verdict::Fail(text) | Verdict::Refused(text) | Verdict::Skipped(text) => text.clone(),
            Verdict::ExpectedFailure { reason, found } => format!("{reason}: {found}"),
        }
    }
}

/// One check of the suite.
#[derive(Clone, Debug)]
pub struct CheckResult {
    /// Its name, the same in every run: `grid-17`, `pack-tq3-k-64`.
    pub id: String,
    /// `decode`, `prefill`, `pack` (encode), `unpack` (decode of codes) or `codec` (a refusal, nothing is run); `list` for
    /// an expected failure that names no check.
    pub kernel: &'static str,
    /// Format of K; empty where only V is looked at.
    pub k_format: String,
    /// Format of V; empty where only K is looked at.
    pub v_format: String,
    /// Sizes and options in words.
    pub shape: String,
    /// What became of it.
    pub verdict: Verdict,
    /// Attention: the largest error as a fraction of the largest output, NaN for one. Codes: words or values that
    /// differ. None where nothing was compared.
    pub worst: Option<f64>,
    /// The most that `worst` may be.
    pub tolerance: f64,
    /// Building, compiling, running and comparing.
    pub time: Duration,
}

/// How many checks came to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Passed.
    pub passed: usize,
    /// Failed.
    pub failed: usize,
    /// Failed as listed.
    pub expected_failures: usize,
    /// Refused by the format.
    pub refused: usize,
    /// Not run.
    pub skipped: usize,
}

/// What a run of the suite found on one backend.
#[derive(Clone, Debug)]
pub struct Report {
    /// What the backend says of itself: adapter, driver, limits, features.
    pub caps: Caps,
    /// Every check, in the order of the suite.
    pub results: Vec<CheckResult>,
    /// Wall time of all.
    pub time: Duration,
}

impl Report {
    /// Counts by verdict.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        for result in &self.results {
            *match result.verdict {
                Verdict::Pass => &mut summary.passed,
                Verdict::Fail(_) => &mut summary.failed,
                Verdict::ExpectedFailure { .. } => &mut summary.expected_failures,
                Verdict::Refused(_) => &mut summary.refused,
                Verdict::Skipped(_) => &mut summary.skipped,
            } += 1;
        }
        summary
    }

    /// Whether nothing failed and something passed.
    pub fn passed(&self) -> bool {
        let summary = self.summary();
        summary.failed == 0 && summary.passed > 0
    }

    /// What failed.
    pub fn failures(&self) -> impl Iterator<Item = &CheckResult> {
        self.results.iter().filter(|r| matches!(r.verdict, Verdict::Fail(_)))
    }
}

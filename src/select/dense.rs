//! Every page.

use super::{Question, Selector};

/// Reads every page.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dense;

impl Selector for Dense {
    fn name(&self) -> &str {
        "dense"
    }

    fn summary(&self) -> &str {
        "every page"
    }

    fn reads_all(&self) -> bool {
        true
    }

    fn reads(&self, _: &Question, _: usize) -> bool {
        true
    }
}

//! Pages stay as they were sealed.

use super::{Move, PageView, Policy};

/// Changes nothing after sealing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keep;

impl Policy for Keep {
    fn name(&self) -> &str {
        "keep"
    }

    fn watches(&self) -> bool {
        false
    }

    fn decide(&mut self, _: &[PageView]) -> Vec<Move> {
        Vec::new()
    }
}

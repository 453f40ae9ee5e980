//! `none`: rows are stored as they come.

use super::Basis;

/// The identity.
pub struct NoBasis;

impl Basis for NoBasis {
    fn name(&self) -> &str {
        "none"
    }

    fn summary(&self) -> &str {
        "rows as they come"
    }

    fn rotates(&self) -> bool {
        false
    }

    fn removes_mean(&self) -> bool {
        false
    }

    fn forward(&self, _: Option<&[f32]>, _: &mut [f32]) {}

    fn query(&self, _: Option<&[f32]>, _: &mut [f32]) -> f32 {
        0.0
    }

    fn inverse(&self, _: Option<&[f32]>, _: &mut [f32]) {}
}

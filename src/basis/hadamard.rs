//! `hadamard`: signs, then a Walsh-Hadamard transform in blocks (QuaRot, arXiv 2404.00456).

use super::Basis;
use crate::num::{rotate, unrotate};

/// The randomised Hadamard rotation R: k' = Rk, q' = Rq, o = Rᵀo'.
pub struct HadamardBasis;

impl Basis for HadamardBasis {
    fn name(&self) -> &str {
        "hadamard"
    }

    fn summary(&self) -> &str {
        "signs and a Hadamard transform: spreads outliers over a row"
    }

    fn rotates(&self) -> bool {
        true
    }

    fn removes_mean(&self) -> bool {
        false
    }

    fn forward(&self, _: Option<&[f32]>, row: &mut [f32]) {
        rotate(row);
    }

    fn query(&self, _: Option<&[f32]>, q: &mut [f32]) -> f32 {
        rotate(q);
        0.0
    }

    fn inverse(&self, _: Option<&[f32]>, o: &mut [f32]) {
        unrotate(o);
    }
}

//! `mean`: a head's mean row is taken off, then the rest is rotated as by `hadamard`.
//!
//! Keys of some models carry a large constant (a bias of norm 600 in Qwen2's first layer): coded
//! with the rest it takes every code of a low-bit format. Off it comes: k' = R(k − μ), and a score
//! is q·k = Rq·k' + q·μ, the second term one number for each query. v' = R(v − μ) and, weights
//! summing to 1, o = Rᵀo' + μ.

use super::{Basis, check};
use crate::num::{rotate, unrotate};

/// The Hadamard rotation about a mean row.
pub struct MeanBasis;

impl Basis for MeanBasis {
    fn name(&self) -> &str {
        "mean"
    }

    fn summary(&self) -> &str {
        "a calibrated mean row taken off, then a Hadamard transform"
    }

    fn rotates(&self) -> bool {
        true
    }

    fn removes_mean(&self) -> bool {
        true
    }

    fn forward(&self, mean: Option<&[f32]>, row: &mut [f32]) {
        check(mean, row);
        for (x, m) in row.iter_mut().zip(mean.unwrap_or(&[])) {
            *x -= m;
        }
        rotate(row);
    }

    fn query(&self, mean: Option<&[f32]>, q: &mut [f32]) -> f32 {
        check(mean, q);
        let bias = q.iter().zip(mean.unwrap_or(&[])).map(|(a, b)| a * b).sum();
        rotate(q);
        bias
    }

    fn inverse(&self, mean: Option<&[f32]>, o: &mut [f32]) {
        check(mean, o);
        unrotate(o);
        for (x, m) in o.iter_mut().zip(mean.unwrap_or(&[])) {
            *x += m;
        }
    }
}

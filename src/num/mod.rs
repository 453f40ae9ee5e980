//! Number formats and transforms that pages are made of.
//!
//! Whatever a shader computes too stands here in the same integer operations, so that both agree
//! bit for bit; the shaders' twins are [`WGSL_NUMBERS`], [`WGSL_HADAMARD`] and [`CUDA_NUMBERS`].

mod codebook;
mod e4m3;
mod eigen;
mod hadamard;
mod half_bits;
mod inverse;
pub mod rope;
#[cfg(test)]
pub(crate) mod testing;
pub mod weights;

pub use codebook::{Codebook, TQ_UNIT, TQ2, TQ3, TQ4, TQ4_UNIT};
pub use e4m3::{E4M3_MAX, e4m3_decode, e4m3_decode_finite, e4m3_encode};
pub use eigen::eigen;
pub use hadamard::{fwht, hadamard_block, hadamard_sign, rotate, unrotate};
pub use half_bits::{bf16_bits, bf16_value, f16_above, f16_below, f16_bits, f16_value};
pub use inverse::invert;

/// WGSL helpers that format fragments call; a kernel includes them once, ahead of the fragments.
pub const WGSL_NUMBERS: &str = include_str!("../../shaders/lib/numbers.wgsl");

/// CUDA helpers (also C) that format fragments call; a kernel includes them once.
pub const CUDA_NUMBERS: &str = include_str!("../../shaders/lib/numbers.cuh");

/// WGSL `hadamard_sign(c: u32) -> f32`.
pub const WGSL_HADAMARD: &str = include_str!("../../shaders/lib/hadamard.wgsl");

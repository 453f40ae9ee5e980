//! Number formats and transforms that pages are made of.

/// WGSL helpers that format fragments call; a kernel includes them once, ahead of the fragments.
pub const WGSL_NUMBERS: &str = include_str!("../../shaders/lib/numbers.wgsl");

/// CUDA helpers (also C) that format fragments call; a kernel includes them once.
pub const CUDA_NUMBERS: &str = include_str!("../../shaders/lib/numbers.cuh");

/// WGSL `hadamard_sign(c: u32) -> f32`.
pub const WGSL_HADAMARD: &str = include_str!("../../shaders/lib/hadamard.wgsl");

mod hadamard;
pub use hadamard::{fwht, hadamard_block, hadamard_sign, rotate, unrotate};

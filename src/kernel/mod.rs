//! Kernels: one file each, declaration and CPU code together; the WGSL has the same stem in `shaders/`.
//!
//! A kernel file has a `DECL`, `specialise(..)`, which fixes its constants, and `dispatch(..)`, which fills in
//! a dispatch's parameters from typed tensors and refuses what does not fit them.

pub mod add;
pub mod argmax;
pub mod embed;
pub mod gather;
pub mod linear;
pub mod rms_norm;
pub mod rope;
pub mod silu_mul;
mod view;

pub use view::{RowView, WeightSegment};

//! Kernels: one file each, declaration and CPU code together; the WGSL has the same stem in `shaders/`.

pub mod append;
pub mod attention;
mod attention_cpu;
pub mod convert;
pub mod copy_slots;
pub mod decode;
pub mod mean;
pub mod merge;
mod panel;
pub mod partial;
pub mod prefill;
pub mod query;
mod tables;

pub use partial::PartialState;

use crate::backend::BufferSlice;

/// Rows of f32 in a buffer: row `r` starts at element `offset + r * stride` of the slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowView {
    /// The buffer, or the part of it that is bound.
    pub slice: BufferSlice,
    /// First element of row 0, counted from the slice's start.
    pub offset: u32,
    /// Elements between the starts of consecutive rows.
    pub stride: u32,
}

/// What a basis does to one side before storage: remove a mean, then rotate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SideBasis {
    /// Whether rows are turned by the sign-flipped block Hadamard transform.
    pub rotate: bool,
    /// Whether the mean is subtracted first.
    pub mean: bool,
}

/// The bases of both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SideBases {
    /// Of keys.
    pub k: SideBasis,
    /// Of values.
    pub v: SideBasis,
}

/// Where a layer's means lie: float `mean_slot * stride + layer_at + kv_head * (k_dim + v_dim)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeanPlace {
    /// Floats of a mean slot: layers of the group * kv_heads * (k_dim + v_dim).
    pub stride: u32,
    /// First float of the layer within a slot: layer in group * kv_heads * (k_dim + v_dim).
    pub layer_at: u32,
}

impl MeanPlace {
    /// The means of `layer_in_group` of `layers`.
    pub fn new(shape: &attention::AttentionShape, layers: usize, layer_in_group: usize) -> Self {
        let floats = shape.kv_heads * (shape.k_dim + shape.v_dim);
        MeanPlace { stride: (layers * floats) as u32, layer_at: (layer_in_group * floats) as u32 }
    }
}

//! Kernels: one file each, declaration and CPU code together; the WGSL has the same stem in `shaders/`.
//!
//! A kernel file has a `DECL`, `specialise(..)`, which fixes its constants, and `dispatch(..)`, which fills in
//! a dispatch's parameters from typed tensors.

pub mod add;
pub mod append;
pub mod argmax;
pub mod attention;
mod attention_cpu;
pub mod convert;
pub mod copy_slots;
pub mod decode;
pub mod decode_tiles;
pub mod decode_tuning;
pub mod embed;
mod few;
pub mod gated_mul;
pub mod gather;
#[cfg(target_arch = "x86_64")]
mod half_pages;
pub mod head_norm;
pub mod linear;
pub mod maps;
pub mod mean;
pub mod merge;
mod panel;
pub mod partial;
pub mod plane;
mod prefetch;
pub mod prefill;
pub mod prefill_tiles;
pub mod query;
pub mod rms_norm;
pub mod rope;
pub mod summarise_box;
mod tables;
pub mod tier;
mod view;
mod weigh;

pub use partial::PartialState;
pub use view::{RowView, WeightSegment};

/// What a basis does to one side before storage: remove a mean, then rotate or map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SideBasis {
    /// Whether rows are turned by the sign-flipped block Hadamard transform.
    pub rotate: bool,
    /// Whether the mean of the sequence's own first rows is subtracted first.
    pub mean: bool,
    /// Whether a calibrated mean, the same for all sequences, is subtracted first; not beside `mean`.
    pub fixed: bool,
    /// Whether rows are multiplied by a calibrated matrix; with `fixed`, and not beside `rotate`. See [`maps`].
    pub map: bool,
}

impl SideBasis {
    /// Rows as they come.
    pub const NONE: SideBasis = SideBasis { rotate: false, mean: false, fixed: false, map: false };
    /// Rotated.
    pub const HADAMARD: SideBasis = SideBasis { rotate: true, ..SideBasis::NONE };
    /// Rotated about the mean of a sequence's first rows.
    pub const MEAN: SideBasis = SideBasis { mean: true, ..SideBasis::HADAMARD };
    /// Rotated about a calibrated mean.
    pub const FIXED_MEAN: SideBasis = SideBasis { fixed: true, ..SideBasis::HADAMARD };
    /// Mapped about a calibrated mean.
    pub const MAP: SideBasis = SideBasis { fixed: true, map: true, ..SideBasis::NONE };
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

//! How tensor cores read a format's pages: the CUDA types that `cuda/decode.cu` and `cuda/prefill.cu` are written against.

/// A side's tiles: a text of `cuda/tiles`, and the type in it that is this codec's.
///
/// Keys define `Product`, `STEPS`, `channel`, `open`, `Tile`, `load`, `each` and `scales`; values `BYTES`, `GROUPS`,
/// `BLOCKS`, `channel`, `Weights`, `open`, `Group`, `load`, `add`, `scale` and `scales`. Both define for prefill what
/// `cuda/tiles/panels.cuh` tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiles {
    /// The text that defines the type, for both sides of a format; a module holds it once.
    pub text: &'static str,
    /// The type: `Fp8Keys<128, 64>`. It may name the kernel's constants, as `CHUNK`.
    pub name: String,
    /// Whether products are of bytes: then a step is a whole page, or 64 tokens of it.
    pub bytes: bool,
    /// Bytes of shared memory that a piece of a page takes as it stands there, and each of its tokens more; none where
    /// panels are read straight from pages.
    pub raw_bytes: [usize; 2],
}

/// Whether tiles are written for a head size.
pub(super) fn takes(head_dim: usize) -> bool {
    head_dim.is_multiple_of(64) && (64..=256).contains(&head_dim)
}

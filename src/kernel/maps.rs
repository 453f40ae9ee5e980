//! Calibrated means and maps on the device: where they lie, and the product with one on the CPU.
//!
//! A layer's maps are one buffer: the K region, then the V region, each of whole 256 bytes. A region holds a record for
//! each KV head: its mean (`dim` floats), then, where the side is mapped, two matrices column after column. Of K they are
//! F and F⁻ᵀ, for keys and for queries; of V they are F and F⁻¹, for values and for outputs.

use super::tables::range;
use super::{SideBases, SideBasis};
use crate::error::Result;

/// Floats that a region is a multiple of: bindings begin at 256 bytes.
const ALIGN: usize = 64;

/// Floats of a KV head's record on a side.
pub fn head_floats(basis: SideBasis, dim: usize) -> usize {
    match (basis.fixed, basis.map) {
        (_, true) => dim + 2 * dim * dim,
        (true, false) => dim,
        (false, false) => 0,
    }
}

/// Floats of a side's region in a layer's maps.
pub fn region_floats(basis: SideBasis, kv_heads: usize, dim: usize) -> usize {
    (kv_heads * head_floats(basis, dim)).next_multiple_of(ALIGN)
}

/// Floats of both sides' regions: K's, then V's; 0 where neither side is calibrated.
pub fn layer_floats(bases: SideBases, kv_heads: usize, k_dim: usize, v_dim: usize) -> [usize; 2] {
    [region_floats(bases.k, kv_heads, k_dim), region_floats(bases.v, kv_heads, v_dim)]
}

/// One side's region, as a CPU kernel reads it.
#[derive(Clone, Copy)]
pub(super) struct Region<'a> {
    /// The region and what follows it.
    pub floats: &'a [f32],
    pub basis: SideBasis,
    pub dim: usize,
}

impl<'a> Region<'a> {
    /// A head's mean.
    pub fn mean(&self, head: usize) -> Result<&'a [f32]> {
        let start = head * head_floats(self.basis, self.dim);
        range(self.floats, start, self.dim, "calibrated mean")
    }

    /// A head's matrix for rows of K or V (0), or for queries or outputs (1).
    pub fn matrix(&self, head: usize, which: usize) -> Result<&'a [f32]> {
        let square = self.dim * self.dim;
        let start = head * head_floats(self.basis, self.dim) + self.dim + which * square;
        range(self.floats, start, square, "calibrated map")
    }
}

/// `row` becomes M `row`, M's columns one after the other; `scratch` is any memory.
pub(super) fn transform(columns: &[f32], row: &mut [f32], scratch: &mut Vec<f32>) {
    scratch.clear();
    scratch.resize(row.len(), 0.0);
    for (x, column) in row.iter().zip(columns.chunks_exact(row.len().max(1))) {
        scratch.iter_mut().zip(column).for_each(|(s, m)| *s += x * m);
    }
    row.copy_from_slice(scratch);
}

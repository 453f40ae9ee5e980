//! The dense kernels of a model, prepared at load and recorded by name.

use super::weights::{Matrix, Weights};
use crate::backend::{Backend, BufferSlice, PipelineId, Recording, Specialisation};
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::linear::{self, LinearPath};
use crate::kernel::{RowView, argmax, embed, gather, rms_norm, rope, silu_mul};
use crate::model::config::ModelConfig;
use crate::num::weights::WeightType;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

type Prepared = (PipelineId, Specialisation);

/// Prepared kernels.
pub(super) struct Kernels {
    embed: Prepared,
    norm: Prepared,
    rope: Prepared,
    silu_mul: PipelineId,
    gather: PipelineId,
    argmax: PipelineId,
    linear: HashMap<(WeightType, u32, bool, LinearPath), Prepared>,
    eps: f32,
}

impl Kernels {
    pub fn prepare(config: &ModelConfig, weights: &Weights, backend: &mut dyn Backend) -> Result<Self> {
        let mut made = |spec: Specialisation| -> Result<Prepared> { Ok((backend.prepare(&spec)?, spec)) };
        let embedding = &weights.embedding;
        let mut linears = HashMap::new();
        let blocks = weights.blocks.iter().flat_map(|b| {
            let plain = b.qkv.iter().chain(&b.gate_up).map(|m| (m, false));
            plain.chain([(&b.output, true), (&b.down, true)])
        });
        for (matrix, accumulate) in blocks.chain([(weights.head(), false)]) {
            for path in LinearPath::ALL {
                let key = (matrix.weight, matrix.columns, accumulate, path);
                if let Entry::Vacant(place) = linears.entry(key) {
                    place.insert(made(linear::specialise(matrix.weight, matrix.columns, accumulate, path)?)?);
                }
            }
        }
        Ok(Kernels {
            embed: made(embed::specialise(embedding.weight, embedding.columns)?)?,
            norm: made(rms_norm::specialise(config.hidden as u32)?)?,
            rope: made(rope::specialise(config.head_dim as u32, config.rope.dim_count as u32, config.rope.pairing)?)?,
            silu_mul: made(silu_mul::specialise()?)?.0,
            gather: made(gather::specialise()?)?.0,
            argmax: made(argmax::specialise()?)?.0,
            linear: linears,
            eps: config.rms_eps,
        })
    }

    /// Rows of the embedding.
    pub fn embed(&self, to: &mut Recording, tokens: BufferSlice, table: &Matrix, y: RowView, rows: u32) -> Result<()> {
        for &segment in &table.segments {
            to.dispatch(embed::dispatch(self.embed.0, &self.embed.1, tokens, segment, y, rows)?);
        }
        Ok(())
    }

    /// `y = rms_norm(x) · weight`.
    pub fn norm(&self, to: &mut Recording, x: RowView, weight: BufferSlice, y: RowView, rows: u32) -> Result<()> {
        to.dispatch(rms_norm::dispatch(self.norm.0, &self.norm.1, x, weight, 0, y, rows, self.eps)?);
        Ok(())
    }

    /// `y = x Wᵀ`, or `y += x Wᵀ`.
    pub fn linear(
        &self,
        to: &mut Recording,
        matrix: &Matrix,
        x: RowView,
        y: RowView,
        rows: u32,
        accumulate: bool,
    ) -> Result<()> {
        let key = (matrix.weight, matrix.columns, accumulate, LinearPath::for_rows(rows));
        let (pipeline, spec) = self
            .linear
            .get(&key)
            .ok_or_else(|| Error::new(ErrorKind::Shape, format!("no linear kernel was prepared for {key:?}"), ""))?;
        for &segment in &matrix.segments {
            to.dispatch(linear::dispatch(*pipeline, spec, segment, x, y, rows)?);
        }
        Ok(())
    }

    /// Matrices side by side: each writes right of its predecessor.
    pub fn linear_side_by_side(
        &self,
        to: &mut Recording,
        matrices: &[Matrix],
        x: RowView,
        y: RowView,
        rows: u32,
    ) -> Result<()> {
        let mut offset = 0;
        for matrix in matrices {
            self.linear(to, matrix, x, y.right(offset), rows, false)?;
            offset += matrix.rows;
        }
        Ok(())
    }

    /// Turns `heads` heads of each row in place.
    pub fn rope(&self, to: &mut Recording, x: RowView, table: BufferSlice, rows: u32, heads: u32) -> Result<()> {
        to.dispatch(rope::dispatch(self.rope.0, &self.rope.1, x, table, rows, heads)?);
        Ok(())
    }

    /// `out = silu(gate) · up`.
    pub fn silu_mul(
        &self,
        to: &mut Recording,
        gate: RowView,
        up: RowView,
        out: RowView,
        rows: u32,
        width: u32,
    ) -> Result<()> {
        to.dispatch(silu_mul::dispatch(self.silu_mul, gate, up, out, rows, width)?);
        Ok(())
    }

    /// The rows of `x` that `indices` names.
    pub fn gather(
        &self,
        to: &mut Recording,
        (x, x_rows): (RowView, u32),
        indices: BufferSlice,
        (y, rows): (RowView, u32),
        width: u32,
    ) -> Result<()> {
        to.dispatch(gather::dispatch(self.gather, x, x_rows, indices, y, rows, width)?);
        Ok(())
    }

    /// The best token of each row.
    pub fn argmax(&self, to: &mut Recording, logits: RowView, out: BufferSlice, rows: u32, width: u32) -> Result<()> {
        to.dispatch(argmax::dispatch(self.argmax, logits, out, 0, rows, width)?);
        Ok(())
    }
}

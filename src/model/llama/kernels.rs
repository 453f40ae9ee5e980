//! The dense kernels of a model, prepared at load and recorded by name.

use super::stored::Stored;
use super::weights::Matrix;
use crate::backend::{Backend, BufferSlice, PipelineId, Recording, Specialisation};
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::linear::{self, LinearPath};
use crate::kernel::{RowView, add, argmax, embed, gated_mul, gather, head_norm, rms_norm, rope};
use crate::model::config::ModelConfig;
use crate::num::weights::WeightType;
use std::collections::HashMap;

type Prepared = (PipelineId, Specialisation);

/// A prepared product, and how many workgroups of it one submission may hold by prediction.
struct Product {
    pipeline: PipelineId,
    specialisation: Specialisation,
    most_groups: u32,
}

/// Prepared kernels; those that only some architectures need are `None` for others.
pub(super) struct Kernels {
    embed: Prepared,
    norm: Prepared,
    head_norm: Option<Prepared>,
    rope: Prepared,
    add: Option<PipelineId>,
    gated_mul: PipelineId,
    gather: PipelineId,
    argmax: PipelineId,
    linear: HashMap<(WeightType, u32, bool, LinearPath), Product>,
    eps: f32,
    embedding_scale: f32,
}

/// The last projection of a half of a block.
pub(super) struct Branch<'a> {
    pub matrix: &'a Matrix,
    pub inner: RowView,
    pub norm: Option<BufferSlice>,
    /// Rows as wide as the residual stream; used with a norm only.
    pub scratch: [RowView; 2],
}

impl Kernels {
    /// Makes every kernel that steps of a model can need.
    ///
    /// # Errors
    /// What the backend says of a kernel that it cannot make.
    pub fn prepare(config: &ModelConfig, stored: &Stored, backend: &mut dyn Backend) -> Result<Self> {
        let mut made = |spec: Specialisation| -> Result<Prepared> { Ok((backend.prepare(&spec)?, spec)) };
        let family = config.architecture;
        let mut linears = HashMap::new();
        for &(weight, columns, accumulate) in &stored.products {
            for path in LinearPath::ALL {
                let (pipeline, specialisation) = made(linear::specialise(weight, columns, accumulate, path)?)?;
                let product = Product { pipeline, specialisation, most_groups: u32::MAX };
                linears.insert((weight, columns, accumulate, path), product);
            }
        }
        Ok(Kernels {
            embed: made(embed::specialise(stored.embedding.0, stored.embedding.1)?)?,
            norm: made(rms_norm::specialise(config.hidden as u32)?)?,
            head_norm: match family.qk_norm {
                true => Some(made(head_norm::specialise(config.head_dim as u32)?)?),
                false => None,
            },
            rope: made(rope::specialise(config.head_dim as u32, config.rope.dim_count as u32, config.rope.pairing)?)?,
            add: match family.qkv_bias || family.post_norms {
                true => Some(made(add::specialise()?)?.0),
                false => None,
            },
            gated_mul: made(gated_mul::specialise(family.activation)?)?.0,
            gather: made(gather::specialise()?)?.0,
            argmax: made(argmax::specialise()?)?.0,
            linear: linears,
            eps: config.rms_eps,
            embedding_scale: config.embedding_scale(),
        })
    }

    /// Takes in what the backend predicts of products, for the step that begins.
    pub fn ask_limits(&mut self, backend: &dyn Backend) {
        for product in self.linear.values_mut() {
            product.most_groups = backend.groups_a_submission(product.pipeline);
        }
    }

    /// Rows of the embedding, scaled as the model wants them.
    pub fn embed(&self, to: &mut Recording, tokens: BufferSlice, table: &Matrix, y: RowView, rows: u32) -> Result<()> {
        for &segment in &table.segments {
            to.dispatch(embed::dispatch(self.embed.0, &self.embed.1, tokens, segment, y, rows, self.embedding_scale)?);
        }
        Ok(())
    }

    /// `y = rms_norm(x) · weight`.
    pub fn norm(&self, to: &mut Recording, x: RowView, weight: BufferSlice, y: RowView, rows: u32) -> Result<()> {
        to.dispatch(rms_norm::dispatch(self.norm.0, &self.norm.1, x, weight, 0, y, rows, self.eps)?);
        Ok(())
    }

    /// `y = x Wᵀ`, or `y += x Wᵀ`; in parts of the rows where one submission should not hold all of them.
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
        let Product { pipeline, specialisation, most_groups } = self
            .linear
            .get(&key)
            .ok_or_else(|| Error::new(ErrorKind::Shape, format!("no linear kernel was prepared for {key:?}"), ""))?;
        for &segment in &matrix.segments {
            let most = linear::rows_within(specialisation, segment.rows, *most_groups);
            for start in (0..rows).step_by(most as usize) {
                let (x, y, part) = (x.down(start), y.down(start), most.min(rows - start));
                to.dispatch(linear::dispatch(*pipeline, specialisation, segment, x, y, part)?);
                to.boundary();
            }
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

    /// Normalises `heads` heads of each row in place.
    pub fn head_norm(&self, to: &mut Recording, x: RowView, weight: BufferSlice, rows: u32, heads: u32) -> Result<()> {
        let (pipeline, spec) = self.head_norm.as_ref().ok_or_else(|| unprepared("head_norm"))?;
        to.dispatch(head_norm::dispatch(*pipeline, spec, x, weight, rows, heads, self.eps)?);
        Ok(())
    }

    /// `x += y`.
    pub fn add(&self, to: &mut Recording, x: RowView, y: RowView, rows: u32, width: u32) -> Result<()> {
        let pipeline = self.add.ok_or_else(|| unprepared("add"))?;
        to.dispatch(add::dispatch(pipeline, x, y, rows, width)?);
        Ok(())
    }

    /// What a half of a block adds to the residual stream `x`: `x += inner Wᵀ`, or `x += rms_norm(inner Wᵀ) · norm` by
    /// way of two scratch buffers.
    pub fn add_branch(&self, to: &mut Recording, branch: &Branch<'_>, x: RowView, rows: u32) -> Result<()> {
        let &Branch { matrix, inner, norm, scratch: [projected, normed] } = branch;
        let Some(norm) = norm else { return self.linear(to, matrix, inner, x, rows, true) };
        self.linear(to, matrix, inner, projected, rows, false)?;
        self.norm(to, projected, norm, normed, rows)?;
        self.add(to, x, normed, rows, matrix.rows)
    }

    /// Turns `heads` heads of each row in place.
    pub fn rope(&self, to: &mut Recording, x: RowView, table: BufferSlice, rows: u32, heads: u32) -> Result<()> {
        to.dispatch(rope::dispatch(self.rope.0, &self.rope.1, x, table, rows, heads)?);
        Ok(())
    }

    /// `out = activation(gate) · up`.
    pub fn gated_mul(
        &self,
        to: &mut Recording,
        gate: RowView,
        up: RowView,
        out: RowView,
        rows: u32,
        width: u32,
    ) -> Result<()> {
        to.dispatch(gated_mul::dispatch(self.gated_mul, gate, up, out, rows, width)?);
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

fn unprepared(kernel: &str) -> Error {
    Error::new(ErrorKind::Shape, format!("no {kernel} kernel was prepared for this architecture"), "")
}

//! Steps that somebody watches: queries, keys, values and attention's output of every layer, on the host.

use super::forward::{Answers, ModelRows};
use super::{Buffers, Model};
use crate::backend::read_blocking;
use crate::engine::Step;
use crate::error::{Error, ErrorKind, Result};
use crate::model::gguf::dequantize;

/// One layer's attention in a step, rows in the order of the step's sequences.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// Model layer.
    pub layer: usize,
    /// Position of each row.
    pub positions: Vec<u32>,
    /// Queries as they attend, turned to their positions: `[rows][query heads][head_dim]`.
    pub q: Vec<f32>,
    /// Keys as they are appended, turned to their positions: `[rows][KV heads][head_dim]`.
    pub k: Vec<f32>,
    /// Values as they are appended: `[rows][KV heads][head_dim]`.
    pub v: Vec<f32>,
    /// What attention over the cache answered, ahead of the output projection: `[rows][query heads][head_dim]`.
    pub output: Vec<f32>,
}

/// Who watches; an error ends the step.
pub(super) type Watcher<'a> = &'a mut dyn FnMut(Observed) -> Result<()>;

impl Model {
    /// Runs the rows of a step like [`Model::step`] and calls `watch` after every layer's attention, in the order of the
    /// layers. What it is given is what the cache was given and answered, whatever its formats and basis. Each layer is
    /// submitted and waited for, so this is slower than a step that nobody watches.
    ///
    /// # Errors
    /// As [`Model::step`]; what `watch` says, with every sequence as it was before the step.
    pub fn observe(
        &mut self,
        rows: &[ModelRows<'_>],
        mut watch: impl FnMut(Observed) -> Result<()>,
    ) -> Result<Answers> {
        self.run(rows, None, Some(&mut watch))
    }

    /// The output projection of a layer's attention, `[hidden][query heads * head_dim]`, from the model's file.
    ///
    /// # Errors
    /// `File` for a layer that the file does not have, `Unsupported` for random weights.
    pub fn output_projection(&self, layer: usize) -> Result<Vec<f32>> {
        let Some(gguf) = &self.gguf else {
            return Err(Error::new(ErrorKind::Unsupported, "random weights are not read back", ""));
        };
        let tensor = gguf.tensor(&format!("blk.{layer}.attn_output.weight"))?;
        dequantize(tensor, gguf.tensor_bytes(tensor)?)
    }
}

/// Submits up to here, reads the layer's rows and hands them to `watch`. `widths` are floats of a row of Q and of K.
pub(super) fn hand_over(
    step: &mut Step<'_>,
    buffers: &Buffers,
    (layer, positions): (usize, &[u32]),
    (q, kv): (usize, usize),
    watch: Watcher<'_>,
) -> Result<()> {
    step.submit()?;
    let rows = positions.len();
    let mut read = |buffer, width: usize| -> Result<Vec<f32>> {
        let bytes = read_blocking(step.backend(), buffer, 0, (rows * width) as u64 * 4)?;
        Ok(bytemuck::pod_collect_to_vec(&bytes))
    };
    let (qkv, output) = (read(buffers.qkv, q + 2 * kv)?, read(buffers.attention, q)?);
    let part = |from: usize, to: usize| qkv.chunks_exact(q + 2 * kv).flat_map(|row| &row[from..to]).copied().collect();
    watch(Observed {
        layer,
        positions: positions.to_vec(),
        q: part(0, q),
        k: part(q, q + kv),
        v: part(q + kv, q + 2 * kv),
        output,
    })
}

//! Brings queries into the basis of K, scaled, with the bias that mean removal took from the logits.

use super::attention::{AttentionShape, ROW_WORDS};
use super::maps::{self, Region};
use super::tables::{Means, item, range};
use super::{MeanPlace, RowView, SideBasis};
use crate::backend::{
    BindingDecl, BufferSlice, Constant, CpuCall, Dispatch, Element, KernelDecl, ParamDecl, PipelineId, Specialisation,
};
use crate::error::Result;
use crate::num;
use rayon::prelude::*;

/// The kernel.
pub static DECL: KernelDecl = KernelDecl {
    name: "query",
    bindings: &[
        BindingDecl::read("q_in", Element::F32),
        BindingDecl::read("tables", Element::U32),
        BindingDecl::read("means", Element::F32),
        BindingDecl::read("maps", Element::F32),
        BindingDecl::write("q_out", Element::F32),
    ],
    params: &[
        ParamDecl::u32("rows_at"),
        ParamDecl::u32("rows"),
        ParamDecl::u32("q_offset"),
        ParamDecl::u32("q_stride"),
        ParamDecl::u32("mean_stride"),
        ParamDecl::u32("mean_layer_at"),
        ParamDecl::f32("scale"),
    ],
    constants: &["WORKGROUP", "Q_HEADS", "GROUP", "K_DIM", "V_DIM", "ROTATE", "MEAN", "FIXED", "REMOVES", "MAP"],
    codecs: &[],
    cpu,
    wgsl: include_str!("../../shaders/query.wgsl"),
    cuda: None,
};

/// Buffers of a dispatch.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Queries: head `h`, channel `c` of a row at element `h * k_dim + c`.
    pub q_in: RowView,
    /// The step's tables.
    pub tables: BufferSlice,
    /// Means; any buffer where K removes none.
    pub means: BufferSlice,
    /// The K region of the layer's maps, see [`super::maps`]; any buffer that is not written where K has none.
    pub maps: BufferSlice,
    /// Prepared queries, `[rows][q_heads][k_dim + 4]`: channels, bias, the power of two that brings every channel
    /// within 1, its inverse, 0; written.
    pub q_out: BufferSlice,
}

/// Parameters of a dispatch.
#[derive(Clone, Copy, Debug)]
pub struct Args {
    /// First word of the rows in `tables`.
    pub rows_at: u32,
    /// Query rows.
    pub rows: u32,
    /// Where the layer's means are.
    pub means: MeanPlace,
    /// Softmax scale, usually 1/sqrt(k_dim).
    pub scale: f32,
}

/// Specialises for the basis of K; the CPU ignores `workgroup`.
///
/// # Errors
/// None that input can cause.
pub fn specialise(shape: &AttentionShape, basis: SideBasis, workgroup: u32) -> Result<Specialisation> {
    Specialisation::new(
        &DECL,
        &[
            ("WORKGROUP", Constant::U32(workgroup)),
            ("Q_HEADS", Constant::U32(shape.q_heads() as u32)),
            ("GROUP", Constant::U32(shape.group as u32)),
            ("K_DIM", Constant::U32(shape.k_dim as u32)),
            ("V_DIM", Constant::U32(shape.v_dim as u32)),
            ("ROTATE", Constant::Bool(basis.rotate)),
            ("MEAN", Constant::Bool(basis.mean)),
            ("FIXED", Constant::Bool(basis.fixed)),
            ("REMOVES", Constant::Bool(basis.mean || basis.fixed)),
            ("MAP", Constant::Bool(basis.map)),
        ],
        vec![],
    )
}

/// One dispatch over `args.rows` rows; `q_heads` is the shape's.
pub fn dispatch(pipeline: PipelineId, q_heads: usize, buffers: &Buffers, args: &Args) -> Dispatch {
    Dispatch {
        pipeline,
        groups: args.rows * q_heads as u32,
        params: vec![
            args.rows_at,
            args.rows,
            buffers.q_in.offset,
            buffers.q_in.stride,
            args.means.stride,
            args.means.layer_at,
            args.scale.to_bits(),
        ],
        bindings: vec![buffers.q_in.slice, buffers.tables, buffers.means, buffers.maps, buffers.q_out],
    }
}

fn cpu(call: &mut CpuCall<'_>) -> Result<()> {
    let spec = call.spec;
    let (q_heads, group) = (spec.usize("Q_HEADS"), spec.usize("GROUP"));
    let (k_dim, v_dim) = (spec.usize("K_DIM"), spec.usize("V_DIM"));
    let (rotate, remove_mean) = (spec.flag("ROTATE"), spec.flag("MEAN"));
    let basis = SideBasis { rotate, mean: remove_mean, fixed: spec.flag("FIXED"), map: spec.flag("MAP") };
    let region = Region { floats: call.read::<f32>("maps"), basis, dim: k_dim };
    let (q_in, tables, means) = (call.read::<f32>("q_in"), call.read::<u32>("tables"), call.read::<f32>("means"));
    let place =
        Means { stride: call.index("mean_stride"), layer_at: call.index("mean_layer_at"), head_floats: k_dim + v_dim };
    let (rows_at, rows, scale) = (call.index("rows_at"), call.index("rows"), call.float("scale"));
    let (offset, stride) = (call.index("q_offset"), call.index("q_stride"));
    let head_floats = k_dim + 4;
    let q_out = call.write::<f32>("q_out");
    let whole = range(q_out, 0, rows * q_heads * head_floats, "prepared queries")?.len();

    q_out[..whole].par_chunks_exact_mut(q_heads * head_floats).enumerate().try_for_each(|(row, out)| {
        let heads = range(q_in, offset + row * stride, q_heads * k_dim, "row of queries")?;
        let [_, _, _, mean_slot] = item::<ROW_WORDS>(tables, rows_at, row)?;
        let mut scratch = Vec::new();
        let per_head = heads.chunks_exact(k_dim).zip(out.chunks_exact_mut(head_floats));
        for (head, (q, out)) in per_head.enumerate() {
            let (channels, tail) = out.split_at_mut(k_dim);
            channels.copy_from_slice(q);
            tail.fill(0.0);
            let bias = |mean: &[f32]| scale * q.iter().zip(mean).map(|(q, m)| q * m).sum::<f32>();
            if remove_mean {
                tail[0] = bias(range(means, place.at(mean_slot, head / group), k_dim, "mean")?);
            } else if basis.fixed {
                tail[0] = bias(region.mean(head / group)?);
            }
            if basis.map {
                maps::transform(region.matrix(head / group, 1)?, channels, &mut scratch);
            }
            if rotate {
                num::rotate(channels);
            }
            channels.iter_mut().for_each(|q| *q *= scale);
            let peak = channels.iter().map(|q| q.to_bits() & 0x7fff_ffff).max().unwrap_or(0);
            let exponent = (peak >> 23).clamp(2, 252);
            tail[1] = f32::from_bits((253 - exponent) << 23);
            tail[2] = f32::from_bits((exponent + 1) << 23);
        }
        Ok(())
    })
}

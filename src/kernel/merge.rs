//! Merges the partial states of a row and head over formats, splits and tiers, and leaves the basis of V.

use super::attention::{AttentionShape, ROW_WORDS};
use super::maps::{self, Region};
use super::partial::{HEADER, floats};
use super::tables::{Means, item, range, split_disjoint};
use super::{MeanPlace, RowView, SideBasis};
use crate::backend::{
    BindingDecl, BufferSlice, Constant, CpuCall, CudaText, Dispatch, Element, KernelDecl, ParamDecl, PipelineId,
    Specialisation,
};
use crate::error::Result;
use crate::num;
use rayon::prelude::*;

/// The kernel.
pub static DECL: KernelDecl = KernelDecl {
    name: "merge",
    bindings: &[
        BindingDecl::read("partials", Element::F32),
        BindingDecl::read("tables", Element::U32),
        BindingDecl::read("means", Element::F32),
        BindingDecl::read("maps", Element::F32),
        BindingDecl::read("sinks", Element::F32),
        BindingDecl::write("out", Element::F32),
    ],
    params: &[
        ParamDecl::u32("rows_at"),
        ParamDecl::u32("rows"),
        ParamDecl::u32("lists_at"),
        ParamDecl::u32("out_offset"),
        ParamDecl::u32("out_stride"),
        ParamDecl::u32("mean_stride"),
        ParamDecl::u32("mean_layer_at"),
    ],
    constants: &[
        "WORKGROUP",
        "Q_HEADS",
        "KV_HEADS",
        "GROUP",
        "K_DIM",
        "V_DIM",
        "ROTATE",
        "MEAN",
        "FIXED",
        "MAP",
        "SINK",
    ],
    codecs: &[],
    cpu,
    wgsl: include_str!("../../shaders/merge.wgsl"),
    cuda: Some(CudaText {
        text: include_str!("../../cuda/merge.cu"),
        serves: |spec| !spec.flag("MAP") && spec.u32("V_DIM").is_multiple_of(4) && spec.u32("V_DIM") <= 512,
        threads: |_| 128,
        shared_bytes: |_| 0,
        overlaps: true,
    }),
};

/// Buffers of a dispatch.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Partial states.
    pub partials: BufferSlice,
    /// The step's tables.
    pub tables: BufferSlice,
    /// Means; any buffer where V removes none.
    pub means: BufferSlice,
    /// The V region of the layer's maps, see [`super::maps`]; any buffer that is not written where V has none.
    pub maps: BufferSlice,
    /// One attention-sink logit a query head; any buffer without sinks.
    pub sinks: BufferSlice,
    /// Outputs: head `h`, channel `c` of a row at element `h * v_dim + c`; written.
    pub out: RowView,
}

/// Parameters of a dispatch.
#[derive(Clone, Copy, Debug)]
pub struct Args {
    /// First word of the rows in `tables`.
    pub rows_at: u32,
    /// Query rows.
    pub rows: u32,
    /// First word of the merge lists' heads in `tables`.
    pub lists_at: u32,
    /// Where the layer's means are.
    pub means: MeanPlace,
}

/// Specialises for the basis of V and, with `sink`, an attention-sink logit a head; the CPU ignores `workgroup`.
///
/// # Errors
/// None that input can cause.
pub fn specialise(shape: &AttentionShape, basis: SideBasis, sink: bool, workgroup: u32) -> Result<Specialisation> {
    Specialisation::new(
        &DECL,
        &[
            ("WORKGROUP", Constant::U32(workgroup)),
            ("Q_HEADS", Constant::U32(shape.q_heads() as u32)),
            ("KV_HEADS", Constant::U32(shape.kv_heads as u32)),
            ("GROUP", Constant::U32(shape.group as u32)),
            ("K_DIM", Constant::U32(shape.k_dim as u32)),
            ("V_DIM", Constant::U32(shape.v_dim as u32)),
            ("ROTATE", Constant::Bool(basis.rotate)),
            ("MEAN", Constant::Bool(basis.mean)),
            ("FIXED", Constant::Bool(basis.fixed)),
            ("MAP", Constant::Bool(basis.map)),
            ("SINK", Constant::Bool(sink)),
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
            args.lists_at,
            buffers.out.offset,
            buffers.out.stride,
            args.means.stride,
            args.means.layer_at,
        ],
        bindings: vec![buffers.partials, buffers.tables, buffers.means, buffers.maps, buffers.sinks, buffers.out.slice],
    }
}

fn cpu(call: &mut CpuCall<'_>) -> Result<()> {
    let spec = call.spec;
    let (q_heads, kv_heads, group) = (spec.usize("Q_HEADS"), spec.usize("KV_HEADS"), spec.usize("GROUP"));
    let (k_dim, v_dim) = (spec.usize("K_DIM"), spec.usize("V_DIM"));
    let (rotate, add_mean, has_sink) = (spec.flag("ROTATE"), spec.flag("MEAN"), spec.flag("SINK"));
    let basis = SideBasis { rotate, mean: add_mean, fixed: spec.flag("FIXED"), map: spec.flag("MAP") };
    let region = Region { floats: call.read::<f32>("maps"), basis, dim: v_dim };
    let (partials, tables) = (call.read::<f32>("partials"), call.read::<u32>("tables"));
    let (means, sinks) = (call.read::<f32>("means"), call.read::<f32>("sinks"));
    let place =
        Means { stride: call.index("mean_stride"), layer_at: call.index("mean_layer_at"), head_floats: k_dim + v_dim };
    let (rows_at, rows, lists_at) = (call.index("rows_at"), call.index("rows"), call.index("lists_at"));
    let (offset, stride) = (call.index("out_offset"), call.index("out_stride"));
    let out = call.write::<f32>("out");
    let row_floats = q_heads * v_dim;
    let parts = (0..rows).map(|row| (offset + row * stride, row_floats, row)).collect();

    split_disjoint(out, parts, "row of outputs")?.into_par_iter().try_for_each(|(row, out)| {
        let [_, entry, row_in_entry, mean_slot] = item::<ROW_WORDS>(tables, rows_at, row)?;
        let mut scratch = Vec::new();
        for (head, out) in out.chunks_exact_mut(v_dim).enumerate() {
            let (kv_head, head_in_group) = (head / group, head % group);
            let [start, count] = item::<2>(tables, lists_at, entry * kv_heads + kv_head)?;
            let states = range(tables, start, count, "merge list")?
                .iter()
                .map(|&start| {
                    let index = start as usize + row_in_entry * group + head_in_group;
                    range(partials, index.saturating_mul(floats(v_dim)), floats(v_dim), "partial state")
                })
                .collect::<Result<Vec<_>>>()?;
            let sink = if has_sink { Some(range(sinks, head, 1, "sink logit")?[0]) } else { None };
            let weight = combine(&states, sink, out);
            if weight == 0.0 {
                continue;
            }
            if basis.map {
                maps::transform(region.matrix(kv_head, 1)?, out, &mut scratch);
            }
            if rotate {
                num::unrotate(out);
            }
            if add_mean {
                let mean = range(means, place.at(mean_slot, kv_head) + k_dim, v_dim, "mean")?;
                out.iter_mut().zip(mean).for_each(|(o, m)| *o += weight * m);
            }
            if basis.fixed {
                out.iter_mut().zip(region.mean(kv_head)?).for_each(|(o, m)| *o += weight * m);
            }
        }
        Ok(())
    })
}

/// Normalised output of the states, the sink's logit in the denominator; returns the keys' share of the weights:
/// 1 without a sink, 0 (and zeros) when no key was seen.
fn combine(states: &[&[f32]], sink: Option<f32>, out: &mut [f32]) -> f32 {
    out.fill(0.0);
    // A NaN sum is not zero: it takes part, and reaches the output.
    let seen = || states.iter().filter(|state| state[1] != 0.0);
    let Some(first) = seen().next() else {
        return 0.0;
    };
    // Not f32::max, which would drop a NaN.
    let larger = |a: f32, b: f32| if b <= a { a } else { b };
    let m = seen().map(|state| state[0]).chain(sink).fold(first[0], larger);
    let mut l = 0.0;
    for state in seen() {
        let weight = (state[0] - m).exp();
        l += weight * state[1];
        out.iter_mut().zip(&state[HEADER..]).for_each(|(o, s)| *o += weight * s);
    }
    let total = l + sink.map_or(0.0, |sink| (sink - m).exp());
    let inverse = 1.0 / total;
    out.iter_mut().for_each(|o| *o *= inverse);
    l * inverse
}

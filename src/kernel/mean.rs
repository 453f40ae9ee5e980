//! Means of K and V over the first rows of a sequence, for bases that remove them.

use super::attention::AttentionShape;
use super::tables::{Means, item, range, split_disjoint};
use super::{MeanPlace, RowView};
use crate::backend::{
    BindingDecl, BufferSlice, Constant, CpuCall, Dispatch, Element, KernelDecl, ParamDecl, PipelineId, Specialisation,
};
use crate::error::Result;
use rayon::prelude::*;

/// The kernel.
pub static DECL: KernelDecl = KernelDecl {
    name: "mean",
    bindings: &[
        BindingDecl::read("k_in", Element::F32),
        BindingDecl::read("v_in", Element::F32),
        BindingDecl::read("tables", Element::U32),
        BindingDecl::write("means", Element::F32),
    ],
    params: &[
        ParamDecl::u32("items_at"),
        ParamDecl::u32("k_offset"),
        ParamDecl::u32("k_stride"),
        ParamDecl::u32("v_offset"),
        ParamDecl::u32("v_stride"),
        ParamDecl::u32("mean_stride"),
        ParamDecl::u32("mean_layer_at"),
    ],
    constants: &["WORKGROUP", "KV_HEADS", "K_DIM", "V_DIM"],
    codecs: &[],
    cpu,
    wgsl: include_str!("../../shaders/mean.wgsl"),
    cuda: None,
};

/// Words of an item in `tables`: row_start, rows, mean_slot, 0.
pub const ITEM_WORDS: usize = 4;

/// Buffers of a dispatch.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Keys in their original coordinates: head `h`, channel `c` of a row at element `h * k_dim + c`.
    pub k_in: RowView,
    /// Values, likewise.
    pub v_in: RowView,
    /// The step's tables.
    pub tables: BufferSlice,
    /// Means, `[mean_slot][layer][kv_head][k_dim + v_dim]`, written.
    pub means: BufferSlice,
}

/// Parameters of a dispatch.
#[derive(Clone, Copy, Debug)]
pub struct Args {
    /// Sequences whose means to take, each with a mean slot of its own.
    pub items: u32,
    /// First word of the items in `tables`.
    pub items_at: u32,
    /// Where the layer's means go.
    pub means: MeanPlace,
}

/// Specialises for a shape; the CPU ignores `workgroup`.
///
/// # Errors
/// None that input can cause.
pub fn specialise(shape: &AttentionShape, workgroup: u32) -> Result<Specialisation> {
    Specialisation::new(
        &DECL,
        &[
            ("WORKGROUP", Constant::U32(workgroup)),
            ("KV_HEADS", Constant::U32(shape.kv_heads as u32)),
            ("K_DIM", Constant::U32(shape.k_dim as u32)),
            ("V_DIM", Constant::U32(shape.v_dim as u32)),
        ],
        vec![],
    )
}

/// One dispatch over `args.items` items; `kv_heads` is the shape's.
pub fn dispatch(pipeline: PipelineId, kv_heads: usize, buffers: &Buffers, args: &Args) -> Dispatch {
    Dispatch {
        pipeline,
        groups: args.items * kv_heads as u32,
        params: vec![
            args.items_at,
            buffers.k_in.offset,
            buffers.k_in.stride,
            buffers.v_in.offset,
            buffers.v_in.stride,
            args.means.stride,
            args.means.layer_at,
        ],
        bindings: vec![buffers.k_in.slice, buffers.v_in.slice, buffers.tables, buffers.means],
    }
}

fn cpu(call: &mut CpuCall<'_>) -> Result<()> {
    let spec = call.spec;
    let (heads, k_dim, v_dim) = (spec.usize("KV_HEADS"), spec.usize("K_DIM"), spec.usize("V_DIM"));
    let (k_in, v_in, tables) = (call.read::<f32>("k_in"), call.read::<f32>("v_in"), call.read::<u32>("tables"));
    let place =
        Means { stride: call.index("mean_stride"), layer_at: call.index("mean_layer_at"), head_floats: k_dim + v_dim };
    let items_at = call.index("items_at");
    let (k_offset, k_stride) = (call.index("k_offset"), call.index("k_stride"));
    let (v_offset, v_stride) = (call.index("v_offset"), call.index("v_stride"));
    let mut parts = Vec::with_capacity(call.groups as usize);
    for group in 0..call.groups as usize {
        let (index, head) = (group / heads.max(1), group % heads.max(1));
        let [row_start, rows, mean_slot, _] = item::<ITEM_WORDS>(tables, items_at, index)?;
        parts.push((place.at(mean_slot, head), k_dim + v_dim, (row_start, rows, head)));
    }
    let means = call.write::<f32>("means");
    split_disjoint(means, parts, "mean")?.into_par_iter().try_for_each(|((row_start, rows, head), out)| {
        let (k, v) = out.split_at_mut(k_dim);
        let sides = [(k_in, k_offset, k_stride, k), (v_in, v_offset, v_stride, v)];
        for (values, offset, stride, mean) in sides {
            mean.fill(0.0);
            for row in row_start..row_start + rows {
                let start = offset + row * stride + head * mean.len();
                let row = range(values, start, mean.len(), "row of K or V")?;
                mean.iter_mut().zip(row).for_each(|(m, x)| *m += x);
            }
            let inverse = 1.0 / rows.max(1) as f32;
            mean.iter_mut().for_each(|m| *m *= inverse);
        }
        Ok(())
    })
}

//! `silu(gate) * up`: the gated half of a Llama feed-forward block.

use super::RowView;
use super::view::{Rows, RowsMut, groups};
use crate::backend::{
    BindingDecl, Constant, CpuCall, Dispatch, Element, KernelDecl, ParamDecl, PipelineId, Specialisation,
};
use crate::error::Result;

const WORKGROUP: u32 = 64;

/// `out = gate / (1 + exp(-gate)) * up`.
pub static DECL: KernelDecl = KernelDecl {
    name: "silu_mul",
    bindings: &[
        BindingDecl::read("gate", Element::F32),
        BindingDecl::read("up", Element::F32),
        BindingDecl::write("out", Element::F32),
    ],
    params: &[
        ParamDecl::u32("rows"),
        ParamDecl::u32("width"),
        ParamDecl::u32("gate_offset"),
        ParamDecl::u32("gate_stride"),
        ParamDecl::u32("up_offset"),
        ParamDecl::u32("up_stride"),
        ParamDecl::u32("out_offset"),
        ParamDecl::u32("out_stride"),
    ],
    constants: &["WORKGROUP"],
    codecs: &[],
    cpu,
    wgsl: include_str!("../../shaders/silu_mul.wgsl"),
    cuda: None,
};

/// The one specialisation of the kernel.
pub fn specialise() -> Result<Specialisation> {
    Specialisation::new(&DECL, &[("WORKGROUP", Constant::U32(WORKGROUP))], Vec::new())
}

/// `out[r][i] = silu(gate[r][i]) * up[r][i]` for `rows` rows of `width` values. Gate and up may be halves of one
/// buffer; out lies in another.
///
/// # Errors
/// `Shape` when a view is not inside its slice.
pub fn dispatch(
    pipeline: PipelineId,
    gate: RowView,
    up: RowView,
    out: RowView,
    rows: u32,
    width: u32,
) -> Result<Dispatch> {
    gate.check("silu_mul.gate", rows, width, false)?;
    up.check("silu_mul.up", rows, width, false)?;
    out.check("silu_mul.out", rows, width, true)?;
    Ok(Dispatch {
        pipeline,
        groups: groups("silu_mul", u64::from(rows) * u64::from(width), WORKGROUP)?,
        params: vec![rows, width, gate.offset, gate.stride, up.offset, up.stride, out.offset, out.stride],
        bindings: vec![gate.slice, up.slice, out.slice],
    })
}

fn cpu(call: &mut CpuCall<'_>) -> Result<()> {
    let (rows, width) = (call.param("rows"), call.param("width"));
    let gate = Rows::of(call, "gate", rows, width)?;
    let up = Rows::of(call, "up", rows, width)?;
    // An exponential costs about as much as 16 plain values.
    RowsMut::of(call, "out", rows, width)?.for_each(16 * width as usize, |row, out| {
        for ((out, &gate), &up) in out.iter_mut().zip(gate.row(row)).zip(up.row(row)) {
            *out = silu(gate) * up;
        }
    });
    Ok(())
}

/// `x / (1 + exp(-x))` without overflow on either side.
fn silu(x: f32) -> f32 {
    let e = (-x.abs()).exp();
    x * if x >= 0.0 { 1.0 } else { e } / (1.0 + e)
}

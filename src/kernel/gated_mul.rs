//! `activation(gate) * up`: the gated half of a feed-forward block, SwiGLU or GeGLU (arXiv 2002.05202).

use super::RowView;
use super::view::{Rows, RowsMut, groups};
use crate::backend::{
    BindingDecl, Constant, CpuCall, Dispatch, Element, KernelDecl, ParamDecl, PipelineId, Specialisation,
};
use crate::error::Result;

const WORKGROUP: u32 = 64;

/// What the gate goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `x / (1 + exp(-x))`.
    Silu,
    /// GELU in its tanh form: `x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))` (arXiv 1606.08415).
    GeluTanh,
}

/// `out = activation(gate) * up`.
pub static DECL: KernelDecl = KernelDecl {
    name: "gated_mul",
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
    constants: &["WORKGROUP", "GELU"],
    codecs: &[],
    cpu,
    wgsl: include_str!("../../shaders/gated_mul.wgsl"),
    cuda: None,
};

/// For one activation.
pub fn specialise(activation: Activation) -> Result<Specialisation> {
    let gelu = activation == Activation::GeluTanh;
    Specialisation::new(&DECL, &[("WORKGROUP", Constant::U32(WORKGROUP)), ("GELU", Constant::Bool(gelu))], Vec::new())
}

/// `out[r][i] = activation(gate[r][i]) * up[r][i]` for `rows` rows of `width` values. Gate and up may be halves of one
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
    gate.check("gated_mul.gate", rows, width, false)?;
    up.check("gated_mul.up", rows, width, false)?;
    out.check("gated_mul.out", rows, width, true)?;
    Ok(Dispatch {
        pipeline,
        groups: groups("gated_mul", u64::from(rows) * u64::from(width), WORKGROUP)?,
        params: vec![rows, width, gate.offset, gate.stride, up.offset, up.stride, out.offset, out.stride],
        bindings: vec![gate.slice, up.slice, out.slice],
    })
}

fn cpu(call: &mut CpuCall<'_>) -> Result<()> {
    let (rows, width) = (call.param("rows"), call.param("width"));
    let gelu = call.spec.flag("GELU");
    let gate = Rows::of(call, "gate", rows, width)?;
    let up = Rows::of(call, "up", rows, width)?;
    // An exponential costs about as much as 16 plain values.
    RowsMut::of(call, "out", rows, width)?.for_each(16 * width as usize, |row, out| {
        for ((out, &gate), &up) in out.iter_mut().zip(gate.row(row)).zip(up.row(row)) {
            *out = if gelu { gelu_tanh(gate) } else { silu(gate) } * up;
        }
    });
    Ok(())
}

/// `1 / (1 + exp(-x))` without overflow on either side.
fn sigmoid(x: f32) -> f32 {
    let e = (-x.abs()).exp();
    if x >= 0.0 { 1.0 / (1.0 + e) } else { e / (1.0 + e) }
}

fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

/// `(1 + tanh(u)) / 2` is `sigmoid(2 u)`.
fn gelu_tanh(x: f32) -> f32 {
    // Past 20 the sigmoid is 0 or 1 in f32; the cube of a far larger x would overflow.
    let t = x.clamp(-20.0, 20.0);
    x * sigmoid(2.0 * std::f32::consts::FRAC_2_PI.sqrt() * (t + 0.044_715 * t * t * t))
}

//! Root-mean-square norm of each head of a row, in place: what Qwen 3 and Gemma 3 do to queries and keys before they
//! are turned.

use super::RowView;
use super::view::{RowsMut, groups};
use crate::backend::{
    BindingDecl, BufferSlice, Constant, CpuCall, Dispatch, Element, KernelDecl, ParamDecl, PipelineId, Specialisation,
};
use crate::error::{Error, ErrorKind, Result};

const WORKGROUP: u32 = 64;

/// `x = x / sqrt(mean(x^2) + eps) * w` over heads of DIM values, one workgroup a head.
pub static DECL: KernelDecl = KernelDecl {
    name: "head_norm",
    bindings: &[BindingDecl::write("x", Element::F32), BindingDecl::read("w", Element::F32)],
    params: &[
        ParamDecl::u32("rows"),
        ParamDecl::u32("heads"),
        ParamDecl::u32("x_offset"),
        ParamDecl::u32("x_stride"),
        ParamDecl::f32("eps"),
    ],
    constants: &["WORKGROUP", "DIM"],
    codecs: &[],
    cpu,
    wgsl: include_str!("../../shaders/head_norm.wgsl"),
    cuda: None,
};

/// For heads of `dim` values.
pub fn specialise(dim: u32) -> Result<Specialisation> {
    Specialisation::new(&DECL, &[("WORKGROUP", Constant::U32(WORKGROUP)), ("DIM", Constant::U32(dim))], Vec::new())
}

/// Normalises `heads` neighbouring heads of each of `rows` rows; `specialisation` is the pipeline's. `weights` holds
/// one f32 for each of a head's values, the same for all heads. `eps` is above 0.
///
/// # Errors
/// `Shape` when the view or the weights are not inside their slices.
pub fn dispatch(
    pipeline: PipelineId,
    specialisation: &Specialisation,
    x: RowView,
    weights: BufferSlice,
    rows: u32,
    heads: u32,
    eps: f32,
) -> Result<Dispatch> {
    let dim = specialisation.u32("DIM");
    x.check("head_norm.x", rows, width(heads, dim)?, true)?;
    check_weights(weights.bytes / 4, dim)?;
    Ok(Dispatch {
        pipeline,
        groups: groups("head_norm", u64::from(rows) * u64::from(heads), 1)?,
        params: vec![rows, heads, x.offset, x.stride, eps.to_bits()],
        bindings: vec![x.slice, weights],
    })
}

fn width(heads: u32, dim: u32) -> Result<u32> {
    heads
        .checked_mul(dim)
        .ok_or_else(|| Error::new(ErrorKind::Shape, format!("head_norm: {heads} heads of {dim} values a row"), ""))
}

fn check_weights(given: u64, dim: u32) -> Result<()> {
    if given < u64::from(dim) {
        return Err(Error::new(ErrorKind::Shape, format!("head_norm: {dim} weights, the slice has {given}"), ""));
    }
    Ok(())
}

fn cpu(call: &mut CpuCall<'_>) -> Result<()> {
    let (rows, heads, eps) = (call.param("rows"), call.param("heads"), call.float("eps"));
    let dim = call.spec.u32("DIM");
    let weights: &[f32] = call.read("w");
    check_weights(weights.len() as u64, dim)?;
    let weights = &weights[..dim as usize];
    let width = width(heads, dim)?;
    RowsMut::of(call, "x", rows, width)?.for_each(2 * width as usize, |_, x| {
        for head in x.chunks_exact_mut(dim as usize) {
            let squares = head.iter().map(|x| x * x).sum::<f32>();
            let scale = 1.0 / (squares / dim as f32 + eps).sqrt();
            for (x, w) in head.iter_mut().zip(weights) {
                *x = *x * scale * w;
            }
        }
    });
    Ok(())
}

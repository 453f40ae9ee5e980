//! The largest value's index in each row: greedy sampling without reading the logits.

use super::RowView;
use super::view::Rows;
use crate::backend::{
    BindingDecl, BufferSlice, Constant, CpuCall, Dispatch, Element, KernelDecl, ParamDecl, PipelineId, Specialisation,
};
use crate::error::{Error, ErrorKind, Result};
use rayon::prelude::*;

/// What stands for the index of a row that holds a NaN.
pub const NAN: u32 = u32::MAX;

/// One workgroup a row. Values are read as words: a shader may not be trusted with `x != x`.
pub static DECL: KernelDecl = KernelDecl {
    name: "argmax",
    bindings: &[BindingDecl::read("logits", Element::U32), BindingDecl::write("out", Element::U32)],
    params: &[
        ParamDecl::u32("rows"),
        ParamDecl::u32("width"),
        ParamDecl::u32("logits_offset"),
        ParamDecl::u32("logits_stride"),
        ParamDecl::u32("out_offset"),
    ],
    constants: &["WORKGROUP"],
    codecs: &[],
    cpu,
    wgsl: include_str!("../../shaders/argmax.wgsl"),
    cuda: None,
};

/// The one specialisation of the kernel.
pub fn specialise() -> Result<Specialisation> {
    Specialisation::new(&DECL, &[("WORKGROUP", Constant::U32(256))], Vec::new())
}

/// `out[out_offset + r]` (u32) becomes the index of the largest of row `r`'s `width` values; the lowest of equal
/// ones; [`NAN`] when the row holds a NaN.
///
/// # Errors
/// `Shape` when the view or the output is not inside its slice, or rows are empty.
pub fn dispatch(
    pipeline: PipelineId,
    logits: RowView,
    out: BufferSlice,
    out_offset: u32,
    rows: u32,
    width: u32,
) -> Result<Dispatch> {
    logits.check("argmax.logits", rows, width, false)?;
    check_out(out.bytes / 4, out_offset, rows, width)?;
    Ok(Dispatch {
        pipeline,
        groups: rows,
        params: vec![rows, width, logits.offset, logits.stride, out_offset],
        bindings: vec![logits.slice, out],
    })
}

fn check_out(given: u64, offset: u32, rows: u32, width: u32) -> Result<()> {
    if width == 0 || given < u64::from(offset) + u64::from(rows) {
        return Err(Error::new(
            ErrorKind::Shape,
            format!("argmax: {rows} rows of {width} values into {given} words from {offset} on"),
            "",
        ));
    }
    Ok(())
}

fn cpu(call: &mut CpuCall<'_>) -> Result<()> {
    let (rows, width, offset) = (call.param("rows"), call.param("width"), call.param("out_offset"));
    let logits = Rows::of(call, "logits", rows, width)?;
    let out: &mut [u32] = call.write("out");
    check_out(out.len() as u64, offset, rows, width)?;
    out[offset as usize..][..rows as usize]
        .par_iter_mut()
        .enumerate()
        .for_each(|(row, out)| *out = argmax(logits.row(row)));
    Ok(())
}

/// Largest first over pieces, sixteen side by side as vector code takes them, then its place in the first piece
/// that has it.
fn argmax(values: &[f32]) -> u32 {
    const PIECE: usize = 1024;
    let mut best = (f32::NEG_INFINITY, 0);
    for (at, piece) in values.chunks(PIECE).enumerate() {
        let (blocks, rest) = piece.as_chunks::<16>();
        let mut largest = [f32::NEG_INFINITY; 16];
        let mut nan = [false; 16];
        for block in blocks {
            for lane in 0..16 {
                largest[lane] = if block[lane] > largest[lane] { block[lane] } else { largest[lane] };
                nan[lane] |= block[lane].is_nan();
            }
        }
        if nan.contains(&true) || rest.iter().any(|v| v.is_nan()) {
            return NAN;
        }
        let largest = largest.iter().chain(rest).fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a });
        if largest > best.0 {
            best = (largest, at * PIECE);
        }
    }
    let found = values[best.1..].iter().position(|&v| v == best.0).unwrap_or(0);
    (best.1 + found) as u32
}

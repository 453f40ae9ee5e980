//! Rows by index: takes the last rows of a prefill into the output projection.

use super::RowView;
use super::view::{Rows, RowsMut, groups};
use crate::backend::{
    BindingDecl, BufferSlice, Constant, CpuCall, Dispatch, Element, KernelDecl, ParamDecl, PipelineId, Specialisation,
};
use crate::error::{Error, ErrorKind, Result};

const WORKGROUP: u32 = 64;

/// Copies rows of x to y by index.
pub static DECL: KernelDecl = KernelDecl {
    name: "gather",
    bindings: &[
        BindingDecl::read("x", Element::F32),
        BindingDecl::read("indices", Element::U32),
        BindingDecl::write("y", Element::F32),
    ],
    params: &[
        ParamDecl::u32("rows"),
        ParamDecl::u32("width"),
        ParamDecl::u32("x_rows"),
        ParamDecl::u32("x_offset"),
        ParamDecl::u32("x_stride"),
        ParamDecl::u32("y_offset"),
        ParamDecl::u32("y_stride"),
    ],
    constants: &["WORKGROUP"],
    codecs: &[],
    cpu,
    wgsl: include_str!("../../shaders/gather.wgsl"),
    cuda: None,
};

/// The one specialisation of the kernel.
pub fn specialise() -> Result<Specialisation> {
    Specialisation::new(&DECL, &[("WORKGROUP", Constant::U32(WORKGROUP))], Vec::new())
}

/// `y[r] = x[indices[r]]` for `rows` rows of `width` values; `indices` are u32, below `x_rows`.
/// A row whose index is not below `x_rows` is left as it was on a GPU, and an error on the CPU.
///
/// # Errors
/// `Shape` when a view or the indices are not inside their slices.
pub fn dispatch(
    pipeline: PipelineId,
    x: RowView,
    x_rows: u32,
    indices: BufferSlice,
    y: RowView,
    rows: u32,
    width: u32,
) -> Result<Dispatch> {
    x.check("gather.x", x_rows, width, false)?;
    y.check("gather.y", rows, width, true)?;
    check_indices(indices.bytes / 4, rows)?;
    Ok(Dispatch {
        pipeline,
        groups: groups("gather", u64::from(rows) * u64::from(width), WORKGROUP)?,
        params: vec![rows, width, x_rows, x.offset, x.stride, y.offset, y.stride],
        bindings: vec![x.slice, indices, y.slice],
    })
}

fn check_indices(given: u64, rows: u32) -> Result<()> {
    if given < u64::from(rows) {
        return Err(Error::new(ErrorKind::Shape, format!("gather: {given} indices for {rows} rows"), ""));
    }
    Ok(())
}

fn cpu(call: &mut CpuCall<'_>) -> Result<()> {
    let (rows, width, x_rows) = (call.param("rows"), call.param("width"), call.param("x_rows"));
    let indices: &[u32] = call.read("indices");
    check_indices(indices.len() as u64, rows)?;
    if let Some(row) = indices[..rows as usize].iter().position(|&i| i >= x_rows) {
        return Err(Error::new(
            ErrorKind::Shape,
            format!("gather: index {} of row {row} in {x_rows} rows", indices[row]),
            "",
        ));
    }
    let x = Rows::of(call, "x", x_rows, width)?;
    RowsMut::of(call, "y", rows, width)?
        .for_each(width as usize, |row, y| y.copy_from_slice(x.row(indices[row] as usize)));
    Ok(())
}

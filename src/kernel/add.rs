//! `x += y`, row by row: the residual stream.

use super::RowView;
use super::view::{Rows, RowsMut, groups};
use crate::backend::{
    BindingDecl, Constant, CpuCall, Dispatch, Element, KernelDecl, ParamDecl, PipelineId, Specialisation,
};
use crate::error::Result;

const WORKGROUP: u32 = 64;

/// Adds rows of y to rows of x.
pub static DECL: KernelDecl = KernelDecl {
    name: "add",
    bindings: &[BindingDecl::write("x", Element::F32), BindingDecl::read("y", Element::F32)],
    params: &[
        ParamDecl::u32("rows"),
        ParamDecl::u32("width"),
        ParamDecl::u32("x_offset"),
        ParamDecl::u32("x_stride"),
        ParamDecl::u32("y_offset"),
        ParamDecl::u32("y_stride"),
    ],
    constants: &["WORKGROUP"],
    codecs: &[],
    cpu,
    wgsl: include_str!("../../shaders/add.wgsl"),
    cuda: None,
};

/// The one specialisation of the kernel.
pub fn specialise() -> Result<Specialisation> {
    Specialisation::new(&DECL, &[("WORKGROUP", Constant::U32(WORKGROUP))], Vec::new())
}

/// `x[r][i] += y[r][i]` for `rows` rows of `width` values; x and y lie in different buffers. A y of
/// stride 0 is one row that is added to each row of x: a bias.
///
/// # Errors
/// `Shape` when a view is not inside its slice.
pub fn dispatch(pipeline: PipelineId, x: RowView, y: RowView, rows: u32, width: u32) -> Result<Dispatch> {
    x.check("add.x", rows, width, true)?;
    y.check("add.y", rows, width, false)?;
    Ok(Dispatch {
        pipeline,
        groups: groups("add", u64::from(rows) * u64::from(width), WORKGROUP)?,
        params: vec![rows, width, x.offset, x.stride, y.offset, y.stride],
        bindings: vec![x.slice, y.slice],
    })
}

fn cpu(call: &mut CpuCall<'_>) -> Result<()> {
    let (rows, width) = (call.param("rows"), call.param("width"));
    let y = Rows::of(call, "y", rows, width)?;
    RowsMut::of(call, "x", rows, width)?.for_each(width as usize, |row, x| {
        for (x, y) in x.iter_mut().zip(y.row(row)) {
            *x += y;
        }
    });
    Ok(())
}

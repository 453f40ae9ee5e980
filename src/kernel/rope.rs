//! Rotary position embedding in place (arXiv 2104.09864), from a table made on the host ([`crate::num::rope`]).

use super::RowView;
use super::view::{RowsMut, groups};
use crate::backend::{
    BindingDecl, BufferSlice, Constant, CpuCall, Dispatch, Element, KernelDecl, ParamDecl, PipelineId, Specialisation,
};
use crate::error::{Error, ErrorKind, Result};
use crate::num::rope::Pairing;

const WORKGROUP: u32 = 64;

/// Turns the first ROTARY_DIM values of heads of DIM values; the rest stays.
pub static DECL: KernelDecl = KernelDecl {
    name: "rope",
    bindings: &[BindingDecl::write("x", Element::F32), BindingDecl::read("table", Element::F32)],
    params: &[ParamDecl::u32("rows"), ParamDecl::u32("heads"), ParamDecl::u32("x_offset"), ParamDecl::u32("x_stride")],
    constants: &["WORKGROUP", "DIM", "ROTARY_DIM", "ADJACENT"],
    codecs: &[],
    cpu,
    wgsl: include_str!("../../shaders/rope.wgsl"),
    cuda: None,
};

/// For heads of `dim` values, of which the first `rotary_dim` turn in pairs.
///
/// # Errors
/// `Unsupported` when `rotary_dim` is odd, 0 or above `dim`.
pub fn specialise(dim: u32, rotary_dim: u32, pairing: Pairing) -> Result<Specialisation> {
    if rotary_dim == 0 || !rotary_dim.is_multiple_of(2) || rotary_dim > dim {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!("{rotary_dim} turning values in a head of {dim}: an even number from 2 to the head's size"),
            "",
        ));
    }
    Specialisation::new(
        &DECL,
        &[
            ("WORKGROUP", Constant::U32(WORKGROUP)),
            ("DIM", Constant::U32(dim)),
            ("ROTARY_DIM", Constant::U32(rotary_dim)),
            ("ADJACENT", Constant::Bool(pairing == Pairing::Adjacent)),
        ],
        Vec::new(),
    )
}

/// Turns `heads` neighbouring heads of each of `rows` rows; `specialisation` is the pipeline's. `table` holds
/// `[rows][rotary_dim / 2][cos, sin]`, as [`crate::num::rope::RopeTable::rows`] makes it. Query and key heads that
/// stand side by side can turn in one dispatch.
///
/// # Errors
/// `Shape` when the view or the table is not inside its slice.
pub fn dispatch(
    pipeline: PipelineId,
    specialisation: &Specialisation,
    x: RowView,
    table: BufferSlice,
    rows: u32,
    heads: u32,
) -> Result<Dispatch> {
    let pairs = specialisation.u32("ROTARY_DIM") / 2;
    x.check("rope.x", rows, width(heads, specialisation.u32("DIM"))?, true)?;
    check_table(table.bytes / 4, rows, pairs)?;
    Ok(Dispatch {
        pipeline,
        groups: groups("rope", u64::from(rows) * u64::from(heads) * u64::from(pairs), WORKGROUP)?,
        params: vec![rows, heads, x.offset, x.stride],
        bindings: vec![x.slice, table],
    })
}

fn width(heads: u32, dim: u32) -> Result<u32> {
    heads
        .checked_mul(dim)
        .ok_or_else(|| Error::new(ErrorKind::Shape, format!("rope: {heads} heads of {dim} values a row"), ""))
}

fn check_table(given: u64, rows: u32, pairs: u32) -> Result<()> {
    let wanted = u64::from(rows) * u64::from(pairs) * 2;
    if given < wanted {
        return Err(Error::new(
            ErrorKind::Shape,
            format!("rope: a table of {given} values for {rows} rows of {pairs} pairs, which take {wanted}"),
            "",
        ));
    }
    Ok(())
}

fn cpu(call: &mut CpuCall<'_>) -> Result<()> {
    let (rows, heads) = (call.param("rows"), call.param("heads"));
    let (dim, rotary) = (call.spec.usize("DIM"), call.spec.usize("ROTARY_DIM"));
    let adjacent = call.spec.flag("ADJACENT");
    let half = rotary / 2;
    let table: &[[f32; 2]] = call.read("table");
    check_table(2 * table.len() as u64, rows, half as u32)?;
    let width = width(heads, dim as u32)?;
    RowsMut::of(call, "x", rows, width)?.for_each(4 * width as usize, |row, x| {
        let turns = &table[row * half..][..half];
        for head in x.chunks_exact_mut(dim) {
            let head = &mut head[..rotary];
            if adjacent {
                for (pair, &[cos, sin]) in head.as_chunks_mut::<2>().0.iter_mut().zip(turns) {
                    let [a, b] = *pair;
                    *pair = [a * cos - b * sin, a * sin + b * cos];
                }
            } else {
                let (low, high) = head.split_at_mut(half);
                for ((low, high), &[cos, sin]) in low.iter_mut().zip(high).zip(turns) {
                    let (a, b) = (*low, *high);
                    (*low, *high) = (a * cos - b * sin, a * sin + b * cos);
                }
            }
        }
    });
    Ok(())
}

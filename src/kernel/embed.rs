//! Rows of the embedding table by token, out of the table as it is stored, times a factor.

use super::view::{RowsMut, groups};
use super::{RowView, WeightSegment};
use crate::backend::{
    BindingDecl, BufferSlice, Constant, CpuCall, Dispatch, Element, KernelDecl, ParamDecl, PipelineId, Specialisation,
};
use crate::error::{Error, ErrorKind, Result};
use crate::num::weights::WeightType;

const WORKGROUP: u32 = 64;

/// `y[r] = w[tokens[r]] * scale`, a thread for 8 values.
pub static DECL: KernelDecl = KernelDecl {
    name: "embed",
    bindings: &[
        BindingDecl::read("tokens", Element::U32),
        BindingDecl::read("w", Element::U32),
        BindingDecl::write("y", Element::F32),
    ],
    params: &[
        ParamDecl::u32("rows"),
        ParamDecl::u32("first_row"),
        ParamDecl::u32("row_count"),
        ParamDecl::u32("y_offset"),
        ParamDecl::u32("y_stride"),
        ParamDecl::f32("scale"),
    ],
    constants: &["WORKGROUP", "WEIGHT", "COLUMNS"],
    codecs: &[],
    cpu,
    wgsl: concat!(include_str!("../../shaders/weights.wgsl"), include_str!("../../shaders/embed.wgsl")),
    cuda: None,
};

/// For a table of rows of `columns` values.
///
/// # Errors
/// `Unsupported` for a column count that the type does not take.
pub fn specialise(weight: WeightType, columns: u32) -> Result<Specialisation> {
    weight.row_bytes(columns as usize)?;
    Specialisation::new(
        &DECL,
        &[
            ("WORKGROUP", Constant::U32(WORKGROUP)),
            ("WEIGHT", Constant::U32(weight.code())),
            ("COLUMNS", Constant::U32(columns)),
        ],
        Vec::new(),
    )
}

/// Writes the table's rows of `tokens` (u32, one a row), times `scale`, to y; `specialisation` is the pipeline's. Rows
/// of tokens that are not in `table` are left alone, so that a table in several segments takes one dispatch each.
///
/// # Errors
/// `Shape` when tokens, table or y are not inside their slices.
pub fn dispatch(
    pipeline: PipelineId,
    specialisation: &Specialisation,
    tokens: BufferSlice,
    table: WeightSegment,
    y: RowView,
    rows: u32,
    scale: f32,
) -> Result<Dispatch> {
    let columns = specialisation.u32("COLUMNS");
    table.check("embed.w", weight(specialisation)?, columns)?;
    y.check("embed.y", rows, columns, true)?;
    check_tokens(tokens.bytes / 4, rows)?;
    Ok(Dispatch {
        pipeline,
        groups: groups("embed", u64::from(rows) * u64::from(columns / 8), WORKGROUP)?,
        params: vec![rows, table.first_row, table.rows, y.offset, y.stride, scale.to_bits()],
        bindings: vec![tokens, table.slice, y.slice],
    })
}

/// The type of weights that `specialisation` reads.
pub(crate) fn weight(specialisation: &Specialisation) -> Result<WeightType> {
    let code = specialisation.u32("WEIGHT");
    WeightType::from_code(code)
        .ok_or_else(|| Error::new(ErrorKind::Unsupported, format!("weights of ggml type {code}"), ""))
}

fn check_tokens(given: u64, rows: u32) -> Result<()> {
    if given < u64::from(rows) {
        return Err(Error::new(ErrorKind::Shape, format!("embed: {given} tokens for {rows} rows"), ""));
    }
    Ok(())
}

fn cpu(call: &mut CpuCall<'_>) -> Result<()> {
    let (rows, first, count) = (call.param("rows"), call.param("first_row"), call.param("row_count"));
    let scale = call.float("scale");
    let columns = call.spec.u32("COLUMNS");
    let weight = weight(call.spec)?;
    let row_bytes = weight.row_bytes(columns as usize)?;
    let tokens: &[u32] = call.read("tokens");
    check_tokens(tokens.len() as u64, rows)?;
    let table: &[u8] = call.read("w");
    if (table.len() as u64) < u64::from(count) * row_bytes as u64 {
        return Err(Error::new(ErrorKind::Shape, format!("{count} rows in {} bytes", table.len()), ""));
    }
    RowsMut::of(call, "y", rows, columns)?.for_each(4 * columns as usize, |row, y| {
        let Some(at) = tokens[row].checked_sub(first).filter(|&at| at < count) else {
            return;
        };
        weight.decode_row(&table[at as usize * row_bytes..][..row_bytes], y);
        if scale != 1.0 {
            y.iter_mut().for_each(|y| *y *= scale);
        }
    });
    Ok(())
}

//! Products with weights as they are stored: `y[r][o] (+)= sum over i of w[o][i] x[r][i]`, sums in f32.
//!
//! Two ways. Few rows: every weight is read once and meets each row in registers; memory sets the speed.
//! Many rows: tiles of weights are decoded once and meet tiles of rows; arithmetic sets it.

mod gemm;
mod gemv;
#[cfg(target_arch = "x86_64")]
mod gemv_avx2;
#[cfg(target_arch = "x86_64")]
mod gemv_avx512;
pub mod tensor;

use super::embed::weight;
use super::view::{Rows, RowsMut, groups};
use super::{RowView, WeightSegment};
use crate::backend::{
    BindingDecl, Constant, CpuCall, Dispatch, Element, KernelDecl, ParamDecl, PipelineId, Specialisation,
};
use crate::error::{Error, ErrorKind, Result};
use crate::num::weights::WeightType;

/// Outputs a thread of the few-rows shader sums.
const OUTS_A_THREAD: u32 = 2;
/// Rows and outputs of a tile of the many-rows shader.
const TILE: u32 = 64;
/// The most rows that the CPU takes one weight at a time.
const FEW: usize = 4;

/// A linear layer over weights as stored.
pub static DECL: KernelDecl = KernelDecl {
    name: "linear",
    bindings: &[
        BindingDecl::read("x", Element::F32x4),
        BindingDecl::read("w", Element::U32),
        BindingDecl::write("y", Element::F32),
    ],
    params: &[
        ParamDecl::u32("rows"),
        ParamDecl::u32("outs"),
        // COLUMNS / 8 once more: loops with a bound that compilers know are unrolled whole by some, which took a
        // minute in Mesa's GL.
        ParamDecl::u32("units"),
        ParamDecl::u32("x_offset"),
        ParamDecl::u32("x_stride"),
        ParamDecl::u32("y_offset"),
        ParamDecl::u32("y_stride"),
    ],
    constants: &["WORKGROUP", "WEIGHT", "COLUMNS", "ACCUMULATE", "ROW_TILE", "LANES"],
    codecs: &[],
    cpu,
    wgsl: concat!(include_str!("../../../shaders/weights.wgsl"), include_str!("../../../shaders/linear.wgsl")),
    cuda: None,
};

/// Which shader a pipeline holds. All give the same sums up to rounding; the CPU's code chooses for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinearPath {
    /// One activation row a pass over the weights.
    OneRow,
    /// Up to 4 rows a pass.
    FewRows,
    /// Tiles of 64 rows and 64 outputs.
    ManyRows,
}

impl LinearPath {
    /// Every path, for warm-up.
    pub const ALL: [LinearPath; 3] = [LinearPath::OneRow, LinearPath::FewRows, LinearPath::ManyRows];

    /// The path for a step of `rows` rows.
    pub fn for_rows(rows: u32) -> Self {
        LinearPath::up_to(rows, 8)
    }

    /// The same where [`tensor`] kernels serve: few rows are up to 16.
    pub fn for_rows_of_tensors(rows: u32) -> Self {
        LinearPath::up_to(rows, 16)
    }

    fn up_to(rows: u32, few: u32) -> Self {
        match rows {
            0 | 1 => LinearPath::OneRow,
            _ if rows <= few => LinearPath::FewRows,
            _ => LinearPath::ManyRows,
        }
    }

    fn row_tile(self) -> u32 {
        match self {
            LinearPath::OneRow => 1,
            LinearPath::FewRows => 4,
            LinearPath::ManyRows => TILE,
        }
    }
}

/// For weights of rows of `columns` values. With `accumulate`, y is added to instead of overwritten.
///
/// # Errors
/// `Unsupported` for a column count that the type does not take.
pub fn specialise(weight: WeightType, columns: u32, accumulate: bool, path: LinearPath) -> Result<Specialisation> {
    weight.row_bytes(columns as usize)?;
    let units = columns / 8;
    // Lanes that share an output: as many as find work in most of their rounds.
    let lanes: u32 = if units >= 256 || units.is_multiple_of(32) { 32 } else { 16 };
    let workgroup: u32 = if path == LinearPath::ManyRows { 256 } else { 64 };
    Specialisation::new(
        &DECL,
        &[
            ("WORKGROUP", Constant::U32(workgroup)),
            ("WEIGHT", Constant::U32(weight.code())),
            ("COLUMNS", Constant::U32(columns)),
            ("ACCUMULATE", Constant::Bool(accumulate)),
            ("ROW_TILE", Constant::U32(path.row_tile())),
            ("LANES", Constant::U32(lanes)),
        ],
        Vec::new(),
    )
}

/// Multiplies `rows` rows of x by the segment's rows and writes outputs `first_row..first_row + rows` of y, which
/// lies in another buffer; `specialisation` is the pipeline's. x starts at, and has rows, multiples of 4 values
/// apart. A tensor in several segments takes one dispatch each.
///
/// # Errors
/// `Shape` when a view or the segment is not inside its slice, or x is not aligned.
pub fn dispatch(
    pipeline: PipelineId,
    specialisation: &Specialisation,
    weights: WeightSegment,
    x: RowView,
    y: RowView,
    rows: u32,
) -> Result<Dispatch> {
    let columns = specialisation.u32("COLUMNS");
    weights.check("linear.w", weight(specialisation)?, columns)?;
    x.check("linear.x", rows, columns, false)?;
    if !x.offset.is_multiple_of(4) || !x.stride.is_multiple_of(4) {
        return Err(Error::new(
            ErrorKind::Shape,
            format!("linear.x: offset {} and stride {} are not both multiples of 4 values", x.offset, x.stride),
            "pad the rows",
        ));
    }
    let y = y.right(weights.first_row);
    y.check("linear.y", rows, weights.rows, true)?;
    let (row_tile, out_tile) = tile(specialisation);
    let out_tiles = u64::from(weights.rows.div_ceil(out_tile));
    let tiles = match std::ptr::eq(specialisation.decl, &tensor::FEW) {
        // Workgroups that stay, and take all rows by themselves.
        true if rows > 0 => out_tiles.min(u64::from(specialisation.u32("MOST_GROUPS"))),
        _ => u64::from(rows.div_ceil(row_tile)) * out_tiles,
    };
    Ok(Dispatch {
        pipeline,
        groups: groups("linear", tiles, 1)?,
        params: vec![rows, weights.rows, columns / 8, x.offset, x.stride, y.offset, y.stride],
        bindings: vec![x.slice, weights.slice, y.slice],
    })
}

/// The most rows whose product with `outs` outputs takes at most `groups` workgroups: a multiple of a tile's rows, and
/// at least one tile's. Products of such parts of x are the bits that one product gives.
pub fn rows_within(specialisation: &Specialisation, outs: u32, groups: u32) -> u32 {
    let (row_tile, out_tile) = tile(specialisation);
    (groups / outs.div_ceil(out_tile).max(1)).max(1).saturating_mul(row_tile)
}

/// Rows and outputs of a workgroup's tile.
fn tile(specialisation: &Specialisation) -> (u32, u32) {
    if tensor::is_tensor(specialisation) {
        return (specialisation.u32("ROW_TILE"), specialisation.u32("OUT_TILE"));
    }
    match specialisation.u32("ROW_TILE") {
        TILE => (TILE, TILE),
        few => (few, specialisation.u32("WORKGROUP") / specialisation.u32("LANES") * OUTS_A_THREAD),
    }
}

/// What both CPU paths work on.
#[derive(Clone, Copy)]
struct Product<'a> {
    weight: WeightType,
    weights: &'a [u8],
    row_bytes: usize,
    columns: usize,
    x: Rows<'a>,
    rows: usize,
    outs: usize,
}

fn cpu(call: &mut CpuCall<'_>) -> Result<()> {
    let (rows, outs, columns) = (call.param("rows"), call.param("outs"), call.spec.u32("COLUMNS"));
    let accumulate = call.spec.flag("ACCUMULATE");
    let weight = weight(call.spec)?;
    let row_bytes = weight.row_bytes(columns as usize)?;
    let weights: &[u8] = call.read("w");
    let Some(weights) = weights.get(..outs as usize * row_bytes) else {
        return Err(Error::new(ErrorKind::Shape, format!("{outs} rows in {} bytes", weights.len()), ""));
    };
    let x = Rows::of(call, "x", rows, columns)?;
    let y = RowsMut::of(call, "y", rows, outs)?;
    if rows == 0 || outs == 0 {
        return Ok(());
    }
    let (rows, outs) = (rows as usize, outs as usize);
    let product = Product { weight, weights, row_bytes, columns: columns as usize, x, rows, outs };
    let store = move |y: &mut f32, sum: f32| if accumulate { *y += sum } else { *y = sum };
    if rows <= FEW {
        // Sums lie output by output, a row's beside another's.
        let sums = gemv::multiply(product);
        y.for_each(outs, |row, y| {
            for (y, sums) in y.iter_mut().zip(sums.chunks_exact(rows)) {
                store(y, sums[row]);
            }
        });
    } else {
        let panels = gemm::multiply(product);
        y.for_each(outs, |row, y| {
            for (y, sums) in y.chunks_mut(panels.width).zip(&panels.sums) {
                for (y, &sum) in y.iter_mut().zip(&sums[row * panels.width..]) {
                    store(y, sum);
                }
            }
        });
    }
    Ok(())
}

//! Kernels that compute side planes: what all of them are given, whoever wrote them.
//!
//! A plane kernel is told which rows a step appends to which pages, in their original coordinates, and brings those
//! pages' records up to date. A workgroup takes one page: group `item · KV_HEADS + head`. In WGSL `lib/plane.wgsl` unfolds
//! that, on the CPU [`each_page`].
//!
//! A record may come to cover tokens that are no longer there: rows are taken back, and a cut page keeps its record. So
//! it has to be one that stays true of fewer tokens, as bounds do.

use super::attention::AttentionShape;
use super::tables::{descriptor, item, range, split_disjoint};
use super::{RowView, append};
use crate::backend::{
    Access, BindingDecl, BufferSlice, Constant, CpuCall, Dispatch, Element, KernelDecl, ParamDecl, PipelineId,
    Specialisation,
};
use crate::error::{Error, ErrorKind, Result};
use rayon::prelude::*;

/// Bindings of every plane kernel: new keys and values, `[rows][kv_heads][dim]` at the parameters' offsets and strides;
/// the step's tables; page descriptors; a segment of records, written. Any 4-byte element will do.
pub const BINDINGS: [BindingDecl; 5] = [
    BindingDecl::read("k_in", Element::F32),
    BindingDecl::read("v_in", Element::F32),
    BindingDecl::read("tables", Element::U32),
    BindingDecl::read("descs", Element::U32),
    BindingDecl::write("planes", Element::U32),
];

/// Parameters of every plane kernel. `first_record` is the row, as descriptors count them, of the segment's first record.
pub const PARAMS: [ParamDecl; 6] = [
    ParamDecl::u32("items_at"),
    ParamDecl::u32("first_record"),
    ParamDecl::u32("k_offset"),
    ParamDecl::u32("k_stride"),
    ParamDecl::u32("v_offset"),
    ParamDecl::u32("v_stride"),
];

/// Constants of every plane kernel. The plane has words `PLANE_AT..PLANE_AT + PLANE_WORDS` of a record's `RECORD_WORDS`.
pub const CONSTANTS: [&str; 8] =
    ["WORKGROUP", "KV_HEADS", "K_DIM", "V_DIM", "PAGE_TOKENS", "RECORD_WORDS", "PLANE_AT", "PLANE_WORDS"];

/// Words of an item in `tables`: row_start, rows, token in the page of the first, desc_list (as [`append`]'s).
pub const ITEM_WORDS: usize = 4;

/// Where a plane stands in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanePlace {
    /// Words of a whole record, a multiple of 4.
    pub record_words: u32,
    /// First word of the plane.
    pub at: u32,
    /// Its words.
    pub words: u32,
}

/// Buffers of a dispatch.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// New keys in their original coordinates: head `h`, channel `c` of a row at element `h * k_dim + c`.
    pub k_in: RowView,
    /// New values, likewise.
    pub v_in: RowView,
    /// The step's tables.
    pub tables: BufferSlice,
    /// Page descriptors.
    pub descs: BufferSlice,
    /// A segment of records, written.
    pub planes: BufferSlice,
}

/// Parameters of a dispatch.
#[derive(Clone, Copy, Debug)]
pub struct Args {
    /// Pages (of all KV heads) that get rows.
    pub items: u32,
    /// First word of the items in `tables`.
    pub items_at: u32,
    /// Row of the segment's first record.
    pub first_record: u32,
}

/// Specialises a plane kernel; the CPU ignores `workgroup`.
///
/// # Errors
/// `Shape` for a kernel whose bindings, parameters or constants are not those above, naming the first that differs.
pub fn specialise(
    decl: &'static KernelDecl,
    shape: &AttentionShape,
    place: PlanePlace,
    workgroup: u32,
) -> Result<Specialisation> {
    check(decl)?;
    Specialisation::new(
        decl,
        &[
            ("WORKGROUP", Constant::U32(workgroup)),
            ("KV_HEADS", Constant::U32(shape.kv_heads as u32)),
            ("K_DIM", Constant::U32(shape.k_dim as u32)),
            ("V_DIM", Constant::U32(shape.v_dim as u32)),
            ("PAGE_TOKENS", Constant::U32(shape.page_tokens as u32)),
            ("RECORD_WORDS", Constant::U32(place.record_words)),
            ("PLANE_AT", Constant::U32(place.at)),
            ("PLANE_WORDS", Constant::U32(place.words)),
        ],
        vec![],
    )
}

/// Refuses a kernel that the engine could not feed.
pub(crate) fn check(decl: &KernelDecl) -> Result<()> {
    let bindings =
        |list: &[BindingDecl]| -> Vec<(&'static str, Access)> { list.iter().map(|b| (b.name, b.access)).collect() };
    let params = |list: &[ParamDecl]| -> Vec<_> { list.iter().map(|p| (p.name, p.kind)).collect() };
    let words = decl.bindings.iter().all(|b| matches!(b.element, Element::U32 | Element::F32));
    let differs = if bindings(decl.bindings) != bindings(&BINDINGS) || !words {
        "bindings"
    } else if params(decl.params) != params(&PARAMS) {
        "parameters"
    } else if decl.constants != CONSTANTS {
        "constants"
    } else if !decl.codecs.is_empty() {
        "codecs"
    } else {
        return Ok(());
    };
    Err(Error::new(
        ErrorKind::Shape,
        format!("kernel {} has other {differs} than kernels of side planes have", decl.name),
        "declare kernel::plane's BINDINGS, PARAMS and CONSTANTS, and no codecs",
    ))
}

/// One dispatch over `args.items` items; `kv_heads` is the shape's.
pub fn dispatch(pipeline: PipelineId, kv_heads: usize, buffers: &Buffers, args: &Args) -> Dispatch {
    let Buffers { k_in, v_in, tables, descs, planes } = *buffers;
    Dispatch {
        pipeline,
        groups: args.items * kv_heads as u32,
        params: vec![args.items_at, args.first_record, k_in.offset, k_in.stride, v_in.offset, v_in.stride],
        bindings: vec![k_in.slice, v_in.slice, tables, descs, planes],
    }
}

/// The rows that a step appends to one page of one KV head.
#[derive(Clone, Copy, Debug)]
pub struct NewRows<'a> {
    /// Token in the page of the first row. At 0 the page held nothing before: what the record holds is another page's.
    pub first_token: usize,
    /// How many.
    pub rows: usize,
    k: Side<'a>,
    v: Side<'a>,
}

#[derive(Clone, Copy, Debug)]
struct Side<'a> {
    values: &'a [f32],
    at: usize,
    stride: usize,
    dim: usize,
}

impl<'a> Side<'a> {
    fn row(&self, row: usize) -> Result<&'a [f32]> {
        range(self.values, self.at.saturating_add(row.saturating_mul(self.stride)), self.dim, "row of K or V")
    }
}

impl<'a> NewRows<'a> {
    /// The key of row `row`, in its original coordinates.
    ///
    /// # Errors
    /// `Shape` for a row outside the input.
    pub fn k(&self, row: usize) -> Result<&'a [f32]> {
        self.k.row(row)
    }

    /// The value of row `row`.
    ///
    /// # Errors
    /// `Shape` for a row outside the input.
    pub fn v(&self, row: usize) -> Result<&'a [f32]> {
        self.v.row(row)
    }
}

/// The CPU side of a plane kernel: calls `summarise` for every page with its new rows and the plane's words of its record.
///
/// # Errors
/// `Shape` for tables, descriptors or rows that do not fit; what `summarise` says.
pub fn each_page(
    call: &mut CpuCall<'_>,
    summarise: impl Fn(&NewRows<'_>, &mut [u32]) -> Result<()> + Sync,
) -> Result<()> {
    let spec = call.spec;
    let (heads, tokens) = (spec.usize("KV_HEADS").max(1), spec.usize("PAGE_TOKENS"));
    let (record_words, at, words) = (spec.usize("RECORD_WORDS"), spec.usize("PLANE_AT"), spec.usize("PLANE_WORDS"));
    let (tables, descs) = (call.read::<u32>("tables"), call.read::<u32>("descs"));
    let (items_at, first_record) = (call.index("items_at"), call.param("first_record"));
    let sides = [("k_in", "k_offset", "k_stride", "K_DIM"), ("v_in", "v_offset", "v_stride", "V_DIM")];
    let [k, v] = sides.map(|(name, offset, stride, dim)| Side {
        values: call.read::<f32>(name),
        at: call.index(offset),
        stride: call.index(stride),
        dim: spec.usize(dim),
    });
    let mut pages = Vec::with_capacity(call.groups as usize);
    for group in 0..call.groups as usize {
        let (index, head) = (group / heads, group % heads);
        let [row_start, rows, first_token, desc_list] = item::<ITEM_WORDS>(tables, items_at, index)?;
        let id = range(tables, desc_list, heads, "descriptor list")?[head];
        if id == append::NO_PAGE {
            continue;
        }
        let record = descriptor(descs, id as usize)?.side.checked_sub(first_record).map(|r| r as usize);
        let (Some(record), true) = (record, first_token + rows <= tokens) else {
            return Err(Error::new(
                ErrorKind::Shape,
                format!("page {id}: tokens {first_token}..+{rows} of {tokens}, or its record is of an earlier segment"),
                "",
            ));
        };
        let of = |side: Side<'_>| -> usize {
            side.at.saturating_add(row_start.saturating_mul(side.stride)).saturating_add(head * side.dim)
        };
        let rows = NewRows { first_token, rows, k: Side { at: of(k), ..k }, v: Side { at: of(v), ..v } };
        pages.push((record.saturating_mul(record_words).saturating_add(at), words, rows));
    }
    let planes = call.write::<u32>("planes");
    split_disjoint(planes, pages, "record")?.into_par_iter().try_for_each(|(rows, record)| summarise(&rows, record))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_could_not_be_fed_are_refused_by_name() {
        let fine = KernelDecl {
            name: "toy",
            bindings: &BINDINGS,
            params: &PARAMS,
            constants: &CONSTANTS,
            codecs: &[],
            cpu: |_| Ok(()),
            wgsl: "",
            cuda: None,
        };
        assert!(check(&fine).is_ok());
        let wrong = [
            (KernelDecl { bindings: &BINDINGS[..4], ..fine }, "bindings"),
            (KernelDecl { params: &PARAMS[1..], ..fine }, "parameters"),
            (KernelDecl { constants: &CONSTANTS[..3], ..fine }, "constants"),
            (KernelDecl { codecs: &["k"], ..fine }, "codecs"),
        ];
        for (decl, what) in wrong {
            let error = check(&decl).unwrap_err();
            assert!(error.message().contains("toy") && error.message().contains(what), "{error}");
        }
    }
}

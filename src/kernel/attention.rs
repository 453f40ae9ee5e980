//! What `decode` and `prefill` share: shape, buffers, parameters and the specialisation.
//!
//! Both compute, for each work item (rows of one sequence, one KV head, pages of one format class), one
//! partial softmax state for each of the item's rows and query heads; they differ in how many rows they are for.

use crate::backend::{BindingDecl, Element, ParamDecl};
use crate::backend::{BufferSlice, CodecUse, Constant, Dispatch, KernelDecl, PipelineId};
use crate::error::{Error, ErrorKind, Result};

/// Bindings of `decode` and `prefill`.
pub(super) const BINDINGS: &[BindingDecl] = &[
    BindingDecl::read("k_slab", Element::U32),
    BindingDecl::read("v_slab", Element::U32),
    BindingDecl::read("descs", Element::U32),
    BindingDecl::read("tables", Element::U32),
    BindingDecl::read("q", Element::F32x4),
    BindingDecl::write("partials", Element::F32x4),
];

/// Bindings where a side's pages are in two parts; the side that is not gets its own slab once more.
pub(super) const SPLIT_BINDINGS: &[BindingDecl] = &[
    BindingDecl::read("k_slab", Element::U32),
    BindingDecl::read("v_slab", Element::U32),
    BindingDecl::read("descs", Element::U32),
    BindingDecl::read("tables", Element::U32),
    BindingDecl::read("q", Element::F32x4),
    BindingDecl::write("partials", Element::F32x4),
    BindingDecl::read("k1_slab", Element::U32),
    BindingDecl::read("v1_slab", Element::U32),
];

/// Parameters of `decode` and `prefill`.
pub(super) const PARAMS: &[ParamDecl] =
    &[ParamDecl::u32("items_at"), ParamDecl::u32("rows_at"), ParamDecl::u32("window"), ParamDecl::f32("softcap")];

/// Constants of `decode` and `prefill`.
pub(super) const CONSTANTS: [&str; 14] = [
    "WORKGROUP",
    "ROWS",
    "GROUP",
    "Q_HEADS",
    "K_DIM",
    "V_DIM",
    "PAGE_TOKENS",
    "K_WORDS",
    "V_WORDS",
    "WINDOW",
    "SOFTCAP",
    "IN_PARTS",
    "K1_WORDS",
    "V1_WORDS",
];

/// [`CONSTANTS`] and `more` of a kernel's own, `N` in all.
pub(super) const fn constants_and<const N: usize>(more: &[&'static str]) -> [&'static str; N] {
    assert!(N == CONSTANTS.len() + more.len());
    let mut all = [""; N];
    let mut at = 0;
    while at < N {
        all[at] = if at < CONSTANTS.len() { CONSTANTS[at] } else { more[at - CONSTANTS.len()] };
        at += 1;
    }
    all
}

/// Words of an attention item in `tables`:
/// row_start, rows, kv_head, ids_start, ids_count, partial_start, 0, 0.
pub const ITEM_WORDS: usize = 8;

/// Words of a query row in `tables`: position, entry, row_in_entry, mean_slot.
pub const ROW_WORDS: usize = 4;

/// The heads and pages of one cache group, as attention kernels see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionShape {
    /// KV heads.
    pub kv_heads: usize,
    /// Query heads that share a KV head.
    pub group: usize,
    /// Channels of a key.
    pub k_dim: usize,
    /// Channels of a value.
    pub v_dim: usize,
    /// Tokens of a page.
    pub page_tokens: usize,
    /// Whether keys older than a window are hidden.
    pub window: bool,
    /// Whether logits pass through `cap * tanh(s / cap)`.
    pub softcap: bool,
}

impl AttentionShape {
    /// Query heads.
    pub fn q_heads(&self) -> usize {
        self.kv_heads * self.group
    }

    /// Floats of a prepared query of one head: the channels, the bias and padding.
    pub fn query_floats(&self) -> usize {
        self.k_dim + 4
    }

    /// Floats of a partial state.
    pub fn partial_floats(&self) -> usize {
        super::partial::floats(self.v_dim)
    }
}

/// Buffers of one dispatch of `decode` or `prefill`.
#[derive(Clone, Copy, Debug)]
pub struct AttentionBuffers {
    /// Slab of K pages.
    pub k_slab: BufferSlice,
    /// Slab of V pages.
    pub v_slab: BufferSlice,
    /// Page descriptors, 8 words each.
    pub descs: BufferSlice,
    /// The step's tables.
    pub tables: BufferSlice,
    /// Prepared queries, `[rows][q_heads][k_dim + 4]`.
    pub q: BufferSlice,
    /// Partial states, written.
    pub partials: BufferSlice,
}

/// Parameters of one dispatch of `decode` or `prefill`.
#[derive(Clone, Copy, Debug)]
pub struct AttentionArgs {
    /// Work items.
    pub items: u32,
    /// First word of the items in `tables`.
    pub items_at: u32,
    /// First word of the rows in `tables`.
    pub rows_at: u32,
    /// Tokens that a query sees, its own included; read with the shape's `window` only.
    pub window: u32,
    /// Cap of the logits; read with the shape's `softcap` only.
    pub softcap: f32,
}

/// Values of [`CONSTANTS`]: up to `rows` query rows an item, `workgroup` threads.
pub(super) fn constants(
    decl: &KernelDecl,
    shape: &AttentionShape,
    k: &CodecUse,
    v: &CodecUse,
    rows: usize,
    workgroup: u32,
) -> Result<Vec<(&'static str, Constant)>> {
    check_geometry(decl.name, "K", k, shape.page_tokens, shape.k_dim)?;
    check_geometry(decl.name, "V", v, shape.page_tokens, shape.v_dim)?;
    let ([k_words, k1_words], [v_words, v1_words]) = (k.codec.parts(), v.codec.parts());
    Ok(vec![
        ("WORKGROUP", Constant::U32(workgroup)),
        ("ROWS", Constant::U32(rows as u32)),
        ("GROUP", Constant::U32(shape.group as u32)),
        ("Q_HEADS", Constant::U32(shape.q_heads() as u32)),
        ("K_DIM", Constant::U32(shape.k_dim as u32)),
        ("V_DIM", Constant::U32(shape.v_dim as u32)),
        ("PAGE_TOKENS", Constant::U32(shape.page_tokens as u32)),
        ("K_WORDS", Constant::U32(k_words as u32)),
        ("V_WORDS", Constant::U32(v_words as u32)),
        ("WINDOW", Constant::Bool(shape.window)),
        ("SOFTCAP", Constant::Bool(shape.softcap)),
        ("IN_PARTS", Constant::Bool(split(k, v))),
        ("K1_WORDS", Constant::U32(k1_words as u32)),
        ("V1_WORDS", Constant::U32(v1_words as u32)),
    ])
}

/// Whether a side's pages are in two parts.
pub(super) fn split(k: &CodecUse, v: &CodecUse) -> bool {
    k.codec.parts()[1] + v.codec.parts()[1] > 0
}

/// Slabs of further parts, for kernels of codecs whose pages are in two ([`crate::format::Codec::split`]). A side in one
/// piece names its own slab again.
#[derive(Clone, Copy, Debug)]
pub struct FurtherParts {
    /// Of K.
    pub k1_slab: BufferSlice,
    /// Of V.
    pub v1_slab: BufferSlice,
}

/// The dispatch of `decode` or `prefill`; with `further` of one that was specialised for a codec in two parts.
pub fn dispatch(
    pipeline: PipelineId,
    buffers: &AttentionBuffers,
    further: Option<FurtherParts>,
    args: &AttentionArgs,
) -> Dispatch {
    let AttentionBuffers { k_slab, v_slab, descs, tables, q, partials } = *buffers;
    let mut bindings = vec![k_slab, v_slab, descs, tables, q, partials];
    bindings.extend(further.iter().flat_map(|f| [f.k1_slab, f.v1_slab]));
    let params = vec![args.items_at, args.rows_at, args.window, args.softcap.to_bits()];
    Dispatch { pipeline, groups: args.items, params, bindings }
}

/// Refuses a codec of another page geometry than the kernel's.
pub(super) fn check_geometry(
    kernel: &str,
    side: &str,
    codec: &CodecUse,
    page_tokens: usize,
    head_dim: usize,
) -> Result<()> {
    let geometry = codec.codec.layout().geometry;
    if geometry.tokens != page_tokens || geometry.head_dim != head_dim {
        return Err(Error::new(
            ErrorKind::Shape,
            format!(
                "kernel {kernel}: {side} format {} is for pages of {}x{}, the shape has {page_tokens}x{head_dim}",
                codec.format, geometry.tokens, geometry.head_dim
            ),
            "specialise the format for the group's geometry",
        ));
    }
    Ok(())
}

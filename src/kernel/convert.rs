//! Re-encodes pages from one format to another; sealing a page is converting it from the open format.

use super::tables::{item, slot, split_disjoint};
use crate::backend::{
    BindingDecl, BufferSlice, CodecUse, Constant, CpuCall, Dispatch, Element, KernelDecl, ParamDecl, PipelineId,
    Specialisation,
};
use crate::error::{Error, ErrorKind, Result};
use rayon::prelude::*;

/// The kernel.
pub static DECL: KernelDecl = KernelDecl {
    name: "convert",
    bindings: &[
        BindingDecl::read("src_slab", Element::U32),
        BindingDecl::write("dst_slab", Element::U32),
        BindingDecl::read("tables", Element::U32),
    ],
    params: &[ParamDecl::u32("items_at")],
    constants: &["WORKGROUP", "PAGE_TOKENS", "DIM", "SRC_WORDS", "DST_WORDS"],
    codecs: &["src", "dst"],
    cpu,
    wgsl: include_str!("../../shaders/convert.wgsl"),
    cuda: None,
};

/// Words of an item in `tables`: src_slot, dst_slot, valid_tokens, 0.
pub const ITEM_WORDS: usize = 4;

/// Buffers of a dispatch: two different slabs of one side.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Slab of the pages to read.
    pub src_slab: BufferSlice,
    /// Slab of the pages to write.
    pub dst_slab: BufferSlice,
    /// The step's tables.
    pub tables: BufferSlice,
}

/// Parameters of a dispatch.
#[derive(Clone, Copy, Debug)]
pub struct Args {
    /// Pages to convert, each to a slot of its own.
    pub items: u32,
    /// First word of the items in `tables`.
    pub items_at: u32,
}

/// Specialises for two formats of one side and geometry; the CPU ignores `workgroup`.
///
/// # Errors
/// `Shape` when side or geometry differ.
pub fn specialise(src: CodecUse, dst: CodecUse, workgroup: u32) -> Result<Specialisation> {
    let (from, to) = (src.codec.layout(), dst.codec.layout());
    if from.side != to.side || from.geometry != to.geometry {
        return Err(Error::new(
            ErrorKind::Shape,
            format!(
                "cannot convert {} {:?} {:?} to {} {:?} {:?}",
                src.format, from.side, from.geometry, dst.format, to.side, to.geometry
            ),
            "convert within one side and page geometry",
        ));
    }
    let constants = [
        ("WORKGROUP", Constant::U32(workgroup)),
        ("PAGE_TOKENS", Constant::U32(from.geometry.tokens as u32)),
        ("DIM", Constant::U32(from.geometry.head_dim as u32)),
        ("SRC_WORDS", Constant::U32(from.page_words as u32)),
        ("DST_WORDS", Constant::U32(to.page_words as u32)),
    ];
    Specialisation::new(&DECL, &constants, vec![src, dst])
}

/// One dispatch over `args.items` pages.
pub fn dispatch(pipeline: PipelineId, buffers: &Buffers, args: &Args) -> Dispatch {
    Dispatch {
        pipeline,
        groups: args.items,
        params: vec![args.items_at],
        bindings: vec![buffers.src_slab, buffers.dst_slab, buffers.tables],
    }
}

fn cpu(call: &mut CpuCall<'_>) -> Result<()> {
    let spec = call.spec;
    let (tokens, dim) = (spec.usize("PAGE_TOKENS"), spec.usize("DIM"));
    let (src_words, dst_words) = (spec.usize("SRC_WORDS"), spec.usize("DST_WORDS"));
    let (src, dst) = (spec.codec("src"), spec.codec("dst"));
    let (src_slab, tables, items_at) =
        (call.read::<u32>("src_slab"), call.read::<u32>("tables"), call.index("items_at"));
    let mut pages = Vec::with_capacity(call.groups as usize);
    for index in 0..call.groups as usize {
        let [src_slot, dst_slot, valid, _] = item::<ITEM_WORDS>(tables, items_at, index)?;
        let page = slot(src_slab, src_slot, src_words)?;
        pages.push((dst_slot.saturating_mul(dst_words), dst_words, (page, valid.min(tokens))));
    }
    let dst_slab = call.write("dst_slab");
    split_disjoint(dst_slab, pages, "page slot")?.into_par_iter().for_each_init(
        || vec![0.0; tokens * dim],
        |values, ((from, valid), to)| {
            src.decode(from, 0..valid, &mut values[..valid * dim]);
            values[valid * dim..].fill(0.0);
            dst.encode(values, to);
        },
    );
    Ok(())
}

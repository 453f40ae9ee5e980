//! Re-encodes pages from one format to another; sealing a page is converting it from the open format.

use super::tables::{self, item, slot, split_disjoint};
use crate::backend::{
    BindingDecl, BufferSlice, CodecUse, Constant, CpuCall, Dispatch, Element, KernelDecl, ParamDecl, PipelineId,
    Specialisation,
};
use crate::error::{Error, ErrorKind, Result};
use rayon::prelude::*;
use std::collections::HashMap;

/// The kernel.
pub static DECL: KernelDecl = WHOLE;

/// The same from pages in two parts.
pub static FROM_PARTS: KernelDecl = KernelDecl {
    bindings: &[
        BindingDecl::read("src_slab", Element::U32),
        BindingDecl::write("dst_slab", Element::U32),
        BindingDecl::read("tables", Element::U32),
        BindingDecl::read("src1_slab", Element::U32),
    ],
    ..WHOLE
};

/// The same to pages in two parts.
pub static TO_PARTS: KernelDecl = KernelDecl {
    bindings: &[
        BindingDecl::read("src_slab", Element::U32),
        BindingDecl::write("dst_slab", Element::U32),
        BindingDecl::read("tables", Element::U32),
        BindingDecl::write("dst1_slab", Element::U32),
    ],
    ..WHOLE
};

const WHOLE: KernelDecl = KernelDecl {
    name: "convert",
    bindings: &[
        BindingDecl::read("src_slab", Element::U32),
        BindingDecl::write("dst_slab", Element::U32),
        BindingDecl::read("tables", Element::U32),
    ],
    params: &[ParamDecl::u32("items_at")],
    constants: &[
        "WORKGROUP",
        "PAGE_TOKENS",
        "DIM",
        "SRC_WORDS",
        "DST_WORDS",
        "SRC1_WORDS",
        "DST1_WORDS",
        "FROM_PARTS",
        "TO_PARTS",
    ],
    codecs: &["src", "dst"],
    cpu,
    wgsl: include_str!("../../shaders/convert.wgsl"),
    cuda: None,
};

/// Words of an item in `tables`: src_slot, dst_slot, valid_tokens, and the slot of the further part of the side that is in
/// two, else 0.
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
/// `Shape` when side or geometry differ, `Unsupported` when the pages of both are in two parts.
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
    let ([src_words, src1_words], [dst_words, dst1_words]) = (src.codec.parts(), dst.codec.parts());
    let decl = match (src1_words, dst1_words) {
        (0, 0) => &DECL,
        (_, 0) => &FROM_PARTS,
        (0, _) => &TO_PARTS,
        _ => {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("pages of {} and of {} are both in two parts", src.format, dst.format),
                "convert by way of another format",
            ));
        }
    };
    let constants = [
        ("WORKGROUP", Constant::U32(workgroup)),
        ("PAGE_TOKENS", Constant::U32(from.geometry.tokens as u32)),
        ("DIM", Constant::U32(from.geometry.head_dim as u32)),
        ("SRC_WORDS", Constant::U32(src_words as u32)),
        ("DST_WORDS", Constant::U32(dst_words as u32)),
        ("SRC1_WORDS", Constant::U32(src1_words as u32)),
        ("DST1_WORDS", Constant::U32(dst1_words as u32)),
        ("FROM_PARTS", Constant::Bool(src1_words > 0)),
        ("TO_PARTS", Constant::Bool(dst1_words > 0)),
    ];
    Specialisation::new(decl, &constants, vec![src, dst])
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

/// The same where the pages read, or those written, are in two parts: `further` is the slab of their further ones.
pub fn dispatch_parts(pipeline: PipelineId, buffers: &Buffers, further: BufferSlice, args: &Args) -> Dispatch {
    let mut dispatch = dispatch(pipeline, buffers, args);
    dispatch.bindings.push(further);
    dispatch
}

fn cpu(call: &mut CpuCall<'_>) -> Result<()> {
    let spec = call.spec;
    let (tokens, dim) = (spec.usize("PAGE_TOKENS"), spec.usize("DIM"));
    let (src_words, dst_words) = (spec.usize("SRC_WORDS"), spec.usize("DST_WORDS"));
    let (src, dst) = (spec.codec("src"), spec.codec("dst"));
    let (src_slab, tables, items_at) =
        (call.read::<u32>("src_slab"), call.read::<u32>("tables"), call.index("items_at"));
    let (src1_slab, src1_words) = match spec.flag("FROM_PARTS") {
        true => (call.read::<u32>("src1_slab"), spec.usize("SRC1_WORDS")),
        false => (&[][..], 0),
    };
    let mut pages = Vec::with_capacity(call.groups as usize);
    for index in 0..call.groups as usize {
        let [src_slot, dst_slot, valid, slot1] = item::<ITEM_WORDS>(tables, items_at, index)?;
        // Slots are looked at before anything is written.
        slot(src_slab, src_slot, src_words)?;
        if src1_words > 0 {
            slot(src1_slab, slot1, src1_words)?;
        }
        pages.push((dst_slot.saturating_mul(dst_words), dst_words, (src_slot, slot1, valid.min(tokens))));
    }
    let read = |(src_slot, slot1, valid): (usize, usize, usize), values: &mut [f32], joined: &mut Vec<u32>| {
        let page = tables::page((src_slab, src_slot, src_words), Some((src1_slab, slot1, src1_words)), joined)?;
        src.decode(page, 0..valid, &mut values[..valid * dim]);
        values[valid * dim..].fill(0.0);
        Ok(())
    };
    let scratch = || (vec![0.0; tokens * dim], Vec::new());
    let dst_slab = call.write("dst_slab");
    if !spec.flag("TO_PARTS") {
        return split_disjoint(dst_slab, pages, "page slot")?.into_par_iter().try_for_each_init(
            scratch,
            |(values, joined), (from, to)| {
                read(from, values, joined)?;
                dst.encode(values, to);
                Ok(())
            },
        );
    }
    let words = spec.usize("DST1_WORDS");
    let firsts = split_disjoint(dst_slab, pages, "page slot")?;
    let at = firsts.iter().map(|((_, slot1, _), _)| *slot1);
    // Both splits are in the order of their slots; parts of a page find each other by the slot of the further one.
    let parts = at.map(|slot1| (slot1.saturating_mul(words), words, slot1)).collect();
    let mut by_slot: HashMap<usize, &mut [u32]> =
        split_disjoint(call.write("dst1_slab"), parts, "slot of a further part")?.into_iter().collect();
    let pairs: Vec<_> = firsts
        .into_iter()
        .filter_map(|(from, first)| by_slot.remove(&from.1).map(|further| (from, first, further)))
        .collect();
    pairs.into_par_iter().try_for_each_init(scratch, |(values, joined), (from, first, further)| {
        read(from, values, &mut Vec::new())?;
        joined.resize(dst_words + words, 0);
        dst.encode(values, joined);
        first.copy_from_slice(&joined[..dst_words]);
        further.copy_from_slice(&joined[dst_words..]);
        Ok(())
    })
}

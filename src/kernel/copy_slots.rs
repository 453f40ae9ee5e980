//! Copies slots within a slab: copy-on-write of shared pages.

use super::tables::{item, range};
use crate::backend::{
    BindingDecl, BufferSlice, Constant, CpuCall, Dispatch, Element, KernelDecl, ParamDecl, PipelineId, Specialisation,
};
use crate::error::Result;

/// The kernel.
pub static DECL: KernelDecl = KernelDecl {
    name: "copy_slots",
    bindings: &[BindingDecl::write("slab", Element::U32x4), BindingDecl::read("tables", Element::U32)],
    params: &[ParamDecl::u32("items_at")],
    constants: &["WORKGROUP", "WORDS"],
    codecs: &[],
    cpu,
    wgsl: include_str!("../../shaders/copy_slots.wgsl"),
    cuda: None,
};

/// Words of an item in `tables`: src_slot, dst_slot, 0, 0.
pub const ITEM_WORDS: usize = 4;

/// Buffers of a dispatch.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// The slab, written.
    pub slab: BufferSlice,
    /// The step's tables.
    pub tables: BufferSlice,
}

/// Parameters of a dispatch.
#[derive(Clone, Copy, Debug)]
pub struct Args {
    /// Slots to copy; no slot is both read and written, none is written twice.
    pub items: u32,
    /// First word of the items in `tables`.
    pub items_at: u32,
}

/// Specialises for slots of `words` words, a multiple of 4; the CPU ignores `workgroup`.
///
/// # Errors
/// None that input can cause.
pub fn specialise(words: usize, workgroup: u32) -> Result<Specialisation> {
    Specialisation::new(
        &DECL,
        &[("WORKGROUP", Constant::U32(workgroup)), ("WORDS", Constant::U32(words as u32))],
        vec![],
    )
}

/// One dispatch over `args.items` slots.
pub fn dispatch(pipeline: PipelineId, buffers: &Buffers, args: &Args) -> Dispatch {
    Dispatch { pipeline, groups: args.items, params: vec![args.items_at], bindings: vec![buffers.slab, buffers.tables] }
}

fn cpu(call: &mut CpuCall<'_>) -> Result<()> {
    let words = call.spec.usize("WORDS");
    let (tables, items_at) = (call.read::<u32>("tables"), call.index("items_at"));
    let slab = call.write::<u32>("slab");
    // One thread: a copy of pages is as fast as memory, and few pages are shared when they are written.
    for index in 0..call.groups as usize {
        let [src, dst, ..] = item::<ITEM_WORDS>(tables, items_at, index)?;
        let (src, dst) = (src.saturating_mul(words), dst.saturating_mul(words));
        range(slab, src, words, "source slot")?;
        range(slab, dst, words, "destination slot")?;
        slab.copy_within(src..src + words, dst);
    }
    Ok(())
}

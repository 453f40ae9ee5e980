//! Attention over pages for tiles of many query rows: a page is decoded once for all rows and heads.

use super::attention::{self, AttentionArgs, AttentionBuffers, AttentionShape};
use super::tier::Tier;
use super::{attention_cpu, prefill_tiles};
use crate::backend::{CodecUse, Dispatch, KernelDecl, PipelineId, Specialisation};
use crate::error::Result;

/// The kernel.
pub static DECL: KernelDecl = WHOLE;

const WHOLE: KernelDecl = KernelDecl {
    name: "prefill",
    bindings: attention::BINDINGS,
    params: attention::PARAMS,
    constants: &attention::CONSTANTS,
    codecs: &["k", "v"],
    cpu: attention_cpu::run,
    wgsl: include_str!("../../shaders/prefill.wgsl"),
    cuda: None,
};

/// The same for pages of which a side is in two parts.
pub static SPLIT: KernelDecl = KernelDecl { bindings: attention::SPLIT_BINDINGS, ..WHOLE };

/// The kernel for items of up to rows (16 or more in WGSL, up to 64 on the CPU) of one sequence; the CPU ignores `tier` and
/// `workgroup`.
///
/// # Errors
/// `Shape` when a codec is for another page geometry than `shape`'s.
pub fn specialise(
    shape: &AttentionShape,
    k: CodecUse,
    v: CodecUse,
    rows: usize,
    tier: Tier,
    workgroup: u32,
) -> Result<Specialisation> {
    if tier.tiles.is_some() && prefill_tiles::fits(&k, &v) {
        return prefill_tiles::specialise(shape, k, v, rows, tier);
    }
    let decl = if attention::split(&k, &v) { &SPLIT } else { &DECL };
    let constants = attention::constants(decl, shape, &k, &v, rows, workgroup)?;
    Specialisation::new(decl, &constants, vec![k, v])
}

/// One dispatch over `args.items` items.
pub fn dispatch(pipeline: PipelineId, buffers: &AttentionBuffers, args: &AttentionArgs) -> Dispatch {
    attention::dispatch(pipeline, buffers, None, args)
}

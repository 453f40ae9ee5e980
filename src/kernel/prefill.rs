//! Attention over pages for tiles of many query rows: a page is decoded once for all rows and heads.

use super::attention::{self, AttentionArgs, AttentionBuffers, AttentionShape};
use super::attention_cpu;
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

/// The kernel for items of up to rows (16 or 32 in WGSL, up to 64 on the CPU) of one sequence; the CPU ignores `workgroup`.
///
/// # Errors
/// `Shape` when a codec is for another page geometry than `shape`'s.
pub fn specialise(
    shape: &AttentionShape,
    k: CodecUse,
    v: CodecUse,
    rows: usize,
    workgroup: u32,
) -> Result<Specialisation> {
    let decl = if attention::split(&k, &v) { &SPLIT } else { &DECL };
    let constants = attention::constants(decl, shape, &k, &v, rows, workgroup)?;
    Specialisation::new(decl, &constants, vec![k, v])
}

/// One dispatch over `args.items` items.
pub fn dispatch(pipeline: PipelineId, buffers: &AttentionBuffers, args: &AttentionArgs) -> Dispatch {
    attention::dispatch(pipeline, buffers, None, args)
}

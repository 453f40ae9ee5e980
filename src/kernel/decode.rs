//! Attention over pages for 1 to 16 query rows a sequence: one partial softmax state a row and head.

use super::attention::{self, AttentionArgs, AttentionBuffers, AttentionShape};
use super::attention_cpu;
use crate::backend::{CodecUse, Dispatch, KernelDecl, PipelineId, Specialisation};
use crate::error::Result;

/// The kernel.
pub static DECL: KernelDecl = KernelDecl {
    name: "decode",
    bindings: attention::BINDINGS,
    params: attention::PARAMS,
    constants: attention::CONSTANTS,
    codecs: &["k", "v"],
    cpu: attention_cpu::run,
    wgsl: include_str!("../../shaders/decode.wgsl"),
    cuda: None,
};

/// The kernel for items of up to rows (1, 2, 4, 8 or 16) of one sequence; the CPU ignores `workgroup`.
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
    attention::specialise(&DECL, shape, k, v, rows, workgroup)
}

/// One dispatch over `args.items` items.
pub fn dispatch(pipeline: PipelineId, buffers: &AttentionBuffers, args: &AttentionArgs) -> Dispatch {
    attention::dispatch(pipeline, buffers, args)
}

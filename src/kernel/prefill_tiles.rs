//! Prefill attention on tensor cores, by CUDA's own text: for formats of which both sides have tiles.
//!
//! Not the portable kernel's text, but its contract: items, tables, masks, partial states. A block brings a step's tokens to
//! shared memory once, in 16 bits whatever the format, for all of its query vectors; queries are rounded to 16 bits within a
//! power of two of their own, probabilities too, and sums are in f32. Factors of tokens stay in f32: of keys they meet the
//! logits, of values the probabilities, relative to a power of two, so that nothing leaves the range of f16.

use super::attention::{self, AttentionShape};
use super::{attention_cpu, decode_tiles, prefill};
use crate::backend::{CodecUse, Constant, CudaText, KernelDecl, Specialisation};
use crate::error::{Error, ErrorKind, Result};

/// The kernel. It has no WGSL: [`specialise`] is asked for it by devices of CUDA's alone.
pub static DECL: KernelDecl = KernelDecl {
    bindings: prefill::DECL.bindings,
    name: "prefill",
    params: attention::PARAMS,
    constants: &attention::constants_and::<21>(&[
        "CHUNK",
        "STEP",
        "MATRICES",
        "K_STAGES",
        "V_STAGES",
        "BLOCKS_AN_SM",
        "SHARED_BYTES",
    ]),
    codecs: &["k", "v"],
    cpu: attention_cpu::run,
    wgsl: "",
    cuda: Some(CudaText {
        text: concat!(
            include_str!("../../cuda/prefill/steps.cuh"),
            include_str!("../../cuda/prefill/rows.cuh"),
            include_str!("../../cuda/prefill/block.cuh"),
            include_str!("../../cuda/prefill/warps.cuh"),
            include_str!("../../cuda/prefill.cu")
        ),
        serves: |_| true,
        threads: |spec| spec.u32("WORKGROUP"),
        shared_bytes: |spec| spec.u32("SHARED_BYTES"),
        overlaps: false,
    }),
};

/// Whether the kernel reads pages of these codecs.
pub fn fits(k: &CodecUse, v: &CodecUse) -> bool {
    decode_tiles::fits(k, v)
}

/// Rows of an item that fill a block of the shape's, 16 at least.
pub fn rows(shape: &AttentionShape) -> usize {
    let vectors = if shape.k_dim.max(shape.v_dim) > 128 { 64 } else { 128 };
    (vectors / shape.group.max(1)).max(16)
}

/// The kernel for items of up to `rows` rows of one sequence, where it [`fits`].
///
/// # Errors
/// `Shape` when a codec is for another page geometry than `shape`'s; `Unsupported` when no block of it fits shared memory.
pub fn specialise(shape: &AttentionShape, k: CodecUse, v: CodecUse, rows: usize) -> Result<Specialisation> {
    let tuning = Tuning::of(shape, [&k, &v])?;
    let mut constants = attention::constants(&DECL, shape, &k, &v, rows, 32 * WARPS as u32)?;
    let number = |n: usize| Constant::U32(n as u32);
    constants.extend([
        // Names of tiles speak of decode's vectors.
        ("CHUNK", number(8)),
        ("STEP", number(tuning.step)),
        ("MATRICES", number(tuning.matrices)),
        ("K_STAGES", number(1)),
        ("V_STAGES", number(1)),
        ("BLOCKS_AN_SM", number(2)),
        ("SHARED_BYTES", number(tuning.shared_bytes)),
    ]);
    Specialisation::new(&DECL, &constants, vec![k, v])
}

/// Warps of a block.
const WARPS: usize = 4;
/// Pieces of pages that a block looks up together.
const LOOK: usize = 256;
/// Shared memory that a block may ask for on every architecture that is served.
const MOST_SHARED: usize = 99 << 10;

/// How a block is laid out.
#[derive(Clone, Copy, Debug)]
struct Tuning {
    /// Sixteens of query vectors of a warp.
    matrices: usize,
    /// Tokens that are taken at a time.
    step: usize,
    shared_bytes: usize,
}

impl Tuning {
    /// The largest block whose outputs fit registers and whose panels fit shared memory.
    fn of(shape: &AttentionShape, sides: [&CodecUse; 2]) -> Result<Self> {
        let blocks = [(2, 64), (1, 64), (1, 32)].into_iter().filter(|(matrices, _)| matrices * shape.v_dim <= 256);
        let mut tunings = blocks.map(|(matrices, step)| {
            let shared_bytes = shared_bytes(shape, sides, matrices, step);
            Tuning { matrices, step, shared_bytes }
        });
        tunings.find(|tuning| tuning.shared_bytes <= MOST_SHARED).ok_or_else(|| {
            Error::new(
                ErrorKind::Unsupported,
                format!(
                    "kernel prefill: heads of {} and {} channels need more than {MOST_SHARED} bytes of shared memory",
                    shape.k_dim, shape.v_dim
                ),
                "choose another format",
            )
        })
    }
}

/// Bytes of `Shared` in `cuda/prefill/steps.cuh`, which holds its size against them.
fn shared_bytes(shape: &AttentionShape, sides: [&CodecUse; 2], matrices: usize, step: usize) -> usize {
    let vectors = WARPS * 16 * matrices;
    let run = shape.page_tokens.min(step);
    let pieces = step / run;
    let raw = |side: &CodecUse| {
        let [piece, token] = side.codec.tiles().map_or([0, 0], |tiles| tiles.raw_bytes);
        (piece + token * run) * pieces + 16
    };
    let panels = (shape.k_dim + shape.v_dim) * 2 * (step + 1);
    let of_steps = step * 8 + LOOK * 16 + LOOK / pieces * 2 + 8;
    let bytes = shape.k_dim * 2 * vectors + panels + sides.map(raw).iter().sum::<usize>() + of_steps + vectors * 12;
    bytes.next_multiple_of(16)
}

//! Prefill attention on tensor cores, by CUDA's own text: for formats of which both sides have tiles.
//!
//! Not the portable kernel's text, but its contract: items, tables, masks, partial states. A block brings a step's tokens to
//! shared memory once, in 16 bits whatever the format, for all of its query vectors; queries are rounded to 16 bits within a
//! power of two of their own, probabilities too, and sums are in f32. Factors of tokens stay in f32: of keys they meet the
//! logits, of values the probabilities, relative to a power of two, so that nothing leaves the range of f16.
//!
//! What was tried on an H200 on 2026-12-01 (causal, 32,768 rows over as many tokens, 32 query and 8 KV heads of 128, pages of
//! 64; the kernel alone, by a harness around it that held sampled rows against f64: worst error 5e-4 of the largest output,
//! 4e-3 with bf16), beside f16 22.9 ms (384 TFLOP/s), bf16 22.4, fp8 23.1, tq2 21.2, tq3 21.9, tq4 24.1; PyTorch's
//! FlashAttention-2 took 26.0 and cuDNN 15.7 for f16:
//! - products of warps (`mma.sync`), which other architectures run: f16 31.4, fp8 31.8, tq3 30.6; by 32 tokens level;
//! - warpgroups that bring what they multiply, with a barrier a step: f16 29.7, fp8 30.3, tq3 31.4, tq4 33.5;
//! - one warpgroup that brings both sides, three stages, registers 56 and 224: f16 31.1, fp8 25.3, tq3 26.4, tq4 28.5. A panel
//!   was shown once the second after it could be brought, which waited for the one before it to be used;
//! - the same with steps of 128 tokens: f16 28.9; with two bringing warpgroups registers do not suffice for those;
//! - panels whose groups of channels begin at multiples of 128 bytes: f16 level, tq4 31.4 to 28.5 for want of banks;
//! - values asked for by half sectors, eight tokens to eight lanes: level, though twice the sectors pass.

use super::attention::{self, AttentionShape};
use super::decode_tuning::TensorCores;
use super::tier::Tier;
use super::{attention_cpu, decode_tiles, prefill};
use crate::backend::{CodecUse, Constant, CudaText, KernelDecl, Specialisation};
use crate::error::{Error, ErrorKind, Result};

const CONSTANTS: &[&str] = &attention::constants_and::<29>(&[
    "CHUNK",
    "STEP",
    "PITCH",
    "MATRICES",
    "FIRST_THREAD",
    "BRINGERS",
    "K_STAGES",
    "V_STAGES",
    "RAW_STAGES",
    "BRINGERS_REGISTERS",
    "MULTIPLIERS_REGISTERS",
    "BLOCKS_AN_SM",
    "SHARED_BYTES",
    "QUERY_PARTS",
    "WEIGHT_PARTS",
]);

/// The kernel by products of warps, on every architecture. It has no WGSL: [`specialise`] is asked for it by devices of
/// CUDA's alone.
pub static DECL: KernelDecl = KernelDecl {
    bindings: prefill::DECL.bindings,
    name: "prefill",
    params: attention::PARAMS,
    constants: CONSTANTS,
    codecs: &["k", "v"],
    cpu: attention_cpu::run,
    wgsl: "",
    cuda: Some(text(concat!(
        include_str!("../../cuda/prefill/steps.cuh"),
        include_str!("../../cuda/prefill/rows.cuh"),
        include_str!("../../cuda/prefill/block.cuh"),
        include_str!("../../cuda/prefill/warps.cuh"),
        include_str!("../../cuda/prefill.cu")
    ))),
};

/// The same by products of warpgroups, on Hopper.
pub static WARPGROUPS: KernelDecl = KernelDecl {
    cuda: Some(text(concat!(
        include_str!("../../cuda/prefill/steps.cuh"),
        include_str!("../../cuda/prefill/rows.cuh"),
        include_str!("../../cuda/prefill/block.cuh"),
        include_str!("../../cuda/prefill/warpgroups.cuh"),
        include_str!("../../cuda/prefill/stages.cuh"),
        include_str!("../../cuda/prefill_warpgroups.cu")
    ))),
    ..DECL
};

const fn text(text: &'static str) -> CudaText {
    CudaText {
        text,
        serves: |_| true,
        threads: |spec| spec.u32("WORKGROUP"),
        shared_bytes: |spec| spec.u32("SHARED_BYTES"),
        overlaps: false,
    }
}

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
pub fn specialise(shape: &AttentionShape, k: CodecUse, v: CodecUse, rows: usize, tier: Tier) -> Result<Specialisation> {
    let layout = Layout::of(shape, [&k, &v], tier)?;
    let decl = if layout.warpgroups() { &WARPGROUPS } else { &DECL };
    let mut constants = attention::constants(decl, shape, &k, &v, rows, layout.threads as u32)?;
    let number = |n: usize| Constant::U32(n as u32);
    constants.extend([
        // Names of tiles speak of decode's vectors.
        ("CHUNK", number(8)),
        ("STEP", number(layout.step)),
        ("PITCH", number(layout.pitch)),
        ("MATRICES", number(layout.matrices)),
        ("FIRST_THREAD", number(layout.first_thread)),
        ("BRINGERS", number(128)),
        ("K_STAGES", number(layout.stages)),
        ("V_STAGES", number(layout.stages)),
        ("RAW_STAGES", number(layout.raw_stages())),
        // Of 65,536: two warpgroups have the former, two the latter.
        ("BRINGERS_REGISTERS", number(48)),
        ("MULTIPLIERS_REGISTERS", number(208)),
        ("BLOCKS_AN_SM", number(layout.blocks)),
        ("SHARED_BYTES", number(layout.shared_bytes(shape, [&k, &v]))),
        // Pages of e4m3 become 16-bit panels on every architecture.
        ("QUERY_PARTS", number(0)),
        ("WEIGHT_PARTS", number(0)),
    ]);
    Specialisation::new(decl, &constants, vec![k, v])
}

/// Pieces of pages that a block looks up together.
const LOOK: usize = 256;
/// Shared memory that a block may ask for on every architecture that is served, and on Hopper.
const MOST_SHARED: [usize; 2] = [99 << 10, 226 << 10];

/// How a block is laid out.
#[derive(Clone, Copy, Debug)]
struct Layout {
    threads: usize,
    /// The first thread that multiplies.
    first_thread: usize,
    /// Sixteens of query vectors of a warp.
    matrices: usize,
    /// Tokens that are taken at a time.
    step: usize,
    /// Units from one of a panel's groups of eight channels to the next.
    pitch: usize,
    /// Panels of a side.
    stages: usize,
    /// Blocks of a multiprocessor.
    blocks: usize,
}

impl Layout {
    /// The first of those that were the quickest whose outputs fit registers and whose panels fit shared memory.
    fn of(shape: &AttentionShape, sides: [&CodecUse; 2], tier: Tier) -> Result<Self> {
        let groups = Layout { threads: 512, first_thread: 256, matrices: 1, step: 64, pitch: 65, stages: 4, blocks: 1 };
        let warps = Layout { threads: 128, first_thread: 0, matrices: 2, step: 64, pitch: 65, stages: 1, blocks: 2 };
        let layouts = [
            groups,
            Layout { stages: 3, ..groups },
            Layout { stages: 2, ..groups },
            warps,
            Layout { matrices: 1, ..warps },
            Layout { matrices: 1, step: 32, pitch: 33, ..warps },
        ];
        let fits = |layout: &Layout| {
            let registers = match layout.warpgroups() {
                true => tier.tiles.is_some_and(TensorCores::warpgroups) && shape.k_dim <= 192 && shape.v_dim <= 128,
                false => layout.matrices * shape.v_dim <= 256,
            };
            registers && layout.shared_bytes(shape, sides) <= MOST_SHARED[usize::from(layout.warpgroups())]
        };
        layouts.into_iter().find(fits).ok_or_else(|| {
            Error::new(
                ErrorKind::Unsupported,
                format!(
                    "kernel prefill: heads of {} and {} channels need more than {} bytes of shared memory",
                    shape.k_dim, shape.v_dim, MOST_SHARED[0]
                ),
                "choose another format",
            )
        })
    }

    fn warpgroups(&self) -> bool {
        self.first_thread > 0
    }

    /// Pieces as they stand in pages, of a side.
    fn raw_stages(&self) -> usize {
        if self.warpgroups() { 2 } else { 1 }
    }

    /// Bytes of `Shared` in `cuda/prefill/steps.cuh`, which holds its size against them.
    fn shared_bytes(&self, shape: &AttentionShape, sides: [&CodecUse; 2]) -> usize {
        let vectors = (self.threads - self.first_thread) / 2 * self.matrices;
        let run = shape.page_tokens.min(self.step);
        let pieces = self.step / run;
        let raw = |side: &CodecUse| {
            let [piece, token] = side.codec.tiles().map_or([0, 0], |tiles| tiles.raw_bytes);
            ((piece + token * run) * pieces + 16) * self.raw_stages()
        };
        let panels = ((shape.k_dim + shape.v_dim) * 2 * self.pitch + self.step * 8) * self.stages;
        let of_steps = LOOK * 16 + LOOK / pieces * 2 + 8;
        let bytes = shape.k_dim * 2 * vectors + panels + sides.map(raw).iter().sum::<usize>() + of_steps + vectors * 12;
        bytes.next_multiple_of(16)
    }
}

//! Decode attention on tensor cores, by CUDA's own text: for formats of which both sides have tiles.
//!
//! Not the portable kernel's text, but its contract: items, tables, masks, partial states. A warp takes steps of 16 to 64
//! tokens by itself, from memory straight to fragments of `mma.sync`; queries are in two parts of 16 bits, so that what
//! rounds is a probability. A block fills a multiprocessor, so items are planned for one wave (`plan::PageSource::wave_cost`).
//!
//! What was tried on an H200 (8 x 32,768 tokens, 32 query and 8 KV heads of 128; the kernel alone, us, by a harness around
//! it: `assets/bench/2026-12-01-h200-cuda`), beside f16 244, fp8 131, tq3 63:
//! - the next page brought to the second-level cache: in bulk f16 297 to 452, fp8 159 to 250, tq3 70 to 75; a line a lane f16
//!   257, fp8 137, tq3 level. Latency is not what bounds them;
//! - masks in the loop of whole steps: 76 to 400 bytes of spills; hence a loop of their own;
//! - steps of 64 tokens for f16: spills, 297; of 32: 255;
//! - 512 threads: f16 level, tq3 65 to 69 with spills; 448: f16 262, fp8 188, tq3 74; 352, 320, 256: tq3 66, 68, 80;
//! - 1,024 items instead of 128: f16 7 %, fp8 18 %, tq3 43 % more; 64 items: 31 %, 43 %, 60 %;
//! - a look-up of the next step without a condition: tq3 66.6 to 63.1, f16 244 to 248, fp8 131 to 134; so it is for bytes alone;
//! - loads past the first-level cache: f16 264; of 128 bytes: level; of 256: 267. Volatile ones: the same machine code;
//! - shifts by multiplication: tq3 1 more; sums rescaled only where a maximum changed: level or 2 more;
//! - tq4 (102) has 1,337 instructions a page, tq3 766: 392 of them permute bytes. No better table of 16 signed entries is known.

use super::attention::{self, AttentionShape};
use super::decode_tuning::{TensorCores, Tuning};
use super::{attention_cpu, decode};
use crate::backend::{CodecUse, Constant, CudaText, KernelDecl, Specialisation};
use crate::error::Result;

/// The kernel. It has no WGSL: [`specialise`] is asked for it by devices of CUDA's alone.
pub static DECL: KernelDecl = KernelDecl {
    bindings: decode::DECL.bindings,
    name: "decode",
    params: attention::PARAMS,
    constants: &attention::constants_and::<22>(&[
        "CHUNK",
        "STEP",
        "K_TILES_AHEAD",
        "V_GROUPS_AHEAD",
        "ALWAYS_ASK",
        "QUERY_PARTS",
        "WEIGHT_PARTS",
        "BLOCKS_AN_SM",
    ]),
    codecs: &["k", "v"],
    cpu: attention_cpu::run,
    wgsl: "",
    cuda: Some(CudaText {
        text: concat!(
            include_str!("../../cuda/decode/steps.cuh"),
            include_str!("../../cuda/decode/queries.cuh"),
            include_str!("../../cuda/decode/warp.cuh"),
            include_str!("../../cuda/decode.cu")
        ),
        serves: |_| true,
        threads: |spec| spec.u32("WORKGROUP"),
        shared_bytes: |_| 0,
        overlaps: true,
    }),
};

/// Whether the kernel reads pages of these codecs.
pub fn fits(k: &CodecUse, v: &CodecUse) -> bool {
    k.codec.tiles().is_some() && v.codec.tiles().is_some() && !attention::split(k, v)
}

/// The kernel for items of up to `rows` rows of one sequence on tensor cores of this kind, where it [`fits`].
///
/// # Errors
/// `Shape` when a codec is for another page geometry than `shape`'s.
pub fn specialise(
    shape: &AttentionShape,
    k: CodecUse,
    v: CodecUse,
    rows: usize,
    cores: TensorCores,
) -> Result<Specialisation> {
    let tuning = Tuning::of(shape, [&k, &v], rows, cores);
    let mut constants = attention::constants(&DECL, shape, &k, &v, rows, tuning.threads)?;
    constants.extend([
        ("CHUNK", Constant::U32(tuning.chunk)),
        ("STEP", Constant::U32(tuning.step)),
        ("K_TILES_AHEAD", Constant::U32(tuning.ahead[0])),
        ("V_GROUPS_AHEAD", Constant::U32(tuning.ahead[1])),
        ("ALWAYS_ASK", Constant::Bool(tuning.always_ask)),
        ("QUERY_PARTS", Constant::U32(tuning.parts[0])),
        ("WEIGHT_PARTS", Constant::U32(tuning.parts[1])),
        ("BLOCKS_AN_SM", Constant::U32(1)),
    ]);
    Specialisation::new(&DECL, &constants, vec![k, v])
}

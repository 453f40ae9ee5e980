//! Decode attention on tensor cores, by CUDA's own text: for formats of which both sides have tiles.
//!
//! Not the portable kernel's text, but its contract: items, tables, masks, partial states. A warp takes steps of 16 to 64
//! tokens by itself, from memory straight to fragments of `mma.sync`; queries are in two parts of 16 bits, so that what
//! rounds is a probability. What was tried, and the times of it, stand in `cuda/decode.cu`.

use super::attention::{self, AttentionShape};
use super::{attention_cpu, decode};
use crate::backend::{CodecUse, Constant, CudaText, KernelDecl, Specialisation};
use crate::error::Result;

/// The kernel. It has no WGSL: [`specialise`] is asked for it by devices of CUDA's alone.
pub static DECL: KernelDecl = KernelDecl {
    bindings: decode::DECL.bindings,
    name: "decode",
    params: attention::PARAMS,
    constants: &[
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
        "CHUNK",
        "STEP",
        "K_TILES_AHEAD",
        "V_GROUPS_AHEAD",
        "PREFETCH",
        "BLOCKS_AN_SM",
    ],
    codecs: &["k", "v"],
    cpu: attention_cpu::run,
    wgsl: "",
    cuda: Some(CudaText {
        text: include_str!("../../cuda/decode.cu"),
        serves: |_| true,
        threads: |spec| spec.u32("WORKGROUP"),
        overlaps: false,
    }),
};

/// Whether the kernel reads pages of these codecs.
pub fn fits(k: &CodecUse, v: &CodecUse) -> bool {
    k.codec.tiles().is_some() && v.codec.tiles().is_some() && !attention::split(k, v)
}

/// The kernel for items of up to `rows` rows of one sequence, where it [`fits`].
///
/// # Errors
/// `Shape` when a codec is for another page geometry than `shape`'s.
pub fn specialise(shape: &AttentionShape, k: CodecUse, v: CodecUse, rows: usize) -> Result<Specialisation> {
    let bytes = [&k, &v].map(|side| side.codec.tiles().is_some_and(|tiles| tiles.bytes));
    let tuning = Tuning::of(shape, bytes, rows);
    let mut constants = attention::constants(&DECL, shape, &k, &v, rows, tuning.threads)?;
    constants.extend([
        ("CHUNK", Constant::U32(tuning.chunk)),
        ("STEP", Constant::U32(tuning.step)),
        ("K_TILES_AHEAD", Constant::U32(tuning.ahead[0])),
        ("V_GROUPS_AHEAD", Constant::U32(tuning.ahead[1])),
        ("PREFETCH", Constant::U32(0)),
        ("BLOCKS_AN_SM", Constant::U32(1)),
    ]);
    Specialisation::new(&DECL, &constants, vec![k, v])
}

/// How a block is laid out, measured on an H200.
struct Tuning {
    threads: u32,
    /// Query vectors that share loads.
    chunk: u32,
    /// Tokens that a warp takes at a time.
    step: u32,
    /// Tiles of keys and groups of values that are asked for ahead.
    ahead: [u32; 2],
}

impl Tuning {
    fn of(shape: &AttentionShape, bytes: [bool; 2], rows: usize) -> Self {
        let wide = shape.k_dim.max(shape.v_dim) > 128;
        let few = rows * shape.group <= 4;
        let page = shape.page_tokens as u32;
        let chunk = if few || wide { 4 } else { 8 };
        // Registers of a thread are what is left of 65,536: with few vectors of small heads, 128 or 170.
        let threads = match (chunk == 4 && !wide, bytes == [false; 2]) {
            (true, true) => 384,
            (true, false) => 512,
            (false, _) => 256,
        };
        let step = if bytes == [false; 2] { page.min(16) } else { page.min(64) };
        Tuning { threads, chunk, step, ahead: bytes.map(|bytes| if bytes { 4 } else { 1 }) }
    }
}

//! Attention over pages for 1 to 16 query rows a sequence: one partial softmax state a row and head.

use super::attention::{self, AttentionArgs, AttentionBuffers, AttentionShape};
use super::attention_cpu;
use super::tier::Tier;
use crate::backend::{BindingDecl, CodecUse, Constant, Dispatch, Element, KernelDecl, PipelineId, Specialisation};
use crate::error::Result;
use crate::format::Units;

/// The kernel.
pub static DECL: KernelDecl = KernelDecl {
    name: "decode",
    bindings: &[
        BindingDecl::read("k_slab", Element::U32x4),
        BindingDecl::read("v_slab", Element::U32x4),
        BindingDecl::read("descs", Element::U32),
        BindingDecl::read("tables", Element::U32),
        BindingDecl::read("q", Element::F32x4),
        BindingDecl::write("partials", Element::F32x4),
    ],
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
        "CHUNK",
        "QUADS",
        "TPT",
        "K_UNITS",
        "K_UNIT_TOKENS",
        "K_FETCHES",
        "K_QUADS",
        "K_PARTS",
        "K_STEP_PAIRS",
        "K_PART_STEPS",
        "K_FLIGHT",
        "K_SCALED",
        "SUMS_IN_F32",
        "V_UNIT_TOKENS",
        "V_QUADS",
        "V_STEP",
        "V_FLIGHT",
        "NATIVE",
        "HALF",
        "SUBGROUP",
    ],
    codecs: &["k", "v"],
    cpu: attention_cpu::run,
    wgsl: include_str!("../../shaders/decode.wgsl"),
    cuda: None,
};

/// The kernel for items of up to rows (1, 2, 4, 8 or 16) of one sequence; the CPU ignores `tier` and `workgroup`.
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
    let mut constants = attention::constants(&DECL, shape, &k, &v, rows, workgroup)?;
    let (k_units, v_units) = (k.codec.wgsl_units("k"), v.codec.wgsl_units("v"));
    let half = tier.f16 && k_units.half;
    let (chunk, tokens) = block(&k_units, &v_units, rows * shape.group, half, workgroup as usize);
    let quads = chunk.div_ceil(4);
    // Chains of products in f16 are short: 32 channels.
    let parts = if half { k_units.quads.div_ceil(8) } else { 1 };
    // An element of queries: two pairs of f32, or four of f16.
    let step_pairs = if half { 4 } else { 2 };
    let flight = |count: usize, most: usize| (1..=most).rev().find(|n| count.is_multiple_of(*n)).unwrap_or(1);
    let number = |n: usize| Constant::U32(n as u32);
    constants.extend([
        ("CHUNK", number(chunk)),
        ("QUADS", number(quads)),
        ("TPT", number(tokens)),
        ("K_UNITS", number(k_units.count)),
        ("K_UNIT_TOKENS", number(k_units.tokens)),
        ("K_FETCHES", number(tokens / k_units.tokens)),
        ("K_QUADS", number(k_units.quads)),
        ("K_PARTS", number(parts)),
        ("K_STEP_PAIRS", number(step_pairs)),
        ("K_PART_STEPS", number(k_units.quads * 2 / step_pairs / parts)),
        ("K_FLIGHT", number(flight(k_units.count, if k_units.quads > 4 { 1 } else { 2 }))),
        ("K_SCALED", Constant::Bool(k_units.scaled)),
        ("SUMS_IN_F32", Constant::Bool(half || k_units.scaled)),
        ("V_UNIT_TOKENS", number(v_units.tokens)),
        ("V_QUADS", number(v_units.quads)),
        ("V_STEP", number(if v_units.twins { 2 } else { 1 })),
        ("V_FLIGHT", number(if v_units.tokens > 1 { 1 } else { 8 })),
        ("NATIVE", Constant::Bool(tier.f16)),
        ("HALF", Constant::Bool(half)),
        ("SUBGROUP", Constant::U32(tier.subgroup)),
    ]);
    Specialisation::new(&DECL, &constants, vec![k, v])
}

/// Query vectors of a chunk (8 at most) and tokens that a thread owns (2 at most, at least those of a unit), as many
/// as workgroup memory holds: 16 KiB by WebGPU's defaults.
fn block(k: &Units, v: &Units, vectors: usize, half: bool, workgroup: usize) -> (usize, usize) {
    let query_bytes = k.count * k.quads * if half { 8 } else { 16 };
    let fits = |chunk: usize, tokens: usize| {
        let quad_bytes = chunk.div_ceil(4) * 16;
        // Queries; probabilities; maxima of subgroups of 4; pages, positions and the like.
        let bytes = query_bytes * chunk + workgroup * tokens * quad_bytes + workgroup / 4 * quad_bytes + 1280;
        bytes + k.table_bytes + v.table_bytes <= 16384
    };
    let chunks = [8, 4, 2].map(|most| vectors.min(most));
    let chunk = chunks.into_iter().find(|&chunk| fits(chunk, k.tokens)).unwrap_or(1);
    (chunk, if fits(chunk, 2) { k.tokens.max(2) } else { k.tokens })
}

/// One dispatch over `args.items` items.
pub fn dispatch(pipeline: PipelineId, buffers: &AttentionBuffers, args: &AttentionArgs) -> Dispatch {
    attention::dispatch(pipeline, buffers, args)
}

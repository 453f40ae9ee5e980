//! Attention over pages for 1 to 16 query rows a sequence: one partial softmax state a row and head.
//!
//! What was tried in WGSL on an H200 (8 x 32,768 tokens, 32 query and 8 KV heads of 128; attention and merge, us, each
//! dispatch in a pass of its own: some 8 us a dispatch more than as they run):
//! - from one 4-byte load a value group to units of 16 bytes: f16 490 to 332, fp8 571 to 325, tq3 885 to 311;
//! - eight fetches of V under way instead of four: f16 331 to 324; more of K: slower;
//! - codes by table and two tokens a look-up, addresses as one term of the token and one of the unit: tq3 313 to 284,
//!   fp8 no change;
//! - 4 tokens a thread, or 128 and 256 threads: 3 to 20 % slower, but f16, level at 128;
//! - products with V in f16 too, weights relative to a block's greatest scale: fp8 314 to 271, tq3 287 to 259;
//! - sixteen fetches of fp8's V under way: 271 to 266, and its 8 bytes loaded as such, not as half of 16: to 260; two
//!   units of tq3's V under way: 225 to 219 (by then). Chains of 32 channels of fp8's K instead of 16: 271 for 274;
//! - outputs written by a loop, queries read one by one: f16 321 to 309, the others level;
//! - exact pages in one segment instead of three: two dispatches of 17 us less, fp8 263 to 226, tq3 259 to 225;
//! - level: pages aligned to 128 bytes; the next units of K asked for while the last are multiplied; twice K's units
//!   under way for fp8 (f16 with the loop: 7 slower);
//! - slower: V's first units asked for ahead of the softmax (fp8 15), K's of the next block ahead of V (7), the first
//!   pages looked up beside the queries (f16 and tq3 5), 2,048 items instead of 1,024 (16);
//! - without any load of K or V fp8's own dispatch takes 137 of 185, and tq3's without look-ups 171 of 181: what bounds
//!   them is neither loads nor tables. Some 26 us of a layer are the dispatch of a few exact pages, which neither more
//!   loads under way nor shorter text has moved; 11 are the merge, 6 the queries' preparation;
//! - subgroups instead of workgroup memory for the maxima: within 1 %;
//! - pages looked up ahead, scales asked for before the codes: within 3 %, either way;
//! - no bounds checks: 8 % of fp8, nothing of f16.

use super::attention::{self, AttentionArgs, AttentionBuffers, AttentionShape};
use super::attention_cpu;
use super::decode_tiles;
use super::tier::Tier;
use crate::backend::{BindingDecl, CodecUse, Constant, Dispatch, Element, KernelDecl, PipelineId, Specialisation};
use crate::error::{Error, ErrorKind, Result};
use crate::format::Units;

/// The kernel.
pub static DECL: KernelDecl = WHOLE;

/// The same for pages of which a side is in two parts: all of WebGPU's eight storage buffers.
pub static SPLIT: KernelDecl = KernelDecl {
    bindings: &[
        BindingDecl::read("k_slab", Element::U32x4),
        BindingDecl::read("v_slab", Element::U32x4),
        BindingDecl::read("descs", Element::U32),
        BindingDecl::read("tables", Element::U32),
        BindingDecl::read("q", Element::F32),
        BindingDecl::write("partials", Element::F32x4),
        BindingDecl::read("k1_slab", Element::U32x4),
        BindingDecl::read("v1_slab", Element::U32x4),
    ],
    ..WHOLE
};

const WHOLE: KernelDecl = KernelDecl {
    name: "decode",
    bindings: &[
        BindingDecl::read("k_slab", Element::U32x4),
        BindingDecl::read("v_slab", Element::U32x4),
        BindingDecl::read("descs", Element::U32),
        BindingDecl::read("tables", Element::U32),
        BindingDecl::read("q", Element::F32),
        BindingDecl::write("partials", Element::F32x4),
    ],
    params: attention::PARAMS,
    constants: &attention::constants_and::<39>(&[
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
        "K_LONG",
        "SUMS_IN_F32",
        "V_UNIT_TOKENS",
        "V_QUADS",
        "V_STEP",
        "V_FLIGHT",
        "V_TURNS",
        "NATIVE",
        "HALF",
        "V_HALF",
        "V_HALVES",
        "TWINS",
        "SUBGROUP",
    ]),
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
    if let Some(cores) = tier.tiles.filter(|_| decode_tiles::fits(&k, &v)) {
        return decode_tiles::specialise(shape, k, v, rows, cores);
    }
    let decl = if attention::split(&k, &v) { &SPLIT } else { &DECL };
    let mut constants = attention::constants(decl, shape, &k, &v, rows, workgroup)?;
    let (k_units, v_units) = (k.codec.wgsl_units("k"), v.codec.wgsl_units("v"));
    let half = tier.f16 && k_units.half;
    let v_half = tier.f16 && v_units.half;
    let (chunk, tokens) = block(&k_units, &v_units, rows * shape.group, (half, v_half), workgroup as usize);
    let quads = chunk.div_ceil(4);
    // Chains of products with K in f16 are short: 32 channels.
    let parts = if half { k_units.quads.div_ceil(8) } else { 1 };
    // An element of queries: two pairs of f32, or four of f16.
    let step_pairs = if half { 4 } else { 2 };
    let flight = |count: usize, most: usize| (1..=most).rev().find(|n| count.is_multiple_of(*n)).unwrap_or(1);
    // Units of several tokens are taken without rest: as many of a page as a thread has.
    let slices = workgroup as usize / (shape.v_dim / 4 / v_units.quads).max(1);
    let run_units = (workgroup as usize * tokens).min(shape.page_tokens) / v_units.tokens;
    let v_flight = match v_units.tokens {
        1 if v_half => 16,
        1 => 8,
        _ if run_units.is_multiple_of(slices.max(1)) => flight(run_units / slices.max(1), 2),
        _ => 1,
    };
    if !(k_units.quads * 2).is_multiple_of(step_pairs * parts) || !matches!(k_units.tokens, 1 | 2) {
        let message = format!(
            "kernel decode: units of K format {} have {} groups of four channels of {} tokens; {} and 1 or 2 can be taken",
            k.format,
            k_units.quads,
            k_units.tokens,
            if half { "multiples of 2, above 8 of 4," } else { "any" }
        );
        return Err(Error::new(ErrorKind::Shape, message, "mend the format's wgsl_units"));
    }
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
        ("K_LONG", Constant::Bool(half && parts == 1 && !k_units.scaled)),
        ("K_SCALED", Constant::Bool(k_units.scaled)),
        ("SUMS_IN_F32", Constant::Bool(half || k_units.scaled)),
        ("V_UNIT_TOKENS", number(v_units.tokens)),
        ("V_QUADS", number(v_units.quads)),
        ("V_STEP", number(if v_units.twins > 0 { 2 } else { 1 })),
        ("V_HALF", Constant::Bool(v_half)),
        // Sums in f16 of a vector: two channels or two tokens each.
        ("V_HALVES", number(if v_units.twins > 0 { 4 } else { 2 * v_units.quads })),
        ("TWINS", number(v_units.twins)),
        ("V_FLIGHT", number(v_flight)),
        ("V_TURNS", number(if v_units.tokens == 1 { 2 } else { 1 })),
        ("NATIVE", Constant::Bool(tier.f16)),
        ("HALF", Constant::Bool(half)),
        ("SUBGROUP", Constant::U32(tier.subgroup)),
    ]);
    Specialisation::new(decl, &constants, vec![k, v])
}

/// Query vectors of a chunk (8 at most) and tokens that a thread owns (2 at most, at least those of a unit), as many
/// as workgroup memory holds: 16 KiB by WebGPU's defaults.
fn block(k: &Units, v: &Units, vectors: usize, (k_half, v_half): (bool, bool), workgroup: usize) -> (usize, usize) {
    let query_bytes = k.count * k.quads * if k_half { 8 } else { 16 };
    let fits = |chunk: usize, tokens: usize| {
        let quad_bytes = chunk.div_ceil(4) * 16;
        // A token's weights; in halves beside scratch of a thread, and greatest scales of threads and subgroups.
        let weights = if v_half { (2 + tokens) * quad_bytes / 2 + 5 } else { tokens * quad_bytes };
        // Queries; weights; maxima of subgroups of 4; pages, positions and the like.
        let bytes = query_bytes * chunk + workgroup * weights + workgroup / 4 * quad_bytes + 1280;
        bytes + k.table_bytes + v.table_bytes <= 16384
    };
    let chunks = [8, 4, 2].map(|most| vectors.min(most));
    let chunk = chunks.into_iter().find(|&chunk| fits(chunk, k.tokens)).unwrap_or(1);
    (chunk, if fits(chunk, 2) { k.tokens.max(2) } else { k.tokens })
}

/// One dispatch over `args.items` items.
pub fn dispatch(pipeline: PipelineId, buffers: &AttentionBuffers, args: &AttentionArgs) -> Dispatch {
    attention::dispatch(pipeline, buffers, None, args)
}

//! Shader text that finds and packs codes.

use super::super::{Layout, PlaneSpec};
use super::{FIRST, PLANE1, SCALAR};
use crate::shape::{PageGeometry, Side};

/// Words of four channels of a token in a plane, and the shifts of each: K keeps them in one word,
/// nibble by nibble, V in a word for every two.
fn words(side: Side, plane: &str) -> String {
    let (words, shifts) = match side {
        Side::K => ("vec4<u32>({p}_word(base + {p}_{plane}_word(token, c)))", "0u, 4u, 8u, 12u"),
        Side::V => (
            "vec2<u32>({p}_word(base + {p}_{plane}_word(token, c)), {p}_word(base + {p}_{plane}_word(token, c + 2u))).xxyy",
            "0u, 16u, 0u, 16u",
        ),
    };
    let shift = match side {
        Side::K => "vec4<u32>({p}_{plane}_shift(token, c))",
        Side::V => "vec2<u32>({p}_{plane}_shift(token, c), {p}_{plane}_shift(token, c + 2u)).xxyy",
    };
    format!("{words} >> ({shift} + vec4<u32>({shifts}))").replace("{plane}", plane)
}

/// WGSL `fn {p}_codes4(base: u32, token: u32, c4: u32) -> vec4<u32>`.
pub(in super::super) fn wgsl_codes(layout: &Layout) -> String {
    let of = |plane: &PlaneSpec| {
        let most = super::super::mask(plane.bits);
        format!("({}) & vec4<u32>({most}u)", words(layout.side, plane.name))
    };
    let first = of(&layout.planes[FIRST]);
    let body = match layout.planes.get(PLANE1) {
        None => format!("    return {first};\n"),
        Some(plane1) => format!("    let hi = {first};\n    let lo = {};\n    return hi * 2u + lo;\n", of(plane1)),
    };
    format!("fn {{p}}_codes4(base: u32, token: u32, c4: u32) -> vec4<u32> {{\n    let c = c4 * 4u;\n{body}}}\n")
}

/// C lines that set `unsigned code` to the code of `token` and channel `c`.
pub(in super::super) fn c_code(layout: &Layout) -> String {
    let of = |plane: &PlaneSpec| {
        let (name, most) = (plane.name, super::super::mask(plane.bits));
        format!("((page[{{p}}_{name}_word(token, c)] >> {{p}}_{name}_shift(token, c)) & {most}u)")
    };
    let first = of(&layout.planes[FIRST]);
    match layout.planes.get(PLANE1) {
        None => format!("unsigned code = {first};"),
        Some(plane1) => format!("unsigned code = 2u * {first} + {};", of(plane1)),
    }
}

/// Most words that the encoder gathers at once.
const PHASE_WORDS: usize = 2048;

/// WGSL `{p}_encode_page` around a format's own text, which defines
/// - `fn {p}_row(token: u32, i: u32)`, which sets `{p}_rows[i]` (two numbers that say how the token's codes
///   are chosen) and `{p}_scalars[i]` (the scalar's bits);
/// - `fn {p}_code4(token: u32, c4: u32, row: vec2<f32>) -> vec4<u32>`, four codes of that token.
///
/// `split` writes `plane1` as the further part of a page in two.
pub(in super::super) fn wgsl_encode(layout: &Layout, own: &str, split: bool) -> String {
    let PageGeometry { tokens, head_dim } = layout.geometry;
    let sub_tokens = tokens.min(64);
    let sub_tiles = tokens / sub_tokens;
    let mut phases = String::new();
    let mut bits_words = 0;
    for (number, plane) in layout.planes.iter().enumerate() {
        let words = plane.words / sub_tiles;
        // Words of a block of 128 channels lie together: a plane too large goes some blocks at a time.
        let block_words = sub_tokens * 128 * plane.bits as usize / 32;
        let channels = PHASE_WORDS / block_words * 128;
        for start in (0..head_dim).step_by(channels) {
            let first = start / 128 * block_words;
            let here = (words - first).min(channels / 128 * block_words);
            bits_words = bits_words.max(here);
            let quads = channels.min(head_dim - start) / 4;
            let below = layout.planes[number + 1..].iter().map(|p| p.bits).sum();
            let gather = code_loop(layout.side, plane, below, sub_tokens, start / 4, quads);
            let goal = if split && number == PLANE1 { "{p}1_slab[{p}_part1" } else { "{p}_slab[base" };
            phases += &phase(plane.offset_words + first, words, here, &gather, goal);
        }
    }
    let scalar = &layout.scalars[SCALAR];
    let scalar_words = scalar.words / sub_tiles;
    phases +=
        &phase(scalar.offset_words, scalar_words, scalar_words, &scalar_loop(scalar.name, sub_tokens), "{p}_slab[base");
    ENCODE
        .replace("{bits_words}", &bits_words.max(scalar_words).to_string())
        .replace("{own}", own)
        .replace("{phases}", &phases)
        .replace("{sub_tokens}", &sub_tokens.to_string())
        .replace("{sub_tiles}", &sub_tiles.to_string())
}

/// Gathers the bits of `quads` times four channels from `first_quad` on; `below` bits of a code are other planes'.
fn code_loop(side: Side, plane: &PlaneSpec, below: u32, sub_tokens: usize, first_quad: usize, quads: usize) -> String {
    let (token, c4) = match side {
        Side::K => (format!("i % {sub_tokens}u"), format!("i / {sub_tokens}u")),
        Side::V => (format!("i / {quads}u"), format!("i % {quads}u")),
    };
    let total = sub_tokens * quads;
    let most = super::super::mask(plane.bits);
    let b: [String; 4] = std::array::from_fn(|k| format!("((code[{k}] >> {below}u) & {most}u)"));
    let name = plane.name;
    let at = |c: &str, bits: String| {
        format!(
            "atomicOr(&{{p}}_bits[{{p}}_{name}_word(token, {c}) - first], ({bits}) << {{p}}_{name}_shift(token, {c}));"
        )
    };
    // Bits of four channels at once where a word holds them, of two where not.
    let or = match side {
        Side::K => at("c", format!("{} | ({} << 4u) | ({} << 8u) | ({} << 12u)", b[0], b[1], b[2], b[3])),
        Side::V => {
            at("c", format!("{} | ({} << 16u)", b[0], b[1]))
                + "\n            "
                + &at("c + 2u", format!("{} | ({} << 16u)", b[2], b[3]))
        }
    };
    format!(
        "for (var i = lid; i < {total}u; i += WORKGROUP) {{
            let token = sub * {sub_tokens}u + {token};
            let c4 = {first_quad}u + {c4};
            let c = c4 * 4u;
            let code = {{p}}_code4(token, c4, {{p}}_rows[token % {sub_tokens}u]);
            {or}
        }}"
    )
}

fn scalar_loop(name: &str, sub_tokens: usize) -> String {
    format!(
        "for (var i = lid; i < {sub_tokens}u; i += WORKGROUP) {{
            let token = sub * {sub_tokens}u + i;
            atomicOr(&{{p}}_bits[{{p}}_{name}_word(token) - first], {{p}}_scalars[i] << {{p}}_{name}_shift(token));
        }}"
    )
}

/// `words` words of a sub-tile's plane of `stride` words are gathered in workgroup memory, then written.
fn phase(first: usize, stride: usize, words: usize, gather: &str, goal: &str) -> String {
    "        for (var i = lid; i < {words}u; i += WORKGROUP) { atomicStore(&{p}_bits[i], 0u); }
        workgroupBarrier();
        {
        let first = {first}u + sub * {stride}u;
        {gather}
        workgroupBarrier();
        for (var i = lid; i < {words}u; i += WORKGROUP) {
            {goal} + first + i] = atomicLoad(&{p}_bits[i]);
        }
        }
        workgroupBarrier();
"
    .replace("{first}", &first.to_string())
    .replace("{stride}", &stride.to_string())
    .replace("{words}", &words.to_string())
    .replace("{gather}", gather)
    .replace("{goal}", goal)
}

/// The encoder around its phases. Workgroup memory at most: 8,960 bytes.
const ENCODE: &str = "//#unzeroed
var<workgroup> {p}_bits: array<atomic<u32>, {bits_words}>;
var<workgroup> {p}_rows: array<vec2<f32>, {sub_tokens}>;
var<workgroup> {p}_scalars: array<u32, {sub_tokens}>;

{own}
fn {p}_encode_page(base: u32, lid: u32) {
    for (var sub = 0u; sub < {sub_tiles}u; sub += 1u) {
        for (var i = lid; i < {sub_tokens}u; i += WORKGROUP) {
            {p}_row(sub * {sub_tokens}u + i, i);
        }
        workgroupBarrier();
{phases}    }
}
";

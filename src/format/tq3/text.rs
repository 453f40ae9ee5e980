//! tq3's shader text.

use super::super::Layout;
use super::super::emit::{c_positions, fill, wgsl_positions};
use super::encode::{EXPONENT_MAX, EXPONENT_MIN, EXPONENT_SATURATED, thresholds};
use super::{PLANE1, PLANE2, UNIT_INVERSE};
use crate::num::{TQ_UNIT, TQ3};
use crate::shape::{PageGeometry, Side};

/// A float so that it reads back bit for bit and looks like one.
fn float(x: f32) -> String {
    format!("{x:?}")
}

/// The codebook's magnitudes as a cubic in the level 0..3, exact in f32: c0 + m(c1 + m(c2 + m·c3)).
fn cubic() -> [f32; 4] {
    let [b0, b1, b2, b3] = TQ3;
    let (d1, d2, d3) = (b1 - b0, b2 - 2.0 * b1 + b0, b3 - 3.0 * b2 + 3.0 * b1 - b0);
    [b0, d1 - d2 / 2.0 + d3 / 3.0, d2 / 2.0 - d3 / 2.0, d3 / 6.0]
}

/// Words of four channels of a token in a plane, and the shifts of each: K keeps them in one word,
/// nibble by nibble, V in a word for every two.
fn words(side: Side, plane: &str) -> String {
    let (words, shifts) = match side {
        Side::K => ("vec4<u32>({p}_slab[base + {p}_{plane}_word(token, c)])", "0u, 4u, 8u, 12u"),
        Side::V => (
            "vec2<u32>({p}_slab[base + {p}_{plane}_word(token, c)], {p}_slab[base + {p}_{plane}_word(token, c + 2u)]).xxyy",
            "0u, 16u, 0u, 16u",
        ),
    };
    let shift = match side {
        Side::K => "vec4<u32>({p}_{plane}_shift(token, c))",
        Side::V => "vec2<u32>({p}_{plane}_shift(token, c), {p}_{plane}_shift(token, c + 2u)).xxyy",
    };
    format!("{words} >> ({shift} + vec4<u32>({shifts}))").replace("{plane}", plane)
}

pub(super) fn wgsl(layout: &Layout, prefix: &str) -> String {
    let [c0, c1, c2, c3] = cubic().map(float);
    let magnitude = fill(
        "// Levels 0 to 3 to the codebook's magnitudes, exact.
fn {p}_magnitude4(m: vec4<f32>) -> vec4<f32> {
    return {c0} + m * ({c1} + m * ({c2} + m * {c3}));
}
",
        prefix,
        &[("c0", c0), ("c1", c1), ("c2", c2), ("c3", c3)],
    );
    let text = "fn {p}_load4(base: u32, token: u32, c4: u32) -> vec4<f32> {
    let c = c4 * 4u;
    let hi = ({words2}) & vec4<u32>(3u);
    let lo = ({words1}) & vec4<u32>(1u);
    let x = vec4<f32>(hi * 2u + lo) - 3.5;
    return sign(x) * {p}_magnitude4(abs(x) - 0.5);
}
fn {p}_scale(base: u32, token: u32) -> f32 {
    let w = {p}_slab[base + {p}_gamma_word(token)] >> {p}_gamma_shift(token);
    return f16_unpack(w & 0xffffu).x * {unit};
}
"
    .replace("{words2}", &words(layout.side, "plane2"))
    .replace("{words1}", &words(layout.side, "plane1"));
    wgsl_positions(layout, prefix) + &magnitude + &fill(&text, prefix, &[("unit", float(UNIT_INVERSE))])
}

pub(super) fn wgsl_encode(layout: &Layout, prefix: &str) -> String {
    let PageGeometry { tokens, head_dim } = layout.geometry;
    let sub_tokens = tokens.min(64);
    let sub_tiles = tokens / sub_tokens;
    let quads = sub_tokens * head_dim / 4;
    let (token, c4) = match layout.side {
        Side::K => (format!("i % {sub_tokens}u"), format!("i / {sub_tokens}u")),
        Side::V => (format!("i / {}u", head_dim / 4), format!("i % {}u", head_dim / 4)),
    };
    let gamma = match layout.side {
        Side::K => format!("square * {} / dot_", float(TQ_UNIT)),
        Side::V => format!("sqrt(square / norm) * {}", float(TQ_UNIT)),
    };
    // Bits of four channels at once where a word holds them, of two where not.
    let or = |plane: &str, bits: u32| {
        let bits = (0..4).map(|k| match (layout.side, bits) {
            (_, 2) => format!("(code[{k}] >> 1u)"),
            _ => format!("(code[{k}] & 1u)"),
        });
        let b: Vec<String> = bits.collect();
        let at = |c: &str, bits: String| {
            format!(
                "atomicOr(&{{p}}_bits[{{p}}_{plane}_word(token, {c}) - first], ({bits}) << {{p}}_{plane}_shift(token, {c}));"
            )
        };
        match layout.side {
            Side::K => at("c", format!("{} | ({} << 4u) | ({} << 8u) | ({} << 12u)", b[0], b[1], b[2], b[3])),
            Side::V => {
                at("c", format!("{} | ({} << 16u)", b[0], b[1]))
                    + " "
                    + &at("c + 2u", format!("{} | ({} << 16u)", b[2], b[3]))
            }
        }
    };
    let mut phases = String::new();
    for (number, plane) in [(PLANE2, "plane2"), (PLANE1, "plane1")] {
        let spec = &layout.planes[number];
        phases += &PHASE
            .replace("{first}", &spec.offset_words.to_string())
            .replace("{words}", &(spec.words / sub_tiles).to_string())
            .replace(
                "{or}",
                &format!(
                    "for (var i = lid; i < {quads}u; i += WORKGROUP) {{
            let token = sub * {sub_tokens}u + {token};
            let c = ({c4}) * 4u;
            let code = {{p}}_code4(token, {c4}, {{p}}_rows[token % {sub_tokens}u]);
            {}
        }}",
                    or(plane, spec.bits)
                ),
            );
    }
    let gammas = &layout.scalars[0];
    phases += &PHASE
        .replace("{first}", &gammas.offset_words.to_string())
        .replace("{words}", &(gammas.words / sub_tiles).to_string())
        .replace(
            "{or}",
            &format!(
                "for (var i = lid; i < {sub_tokens}u; i += WORKGROUP) {{
            let token = sub * {sub_tokens}u + i;
            atomicOr(&{{p}}_bits[{{p}}_gamma_word(token) - first], {{p}}_gammas[i] << {{p}}_gamma_shift(token));
        }}"
            ),
        );
    let [l0, l1, l2] = thresholds().map(float);
    fill(
        &ENCODE.replace("{phases}", &phases),
        prefix,
        &[
            ("bits_words", (layout.planes[PLANE2].words / sub_tiles).to_string()),
            ("sub_tokens", sub_tokens.to_string()),
            ("sub_tiles", sub_tiles.to_string()),
            ("row", (head_dim / 4).to_string()),
            ("inverse_dim", float(1.0 / head_dim as f32)),
            ("gamma", gamma),
            ("min", EXPONENT_MIN.to_string()),
            ("max", EXPONENT_MAX.to_string()),
            ("saturated", EXPONENT_SATURATED.to_string()),
            ("l0", l0),
            ("l1", l1),
            ("l2", l2),
        ],
    )
}

/// The encoder around its phases. Workgroup memory at head size 512: 8,960 bytes.
const ENCODE: &str = "var<workgroup> {p}_bits: array<atomic<u32>, {bits_words}>;
// For each token of a sub-tile: the power of two that scales it, its scaled mean square.
var<workgroup> {p}_rows: array<vec2<f32>, {sub_tokens}>;
var<workgroup> {p}_gammas: array<u32, {sub_tokens}>;

// Magnitudes with NaN as 0 and infinities as the greatest finite value.
fn {p}_finite4(x: vec4<f32>) -> vec4<u32> {
    let a = bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu);
    return select(min(a, vec4<u32>(0x7f7fffffu)), vec4<u32>(0u), a > vec4<u32>(0x7f800000u));
}

fn {p}_levels4(a: vec4<f32>, mean: f32) -> vec4<u32> {
    let square = a * a;
    let zero = vec4<u32>(0u);
    let one = vec4<u32>(1u);
    return select(zero, one, square > vec4<f32>({l0} * mean)) + select(zero, one, square > vec4<f32>({l1} * mean))
        + select(zero, one, square > vec4<f32>({l2} * mean));
}

fn {p}_code4(token: u32, c4: u32, row: vec2<f32>) -> vec4<u32> {
    let x = source4(token, c4);
    let a = bitcast<vec4<f32>>({p}_finite4(x)) * row.x;
    let level = {p}_levels4(a, row.y);
    // By bits: a NaN of either sign and zeros count as positive.
    let bits = bitcast<vec4<u32>>(x);
    let negative = (bits > vec4<u32>(0x80000000u)) & (bits <= vec4<u32>(0xff800000u));
    return select(vec4<u32>(4u) + level, vec4<u32>(3u) - level, negative);
}

fn {p}_row(token: u32, i: u32) {
    var nan = false;
    var peak = 0u;
    for (var c4 = 0u; c4 < {row}u; c4 += 1u) {
        let x = source4(token, c4);
        let bits = bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu);
        nan = nan || any(bits > vec4<u32>(0x7f800000u));
        let a = {p}_finite4(x);
        peak = max(peak, max(max(a.x, a.y), max(a.z, a.w)));
    }
    let exponent = min(peak >> 23u, {max}u);
    let small = exponent < {min}u;
    let down = select(bitcast<f32>((254u - exponent) << 23u), 0.0, small);
    var square = 0.0;
    for (var c4 = 0u; c4 < {row}u; c4 += 1u) {
        let a = bitcast<vec4<f32>>({p}_finite4(source4(token, c4))) * down;
        let s = a * a;
        square = (((square + s.x) + s.y) + s.z) + s.w;
    }
    let mean = square * {inverse_dim};
    var dot_ = 0.0;
    var norm = 0.0;
    for (var c4 = 0u; c4 < {row}u; c4 += 1u) {
        let a = bitcast<vec4<f32>>({p}_finite4(source4(token, c4))) * down;
        let m = {p}_magnitude4(vec4<f32>({p}_levels4(a, mean)));
        let d = a * m;
        let n = m * m;
        dot_ = (((dot_ + d.x) + d.y) + d.z) + d.w;
        norm = (((norm + n.x) + n.y) + n.z) + n.w;
    }
    // Small rows would divide 0 by 0.
    dot_ = select(dot_, 1.0, small);
    let gamma = ({gamma}) * bitcast<f32>(min(exponent, {saturated}u) << 23u);
    {p}_gammas[i] = select(select(f16_bits(gamma), 0u, small), 0x7e00u, nan);
    {p}_rows[i] = vec2<f32>(down, mean);
}

fn {p}_encode_page(base: u32, lid: u32) {
    for (var sub = 0u; sub < {sub_tiles}u; sub += 1u) {
        for (var i = lid; i < {sub_tokens}u; i += WORKGROUP) {
            {p}_row(sub * {sub_tokens}u + i, i);
        }
        workgroupBarrier();
{phases}    }
}
";

/// One plane of a sub-tile: its words are gathered in workgroup memory, then written.
const PHASE: &str = "        for (var i = lid; i < {words}u; i += WORKGROUP) { atomicStore(&{p}_bits[i], 0u); }
        workgroupBarrier();
        {
        let first = {first}u + sub * {words}u;
        {or}
        workgroupBarrier();
        for (var i = lid; i < {words}u; i += WORKGROUP) {
            {p}_slab[base + first + i] = atomicLoad(&{p}_bits[i]);
        }
        }
        workgroupBarrier();
";

pub(super) fn cuda(layout: &Layout, prefix: &str) -> String {
    let [b0, b1, b2, b3] = TQ3.map(float);
    c_positions(layout, prefix)
        + &fill(
            "KV_FN void {p}_load4(const unsigned *page, unsigned token, unsigned c4, float *out) {
    for (unsigned k = 0; k < 4u; ++k) {
        unsigned c = 4u * c4 + k;
        unsigned hi = (page[{p}_plane2_word(token, c)] >> {p}_plane2_shift(token, c)) & 3u;
        unsigned lo = (page[{p}_plane1_word(token, c)] >> {p}_plane1_shift(token, c)) & 1u;
        unsigned code = 2u * hi + lo;
        unsigned level = code < 4u ? 3u - code : code - 4u;
        float magnitude = level == 0u ? {b0}f : level == 1u ? {b1}f : level == 2u ? {b2}f : {b3}f;
        out[k] = code < 4u ? -magnitude : magnitude;
    }
}
KV_FN float {p}_scale(const unsigned *page, unsigned token) {
    return kv_f16((page[{p}_gamma_word(token)] >> {p}_gamma_shift(token)) & 0xffffu) * {unit}f;
}
",
            prefix,
            &[("b0", b0), ("b1", b1), ("b2", b2), ("b3", b3), ("unit", float(UNIT_INVERSE))],
        )
}

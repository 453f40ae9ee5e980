//! The family's shader text.

use super::super::codes;
use super::super::emit::{c_positions, fill, wgsl_positions};
use super::super::{Layout, words::float};
use super::codebook::Book;
use super::encode::{EXPONENT_MAX, EXPONENT_MIN, EXPONENT_SATURATED};
use crate::shape::Side;

/// WGSL expression of the magnitudes of levels `m` (a `vec4<f32>` of whole numbers), exact in f32: a
/// polynomial in the level where there are few, bytes of two words where there are eight.
fn magnitude4(book: &Book) -> String {
    match *book.magnitudes {
        [b0, b1] => format!("    return {} + m * {};\n", float(b0), float(b1 - b0)),
        [b0, b1, b2, b3] => {
            let (d1, d2, d3) = (b1 - b0, b2 - 2.0 * b1 + b0, b3 - 3.0 * b2 + 3.0 * b1 - b0);
            let c = [b0, d1 - d2 / 2.0 + d3 / 3.0, d2 / 2.0 - d3 / 2.0, d3 / 6.0].map(float);
            format!("    return {} + m * ({} + m * ({} + m * {}));\n", c[0], c[1], c[2], c[3])
        }
        _ => {
            let word = |part: &[f32]| part.iter().rev().fold(0u32, |w, m| (w << 8) | *m as u32);
            let (low, high) = book.magnitudes.split_at(4);
            format!(
                "    let level = vec4<u32>(m);
    let bytes = select(vec4<u32>({}u), vec4<u32>({}u), level > vec4<u32>(3u));
    return vec4<f32>((bytes >> ((level & vec4<u32>(3u)) * 8u)) & vec4<u32>(255u));\n",
                word(low),
                word(high)
            )
        }
    }
}

pub(super) fn wgsl(book: &Book, layout: &Layout, prefix: &str) -> String {
    let text = "// Levels to the codebook's magnitudes, exact.
fn {p}_magnitude4(m: vec4<f32>) -> vec4<f32> {
{magnitude}}
{codes}fn {p}_load4(base: u32, token: u32, c4: u32) -> vec4<f32> {
    let x = vec4<f32>({p}_codes4(base, token, c4)) - {middle};
    return sign(x) * {p}_magnitude4(abs(x) - 0.5);
}
fn {p}_scale(base: u32, token: u32) -> f32 {
    let w = {p}_word(base + {p}_gamma_word(token)) >> {p}_gamma_shift(token);
    return f16_unpack(w & 0xffffu).x * {unit};
}
"
    .replace("{codes}", &codes::wgsl_codes(layout))
    .replace("{magnitude}", &magnitude4(book));
    let middle = book.magnitudes.len() as f32 - 0.5;
    wgsl_positions(layout, prefix)
        + &fill(&text, prefix, &[("middle", float(middle)), ("unit", float(book.unit_inverse))])
}

/// The value of a code in the codebook's units, for tables.
pub(super) fn wgsl_value(book: &Book, prefix: &str) -> String {
    let middle = book.magnitudes.len() as f32 - 0.5;
    fill(
        "fn {p}_value(code: u32) -> f32 {
    let x = f32(code) - {middle};
    return sign(x) * {p}_magnitude4(vec4<f32>(abs(x) - 0.5)).x;
}
",
        prefix,
        &[("middle", float(middle))],
    )
}

pub(super) fn wgsl_encode(book: &Book, layout: &Layout, prefix: &str, split: bool) -> String {
    let head_dim = layout.geometry.head_dim;
    let gamma = match layout.side {
        Side::K => format!("square * {} / dot_", float(book.unit)),
        Side::V => format!("sqrt(square / norm) * {}", float(book.unit)),
    };
    let levels = book.magnitudes.len();
    let above = |limit: &f32| format!("select(zero, one, square > vec4<f32>({} * mean))", float(*limit));
    let sum: Vec<String> = book.thresholds()[..levels - 1].iter().map(above).collect();
    fill(
        &codes::wgsl_encode(layout, OWN, split),
        prefix,
        &[
            ("levels", sum.join("\n        + ")),
            ("positive", levels.to_string()),
            ("negative", (levels - 1).to_string()),
            ("row", (head_dim / 4).to_string()),
            ("inverse_dim", float(1.0 / head_dim as f32)),
            ("gamma", gamma),
            ("min", EXPONENT_MIN.to_string()),
            ("max", EXPONENT_MAX.to_string()),
            ("saturated", EXPONENT_SATURATED.to_string()),
        ],
    )
}

/// Rows are told by the power of two that scales them and their scaled mean square.
const OWN: &str = "// Magnitudes with NaN as 0 and infinities as the greatest finite value.
fn {p}_finite4(x: vec4<f32>) -> vec4<u32> {
    let a = bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu);
    return select(min(a, vec4<u32>(0x7f7fffffu)), vec4<u32>(0u), a > vec4<u32>(0x7f800000u));
}

fn {p}_levels4(a: vec4<f32>, mean: f32) -> vec4<u32> {
    let square = a * a;
    let zero = vec4<u32>(0u);
    let one = vec4<u32>(1u);
    return {levels};
}

fn {p}_code4(token: u32, c4: u32, row: vec2<f32>) -> vec4<u32> {
    let x = source4(token, c4);
    let a = bitcast<vec4<f32>>({p}_finite4(x)) * row.x;
    let level = {p}_levels4(a, row.y);
    // By bits: a NaN of either sign and zeros count as positive.
    let bits = bitcast<vec4<u32>>(x);
    let negative = (bits > vec4<u32>(0x80000000u)) & (bits <= vec4<u32>(0xff800000u));
    return select(vec4<u32>({positive}u) + level, vec4<u32>({negative}u) - level, negative);
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
    {p}_scalars[i] = select(select(f16_bits(gamma), 0u, small), 0x7e00u, nan);
    {p}_rows[i] = vec2<f32>(down, mean);
}
";

pub(super) fn cuda(book: &Book, layout: &Layout, prefix: &str) -> String {
    let levels = book.magnitudes.len();
    let last = float(book.magnitudes[levels - 1]) + "f";
    let magnitude = book.magnitudes[..levels - 1]
        .iter()
        .enumerate()
        .rev()
        .fold(last, |rest, (level, m)| format!("level == {level}u ? {}f : {rest}", float(*m)));
    c_positions(layout, prefix)
        + &fill(
            &"KV_FN void {p}_load4(const unsigned *page, unsigned token, unsigned c4, float *out) {
    for (unsigned k = 0; k < 4u; ++k) {
        unsigned c = 4u * c4 + k;
        {code}
        unsigned level = code < {levels}u ? {last}u - code : code - {levels}u;
        float magnitude = {magnitude};
        out[k] = code < {levels}u ? -magnitude : magnitude;
    }
}
KV_FN float {p}_scale(const unsigned *page, unsigned token) {
    return kv_f16((page[{p}_gamma_word(token)] >> {p}_gamma_shift(token)) & 0xffffu) * {unit}f;
}
"
            .replace("{code}", &codes::c_code(layout)),
            prefix,
            &[
                ("levels", levels.to_string()),
                ("last", (levels - 1).to_string()),
                ("magnitude", magnitude),
                ("unit", float(book.unit_inverse)),
            ],
        )
}

//! Shader text of blocks. No rounding of an intermediate is left to the device: products are exact or
//! stand alone, and codes are rounded in integers.

use super::super::Layout;
use super::super::emit::{c_positions, fill, wgsl_positions};
use super::BLOCK;
use crate::shape::{PageGeometry, Side};

pub(super) fn wgsl(bits: usize, layout: &Layout, prefix: &str) -> String {
    let codes = match bits {
        8 => {
            "    let w = {p}_word(base + {p}_codes_word(token, c));
    let q = vec4<f32>(vec4<i32>(vec4<u32>(w) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u));"
        }
        _ => {
            "    let w = {p}_word(base + {p}_codes_word(token, c)) >> {p}_codes_shift(token, c);
    let q = vec4<f32>((vec4<u32>(w) >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u)) - 8.0;"
        }
    };
    wgsl_positions(layout, prefix)
        + &fill(
            &"fn {p}_load4(base: u32, token: u32, c4: u32) -> vec4<f32> {
    let c = c4 * 4u;
{codes}
    let s = {p}_word(base + {p}_scale_word(token, c)) >> {p}_scale_shift(token, c);
    return q * f16_unpack(s & 0xffffu).x;
}
fn {p}_scale(base: u32, token: u32) -> f32 { return 1.0; }
"
            .replace("{codes}", codes),
            prefix,
            &[],
        )
}

/// A thread takes two blocks at a time, those whose scales share a word.
pub(super) fn wgsl_encode(bits: usize, layout: &Layout, prefix: &str) -> String {
    let PageGeometry { tokens, head_dim } = layout.geometry;
    let blocks = head_dim / BLOCK;
    let (token, block) = match layout.side {
        Side::K => (format!("number % {tokens}u"), format!("number / {tokens}u")),
        Side::V => (format!("number / {blocks}u"), format!("number % {blocks}u")),
    };
    let (scale, sign, code4, quads) = match bits {
        8 => (
            "f32_127th(bitcast<f32>(peak & 0x7fffffffu))",
            "0u",
            "    // Half away from zero: twice the magnitude is exact. It is made by its exponent, since compilers would
    // double another factor of y, which may overflow.
    let twice = bitcast<vec4<f32>>((bitcast<vec4<u32>>(y) & vec4<u32>(0x7fffffffu)) + vec4<u32>(0x00800000u));
    let half = (vec4<i32>(floor(twice)) + vec4<i32>(1)) >> vec4<u32>(1u);
    let q = bitcast<vec4<u32>>(select(half, -half, y < vec4<f32>(0.0))) & vec4<u32>(255u);
    return q.x | (q.y << 8u) | (q.z << 16u) | (q.w << 24u);",
            1,
        ),
        _ => (
            "bitcast<f32>(peak ^ 0x80000000u) * 0.125",
            "(peak ^ 0x80000000u) & 0x80000000u",
            "    // floor of the f32 nearest to y + 8.5, in units of 2^-24: a sum within half of its last place below
    // a whole number is rounded to it (2^-21 from 8 on, 2^-22 from 4 on; below, y has no such bits). The product
    // with 2^24 is made by the exponent, since compilers would multiply another factor of y, which may overflow.
    let large = bitcast<vec4<f32>>(bitcast<vec4<u32>>(y) + vec4<u32>(0x0c000000u));
    let sum = vec4<i32>(floor(large)) + vec4<i32>(142606336);
    let last = select(vec4<i32>(4), vec4<i32>(8), sum >= vec4<i32>(134217728));
    let q = vec4<u32>(clamp((sum + last) >> vec4<u32>(24u), vec4<i32>(0), vec4<i32>(15)));
    return q.x | (q.y << 4u) | (q.z << 8u) | (q.w << 12u);",
            2,
        ),
    };
    fill(
        &ENCODE.replace("{code4}", code4),
        prefix,
        &[
            ("scale", scale.into()),
            ("sign", sign.into()),
            ("token", token),
            ("block", block),
            ("pairs", (tokens * blocks / 2).to_string()),
            ("first_scale", layout.scalars[0].offset_words.to_string()),
            // Words of a block, and quads of channels and bits of a quad in one.
            ("words", (BLOCK * bits / 32).to_string()),
            ("quads", quads.to_string()),
        ],
    )
}

const ENCODE: &str = "// Values with NaN as 0 and infinities as the greatest finite ones.
fn {p}_finite4(x: vec4<f32>) -> vec4<f32> {
    let bits = bitcast<vec4<u32>>(x);
    let a = bits & vec4<u32>(0x7fffffffu);
    let b = (bits & vec4<u32>(0x80000000u)) | min(a, vec4<u32>(0x7f7fffffu));
    return bitcast<vec4<f32>>(select(b, vec4<u32>(0u), a > vec4<u32>(0x7f800000u)));
}

// Codes of four values that are multiplied by the scale's inverse.
fn {p}_code4(y: vec4<f32>) -> u32 {
{code4}
}

// Writes a block's codes; returns its scale's f16 bits.
fn {p}_block(base: u32, token: u32, block: u32) -> u32 {
    var nan = false;
    // The value of greatest magnitude, the first of equals, by its bits.
    var peak = 0u;
    for (var i = 0u; i < 8u; i += 1u) {
        let x = source4(token, block * 8u + i);
        nan = nan || any((bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u));
        let b = bitcast<vec4<u32>>({p}_finite4(x));
        peak = select(peak, b.x, (b.x & 0x7fffffffu) > (peak & 0x7fffffffu));
        peak = select(peak, b.y, (b.y & 0x7fffffffu) > (peak & 0x7fffffffu));
        peak = select(peak, b.z, (b.z & 0x7fffffffu) > (peak & 0x7fffffffu));
        peak = select(peak, b.w, (b.w & 0x7fffffffu) > (peak & 0x7fffffffu));
    }
    let small = (peak & 0x7fffffffu) < 0x20000000u;
    // Small peaks leave their scale's sign only.
    let wanted = select(bitcast<u32>({scale}), {sign}, small);
    let magnitude = select(wanted & 0x7fffffffu, 0x3f800000u, small);
    let reciprocal = bitcast<u32>(f32_reciprocal(bitcast<f32>(magnitude))) | (wanted & 0x80000000u);
    let inverse = bitcast<f32>(select(reciprocal, 0u, small || nan));
    for (var word = 0u; word < {words}u; word += 1u) {
        var codes = 0u;
        for (var i = 0u; i < {quads}u; i += 1u) {
            let y = {p}_finite4(source4(token, block * 8u + word * {quads}u + i)) * inverse;
            codes = codes | ({p}_code4(y) << (16u * i));
        }
        {p}_slab[base + {p}_codes_word(token, block * 32u + word * {quads}u * 4u)] = codes;
    }
    return select(f16_bits(bitcast<f32>(wanted)), 0x7e00u, nan);
}

fn {p}_encode_page(base: u32, lid: u32) {
    for (var i = lid; i < {pairs}u; i += WORKGROUP) {
        var scales = 0u;
        for (var half = 0u; half < 2u; half += 1u) {
            let number = 2u * i + half;
            scales = scales | ({p}_block(base, {token}, {block}) << (16u * half));
        }
        {p}_slab[base + {first_scale}u + i] = scales;
    }
}
";

pub(super) fn cuda(bits: usize, layout: &Layout, prefix: &str) -> String {
    let code = match bits {
        8 => "(float)(signed char)((w >> (8u * k)) & 0xffu)",
        _ => "(float)((w >> (4u * k)) & 15u) - 8.0f",
    };
    c_positions(layout, prefix)
        + &fill(
            "KV_FN void {p}_load4(const unsigned *page, unsigned token, unsigned c4, float *out) {
    unsigned c = 4u * c4;
    unsigned w = page[{p}_codes_word(token, c)] >> {p}_codes_shift(token, c);
    float scale = kv_f16((page[{p}_scale_word(token, c)] >> {p}_scale_shift(token, c)) & 0xffffu);
    for (unsigned k = 0; k < 4u; ++k) out[k] = ({code}) * scale;
}
KV_FN float {p}_scale(const unsigned *page, unsigned token) { (void)page; (void)token; return 1.0f; }
",
            prefix,
            &[("code", code.into())],
        )
}

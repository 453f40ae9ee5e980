//! Shader text that reads blocks by units of 16 bytes (V: eight channels).

use super::super::emit::fill;
use super::super::{Layout, Units};
use crate::shape::Side;

pub(super) fn units(bits: usize, layout: &Layout, prefix: &str) -> Units {
    let channels = 128 / bits;
    let (pair, quad, fetch_v) = match bits {
        8 => (
            "let shift = vec2<u32>(24u, 16u) - 16u * (at % 2u);
    return pair(vec2<f32>(vec2<i32>(vec2<u32>(unit.codes[at / 2u]) << shift) >> vec2<u32>(24u)));",
            "vec4<f32>(vec4<i32>(vec4<u32>(unit.codes[quad]) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u))",
            "{p}_slab[at / 2u]",
        ),
        _ => (
            "let shift = vec2<u32>(0u, 4u) + 8u * (at % 4u);
    return pair(vec2<f32>((vec2<u32>(unit.codes[at / 4u]) >> shift) & vec2<u32>(15u)) - 8.0);",
            "vec4<f32>((vec4<u32>(unit.codes.x >> (16u * quad)) >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u)) - 8.0",
            "vec2<u32>({p}_slab[at], 0u)",
        ),
    };
    let (text, quads, count, words) = match layout.side {
        Side::K => (K, channels / 4, layout.geometry.head_dim / channels, 4),
        Side::V => (V, 2, layout.geometry.tokens, bits / 4),
    };
    let values = [
        ("tokens", layout.geometry.tokens.to_string()),
        ("channels", channels.to_string()),
        ("pair", pair.into()),
        ("quad", quad.into()),
        ("fetch_v", fetch_v.replace("{p}", prefix)),
    ];
    let text = fill(text, prefix, &values);
    // Codes of 8 bits lose less than f16's products would add; V's scales are of less than a token.
    Units {
        text,
        tokens: 1,
        quads,
        count,
        words,
        table_bytes: 0,
        twins: 0,
        scaled: layout.side == Side::K,
        half: bits == 4 && layout.side == Side::K,
    }
}

const K: &str = "struct {p}_Unit {
    codes: vec4<u32>,
    scale: f32,
}
const {p}_factor: f32 = 1.0;
fn {p}_prepare(lid: u32) {}
alias {p}_At = vec2<u32>;
fn {p}_at(base: u32, token: u32) -> {p}_At { return vec2<u32>(base, token); }
fn {p}_fetch(at: {p}_At, unit: u32) -> {p}_Unit {
    let c = unit * {channels}u;
    let s = {p}_word(at.x + {p}_scale_word(at.y, c)) >> {p}_scale_shift(at.y, c);
    return {p}_Unit({p}_slab[at.x / 4u + at.y + unit * {tokens}u], f16_unpack(s & 0xffffu).x);
}
fn {p}_pair(unit: {p}_Unit, which: u32, at: u32) -> pair {
    {pair}
}
fn {p}_channels(unit: u32, at: u32) -> vec2<u32> { return unit * {channels}u + at * 2u + vec2<u32>(0u, 1u); }
fn {p}_unit_scale(unit: {p}_Unit) -> f32 { return unit.scale; }
";

const V: &str = "struct {p}_Unit {
    codes: vec2<u32>,
    scale: f32,
}
const {p}_factor: f32 = 1.0;
fn {p}_prepare(lid: u32) {}
alias {p}_At = vec2<u32>;
fn {p}_at(base: u32, c4: u32) -> {p}_At { return vec2<u32>(base, c4); }
fn {p}_fetch(column: {p}_At, unit: u32) -> {p}_Unit {
    let c = column.y * 4u;
    let at = column.x + {p}_codes_word(unit, c);
    let s = {p}_word(column.x + {p}_scale_word(unit, c)) >> {p}_scale_shift(unit, c);
    return {p}_Unit({fetch_v}, f16_unpack(s & 0xffffu).x);
}
fn {p}_quad(unit: {p}_Unit, at: u32, quad: u32) -> vec4<f32> {
    return unit.scale * ({quad});
}
fn {p}_token(unit: u32, at: u32) -> u32 { return unit; }
";

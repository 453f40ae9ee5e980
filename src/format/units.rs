//! Shader text that reads a page many values at a time: what attention of few rows is bound by.
//!
//! A **unit** is what one fetch brings: 16 bytes where a layout has them side by side. On the K side a unit holds
//! channels of one token, or of the two tokens T and T + 8 that share their words; on the V side some tokens of a
//! column of channels.

/// How a codec reads by units. The text may hold directives of the shader assembler; the kernel defines
/// `number` (f32, or f16 where [`Units::half`] and the adapter allow), `pair = vec2<number>`, the flag `HALF` that
/// says which, its like for V `V_HALF`, the flag `NATIVE` (the adapter has an f16 type), the structures `Twins` and
/// `Halves`, and `WORKGROUP`.
///
/// Both sides (p: the prefix):
/// - `fn {p}_prepare(lid: u32)` fills tables in workgroup memory; a barrier follows. At most 2 KiB.
/// - `const {p}_factor: f32`: value = what the functions return · factor · `{p}_scale`.
///
/// K: unit `unit` (below `count`) of `token`, the lower of two where `tokens` is 2:
/// - `fn k_at(base: u32, token: u32) -> k_At`: what is common to the token's units, so that the loop over them adds
///   little to an address;
/// - `fn k_fetch(at: k_At, unit: u32) -> k_Unit`;
/// - `fn k_pair(unit: k_Unit, which: u32, at: u32) -> pair`: two channels of token T + 8 · which, `at` below
///   2 · `quads`; the kernel passes literals for `which` and `at`;
/// - `fn k_channels(unit: u32, at: u32) -> vec2<u32>`: which two, the head size or more for padding;
/// - `fn k_unit_scale(unit: k_Unit) -> f32`, another factor of all values of a unit, where `scaled`.
///
/// V: unit `unit` (below `count`) of channels 4 · c4 up to 4 · (c4 + `quads`):
/// - `fn v_at(base: u32, c4: u32) -> v_At`, c4 a multiple of `quads`: what is common to a column's units;
/// - `fn v_fetch(at: v_At, unit: u32) -> v_Unit`;
/// - `fn v_quad(unit: v_Unit, at: u32, quad: u32) -> vec4<f32>`: four channels of the unit's token number `at`,
///   below `tokens`; `at` and `quad` are literals. Where `half` and the flag `V_HALF` is set, also
///   `fn v_halves(unit: v_Unit, at: u32, quad: u32) -> Halves`, below 4 in magnitude. Where `twins`, instead of both
///   `fn v_twins(unit: v_Unit, at: u32) -> Twins`: those of tokens 2 · at and 2 · at + 1, which share look-ups;
/// - `fn v_token(unit: u32, at: u32) -> u32`: which token of the page that is. Units that cover a page's leading
///   64 tokens come first.
pub struct Units {
    /// The functions.
    pub text: String,
    /// Tokens of a unit.
    pub tokens: usize,
    /// Groups of four channels of a unit.
    pub quads: usize,
    /// Units of a token (K), padding included, or of a page's column (V).
    pub count: usize,
    /// Words of an element of the array that it reads the slab as (`{p}_slab`): 1, 2 or 4.
    pub words: usize,
    /// Workgroup memory of its tables, bytes, with values in f32.
    pub table_bytes: usize,
    /// Where tokens of a unit are decoded two at a time (V): how far apart those are, a power of two. 0 otherwise.
    pub twins: usize,
    /// Whether units have scales of their own (K).
    pub scaled: bool,
    /// Whether products in f16 lose little beside what the format has lost already.
    pub half: bool,
}

impl Units {
    /// Reads by `load4`, four channels of a token at a time.
    pub(super) fn by_load4(layout: &super::Layout, prefix: &str) -> Units {
        let geometry = layout.geometry;
        let (text, count) = match layout.side {
            crate::shape::Side::K => (LOAD4_K, geometry.head_dim / 4),
            crate::shape::Side::V => (LOAD4_V, geometry.tokens),
        };
        Units {
            text: text.replace("{p}", prefix),
            tokens: 1,
            quads: 1,
            count,
            words: 4,
            table_bytes: 0,
            twins: 0,
            scaled: false,
            half: false,
        }
    }
}

const LOAD4_K: &str = "alias {p}_Unit = vec4<f32>;
const {p}_factor: f32 = 1.0;
fn {p}_prepare(lid: u32) {}
alias {p}_At = vec2<u32>;
fn {p}_at(base: u32, token: u32) -> {p}_At { return vec2<u32>(base, token); }
fn {p}_fetch(at: {p}_At, unit: u32) -> {p}_Unit { return {p}_load4(at.x, at.y, unit); }
fn {p}_pair(unit: {p}_Unit, which: u32, at: u32) -> pair { return pair(select(unit.xy, unit.zw, at == 1u)); }
fn {p}_channels(unit: u32, at: u32) -> vec2<u32> { return unit * 4u + at * 2u + vec2<u32>(0u, 1u); }
";

const LOAD4_V: &str = "alias {p}_Unit = vec4<f32>;
const {p}_factor: f32 = 1.0;
fn {p}_prepare(lid: u32) {}
alias {p}_At = vec2<u32>;
fn {p}_at(base: u32, c4: u32) -> {p}_At { return vec2<u32>(base, c4); }
fn {p}_fetch(at: {p}_At, unit: u32) -> {p}_Unit { return {p}_load4(at.x, unit, at.y); }
fn {p}_quad(unit: {p}_Unit, at: u32, quad: u32) -> vec4<f32> { return unit; }
fn {p}_token(unit: u32, at: u32) -> u32 { return unit; }
";

//! `fp8`: E4M3 codes under one f32 scale for each page side.
//!
//! value = code · scale with scale = (greatest finite magnitude)/448, kept within 2⁻¹²⁰ and
//! f32::MAX/448 so that neither 1/scale nor 448 · scale overflows; 1 for a page of zeros.
//! Infinities saturate to ±448 · scale. A NaN anywhere makes the page's scale NaN (and its codes
//! 0): the fault then reaches the output and is reported, where a zero would hide it. Codes 0x7F
//! and 0xFF are never stored; decoders do not test for them and read ±480.

use std::ops::Range;
use std::sync::Arc;

use super::emit::{c_positions, fill, wgsl_positions};
use super::tiles::{Tiles, takes};
use super::{Codec, Expr, Format, Layout, Per, Units, plain};
use crate::error::Result;
use crate::num::{e4m3_decode_finite, e4m3_encode};
use crate::shape::{PageGeometry, Side};

/// E4M3 without infinities, saturating, one scale for each page side.
pub struct Fp8;

/// 1/448: multiplied, since WGSL's division is not exact.
const SCALE_OF_PEAK: f32 = 1.0 / 448.0;
/// The least scale, 2⁻¹²⁰.
const SCALE_MIN: f32 = f32::from_bits(7 << 23);
/// The greatest scale, f32::MAX/448 (exact: 2²⁴ − 1 is a multiple of 7).
const SCALE_MAX: f32 = f32::MAX / 448.0;

impl Format for Fp8 {
    fn name(&self) -> &str {
        "fp8"
    }

    fn summary(&self) -> &str {
        "8-bit floats (e4m3), one scale for each page side"
    }

    fn wants_rotation(&self) -> bool {
        false
    }

    fn codec(&self, side: Side, geometry: PageGeometry) -> Result<Arc<dyn Codec>> {
        let PageGeometry { tokens, head_dim } = geometry;
        let (word, words) = match side {
            Side::K => (
                ((Expr::C / 16) * tokens as u32 + Expr::T) * 4u32 + (Expr::C % 16) / 4,
                // Chunks are whole units: a head size of 8 modulo 16 is padded.
                head_dim.div_ceil(16) * tokens * 4,
            ),
            Side::V => (Expr::T * (head_dim / 4) as u32 + Expr::C / 4, geometry.values() / 4),
        };
        let layout = Layout::new(side, geometry)?.plane("codes", 8, words, word, (Expr::C % 4) * 8u32).scalar(
            "scale",
            Per::Page,
            32,
            1,
            0u32,
            0u32,
        );
        Ok(Arc::new(Fp8Codec { layout, arch: pulp::Arch::new() }))
    }
}

/// Sixteen channels of a token are 16 bytes. An e4m3 code within the upper bits of an f16 is a 256th of its value: its
/// subnormals are f16's, which a device of the native tier may flush. They are then off by 7 · 2⁻⁹ scales at most, a
/// 30,000th of the page's peak.
const UNITS_K: &str = "alias {p}_Unit = vec4<u32>;
fn {p}_prepare(lid: u32) {}
alias {p}_At = u32;
fn {p}_at(base: u32, token: u32) -> {p}_At { return base / 4u + token; }
fn {p}_fetch(at: {p}_At, unit: u32) -> {p}_Unit { return {p}_slab[at + unit * {tokens}u]; }
fn {p}_pair(unit: {p}_Unit, which: u32, at: u32) -> pair {
    let w = unit[at / 2u];
#if NATIVE
    let even = ((w << 7u) & 0x3f803f80u) | ((w << 8u) & 0x80008000u);
    let odd = ((w >> 1u) & 0x3f803f80u) | (w & 0x80008000u);
    return pair(unpack2x16float(select(even, odd, at % 2u == 1u)));
#else
    let x = e4m3_decode4(w);
    return pair(select(x.xz, x.yw, at % 2u == 1u));
#endif
}
fn {p}_channels(unit: u32, at: u32) -> vec2<u32> {
    return unit * 16u + at / 2u * 4u + at % 2u + vec2<u32>(0u, 2u);
}
#if NATIVE
const {p}_factor: f32 = 256.0;
#else
const {p}_factor: f32 = 1.0;
#endif
";

/// Eight channels of a token are 8 bytes: a thread that took 16 would hold too many sums.
const UNITS_V: &str = "alias {p}_Unit = vec2<u32>;
fn {p}_prepare(lid: u32) {}
alias {p}_At = u32;
fn {p}_at(base: u32, c4: u32) -> {p}_At { return base + c4; }
fn {p}_fetch(at: {p}_At, unit: u32) -> {p}_Unit {
    return {p}_slab[(at + unit * {row}u) / 2u];
}
fn {p}_quad(unit: {p}_Unit, at: u32, quad: u32) -> vec4<f32> {
    let w = unit[quad];
#if NATIVE
    let even = unpack2x16float(((w << 7u) & 0x3f803f80u) | ((w << 8u) & 0x80008000u));
    let odd = unpack2x16float(((w >> 1u) & 0x3f803f80u) | (w & 0x80008000u));
    return vec4<f32>(even.x, odd.x, even.y, odd.y);
#else
    return e4m3_decode4(w);
#endif
}
#if V_HALF
fn {p}_halves(unit: {p}_Unit, at: u32, quad: u32) -> Halves {
    let w = unit[quad];
    let even = unpack2x16float(((w << 7u) & 0x3f803f80u) | ((w << 8u) & 0x80008000u));
    let odd = unpack2x16float(((w >> 1u) & 0x3f803f80u) | (w & 0x80008000u));
    return Halves(vec2<f16>(even), vec2<f16>(odd));
}
#endif
fn {p}_token(unit: u32, at: u32) -> u32 { return unit; }
#if NATIVE
const {p}_factor: f32 = 256.0;
#else
const {p}_factor: f32 = 1.0;
#endif
";

struct Fp8Codec {
    layout: Layout,
    arch: pulp::Arch,
}

impl Fp8Codec {
    fn scale_word(&self) -> usize {
        self.layout.scalars[0].offset_words
    }
}

/// The scale of a page of `values`, or NaN if one of them is.
fn page_scale(values: &[f32]) -> f32 {
    const INFINITY: u32 = 0x7f80_0000;
    // As integers, magnitudes order like values and NaN stands above all; infinities are left out.
    let magnitude = |x: &f32| match x.to_bits() & 0x7fff_ffff {
        INFINITY => 0,
        bits => bits,
    };
    match values.iter().map(magnitude).max().unwrap_or(0) {
        0 => 1.0,
        peak if peak > INFINITY => f32::NAN,
        peak => (f32::from_bits(peak) * SCALE_OF_PEAK).clamp(SCALE_MIN, SCALE_MAX),
    }
}

impl Codec for Fp8Codec {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn encode(&self, values: &[f32], page: &mut [u32]) {
        plain::check_encode(&self.layout, values, page);
        page.fill(0);
        let scale = page_scale(values);
        page[self.scale_word()] = scale.to_bits();
        if scale.is_nan() {
            // One bit pattern for all NaN scales, the shader's.
            page[self.scale_word()] = 0x7fc0_0000;
            return;
        }
        let inverse = 1.0 / scale;
        let PageGeometry { tokens, head_dim } = self.layout.geometry;
        let codes: &mut [u8] = bytemuck::cast_slice_mut(page);
        for (token, row) in values.chunks_exact(head_dim).enumerate() {
            for (chunk, part) in row.chunks(16).enumerate() {
                let start = match self.layout.side {
                    Side::K => (chunk * tokens + token) * 16,
                    Side::V => token * head_dim + chunk * 16,
                };
                for (code, x) in codes[start..].iter_mut().zip(part) {
                    *code = e4m3_encode(x * inverse);
                }
            }
        }
    }

    fn decode(&self, page: &[u32], tokens: Range<usize>, out: &mut [f32]) {
        plain::check_decode(&self.layout, page, &tokens, out);
        let scale = f32::from_bits(page[self.scale_word()]);
        let PageGeometry { tokens: page_tokens, head_dim } = self.layout.geometry;
        let codes: &[u8] = bytemuck::cast_slice(page);
        let side = self.layout.side;
        self.arch.dispatch(
            #[inline(always)]
            || {
                for (row, token) in out.chunks_exact_mut(head_dim).zip(tokens) {
                    // Where a chunk of 16 channels starts.
                    let start = |chunk: usize| match side {
                        Side::K => (chunk * page_tokens + token) * 16,
                        Side::V => token * head_dim + chunk * 16,
                    };
                    let (chunks, rest) = row.as_chunks_mut::<16>();
                    for (chunk, to) in chunks.iter_mut().enumerate() {
                        if let Some(from) = codes[start(chunk)..].first_chunk::<16>() {
                            *to = decode_n(from, scale);
                        }
                    }
                    // Eight channels at the end of a head size of 8 modulo 16.
                    if let Some(to) = rest.first_chunk_mut::<8>()
                        && let Some(from) = codes[start(head_dim / 16)..].first_chunk::<8>()
                    {
                        *to = decode_n(from, scale);
                    }
                }
            },
        );
    }

    fn token_writable(&self) -> bool {
        false
    }

    fn write_token(&self, _: &mut [u32], _: usize, _: &[f32]) {
        panic!("fp8 pages share one scale: their tokens cannot be written alone");
    }

    fn wgsl(&self, prefix: &str) -> String {
        wgsl_positions(&self.layout, prefix)
            + &fill(
                "fn {p}_load4(base: u32, token: u32, c4: u32) -> vec4<f32> {
    return e4m3_decode4({p}_word(base + {p}_codes_word(token, c4 * 4u)));
}
fn {p}_scale(base: u32, token: u32) -> f32 { return bitcast<f32>({p}_word(base + {p}_scale_word(0u))); }
",
                prefix,
                &[],
            )
    }

    fn wgsl_units(&self, prefix: &str) -> Units {
        let PageGeometry { tokens, head_dim } = self.layout.geometry;
        let (text, quads, count, words) = match self.layout.side {
            Side::K => (UNITS_K, 4, head_dim.div_ceil(16), 4),
            Side::V => (UNITS_V, 2, tokens, 2),
        };
        Units {
            text: fill(text, prefix, &[("tokens", tokens.to_string()), ("row", (head_dim / 4).to_string())]),
            tokens: 1,
            quads,
            count,
            words,
            table_bytes: 0,
            twins: 0,
            scaled: false,
            half: true,
        }
    }

    fn wgsl_store(&self, _: &str) -> String {
        String::new()
    }

    fn wgsl_encode(&self, prefix: &str) -> String {
        let PageGeometry { tokens, head_dim } = self.layout.geometry;
        let (quads, token, c4) = match self.layout.side {
            Side::K => {
                let quads = head_dim.div_ceil(16) * 4 * tokens;
                (quads, format!("(i / 4u) % {tokens}u"), format!("i / {}u * 4u + i % 4u", 4 * tokens))
            }
            Side::V => (tokens * head_dim / 4, format!("i / {}u", head_dim / 4), format!("i % {}u", head_dim / 4)),
        };
        fill(
            "//#unzeroed
var<workgroup> {p}_peak: atomic<u32>;
fn {p}_encode_page(base: u32, lid: u32) {
    if (lid == 0u) { atomicStore(&{p}_peak, 0u); }
    workgroupBarrier();
    var most = 0u;
    for (var i = lid; i < {quads}u; i += WORKGROUP) {
        let c4 = {c4};
        if (c4 < {row}u) {
            // Magnitudes order like integers, NaN above all; infinities are left out.
            let a = bitcast<vec4<u32>>(source4({token}, c4)) & vec4<u32>(0x7fffffffu);
            let b = select(a, vec4<u32>(0u), a == vec4<u32>(0x7f800000u));
            most = max(most, max(max(b.x, b.y), max(b.z, b.w)));
        }
    }
    atomicMax(&{p}_peak, most);
    workgroupBarrier();
    let peak = atomicLoad(&{p}_peak);
    let poisoned = peak > 0x7f800000u;
    let finite = select(peak, 0u, poisoned);
    let wanted = bitcast<f32>(finite) * bitcast<f32>({of_peak}u);
    let scale = select(clamp(wanted, bitcast<f32>({least}u), bitcast<f32>({most}u)), 1.0, finite == 0u);
    let inverse = f32_reciprocal(scale);
    for (var i = lid; i < {quads}u; i += WORKGROUP) {
        let token = {token};
        let c4 = {c4};
        var codes = 0u;
        if (c4 < {row}u && !poisoned) { codes = e4m3_encode4(source4(token, c4) * inverse); }
        {p}_slab[base + {p}_codes_word(token, c4 * 4u)] = codes;
    }
    if (lid < 4u) {
        let stored = select(bitcast<u32>(scale), 0x7fc00000u, poisoned);
        {p}_slab[base + {p}_scale_word(0u) + lid] = select(0u, stored, lid == 0u);
    }
    workgroupBarrier();
}
",
            prefix,
            &[
                ("quads", quads.to_string()),
                ("row", (head_dim / 4).to_string()),
                ("token", token),
                ("c4", c4),
                ("of_peak", SCALE_OF_PEAK.to_bits().to_string()),
                ("least", SCALE_MIN.to_bits().to_string()),
                ("most", SCALE_MAX.to_bits().to_string()),
            ],
        )
    }

    fn tiles(&self) -> Option<Tiles> {
        let PageGeometry { tokens, head_dim } = self.layout.geometry;
        let name = match self.layout.side {
            Side::K => format!("Fp8Keys<{head_dim}, {tokens}>"),
            // Wide loads of values cost registers that more vectors need.
            Side::V if head_dim.is_multiple_of(128) => format!("Fp8Values<{head_dim}, {tokens}, CHUNK <= 4 ? 4 : 2>"),
            Side::V => format!("Fp8Values<{head_dim}, {tokens}, 2>"),
        };
        // A scale; and of values a unit between tokens.
        let token_bytes = head_dim + if self.layout.side == Side::V { 16 } else { 0 };
        let text = concat!(include_str!("../../cuda/tiles/fp8.cuh"), include_str!("../../cuda/tiles/e4m3.cuh"));
        takes(head_dim).then_some(Tiles { text, name, bytes: false, raw_bytes: [16, token_bytes] })
    }

    fn cuda(&self, prefix: &str) -> String {
        c_positions(&self.layout, prefix)
            + &fill(
                "KV_FN void {p}_load4(const unsigned *page, unsigned token, unsigned c4, float *out) {
    unsigned w = page[{p}_codes_word(token, 4u * c4)];
    for (int k = 0; k < 4; ++k) out[k] = kv_e4m3((w >> (8 * k)) & 0xffu);
}
KV_FN float {p}_scale(const unsigned *page, unsigned token) { (void)token; return kv_f32(page[{p}_scale_word(0u)]); }
",
                prefix,
                &[],
            )
    }
}

/// `N` codes times `scale`; a loop that compilers turn into vector code.
#[inline(always)]
fn decode_n<const N: usize>(codes: &[u8; N], scale: f32) -> [f32; N] {
    let mut out = [0f32; N];
    for (x, code) in out.iter_mut().zip(codes) {
        *x = e4m3_decode_finite(*code) * scale;
    }
    out
}

#[cfg(test)]
mod tests;

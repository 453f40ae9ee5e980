//! The codec of f16 and bf16 pages: they differ in their bits only.

use std::ops::Range;
use std::sync::Arc;

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::emit::{c_positions, fill, wgsl_positions};
use super::tiles::{Tiles, takes};
use super::{Codec, Expr, Layout, Units, plain};
use crate::error::Result;
use crate::num::{bf16_bits, bf16_value, f16_bits, f16_value};
use crate::shape::{PageGeometry, Side};

/// Which 16-bit float.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Half {
    /// IEEE binary16, stores saturate.
    F16,
    /// The upper half of an f32.
    Bf16,
}

impl Half {
    /// Its name in shader helpers.
    fn name(self) -> &'static str {
        match self {
            Half::F16 => "f16",
            Half::Bf16 => "bf16",
        }
    }
}

/// K: byte ((C/8)·P + T)·16 + 2(C%8); V: byte 2(T·D + C).
pub(super) fn codec(half: Half, side: Side, geometry: PageGeometry) -> Result<Arc<dyn Codec>> {
    let PageGeometry { tokens, head_dim } = geometry;
    let word = match side {
        Side::K => ((Expr::C / 8) * tokens as u32 + Expr::T) * 4u32 + (Expr::C % 8) / 2,
        Side::V => Expr::T * (head_dim / 2) as u32 + Expr::C / 2,
    };
    let shift = (Expr::C % 2) * 16u32;
    let layout = Layout::new(side, geometry)?.plane("values", 16, geometry.values() / 2, word, shift);
    Ok(Arc::new(Halves { half, layout, arch: pulp::Arch::new() }))
}

/// Eight channels of a token are 16 bytes.
const UNITS_K: &str = "alias {p}_Unit = vec4<u32>;
const {p}_factor: f32 = 1.0;
fn {p}_prepare(lid: u32) {}
alias {p}_At = u32;
fn {p}_at(base: u32, token: u32) -> {p}_At { return base / 4u + token; }
fn {p}_fetch(at: {p}_At, unit: u32) -> {p}_Unit { return {p}_slab[at + unit * {tokens}u]; }
fn {p}_pair(unit: {p}_Unit, which: u32, at: u32) -> pair { return pair({half}_unpack(unit[at])); }
fn {p}_channels(unit: u32, at: u32) -> vec2<u32> { return unit * 8u + at * 2u + vec2<u32>(0u, 1u); }
";

const UNITS_V: &str = "alias {p}_Unit = vec4<u32>;
const {p}_factor: f32 = 1.0;
fn {p}_prepare(lid: u32) {}
alias {p}_At = u32;
fn {p}_at(base: u32, c4: u32) -> {p}_At { return base / 4u + c4 / 2u; }
fn {p}_fetch(at: {p}_At, unit: u32) -> {p}_Unit { return {p}_slab[at + unit * {row}u]; }
fn {p}_quad(unit: {p}_Unit, at: u32, quad: u32) -> vec4<f32> {
    return vec4<f32>({half}_unpack(unit[quad * 2u]), {half}_unpack(unit[quad * 2u + 1u]));
}
fn {p}_token(unit: u32, at: u32) -> u32 { return unit; }
";

struct Halves {
    half: Half,
    layout: Layout,
    arch: pulp::Arch,
}

impl Codec for Halves {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn encode(&self, values: &[f32], page: &mut [u32]) {
        plain::check_encode(&self.layout, values, page);
        for (token, row) in values.chunks_exact(self.layout.geometry.head_dim).enumerate() {
            self.write_token(page, token, row);
        }
    }

    fn decode(&self, page: &[u32], tokens: Range<usize>, out: &mut [f32]) {
        plain::check_decode(&self.layout, page, &tokens, out);
        #[cfg(target_arch = "x86_64")]
        if self.half == Half::F16
            && let Some(simd) = pulp::x86::V4::try_new()
        {
            return simd.vectorize(DecodeF16 { simd, layout: &self.layout, page, tokens, out });
        }
        match self.half {
            Half::F16 => plain::decode::<8, f16>(&self.layout, page, tokens, out, |from, to| {
                from.convert_to_f32_slice(to);
            }),
            Half::Bf16 => self.arch.dispatch(
                #[inline(always)]
                || {
                    plain::decode::<8, u16>(
                        &self.layout,
                        page,
                        tokens,
                        out,
                        #[inline(always)]
                        |from, to| {
                            for (x, bits) in to.iter_mut().zip(from) {
                                *x = bf16_value(*bits);
                            }
                        },
                    )
                },
            ),
        }
    }

    fn holds_halves(&self) -> bool {
        self.half == Half::F16
    }

    fn token_writable(&self) -> bool {
        true
    }

    fn write_token(&self, page: &mut [u32], token: usize, row: &[f32]) {
        plain::check_token(&self.layout, page, token, row);
        match self.half {
            Half::F16 => plain::write_token::<8, u16>(&self.layout, page, token, row, f16_bits),
            Half::Bf16 => plain::write_token::<8, u16>(&self.layout, page, token, row, bf16_bits),
        }
    }

    fn wgsl(&self, prefix: &str) -> String {
        wgsl_positions(&self.layout, prefix)
            + &fill(
                "fn {p}_load4(base: u32, token: u32, c4: u32) -> vec4<f32> {
    let w = base + {p}_values_word(token, c4 * 4u);
    return vec4<f32>({half}_unpack({p}_word(w)), {half}_unpack({p}_word(w + 1u)));
}
fn {p}_scale(base: u32, token: u32) -> f32 { return 1.0; }
",
                prefix,
                &[("half", self.half.name().into())],
            )
    }

    fn wgsl_units(&self, prefix: &str) -> Units {
        let PageGeometry { tokens, head_dim } = self.layout.geometry;
        let (text, count) = match self.layout.side {
            Side::K => (UNITS_K, head_dim / 8),
            Side::V => (UNITS_V, tokens),
        };
        let text = fill(
            text,
            prefix,
            &[("half", self.half.name().into()), ("tokens", tokens.to_string()), ("row", (head_dim / 8).to_string())],
        );
        Units { text, tokens: 1, quads: 2, count, words: 4, table_bytes: 0, twins: 0, scaled: false, half: false }
    }

    fn wgsl_store(&self, prefix: &str) -> String {
        fill(
            "fn {p}_store4(base: u32, token: u32, c4: u32, value: vec4<f32>) {
    let w = base + {p}_values_word(token, c4 * 4u);
    {p}_slab[w] = {half}_pack(value.xy);
    {p}_slab[w + 1u] = {half}_pack(value.zw);
}
",
            prefix,
            &[("half", self.half.name().into())],
        )
    }

    fn wgsl_encode(&self, prefix: &str) -> String {
        plain::wgsl_encode(&self.layout, prefix)
    }

    fn tiles(&self) -> Option<Tiles> {
        let PageGeometry { tokens, head_dim } = self.layout.geometry;
        let (product, parts) = match self.half {
            Half::F16 => ("F16Product", 1),
            // Weights in two parts: bf16 has three digits fewer.
            Half::Bf16 => ("Bf16Product", 2),
        };
        let name = match self.layout.side {
            Side::K => format!("HalfKeys<{product}, {head_dim}, {tokens}>"),
            Side::V => format!("HalfValues<{product}, {head_dim}, {tokens}, {parts}>"),
        };
        takes(head_dim).then_some(Tiles {
            text: include_str!("../../cuda/tiles/half.cuh"),
            name,
            bytes: false,
            raw_bytes: [0, 0],
        })
    }

    fn cuda(&self, prefix: &str) -> String {
        let (low, high) = match self.half {
            Half::F16 => ("kv_f16(x & 0xffffu)", "kv_f16(x >> 16)"),
            Half::Bf16 => ("kv_f32(x << 16)", "kv_f32(x & 0xffff0000u)"),
        };
        c_positions(&self.layout, prefix)
            + &fill(
                "KV_FN void {p}_load4(const unsigned *page, unsigned token, unsigned c4, float *out) {
    const unsigned *w = page + {p}_values_word(token, 4u * c4);
    for (int k = 0; k < 2; ++k) {
        unsigned x = w[k];
        out[2 * k] = {low};
        out[2 * k + 1] = {high};
    }
}
KV_FN float {p}_scale(const unsigned *page, unsigned token) { (void)page; (void)token; return 1.0f; }
",
                prefix,
                &[("low", low.into()), ("high", high.into())],
            )
    }
}

/// Reads rows of f16 on AVX-512, 16 values a conversion: a unit of two neighbouring tokens of K, or 16 channels of V.
#[cfg(target_arch = "x86_64")]
struct DecodeF16<'a> {
    simd: pulp::x86::V4,
    layout: &'a Layout,
    page: &'a [u32],
    tokens: Range<usize>,
    out: &'a mut [f32],
}

#[cfg(target_arch = "x86_64")]
impl pulp::NullaryFnOnce for DecodeF16<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let DecodeF16 { simd, layout, page, tokens, out } = self;
        let PageGeometry { tokens: page_tokens, head_dim } = layout.geometry;
        let items: &[u16] = bytemuck::cast_slice(page);
        if layout.side == Side::V {
            let (from, from_rest) = items[tokens.start * head_dim..tokens.end * head_dim].as_chunks::<16>();
            let (to, to_rest) = out.as_chunks_mut::<16>();
            for (to, from) in to.iter_mut().zip(from) {
                *to = sixteen(simd, from);
            }
            return one_by_one(from_rest, to_rest);
        }
        // In the order of the page: memory is quickest read straight on, while rows stay in the first-level cache.
        for (chunk, items) in items.chunks_exact(8 * page_tokens).enumerate() {
            let units = &items[8 * tokens.start..8 * tokens.end];
            // No rows are no room for the channels before these either.
            let own = out.get_mut(8 * chunk..).unwrap_or_default();
            let mut rows = own.chunks_mut(head_dim).filter_map(|row| row.first_chunk_mut::<8>());
            let (pairs, last) = units.as_chunks::<16>();
            for from in pairs {
                if let (Some(first), Some(second)) = (rows.next(), rows.next()) {
                    [*first, *second] = pulp::cast(sixteen(simd, from));
                }
            }
            if let Some(row) = rows.next() {
                one_by_one(last, row);
            }
        }
    }
}

/// Functions, not closures: only these are sure to be compiled into their caller, and so for AVX-512.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn sixteen(simd: pulp::x86::V4, from: &[u16; 16]) -> [f32; 16] {
    pulp::cast(simd.avx512f._mm512_cvtph_ps(pulp::cast(*from)))
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn one_by_one(from: &[u16], to: &mut [f32]) {
    for (x, &bits) in to.iter_mut().zip(from) {
        *x = f16_value(bits);
    }
}

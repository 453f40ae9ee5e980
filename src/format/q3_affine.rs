//! `q3_affine`: three-bit codes between a token's least and greatest value: x ≈ zero + code · scale.
//!
//! zero = f16(least), scale = f16((greatest − zero)/7), both as stored in the choice of codes, which is to
//! nearest, halves up. The codes stand where tq3's stand, the pair (scale, zero) in a word for each
//! token: `[plane2][affine][plane1]`.
//!
//! Values beyond ±65504, infinities among them, count as ±65504. Where the range vanishes in f16 the
//! scale is 0 and all values are the zero. A NaN makes its token's scale NaN (its zero and codes 0).

use std::ops::Range;
use std::sync::Arc;

use super::emit::{c_positions, fill, wgsl_positions};
use super::words::float;
use super::{Codec, Format, Layout, codes, plain};
use crate::error::Result;
use crate::num::{f16_bits, f16_value};
use crate::shape::{PageGeometry, Side};

/// Three-bit codes under an f16 scale and an f16 zero a token.
pub struct Q3Affine;

/// 1/7: multiplied, since WGSL's division is not exact.
const SEVENTH: f32 = 1.0 / 7.0;
/// The greatest f16.
const MOST: f32 = 65504.0;

impl Format for Q3Affine {
    fn name(&self) -> &str {
        "q3_affine"
    }

    fn summary(&self) -> &str {
        "3-bit codes between a token's least and greatest value"
    }

    fn wants_rotation(&self) -> bool {
        false
    }

    fn codec(&self, side: Side, geometry: PageGeometry) -> Result<Arc<dyn Codec>> {
        let layout = codes::layout(side, geometry, 3, "affine", 32)?;
        let reader = codes::Reader::new(&layout);
        Ok(Arc::new(Q3AffineCodec { layout, reader }))
    }
}

struct Q3AffineCodec {
    layout: Layout,
    reader: codes::Reader,
}

/// Writes the codes of `row`; returns the scale's f16 bits and, above them, the zero's.
fn quantise(row: &[f32], codes: &mut [u8]) -> u32 {
    if row.iter().any(|x| x.is_nan()) {
        codes.fill(0);
        return 0x7e00;
    }
    let values = || row.iter().map(|x| x.clamp(-MOST, MOST));
    let least = values().fold(MOST, f32::min);
    let most = values().fold(-MOST, f32::max);
    // No zero has a sign: devices differ in that of a least.
    let zero_bits = match f16_bits(least) {
        0x8000 => 0,
        bits => bits,
    };
    let zero = f16_value(zero_bits);
    let range = most - zero;
    let scale_bits = if range > 0.0 { f16_bits(range * SEVENTH) } else { 0 };
    let inverse = if scale_bits == 0 { 0.0 } else { 1.0 / f16_value(scale_bits) };
    for (code, x) in codes.iter_mut().zip(values()) {
        // Twice the quotient is exact: what is rounded is no sum.
        let twice = ((x - zero) * inverse * 2.0).floor() as i32;
        *code = ((twice + 1) >> 1).clamp(0, 7) as u8;
    }
    u32::from(scale_bits) | (u32::from(zero_bits) << 16)
}

impl Codec for Q3AffineCodec {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn encode(&self, values: &[f32], page: &mut [u32]) {
        plain::check_encode(&self.layout, values, page);
        page.fill(0);
        let head_dim = self.layout.geometry.head_dim;
        let mut codes = vec![0u8; head_dim];
        for (token, row) in values.chunks_exact(head_dim).enumerate() {
            let pair = quantise(row, &mut codes);
            self.reader.place::<8>(&codes, pair, token, page);
        }
    }

    fn decode(&self, page: &[u32], tokens: Range<usize>, out: &mut [f32]) {
        plain::check_decode(&self.layout, page, &tokens, out);
        self.reader.decode::<8>(page, tokens, out, |pair| {
            let (scale, zero) = (f16_value(pair as u16), f16_value((pair >> 16) as u16));
            // Exact products of 11 and 3 bits: fused or not, the sum is the same.
            std::array::from_fn(|code| zero + code as f32 * scale)
        });
    }

    fn wgsl(&self, prefix: &str) -> String {
        let text = "{codes}fn {p}_load4(base: u32, token: u32, c4: u32) -> vec4<f32> {
    let pair = f16_unpack({p}_word(base + {p}_affine_word(token)));
    return pair.y + vec4<f32>({p}_codes4(base, token, c4)) * pair.x;
}
fn {p}_scale(base: u32, token: u32) -> f32 { return 1.0; }
"
        .replace("{codes}", &codes::wgsl_codes(&self.layout));
        wgsl_positions(&self.layout, prefix) + &fill(&text, prefix, &[])
    }

    fn wgsl_encode(&self, prefix: &str) -> String {
        let quads = self.layout.geometry.head_dim / 4;
        fill(
            &codes::wgsl_encode(&self.layout, OWN, false),
            prefix,
            &[("quads", quads.to_string()), ("seventh", float(SEVENTH))],
        )
    }

    fn cuda(&self, prefix: &str) -> String {
        let text = "KV_FN void {p}_load4(const unsigned *page, unsigned token, unsigned c4, float *out) {
    unsigned pair = page[{p}_affine_word(token)];
    float scale = kv_f16(pair & 0xffffu), zero = kv_f16(pair >> 16);
    for (unsigned k = 0; k < 4u; ++k) {
        unsigned c = 4u * c4 + k;
        {code}
        out[k] = zero + (float)code * scale;
    }
}
KV_FN float {p}_scale(const unsigned *page, unsigned token) { (void)page; (void)token; return 1.0f; }
"
        .replace("{code}", &codes::c_code(&self.layout));
        c_positions(&self.layout, prefix) + &fill(&text, prefix, &[])
    }
}

/// Rows are told by the scale's inverse and the zero.
const OWN: &str = "// Values within f16's range, with NaN as 0.
fn {p}_finite4(x: vec4<f32>) -> vec4<f32> {
    let bits = bitcast<vec4<u32>>(x);
    let a = bits & vec4<u32>(0x7fffffffu);
    let b = (bits & vec4<u32>(0x80000000u)) | min(a, vec4<u32>(0x477fe000u));
    return bitcast<vec4<f32>>(select(b, vec4<u32>(0u), a > vec4<u32>(0x7f800000u)));
}

fn {p}_code4(token: u32, c4: u32, row: vec2<f32>) -> vec4<u32> {
    let y = ({p}_finite4(source4(token, c4)) - row.y) * row.x;
    let twice = vec4<i32>(floor(y * 2.0));
    return vec4<u32>(clamp((twice + vec4<i32>(1)) >> vec4<u32>(1u), vec4<i32>(0), vec4<i32>(7)));
}

fn {p}_row(token: u32, i: u32) {
    var nan = false;
    var least = 65504.0;
    var most = -65504.0;
    for (var c4 = 0u; c4 < {quads}u; c4 += 1u) {
        let x = source4(token, c4);
        nan = nan || any((bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u));
        let a = {p}_finite4(x);
        least = min(least, min(min(a.x, a.y), min(a.z, a.w)));
        most = max(most, max(max(a.x, a.y), max(a.z, a.w)));
    }
    let least_bits = f16_bits(least);
    let zero_bits = select(least_bits, 0u, least_bits == 0x8000u);
    let zero = f16_value(zero_bits);
    let range = most - zero;
    let scale_bits = select(0u, f16_bits(range * {seventh}), range > 0.0);
    let none = scale_bits == 0u || nan;
    let inverse = f32_reciprocal(select(f16_value(scale_bits), 1.0, none));
    {p}_scalars[i] = select(scale_bits | (zero_bits << 16u), 0x7e00u, nan);
    {p}_rows[i] = vec2<f32>(select(inverse, 0.0, none), zero);
}
";

#[cfg(test)]
mod tests;

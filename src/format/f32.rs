//! `f32`: values as they come, for tests and as the reference of every comparison.

use std::ops::Range;
use std::sync::Arc;

use super::emit::{c_positions, fill, wgsl_positions};
use super::plain;
use super::{Codec, Expr, Format, Layout, Units};
use crate::error::Result;
use crate::shape::{PageGeometry, Side};

/// 32-bit floats. K: unit (C/4)·P + T, word C%4 of it; V: row-major.
pub struct F32;

impl Format for F32 {
    fn name(&self) -> &str {
        "f32"
    }

    fn summary(&self) -> &str {
        "32-bit floats: exact, the reference"
    }

    fn wants_rotation(&self) -> bool {
        false
    }

    fn codec(&self, side: Side, geometry: PageGeometry) -> Result<Arc<dyn Codec>> {
        let PageGeometry { tokens, head_dim } = geometry;
        let word = match side {
            Side::K => ((Expr::C / 4) * tokens as u32 + Expr::T) * 4u32 + Expr::C % 4,
            Side::V => Expr::T * head_dim as u32 + Expr::C,
        };
        let layout = Layout::new(side, geometry)?.plane("values", 32, geometry.values(), word, Expr::Const(0));
        Ok(Arc::new(F32Codec { layout }))
    }
}

struct F32Codec {
    layout: Layout,
}

impl Codec for F32Codec {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn encode(&self, values: &[f32], page: &mut [u32]) {
        plain::check_encode(&self.layout, values, page);
        let head_dim = self.layout.geometry.head_dim;
        for (token, row) in values.chunks_exact(head_dim).enumerate() {
            self.write_token(page, token, row);
        }
    }

    fn decode(&self, page: &[u32], tokens: Range<usize>, out: &mut [f32]) {
        plain::check_decode(&self.layout, page, &tokens, out);
        plain::decode::<4, u32>(&self.layout, page, tokens, out, |from, to| {
            for (x, bits) in to.iter_mut().zip(from) {
                *x = f32::from_bits(*bits);
            }
        });
    }

    fn token_writable(&self) -> bool {
        true
    }

    fn write_token(&self, page: &mut [u32], token: usize, row: &[f32]) {
        plain::check_token(&self.layout, page, token, row);
        plain::write_token::<4, u32>(&self.layout, page, token, row, f32::to_bits);
    }

    fn wgsl(&self, prefix: &str) -> String {
        wgsl_positions(&self.layout, prefix)
            + &fill(
                "fn {p}_load4(base: u32, token: u32, c4: u32) -> vec4<f32> {
    let w = base + {p}_values_word(token, c4 * 4u);
    return bitcast<vec4<f32>>(vec4<u32>({p}_word(w), {p}_word(w + 1u), {p}_word(w + 2u), {p}_word(w + 3u)));
}
fn {p}_scale(base: u32, token: u32) -> f32 { return 1.0; }
",
                prefix,
                &[],
            )
    }

    fn wgsl_units(&self, prefix: &str) -> Units {
        let by_load4 = Units::by_load4(&self.layout, prefix);
        let PageGeometry { tokens, head_dim } = self.layout.geometry;
        // One load where `load4` has four.
        let (old, new) = match self.layout.side {
            Side::K => (format!("{prefix}_load4(at.x, at.y, unit)"), format!("at.x / 4u + at.y + unit * {tokens}u")),
            Side::V => {
                (format!("{prefix}_load4(at.x, unit, at.y)"), format!("at.x / 4u + unit * {}u + at.y", head_dim / 4))
            }
        };
        let text = by_load4.text.replace(&old, &format!("bitcast<vec4<f32>>({prefix}_slab[{new}])"));
        Units { text, ..by_load4 }
    }

    fn wgsl_store(&self, prefix: &str) -> String {
        fill(
            "fn {p}_store4(base: u32, token: u32, c4: u32, value: vec4<f32>) {
    let w = base + {p}_values_word(token, c4 * 4u);
    let bits = bitcast<vec4<u32>>(value);
    {p}_slab[w] = bits.x;
    {p}_slab[w + 1u] = bits.y;
    {p}_slab[w + 2u] = bits.z;
    {p}_slab[w + 3u] = bits.w;
}
",
            prefix,
            &[],
        )
    }

    fn wgsl_encode(&self, prefix: &str) -> String {
        plain::wgsl_encode(&self.layout, prefix)
    }

    fn cuda(&self, prefix: &str) -> String {
        c_positions(&self.layout, prefix)
            + &fill(
                "KV_FN void {p}_load4(const unsigned *page, unsigned token, unsigned c4, float *out) {
    const unsigned *w = page + {p}_values_word(token, 4u * c4);
    for (int k = 0; k < 4; ++k) out[k] = kv_f32(w[k]);
}
KV_FN float {p}_scale(const unsigned *page, unsigned token) { (void)page; (void)token; return 1.0f; }
",
                prefix,
                &[],
            )
    }
}

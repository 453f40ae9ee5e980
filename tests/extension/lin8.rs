//! `lin8`: 8-bit linear codes with one f32 scale a token. Value = (code − 128) · scale, scale = peak / 127.

use kvarto::format::emit::{fill, wgsl_positions};
use kvarto::format::{Codec, Expr, Format, Layout, Per};
use kvarto::shape::{PageGeometry, Side};
use kvarto::{Error, ErrorKind, Result};
use std::ops::Range;
use std::sync::Arc;

pub struct Lin8;

const OF_PEAK: f32 = 1.0 / 127.0;

impl Format for Lin8 {
    fn name(&self) -> &str {
        "lin8"
    }

    fn summary(&self) -> &str {
        "8-bit linear codes, one scale a token"
    }

    fn wants_rotation(&self) -> bool {
        false
    }

    fn codec(&self, side: Side, geometry: PageGeometry) -> Result<Arc<dyn Codec>> {
        let row = geometry.head_dim / 4;
        if !geometry.head_dim.is_multiple_of(8) {
            let message = format!("lin8 takes head sizes that are multiples of 8, not {}", geometry.head_dim);
            return Err(Error::new(ErrorKind::Unsupported, message, ""));
        }
        // The two sides differ, so that a mistaken side shows.
        let word = match side {
            Side::K => (Expr::C / 4) * geometry.tokens as u32 + Expr::T,
            Side::V => Expr::T * row as u32 + Expr::C / 4,
        };
        let layout = Layout::new(side, geometry)?
            .plane("codes", 8, row * geometry.tokens, word, (Expr::C % 4) * 8u32)
            .scalar("scale", Per::Token, 32, geometry.tokens, Expr::T, 0u32);
        Ok(Arc::new(Lin8Codec(layout)))
    }
}

struct Lin8Codec(Layout);

impl Codec for Lin8Codec {
    fn layout(&self) -> &Layout {
        &self.0
    }

    fn encode(&self, values: &[f32], page: &mut [u32]) {
        page.fill(0);
        for (token, row) in values.chunks_exact(self.0.geometry.head_dim).enumerate() {
            let peak = row.iter().fold(0.0f32, |peak, x| peak.max(x.abs()));
            let scale = peak * OF_PEAK;
            let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
            let (word, _) = self.0.scalar_position(0, token, 0);
            page[word] = scale.to_bits();
            for (channel, x) in row.iter().enumerate() {
                let code = (x * inverse).round_ties_even().clamp(-127.0, 127.0) as i32 + 128;
                let (word, shift) = self.0.position(0, token, channel);
                page[word] |= (code as u32) << shift;
            }
        }
    }

    fn decode(&self, page: &[u32], tokens: Range<usize>, out: &mut [f32]) {
        for (token, row) in tokens.zip(out.chunks_exact_mut(self.0.geometry.head_dim)) {
            let scale = f32::from_bits(self.0.read_scalar(page, 0, token, 0));
            for (channel, x) in row.iter_mut().enumerate() {
                *x = (self.0.read(page, 0, token, channel) as i32 - 128) as f32 * scale;
            }
        }
    }

    fn wgsl(&self, prefix: &str) -> String {
        wgsl_positions(&self.0, prefix)
            + &fill(
                "fn {p}_load4(base: u32, token: u32, c4: u32) -> vec4<f32> {
    let codes = {p}_word(base + {p}_codes_word(token, c4 * 4u));
    return vec4<f32>((vec4<u32>(codes) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u)) - vec4<f32>(128.0);
}
fn {p}_scale(base: u32, token: u32) -> f32 { return bitcast<f32>({p}_word(base + {p}_scale_word(token))); }
",
                prefix,
                &[],
            )
    }

    fn wgsl_encode(&self, prefix: &str) -> String {
        let PageGeometry { tokens, head_dim } = self.0.geometry;
        fill(
            "fn {p}_encode_page(base: u32, lid: u32) {
    for (var token = lid; token < {tokens}u; token += WORKGROUP) {
        var peak = 0.0;
        for (var c4 = 0u; c4 < {quads}u; c4 += 1u) {
            let a = abs(source4(token, c4));
            peak = max(peak, max(max(a.x, a.y), max(a.z, a.w)));
        }
        let scale = peak * {of_peak};
        var inverse = 0.0;
        if (scale > 0.0) { inverse = 1.0 / scale; }
        {p}_slab[base + {p}_scale_word(token)] = bitcast<u32>(scale);
        for (var c4 = 0u; c4 < {quads}u; c4 += 1u) {
            let codes = clamp(round(source4(token, c4) * inverse), vec4<f32>(-127.0), vec4<f32>(127.0));
            let bits = vec4<u32>(vec4<i32>(codes) + vec4<i32>(128)) << vec4<u32>(0u, 8u, 16u, 24u);
            {p}_slab[base + {p}_codes_word(token, c4 * 4u)] = bits.x | bits.y | bits.z | bits.w;
        }
    }
}
",
            prefix,
            &[
                ("tokens", tokens.to_string()),
                ("quads", (head_dim / 4).to_string()),
                ("of_peak", format!("{OF_PEAK:?}")),
            ],
        )
    }
}

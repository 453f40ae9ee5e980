//! `tq3`: three-bit codes of rotated rows, one f16 scale γ for each token, nested around two-bit codes.
//!
//! A code c = 0..7 ascends with its value: the integer codebook {±10, ±31, ±55, ±88}/40.9, Lloyd-Max
//! for N(0, 1) (TurboQuant's scalar quantiser, arXiv 2504.19874). value = γ · integer/40.9. Codes
//! are chosen against the token's root mean square; γ is then fitted:
//! - K: ‖x‖²/⟨x, ĉ⟩, which leaves inner products with x unbiased (EDEN, arXiv 2108.08842);
//! - V: ‖x‖/‖ĉ‖, which keeps the norm (ĉ the row of codebook values).
//!
//! hi = c>>1 stands in `plane2`, lo = c&1 in `plane1`; the page is `[plane2][γ][plane1]`, so that
//! its start alone is a page of two-bit codes: demotion frees the end and runs nothing.
//!
//! A token of zeros, or of magnitudes below 2⁻⁶³, has γ = 0. A NaN makes its token's γ NaN.
//! Infinities count as f32::MAX; γ saturates at 65504.

use std::ops::Range;
use std::sync::Arc;

use super::{Codec, Format, Layout, plain};
use crate::error::Result;
use crate::num::{TQ_UNIT, TQ3};
use crate::shape::{PageGeometry, Side};

mod decode;
mod encode;
mod layout;
mod text;

/// Three-bit codes under one f16 scale a token; wants rotated rows.
pub struct Tq3;

/// The scale's factor: value = (γ · this) · integer.
const UNIT_INVERSE: f32 = 1.0 / TQ_UNIT;

/// Plane numbers within the layout.
const PLANE2: usize = 0;
const PLANE1: usize = 1;
const GAMMA: usize = 0;

impl Format for Tq3 {
    fn name(&self) -> &str {
        "tq3"
    }

    fn summary(&self) -> &str {
        "3-bit codebook of rotated rows, one scale for each token"
    }

    fn wants_rotation(&self) -> bool {
        true
    }

    fn codec(&self, side: Side, geometry: PageGeometry) -> Result<Arc<dyn Codec>> {
        let layout = layout::layout(side, geometry)?;
        let reader = decode::Reader::new(&layout);
        Ok(Arc::new(Tq3Codec { layout, reader }))
    }
}

/// Value of code c in units of 1/40.9.
fn integer(code: u32) -> f32 {
    let code = (code & 7) as usize;
    if code < 4 { -TQ3[3 - code] } else { TQ3[code - 4] }
}

struct Tq3Codec {
    layout: Layout,
    reader: decode::Reader,
}

impl Codec for Tq3Codec {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn encode(&self, values: &[f32], page: &mut [u32]) {
        plain::check_encode(&self.layout, values, page);
        page.fill(0);
        let head_dim = self.layout.geometry.head_dim;
        let mut codes = vec![0u8; head_dim];
        for (token, row) in values.chunks_exact(head_dim).enumerate() {
            let gamma = encode::quantise(self.layout.side, row, &mut codes);
            let (word, shift) = self.layout.scalar_position(GAMMA, token);
            page[word] |= u32::from(gamma) << shift;
            self.reader.place(&codes, token, page);
        }
    }

    fn decode(&self, page: &[u32], tokens: Range<usize>, out: &mut [f32]) {
        plain::check_decode(&self.layout, page, &tokens, out);
        self.reader.decode(page, tokens, out);
    }

    fn token_writable(&self) -> bool {
        false
    }

    fn write_token(&self, _: &mut [u32], _: usize, _: &[f32]) {
        panic!("words of tq3 pages are shared by tokens: they cannot be written alone");
    }

    fn wgsl(&self, prefix: &str) -> String {
        text::wgsl(&self.layout, prefix)
    }

    fn wgsl_store(&self, _: &str) -> String {
        String::new()
    }

    fn wgsl_encode(&self, prefix: &str) -> String {
        text::wgsl_encode(&self.layout, prefix)
    }

    fn cuda(&self, prefix: &str) -> String {
        text::cuda(&self.layout, prefix)
    }
}

#[cfg(test)]
mod tests;

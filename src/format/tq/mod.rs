//! `tq2`, `tq3`, `tq4`: codes of rotated rows, one f16 scale γ for each token (TurboQuant's scalar
//! quantiser, arXiv 2504.19874).
//!
//! A code c ascends with its value: integer codebooks {±20, ±64}/40.9, {±10, ±31, ±55, ±88}/40.9 and
//! {±5, ±15, ±25, ±36, ±48, ±62, ±79, ±104}/38.14, near Lloyd-Max for N(0, 1); see
//! [`num`](crate::num). value = γ · integer/unit. Codes are chosen against the token's root mean
//! square; γ is then fitted:
//! - K: ‖x‖²/⟨x, ĉ⟩, which leaves inner products with x unbiased (EDEN, arXiv 2108.08842);
//! - V: ‖x‖/‖ĉ‖, which keeps the norm (ĉ the row of codebook values).
//!
//! tq3's hi = c>>1 stands in `plane2`, lo = c&1 in `plane1`; its page is `[plane2][γ][plane1]`, so that
//! its start alone is laid out as a page of tq2, `[plane2][γ]`: demotion frees the end and runs nothing
//! (γ then stays tq3's). tq4 is `[plane4][γ]`, one plane, since reading it is what it costs.
//!
//! A token of zeros, or of magnitudes below 2⁻⁶³, has γ = 0. A NaN makes its token's γ NaN.
//! Infinities count as f32::MAX; γ saturates at 65504.

use std::ops::Range;
use std::sync::Arc;

use super::tiles::{Tiles, takes};
use super::{Codec, Format, Layout, Units, codes, plain};
use crate::error::Result;
use crate::num::f16_value;
use crate::shape::{PageGeometry, Side};
use codebook::Book;

mod codebook;
mod encode;
mod nested;
mod text;

pub use nested::Tq3Nested;

/// Two-bit codes under one f16 scale a token; wants rotated rows.
pub struct Tq2;

/// Three-bit codes under one f16 scale a token; wants rotated rows.
pub struct Tq3;

/// Four-bit codes under one f16 scale a token; wants rotated rows.
pub struct Tq4;

impl Format for Tq2 {
    fn name(&self) -> &str {
        "tq2"
    }

    fn summary(&self) -> &str {
        "2-bit codebook of rotated rows, one scale for each token"
    }

    fn wants_rotation(&self) -> bool {
        true
    }

    fn codec(&self, side: Side, geometry: PageGeometry) -> Result<Arc<dyn Codec>> {
        TqCodec::<4>::make(side, geometry)
    }
}

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
        TqCodec::<8>::make(side, geometry)
    }
}

impl Format for Tq4 {
    fn name(&self) -> &str {
        "tq4"
    }

    fn summary(&self) -> &str {
        "4-bit codebook of rotated rows, one scale for each token"
    }

    fn wants_rotation(&self) -> bool {
        true
    }

    fn codec(&self, side: Side, geometry: PageGeometry) -> Result<Arc<dyn Codec>> {
        TqCodec::<16>::make(side, geometry)
    }
}

/// A codec of N codes.
struct TqCodec<const N: usize> {
    layout: Layout,
    reader: codes::Reader,
}

impl<const N: usize> TqCodec<N> {
    const BOOK: Book = Book::of(N.trailing_zeros());

    fn make(side: Side, geometry: PageGeometry) -> Result<Arc<dyn Codec>> {
        Ok(Arc::new(TqCodec::<N>::of(side, geometry)?))
    }

    fn of(side: Side, geometry: PageGeometry) -> Result<Self> {
        let layout = codes::layout(side, geometry, Self::BOOK.bits, "gamma", 16)?;
        let reader = codes::Reader::new(&layout);
        Ok(TqCodec { layout, reader })
    }

    /// Reads by units, where the side's are alike.
    fn units(&self, prefix: &str) -> Option<Units> {
        let units = codes::units(&self.layout, Self::BOOK.bits, prefix)?;
        Some(Units { text: text::wgsl_value(&Self::BOOK, prefix) + &units.text, ..units })
    }

    /// The encoder; `split` writes `plane1` to the slab of further parts.
    fn wgsl_encode_to(&self, prefix: &str, split: bool) -> String {
        text::wgsl_encode(&Self::BOOK, &self.layout, prefix, split)
    }
}

impl<const N: usize> Codec for TqCodec<N> {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn encode(&self, values: &[f32], page: &mut [u32]) {
        plain::check_encode(&self.layout, values, page);
        page.fill(0);
        let head_dim = self.layout.geometry.head_dim;
        let mut codes = vec![0u8; head_dim];
        for (token, row) in values.chunks_exact(head_dim).enumerate() {
            let gamma = encode::quantise(&Self::BOOK, self.layout.side, row, &mut codes);
            self.reader.place::<N>(&codes, gamma.into(), token, page);
        }
    }

    fn decode(&self, page: &[u32], tokens: Range<usize>, out: &mut [f32]) {
        plain::check_decode(&self.layout, page, &tokens, out);
        self.reader.decode::<N>(page, tokens, out, |gamma| {
            let scale = f16_value(gamma as u16) * Self::BOOK.unit_inverse;
            std::array::from_fn(|code| Self::BOOK.integer(code) * scale)
        });
    }

    fn wgsl(&self, prefix: &str) -> String {
        text::wgsl(&Self::BOOK, &self.layout, prefix)
    }

    fn wgsl_units(&self, prefix: &str) -> Units {
        self.units(prefix).unwrap_or_else(|| Units::by_load4(&self.layout, prefix))
    }

    fn wgsl_encode(&self, prefix: &str) -> String {
        self.wgsl_encode_to(prefix, false)
    }

    fn tiles(&self) -> Option<Tiles> {
        let PageGeometry { tokens, head_dim } = self.layout.geometry;
        // A product with values is over 32 tokens.
        let fits = takes(head_dim) && (self.layout.side == Side::K || tokens >= 32);
        let side = match self.layout.side {
            Side::K => "Keys",
            Side::V => "Values",
        };
        let name = format!("Code{side}<{}, {head_dim}, {tokens}>", Self::BOOK.bits);
        // A sub-tile as it stands, whatever part of it is taken.
        let sub_tile = tokens.min(64) * (head_dim * Self::BOOK.bits as usize / 8 + 2);
        fits.then_some(Tiles {
            text: include_str!("../../../cuda/tiles/codes.cuh"),
            name,
            bytes: true,
            raw_bytes: [sub_tile, 0],
        })
    }

    fn cuda(&self, prefix: &str) -> String {
        text::cuda(&Self::BOOK, &self.layout, prefix)
    }
}

#[cfg(test)]
mod tests;

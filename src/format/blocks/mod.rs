//! `q8_0` and `q4_0`: llama.cpp's blocks of 32 values under one f16 scale d, its codes bit for bit.
//!
//! - q8_0: d = amax/127, q = x · (1/d) to nearest, halves away from zero; value = d · q. 8.5 bits.
//! - q4_0: d = (the value of greatest magnitude, the first of equals, with its sign)/−8,
//!   q = min(15, ⌊x · (1/d) + 8.5⌋); value = d · (q − 8). 4.5 bits.
//!
//! 1/d is of d ahead of its rounding to f16. Where the bits stand in a page is this library's: units of
//! 16 bytes by block of channels and token on K, rows on V; scales in a plane of their own.
//!
//! A NaN makes its block's d NaN (and its codes those of 0). Infinities count as f32::MAX; d saturates
//! at 65504. In a block of magnitudes below 2⁻⁶³, whose d is 0 in f16, codes are those of 0. Within
//! these bounds llama.cpp's results are its own and others'.

use std::ops::Range;
use std::sync::Arc;

use super::{Codec, Expr, Format, Layout, Per, Units, plain};
use crate::error::{Error, ErrorKind, Result};
use crate::shape::{PageGeometry, Side};

mod quantise;
mod text;
mod units;

/// llama.cpp's 8-bit blocks.
pub struct Q8_0;

/// llama.cpp's 4-bit blocks.
pub struct Q4_0;

impl Format for Q8_0 {
    fn name(&self) -> &str {
        "q8_0"
    }

    fn summary(&self) -> &str {
        "llama.cpp's 8-bit codes, one scale for 32 channels"
    }

    fn wants_rotation(&self) -> bool {
        false
    }

    fn codec(&self, side: Side, geometry: PageGeometry) -> Result<Arc<dyn Codec>> {
        Ok(Arc::new(Blocks::<8>::new(self.name(), side, geometry)?))
    }
}

impl Format for Q4_0 {
    fn name(&self) -> &str {
        "q4_0"
    }

    fn summary(&self) -> &str {
        "llama.cpp's 4-bit codes, one scale for 32 channels"
    }

    fn wants_rotation(&self) -> bool {
        false
    }

    fn codec(&self, side: Side, geometry: PageGeometry) -> Result<Arc<dyn Codec>> {
        Ok(Arc::new(Blocks::<4>::new(self.name(), side, geometry)?))
    }
}

/// Values of a block.
const BLOCK: usize = 32;

/// A codec of BITS-bit codes.
struct Blocks<const BITS: usize> {
    layout: Layout,
    arch: pulp::Arch,
}

impl<const BITS: usize> Blocks<BITS> {
    fn new(name: &str, side: Side, geometry: PageGeometry) -> Result<Self> {
        let layout = Layout::new(side, geometry)?;
        let PageGeometry { tokens, head_dim } = geometry;
        if !head_dim.is_multiple_of(BLOCK) {
            let message = format!(
                "{name}: {} head size {head_dim} is not a multiple of {BLOCK}, the channels of a block",
                side.as_str()
            );
            return Err(Error::new(
                ErrorKind::Unsupported,
                message,
                "use fp8, tq4 or q3_affine, which take multiples of 8",
            ));
        }
        let (p, d) = (tokens as u32, head_dim as u32);
        // Codes of a word and of a 16-byte unit.
        let (in_word, in_unit) = (32 / BITS as u32, 128 / BITS as u32);
        let (word, number) = match side {
            Side::K => (
                ((Expr::C / in_unit) * p + Expr::T) * 4u32 + (Expr::C % in_unit) / in_word,
                (Expr::C / BLOCK as u32) * p + Expr::T,
            ),
            Side::V => {
                (Expr::T * (d / in_word) + Expr::C / in_word, Expr::T * (d / BLOCK as u32) + Expr::C / BLOCK as u32)
            }
        };
        let shift = (Expr::C % in_word) * BITS as u32;
        let scale_words = geometry.values() / BLOCK / 2;
        let (scale_word, scale_shift) = (number.clone() / 2, (number % 2) * 16u32);
        let layout = layout.plane("codes", BITS as u32, geometry.values() * BITS / 32, word, shift).scalar(
            "scale",
            Per::Block(BLOCK as u32),
            16,
            scale_words,
            scale_word,
            scale_shift,
        );
        Ok(Blocks { layout, arch: pulp::Arch::new() })
    }

    /// The first byte of `block` of `token`, and the bytes from each of its units to the next.
    #[inline(always)]
    fn bytes_at(&self, token: usize, block: usize) -> (usize, usize) {
        let PageGeometry { tokens, head_dim } = self.layout.geometry;
        match self.layout.side {
            // A block of q8_0 is two units, of q4_0 one.
            Side::K => ((block * (BITS / 4) * tokens + token) * 16, 16 * tokens),
            Side::V => (token * head_dim * BITS / 8 + block * 4 * BITS, 16),
        }
    }

    /// The number of the scale of `block` of `token`.
    #[inline(always)]
    fn number(&self, token: usize, block: usize) -> usize {
        let PageGeometry { tokens, head_dim } = self.layout.geometry;
        match self.layout.side {
            Side::K => block * tokens + token,
            Side::V => token * (head_dim / BLOCK) + block,
        }
    }

    #[inline(always)]
    fn decode_rows(&self, page: &[u32], tokens: Range<usize>, out: &mut [f32]) {
        let (words, scales) = page.split_at(self.layout.scalars[0].offset_words);
        let (codes, scales): (&[u8], &[u16]) = (bytemuck::cast_slice(words), bytemuck::cast_slice(scales));
        for (row, token) in out.chunks_exact_mut(self.layout.geometry.head_dim).zip(tokens) {
            for (block, to) in row.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
                let (start, step) = self.bytes_at(token, block);
                let scale = quantise::scale_value(scales[self.number(token, block)]);
                if BITS == 4 {
                    if let Some(from) = words[start / 4..].first_chunk::<4>() {
                        quantise::values4(from, scale, to);
                    }
                    continue;
                }
                let (low, high) = to.split_at_mut(16);
                for (half, to) in [low, high].into_iter().enumerate() {
                    if let Some(from) = codes[start + half * step..].first_chunk::<16>() {
                        quantise::values8(from, scale, to);
                    }
                }
            }
        }
    }
}

impl<const BITS: usize> Codec for Blocks<BITS> {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn encode(&self, values: &[f32], page: &mut [u32]) {
        plain::check_encode(&self.layout, values, page);
        page.fill(0);
        let (codes, scales) = page.split_at_mut(self.layout.scalars[0].offset_words);
        let (codes, scales): (&mut [u8], &mut [u16]) =
            (bytemuck::cast_slice_mut(codes), bytemuck::cast_slice_mut(scales));
        for (token, row) in values.chunks_exact(self.layout.geometry.head_dim).enumerate() {
            for (block, values) in row.as_chunks::<BLOCK>().0.iter().enumerate() {
                let (scale, bytes) = quantise::block::<BITS>(values);
                scales[self.number(token, block)] = scale;
                let (start, step) = self.bytes_at(token, block);
                for (unit, bytes) in bytes[..4 * BITS].chunks_exact(16).enumerate() {
                    codes[start + unit * step..][..16].copy_from_slice(bytes);
                }
            }
        }
    }

    fn decode(&self, page: &[u32], tokens: Range<usize>, out: &mut [f32]) {
        plain::check_decode(&self.layout, page, &tokens, out);
        self.arch.dispatch(
            #[inline(always)]
            || self.decode_rows(page, tokens, out),
        );
    }

    fn wgsl(&self, prefix: &str) -> String {
        text::wgsl(BITS, &self.layout, prefix)
    }

    fn wgsl_units(&self, prefix: &str) -> Units {
        units::units(BITS, &self.layout, prefix)
    }

    fn wgsl_encode(&self, prefix: &str) -> String {
        text::wgsl_encode(BITS, &self.layout, prefix)
    }

    fn cuda(&self, prefix: &str) -> String {
        text::cuda(BITS, &self.layout, prefix)
    }
}

#[cfg(test)]
mod tests;

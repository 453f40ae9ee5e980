//! Where codes of 2, 3 and 4 bits stand: words that CUDA's tensor cores take as they are, in units of
//! 16 bytes that neighbouring threads read side by side.
//!
//! Two-bit codes fill `plane2`, four-bit codes `plane4`; a three-bit code is hi = c>>1 in `plane2`
//! and lo = c&1 in `plane1`. A page is its first plane, then one scalar a token, then `plane1`: a
//! page of three-bit codes begins as a page of two-bit codes.
//!
//! Pages of 128 tokens are two sub-tiles of 64 within each plane. T below is the token within its
//! sub-tile of p = min(P, 64) tokens. Channels form blocks of 128, a = C/128; the last may be short:
//! it has I = ceil(channels/32) groups of K and W = ceil(channels/16) groups of V, full blocks 4 and 8.
//!
//! K, with J = p/2: t = (C/8)%4, i = (C/32)%4, e = C%8, j = 8(T/16) + T%8, n = e%4 + 4((T/8)%2),
//! s = e/4. V: x = T%16, t = (x%8)/2, j = W·((C/4)%4) + (C/16)%8 of J = 4W, n = x%2 + 2(x/8) + 4(C%2);
//! - p = 64: I = 4, i = 2((C/2)%2) + T/32, s = (T/16)%2;
//! - p = 32: I = 2, i = (C/2)%2, s = (T/16)%2;
//! - p = 16: I = 1, i = 0, s = (C/2)%2.
//!
//! plane2: word base + (t·J + j)·I + i, bits 4n + 2s and above; base: the words of earlier blocks.
//! plane1 pairs its words. I even: word base/2 + ((t/2)·J + j)·I + (t%2)·I/2 + i/2, bit
//! 4n + 2(i%2) + s. I odd: word base/2 + ((t/2)·J + j)·I + i, bit 4n + 2(t%2) + s.
//! plane4 splits them: bits 4n and above of, I even: word 2·base + ((t·I/2 + i/2)·J + j)·4 + 2(i%2) + s;
//! I odd: word 2·base + (t·J + j)·2I + 2i + s.
//! Scalars: number (p/8)(T%8) + 2(T/16) + (T/8)%2 of the sub-tile.

use super::super::{Expr, Layout, Per};
use crate::error::Result;
use crate::shape::{PageGeometry, Side};
use Expr::{C, T};

/// Plane numbers within the layout.
pub(in super::super) const FIRST: usize = 0;
pub(in super::super) const PLANE1: usize = 1;
/// The number of the scalar plane.
pub(in super::super) const SCALAR: usize = 0;

/// The layout of a page side of codes of `code_bits` (2, 3 or 4) bits and, for each token, a scalar
/// of `scalar_bits` (16 or 32) bits named `scalar`.
pub(in super::super) fn layout(
    side: Side,
    geometry: PageGeometry,
    code_bits: u32,
    scalar: &'static str,
    scalar_bits: u32,
) -> Result<Layout> {
    let checked = Layout::new(side, geometry)?;
    let (page_tokens, head_dim) = (geometry.tokens as u32, geometry.head_dim as u32);
    let sub_tokens = page_tokens.min(64);
    let sub_tiles = page_tokens / sub_tokens;
    let planes = match side {
        Side::K => k(sub_tokens, sub_tiles, head_dim),
        Side::V => v(sub_tokens, sub_tiles, head_dim),
    };
    let sub_tile = T / 64;
    let in_sub_tile = |words: u32, word: Expr| if sub_tiles == 1 { word } else { sub_tile.clone() * words + word };
    let plane = |layout: Layout, name, bits: u32, word: Expr, shift: Expr| {
        let words = planes.words2 * bits / 2;
        layout.plane(name, bits, (words * sub_tiles) as usize, in_sub_tile(words, word), shift)
    };
    let first = match code_bits {
        4 => plane(checked, "plane4", 4, planes.word4.clone(), planes.shift4.clone()),
        _ => plane(checked, "plane2", 2, planes.word2.clone(), planes.shift2.clone()),
    };
    let token = if sub_tiles == 1 { T } else { T % 64 };
    let number = (token.clone() % 8) * (sub_tokens / 8) + (token.clone() / 16) * 2u32 + (token / 8) % 2;
    let number = in_sub_tile(sub_tokens, number);
    let with_scalars = match scalar_bits {
        16 => {
            let (word, shift) = (number.clone() / 2, (number % 2) * 16u32);
            first.scalar(scalar, Per::Token, 16, geometry.tokens / 2, word, shift)
        }
        _ => first.scalar(scalar, Per::Token, 32, geometry.tokens, number, 0u32),
    };
    Ok(match code_bits {
        3 => plane(with_scalars, "plane1", 1, planes.word1.clone(), planes.shift1.clone()),
        _ => with_scalars,
    })
}

/// The planes of a sub-tile.
struct Planes {
    /// Words of `plane2`; `plane1` has half as many, `plane4` twice.
    words2: u32,
    word2: Expr,
    shift2: Expr,
    word1: Expr,
    shift1: Expr,
    word4: Expr,
    shift4: Expr,
}

/// `of(groups)` for channels of full blocks, with `full` groups, and of a short last block.
fn by_block(head_dim: u32, channels_of_group: u32, of: impl Fn(u32) -> Expr) -> Expr {
    let blocks = head_dim / 128;
    let full = 128 / channels_of_group;
    match (head_dim % 128).div_ceil(channels_of_group) {
        0 => of(full),
        short if blocks == 0 => of(short),
        short => (C / 128).below(blocks, of(full), of(short)),
    }
}

/// a = C/128; nothing where there is one block only.
fn block(head_dim: u32) -> Expr {
    if head_dim <= 128 { Expr::Const(0) } else { C / 128 }
}

fn k(p: u32, sub_tiles: u32, head_dim: u32) -> Planes {
    let token = if sub_tiles == 1 { T } else { T % 64 };
    let rows = p / 2;
    let t = (C / 8) % 4;
    let i = (C / 32) % 4;
    let j = (token.clone() / 16) * 8u32 + T % 8;
    let bit = (C % 4) * 4u32 + ((T / 8) % 2) * 16u32;
    let s = (C / 4) % 2;
    let base2 = block(head_dim) * (16 * rows);
    let base1 = block(head_dim) * (8 * rows);
    let base4 = block(head_dim) * (32 * rows);
    let word2 = base2 + by_block(head_dim, 32, |groups| (t.clone() * rows + j.clone()) * groups + i.clone());
    let word1 = base1
        + by_block(head_dim, 32, |groups| {
            let unit = ((C / 16) % 2 * rows + j.clone()) * groups;
            match groups % 2 {
                0 => unit + (C / 8) % 2 * (groups / 2) + (C / 64) % 2,
                _ => unit + i.clone(),
            }
        });
    let word4 = base4
        + by_block(head_dim, 32, |groups| match groups % 2 {
            0 => {
                let half = if groups == 4 { (C / 64) % 2 } else { Expr::Const(0) };
                ((t.clone() * (groups / 2) + half) * rows + j.clone()) * 4u32 + (C / 32) % 2 * 2u32 + s.clone()
            }
            _ => (t.clone() * rows + j.clone()) * (2 * groups) + i.clone() * 2u32 + s.clone(),
        });
    let pair = by_block(head_dim, 32, |groups| if groups % 2 == 0 { (C / 32) % 2 } else { (C / 8) % 2 });
    Planes {
        words2: head_dim / 128 * 16 * rows + 4 * rows * (head_dim % 128).div_ceil(32),
        word2,
        shift2: bit.clone() + s.clone() * 2u32,
        word1,
        shift1: bit.clone() + pair * 2u32 + s,
        word4,
        shift4: bit,
    }
}

fn v(p: u32, sub_tiles: u32, head_dim: u32) -> Planes {
    let token = if sub_tiles == 1 { T } else { T % 64 };
    let pair = (C / 2) % 2;
    // Words of a unit row, i, i/2 and i%2.
    let (units, i, i_half, i_odd) = match p {
        64 => (4, pair.clone() * 2u32 + token.clone() / 32, pair.clone(), token / 32),
        32 => (2, pair.clone(), Expr::Const(0), pair.clone()),
        _ => (1, Expr::Const(0), Expr::Const(0), Expr::Const(0)),
    };
    let s = if p >= 32 { (T / 16) % 2 } else { pair };
    let t = (T / 2) % 4;
    let bit = (T % 2) * 4u32 + ((T / 8) % 2) * 8u32 + (C % 2) * 16u32;
    let base2 = block(head_dim) * (128 * units);
    let base1 = block(head_dim) * (64 * units);
    let base4 = block(head_dim) * (256 * units);
    let j = |groups: u32| (C / 4) % 4 * groups + (C / 16) % 8;
    let word2 = base2 + by_block(head_dim, 16, |groups| (t.clone() * (4 * groups) + j(groups)) * units) + i;
    let unit = by_block(head_dim, 16, |groups| ((T / 4) % 2 * (4 * groups) + j(groups)) * units);
    let word4 = base4
        + by_block(head_dim, 16, |groups| match units % 2 {
            0 => {
                let row = t.clone() * (units / 2) + i_half.clone();
                (row * (4 * groups) + j(groups)) * 4u32 + i_odd.clone() * 2u32
            }
            _ => (t.clone() * (4 * groups) + j(groups)) * 2u32,
        })
        + s.clone();
    let (inner, odd) = if units % 2 == 0 { ((T / 2) % 2 * (units / 2) + i_half, i_odd) } else { (i_half, (T / 2) % 2) };
    Planes {
        words2: head_dim / 128 * 128 * units + 16 * units * (head_dim % 128).div_ceil(16),
        word2,
        shift2: bit.clone() + s.clone() * 2u32,
        word1: base1 + unit + inner,
        shift1: bit.clone() + odd * 2u32 + s,
        word4,
        shift4: bit,
    }
}

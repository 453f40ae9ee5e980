//! Attention of few queries over pages of f16 on AVX-512, read where they lie: no row is decoded into memory first.
//!
//! Sixteen halves are one conversion: a unit of two neighbouring tokens of K, or 16 channels of a row of V. A key's product
//! is with a query's eight channels written twice, so that a vector ends as eight partial sums for each of two tokens.

use super::few::{ScoreKeys, across, four};
use super::panel::PageStep;
use super::prefetch;
use super::weigh::ReadValues;
use pulp::x86::V4;
use pulp::{Simd, cast, f32x16};
use std::ops::Range;

/// Queries a panel.
const QUERIES_A_PANEL: usize = 4;
/// Pairs of tokens whose products are made together.
const PAIRS: usize = 4;
/// Tokens of them.
const TOKENS: usize = 2 * PAIRS;

/// Halves that become one vector.
type Sixteen = [u16; 16];

/// A page's words as units.
#[inline(always)]
fn units(page: &[u32]) -> &[Sixteen] {
    bytemuck::cast_slice::<u32, u16>(page).as_chunks().0
}

#[inline(always)]
fn widen(simd: V4, halves: &Sixteen) -> f32x16 {
    cast(simd.avx512f._mm512_cvtph_ps(cast(*halves)))
}

/// A query's channels, each eight of them twice: what pairs of tokens are multiplied with. `to` is `[channels / 8][4][16]`.
pub(super) fn double(channels: &[f32], query: usize, to: &mut [f32]) {
    let places = to.as_chunks_mut::<16>().0.iter_mut().skip(query).step_by(QUERIES_A_PANEL);
    for (to, channels) in places.zip(channels.as_chunks::<8>().0) {
        to[..8].copy_from_slice(channels);
        to[8..].copy_from_slice(channels);
    }
}

/// Keys of a page of f16, and those of the page that comes next.
pub(super) struct HalfKeys<'a> {
    pub(super) page: &'a [u32],
    pub(super) next: &'a [u32],
}

impl ScoreKeys<V4> for HalfKeys<'_> {
    #[inline(always)]
    fn score<const QUERIES: usize>(&self, simd: V4, page: &mut PageStep<'_>, base: usize, low: usize, high: usize) {
        let k_dim = page.k_dim;
        let units = units(self.page);
        // Of eight channels, all tokens two by two.
        let pairs = units.len() / (k_dim / 8);
        let doubled = &page.queries.doubled[base * k_dim * 2..(base + QUERIES_A_PANEL) * k_dim * 2];
        let doubled = V4::as_simd_f32s(doubled).0;
        let start = low - low % TOKENS;
        let logits = V4::as_mut_simd_f32s(&mut page.scores[start * QUERIES_A_PANEL..]).0.chunks_exact_mut(2);
        for (pair, logits) in (start / 2..high.div_ceil(2)).step_by(PAIRS).zip(logits) {
            let mut products = [simd.splat_f32s(0.0); PAIRS * QUERIES_A_PANEL];
            let eights = units.chunks_exact(pairs).zip(doubled.chunks_exact(QUERIES_A_PANEL));
            for (eight, (units, queries)) in eights.enumerate() {
                // As many lines as this loop reads.
                let lines = pair / PAIRS * k_dim / 4 + eight * 2;
                prefetch::line(self.next, lines);
                prefetch::line(self.next, lines + 1);
                let keys = &units[pair..pair + PAIRS];
                for at in 0..PAIRS {
                    let key = widen(simd, &keys[at]);
                    for query in 0..QUERIES {
                        let sum = &mut products[at * QUERIES_A_PANEL + query];
                        *sum = simd.mul_add_e_f32s(queries[query], key, *sum);
                    }
                }
            }
            for (logits, p) in logits.iter_mut().zip(products.as_chunks::<8>().0) {
                *logits = across(simd, four(simd, p[0], p[1], p[2], p[3]), four(simd, p[4], p[5], p[6], p[7]));
            }
        }
    }
}

/// Values of a page of f16, of rows of `vectors` vectors, and those of the page that comes next.
pub(super) struct HalfValues<'a> {
    pub(super) page: &'a [u32],
    pub(super) next: &'a [u32],
    pub(super) vectors: usize,
}

impl ReadValues<V4> for HalfValues<'_> {
    type Vector = Sixteen;

    #[inline(always)]
    fn rows(&self, tokens: Range<usize>) -> &[Sixteen] {
        &units(self.page)[tokens.start * self.vectors..tokens.end * self.vectors]
    }

    #[inline(always)]
    fn ask(&self, token: usize) {
        let lines = self.vectors / 2;
        (token * lines..(token + 1) * lines).for_each(|line| prefetch::line(self.next, line));
    }

    #[inline(always)]
    fn read(simd: V4, vector: &Sixteen) -> f32x16 {
        widen(simd, vector)
    }
}

//! Vector code of attention on the CPU: one page of keys and values against a panel of queries.
//!
//! Queries stand side by side in vector lanes, so scores are `[token][query]`: softmax needs no sums across
//! lanes, keys and values are used as decoded, and only the queries are transposed, once an item.

use super::partial::NO_KEY;
use super::weigh::{Rows, accumulate};
use pulp::{Simd, WithSimd};

/// Tokens that the score kernel computes at once, most of its variants.
pub(super) const TOKEN_BLOCK: usize = 8;

/// Channels that rows of values are padded to: a multiple of every vector's lanes.
pub(super) const CHANNEL_BLOCK: usize = 16;

/// Lanes of the machine's vectors of f32.
pub(super) fn lanes(arch: pulp::Arch) -> usize {
    struct Lanes;
    impl WithSimd for Lanes {
        type Output = usize;
        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) -> usize {
            S::F32_LANES
        }
    }
    arch.dispatch(Lanes)
}

/// How the queries of an item lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Arrangement {
    /// Queries in lanes, `[panel][channel][query]`; a panel is one vector, or two.
    #[default]
    Panels,
    /// Rows, four a panel: lanes hold channels, since these queries would fill few.
    Rows,
}

impl Arrangement {
    /// The one that is faster for `queries` queries of `k_dim` channels, and its queries a panel.
    pub(super) fn choose(lanes: usize, queries: usize, k_dim: usize) -> (Self, usize) {
        match queries {
            _ if 2 * queries <= lanes && k_dim.is_multiple_of(CHANNEL_BLOCK) => (Arrangement::Rows, 4),
            _ if queries <= lanes => (Arrangement::Panels, lanes),
            _ => (Arrangement::Panels, 2 * lanes),
        }
    }
}

/// The queries of an item and their running softmax, in panels of `width` queries.
///
/// A query that stands in no row pads the last panel: it sees no token.
#[derive(Default)]
pub(super) struct Queries {
    /// Queries in use.
    pub(super) count: usize,
    /// How `panels` lie.
    pub(super) arrangement: Arrangement,
    /// Queries a panel.
    pub(super) width: usize,
    /// `[panel][channel][width]` or, as rows, `[query][channel]`.
    pub(super) panels: Vec<f32>,
    /// Of rows, their channels as products with two tokens at once want them: `[panel][channels / 8][query][16]`.
    pub(super) doubled: Vec<f32>,
    /// Added to every logit of a query.
    pub(super) bias: Vec<f32>,
    /// Token in the page at which a query's visible range starts.
    pub(super) first: Vec<u32>,
    /// Tokens in that range.
    pub(super) visible: Vec<u32>,
    /// Running maximum.
    pub(super) m: Vec<f32>,
    /// Running sum.
    pub(super) l: Vec<f32>,
    /// Running output, rows of `v_stride`.
    pub(super) o: Vec<f32>,
    /// What the page's new maximum multiplies sums and outputs by.
    pub(super) alpha: Vec<f32>,
}

impl Queries {
    /// Makes room for `count` queries that have seen no key; the panels are zero.
    pub(super) fn reset(&mut self, lanes: usize, count: usize, k_dim: usize, v_stride: usize) {
        let (arrangement, width) = Arrangement::choose(lanes, count, k_dim);
        let padded = count.next_multiple_of(width);
        (self.count, self.arrangement, self.width) = (count, arrangement, width);
        refill(&mut self.panels, padded * k_dim, 0.0);
        let doubled = if arrangement == Arrangement::Rows { 2 * padded * k_dim } else { 0 };
        refill(&mut self.doubled, doubled, 0.0);
        refill(&mut self.bias, padded, 0.0);
        refill(&mut self.first, padded, 0);
        refill(&mut self.visible, padded, 0);
        refill(&mut self.m, padded, NO_KEY);
        refill(&mut self.l, padded, 0.0);
        refill(&mut self.o, padded * v_stride, 0.0);
        refill(&mut self.alpha, padded, 1.0);
    }

    /// Puts query `index` into its lane of its panel, or its row.
    pub(super) fn set(&mut self, index: usize, channels: &[f32], bias: f32) {
        self.bias[index] = bias;
        if self.arrangement == Arrangement::Rows {
            self.panels[index * channels.len()..][..channels.len()].copy_from_slice(channels);
            #[cfg(target_arch = "x86_64")]
            {
                let panel = 2 * self.width * channels.len();
                let doubled = &mut self.doubled[index / self.width * panel..][..panel];
                super::half_pages::double(channels, index % self.width, doubled);
            }
            return;
        }
        let (panel, lane) = (index / self.width, index % self.width);
        let start = panel * channels.len() * self.width + lane;
        let column = self.panels[start..].iter_mut().step_by(self.width);
        column.zip(channels).for_each(|(to, &from)| *to = from);
    }
}

/// Fills with `count` copies of `value`, keeping the allocation.
pub(super) fn refill<T: Copy>(values: &mut Vec<T>, count: usize, value: T) {
    values.clear();
    values.resize(count, value);
}

/// Attention of all queries over one page, whose visible tokens are decoded.
pub(super) struct PageStep<'a> {
    /// Queries and their states; `first` and `visible` set for this page.
    pub(super) queries: &'a mut Queries,
    /// Keys, rows of `k_dim`, with `TOKEN_BLOCK` rows to spare at the end.
    pub(super) keys: &'a [f32],
    /// Values, rows of `v_stride`.
    pub(super) values: &'a [f32],
    /// Pages of K and V that hold halves, for who reads them as they are; `keys` or `values` is then not filled.
    pub(super) halves: [Option<&'a [u32]>; 2],
    /// The page that comes next, K and V; nothing where that is unknown.
    pub(super) next: [&'a [u32]; 2],
    /// Room for scores: `width` floats a row of `keys`.
    pub(super) scores: &'a mut [f32],
    /// Channels of a key.
    pub(super) k_dim: usize,
    /// Floats between rows of values, a multiple of [`CHANNEL_BLOCK`].
    pub(super) v_stride: usize,
    /// The logits' cap, if any.
    pub(super) softcap: Option<f32>,
}

impl WithSimd for PageStep<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        for panel in 0..self.queries.panels.len() / (self.queries.width * self.k_dim) {
            let base = panel * self.queries.width;
            let end = (base + self.queries.width).min(self.queries.count);
            let Some((low, high)) = union(&self.queries.first[base..end], &self.queries.visible[base..end]) else {
                continue;
            };
            if self.queries.width == S::F32_LANES {
                score::<S, 8, 1>(simd, &mut self, panel, low, high);
            } else {
                score::<S, 6, 2>(simd, &mut self, panel, low, high);
            }
            softmax(&mut self, base, low, high);
            let values = Rows { values: self.values, v_stride: self.v_stride };
            accumulate(simd, &mut self, base, end, &values);
        }
    }
}

/// Tokens that some query sees: from the smallest start to the largest end; `None` if there are none.
pub(super) fn union(first: &[u32], visible: &[u32]) -> Option<(usize, usize)> {
    let seen = first.iter().zip(visible).filter(|&(_, &visible)| visible > 0);
    seen.fold(None, |range, (&first, &visible)| {
        let (low, high) = (first as usize, (first + visible) as usize);
        range.map_or(Some((low, high)), |(l, h): (usize, usize)| Some((l.min(low), h.max(high))))
    })
}

/// `scores[token][query]` for at least the tokens `low..high`; `TOKENS` tokens by `VECTORS` vectors in registers.
#[inline(always)]
fn score<S: Simd, const TOKENS: usize, const VECTORS: usize>(
    simd: S,
    page: &mut PageStep<'_>,
    panel: usize,
    low: usize,
    high: usize,
) {
    let (width, k_dim) = (VECTORS * S::F32_LANES, page.k_dim);
    let queries = &page.queries.panels[panel * k_dim * width..][..k_dim * width];
    let (queries, _) = S::as_simd_f32s(queries);
    for token in (low..high).step_by(TOKENS) {
        let keys: [&[f32]; TOKENS] = std::array::from_fn(|i| &page.keys[(token + i) * k_dim..][..k_dim]);
        let mut sums = [[simd.splat_f32s(0.0); VECTORS]; TOKENS];
        for (c, queries) in queries.chunks_exact(VECTORS).enumerate().take(k_dim) {
            for (sums, keys) in sums.iter_mut().zip(&keys) {
                let key = simd.splat_f32s(keys[c]);
                for (sum, &query) in sums.iter_mut().zip(queries) {
                    *sum = simd.mul_add_e_f32s(query, key, *sum);
                }
            }
        }
        let (rows, _) = S::as_mut_simd_f32s(&mut page.scores[token * width..(token + TOKENS) * width]);
        for (row, sums) in rows.chunks_exact_mut(VECTORS).zip(&sums) {
            row.copy_from_slice(sums);
        }
    }
}

/// Scores to weights for the panel that starts at query `base`: zero where a token is not visible.
#[inline(always)]
fn softmax(page: &mut PageStep<'_>, base: usize, low: usize, high: usize) {
    let width = page.queries.width;
    let lanes = base..base + width;
    let queries = &mut *page.queries;
    let (bias, first, visible) =
        (&queries.bias[lanes.clone()], &queries.first[lanes.clone()], &queries.visible[lanes.clone()]);
    let (m, l) = (&mut queries.m[lanes.clone()], &mut queries.l[lanes.clone()]);
    let alpha = &mut queries.alpha[lanes];
    let scores = &mut page.scores[low * width..high * width];

    alpha.copy_from_slice(m);
    for (token, row) in (low as u32..).zip(scores.chunks_exact_mut(width)) {
        for lane in 0..width {
            let mut s = row[lane] + bias[lane];
            if let Some(cap) = page.softcap {
                s = cap * tanh(s / cap);
            }
            row[lane] = s;
            // Wrapping makes one comparison of two; a NaN score loses it and shows up in the sum.
            let seen = token.wrapping_sub(first[lane]) < visible[lane];
            m[lane] = if seen & (s > m[lane]) { s } else { m[lane] };
        }
    }
    for lane in 0..width {
        alpha[lane] = exp(alpha[lane] - m[lane]);
        l[lane] *= alpha[lane];
    }
    for (token, row) in (low as u32..).zip(scores.chunks_exact_mut(width)) {
        for lane in 0..width {
            let seen = token.wrapping_sub(first[lane]) < visible[lane];
            let weight = if seen { exp(row[lane] - m[lane]) } else { 0.0 };
            row[lane] = weight;
            l[lane] += weight;
        }
    }
}

/// e^x for x up to 0, within 2 units in the last place; 0 below −87; NaN stays NaN. Vectorises.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    // Adding 1.5 * 2^23 rounds to an integer, which then stands in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts, the first short enough that its multiples by small integers are exact: 355/512.
    const LN2_HIGH: f32 = 355.0 / 512.0;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let bounded = if x < -87.0 { -87.0 } else { x };
    let shifted = bounded * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = bounded - n * LN2_HIGH - n * LN2_LOW;
    // Cephes' polynomial for e^r on |r| <= ln(2)/2.
    let mut p = 1.987_569_1e-4;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_6e-1, 0.5] {
        p = p * r + coefficient;
    }
    let p = p * r * r + r + 1.0;
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(0x3f80_0000));
    if x < -87.0 { 0.0 } else { p * power }
}

/// tanh through e^(−2|x|), which cannot overflow.
#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    let e = exp(-2.0 * x.abs());
    ((1.0 - e) / (1.0 + e)).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_is_close_and_keeps_nan() {
        for step in 0..87_000 {
            let x = -(step as f32) / 1000.0;
            let (got, want) = (f64::from(exp(x)), f64::from(x).exp());
            assert!((got / want - 1.0).abs() < 3e-7, "{x}: {got} {want}");
        }
        assert_eq!(exp(-87.1), 0.0);
        assert_eq!(exp(NO_KEY), 0.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn cap_is_finite_and_exact_enough() {
        // A form with e^x and e^-x divides infinities from |x| = 88 on.
        for (s, want) in
            [(100.0, 48.201_38), (1000.0, 50.0), (4400.0, 50.0), (5000.0, 50.0), (1e4, 50.0), (-1e4, -50.0)]
        {
            let got: f32 = 50.0 * tanh(s / 50.0);
            assert!((got - want).abs() < 2e-5, "{s}: {got}");
        }
        assert!(tanh(f32::NAN).is_nan());
        assert_eq!(tanh(0.0), 0.0);
    }

    #[test]
    fn union_leaves_out_blind_queries() {
        assert_eq!(union(&[5, 0, 3], &[2, 0, 1]), Some((3, 7)));
        assert_eq!(union(&[5, 0], &[0, 0]), None);
    }
}

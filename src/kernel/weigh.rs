//! Weighted sums of values on the CPU: a page's rows, however they are stored, into the outputs of its queries.

use super::panel::{CHANNEL_BLOCK, PageStep};
use pulp::Simd;
use std::ops::Range;

/// Rows of values as vectors.
pub(super) trait ReadValues<S: Simd> {
    /// What stands for a vector.
    type Vector;

    /// The rows of tokens, one after another.
    fn rows(&self, tokens: Range<usize>) -> &[Self::Vector];

    /// Asks memory for what a later page has where this one has `token`.
    #[inline(always)]
    fn ask(&self, _token: usize) {}

    /// The vector itself.
    fn read(simd: S, vector: &Self::Vector) -> S::f32s;
}

/// Decoded values, in rows of `v_stride`.
pub(super) struct Rows<'a> {
    pub(super) values: &'a [f32],
    pub(super) v_stride: usize,
}

impl<S: Simd> ReadValues<S> for Rows<'_> {
    type Vector = S::f32s;

    #[inline(always)]
    fn rows(&self, tokens: Range<usize>) -> &[S::f32s] {
        S::as_simd_f32s(&self.values[tokens.start * self.v_stride..tokens.end * self.v_stride]).0
    }

    #[inline(always)]
    fn read(_: S, vector: &S::f32s) -> S::f32s {
        *vector
    }
}

/// Outputs of queries `base..end`: rescaled, and the weighted values added.
///
/// Values are multiplied only for queries that see their token, so nothing outside can spoil a sum: a block of
/// queries takes the tokens that all of it sees together, then each query the rest of its own.
#[inline(always)]
pub(super) fn accumulate<S: Simd, V: ReadValues<S>>(
    simd: S,
    page: &mut PageStep<'_>,
    base: usize,
    end: usize,
    values: &V,
) {
    let mut at = base;
    while at < end {
        let block = (end - at).min(6);
        let (mut low, mut high) = (0, usize::MAX);
        for query in at..at + block {
            let first = page.queries.first[query] as usize;
            low = low.max(first);
            high = high.min(first + page.queries.visible[query] as usize);
        }
        let high = high.max(low);
        match block {
            1 => weigh::<S, V, 1>(simd, page, (base, at), low..high, true, values),
            2 => weigh::<S, V, 2>(simd, page, (base, at), low..high, true, values),
            3 => weigh::<S, V, 3>(simd, page, (base, at), low..high, true, values),
            4 => weigh::<S, V, 4>(simd, page, (base, at), low..high, true, values),
            5 => weigh::<S, V, 5>(simd, page, (base, at), low..high, true, values),
            _ => weigh::<S, V, 6>(simd, page, (base, at), low..high, true, values),
        }
        for query in at..at + block {
            let first = page.queries.first[query] as usize;
            let last = first + page.queries.visible[query] as usize;
            for (from, to) in [(first, last.min(low)), (high.max(first), last)] {
                if from < to {
                    weigh::<S, V, 1>(simd, page, (base, query), from..to, false, values);
                }
            }
        }
        at += block;
    }
}

/// Adds the weighted values of `tokens` to `QUERIES` outputs, rescaling them first if asked. `place`: the panel's first
/// query and the first of these.
#[inline(always)]
fn weigh<S: Simd, V: ReadValues<S>, const QUERIES: usize>(
    simd: S,
    page: &mut PageStep<'_>,
    place: (usize, usize),
    tokens: Range<usize>,
    rescale: bool,
    values: &V,
) {
    let vectors = page.v_stride / S::F32_LANES;
    let mut at = 0;
    // Twelve sums and more hide a product's latency; machines with short vectors have registers for fewer.
    if S::F32_LANES == CHANNEL_BLOCK {
        while at + 4 <= vectors {
            weigh_columns::<S, V, QUERIES, 4>(simd, page, place, tokens.clone(), rescale, (values, at));
            at += 4;
        }
    }
    while at + 2 <= vectors {
        weigh_columns::<S, V, QUERIES, 2>(simd, page, place, tokens.clone(), rescale, (values, at));
        at += 2;
    }
    if at < vectors {
        weigh_columns::<S, V, QUERIES, 1>(simd, page, place, tokens, rescale, (values, at));
    }
}

/// [`weigh`] for the `VECTORS` vectors of channels from vector `column` on.
#[inline(always)]
fn weigh_columns<S: Simd, V: ReadValues<S>, const QUERIES: usize, const VECTORS: usize>(
    simd: S,
    page: &mut PageStep<'_>,
    (base, query): (usize, usize),
    tokens: Range<usize>,
    rescale: bool,
    (values, column): (&V, usize),
) {
    let (width, vectors) = (page.queries.width, page.v_stride / S::F32_LANES);
    let queries = &mut *page.queries;
    let (outputs, _) = S::as_mut_simd_f32s(&mut queries.o[query * page.v_stride..(query + QUERIES) * page.v_stride]);
    let mut sums = [[simd.splat_f32s(0.0); VECTORS]; QUERIES];
    for (i, sums) in sums.iter_mut().enumerate() {
        let alpha = simd.splat_f32s(if rescale { queries.alpha[query + i] } else { 1.0 });
        for (j, sum) in sums.iter_mut().enumerate() {
            *sum = simd.mul_f32s(outputs[i * vectors + column + j], alpha);
        }
    }
    let lane = query - base;
    let weights = page.scores[tokens.start * width..tokens.end * width].chunks_exact(width);
    let start = tokens.start;
    for (at, (weights, row)) in weights.zip(values.rows(tokens).chunks_exact(vectors)).enumerate() {
        if column == 0 {
            values.ask(start + at);
        }
        let weights = &weights[lane..lane + QUERIES];
        let row = &row[column..column + VECTORS];
        let mut read = [simd.splat_f32s(0.0); VECTORS];
        for (read, vector) in read.iter_mut().zip(row) {
            *read = V::read(simd, vector);
        }
        for (sums, &weight) in sums.iter_mut().zip(weights) {
            let weight = simd.splat_f32s(weight);
            for (sum, &value) in sums.iter_mut().zip(&read) {
                *sum = simd.mul_add_e_f32s(weight, value, *sum);
            }
        }
    }
    for (i, sums) in sums.iter().enumerate() {
        outputs[i * vectors + column..][..VECTORS].copy_from_slice(sums);
    }
}

//! Attention of few queries on the CPU, one page at a time: lanes hold channels, and sums across lanes are made for four
//! tokens of four queries together, where [`panel`](super::panel) would leave most lanes empty.

use super::panel::{PageStep, exp, tanh, union};
use super::weigh::{ReadValues, Rows, accumulate};
use pulp::{Simd, WithSimd};

/// Tokens whose logits are made together, and queries a panel.
const BLOCK: usize = 4;
/// Logits made together, `[token][query]`.
const LOGITS: usize = BLOCK * BLOCK;

/// Whether [`attend`] reads pages of halves as they are.
pub(super) fn reads_halves() -> bool {
    #[cfg(target_arch = "x86_64")]
    return pulp::x86::V4::try_new().is_some();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Attention of all queries over one page; queries are rows, and rows of keys are whole vectors.
pub(super) fn attend(arch: pulp::Arch, page: PageStep<'_>) {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = pulp::x86::V4::try_new() {
        return simd.vectorize(avx512::Few { simd, page });
    }
    arch.dispatch(Few(page));
}

/// Logits without bias of a page's tokens, however its keys are stored.
pub(super) trait ScoreKeys<S: Simd> {
    /// Those of at least the tokens `low..high` for the `QUERIES` queries from `base` on, `[token][query]`, into the scores.
    fn score<const QUERIES: usize>(&self, simd: S, page: &mut PageStep<'_>, base: usize, low: usize, high: usize);
}

/// The sums of vectors' lanes.
trait Sums<S: Simd> {
    fn sums(&self, vectors: &[S::f32s; LOGITS]) -> [f32; LOGITS];
}

struct Few<'a>(PageStep<'a>);

struct OneByOne<S>(S);

impl<S: Simd> Sums<S> for OneByOne<S> {
    #[inline(always)]
    fn sums(&self, vectors: &[S::f32s; LOGITS]) -> [f32; LOGITS] {
        vectors.map(|vector| self.0.reduce_sum_f32s(vector))
    }
}

impl WithSimd for Few<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let values = Rows { values: self.0.values, v_stride: self.0.v_stride };
        step(simd, self.0, &DecodedKeys(OneByOne(simd)), &values);
    }
}

/// Panel by panel.
#[inline(always)]
fn step<S: Simd>(simd: S, mut page: PageStep<'_>, keys: &impl ScoreKeys<S>, values: &impl ReadValues<S>) {
    for base in (0..page.queries.count).step_by(BLOCK) {
        let end = (base + BLOCK).min(page.queries.count);
        let Some((low, high)) = union(&page.queries.first[base..end], &page.queries.visible[base..end]) else {
            continue;
        };
        match end - base {
            1 => keys.score::<1>(simd, &mut page, base, low, high),
            2 => keys.score::<2>(simd, &mut page, base, low, high),
            3 => keys.score::<3>(simd, &mut page, base, low, high),
            _ => keys.score::<4>(simd, &mut page, base, low, high),
        }
        softmax(&mut page, base, low, high);
        accumulate(simd, &mut page, base, end, values);
    }
}

/// Keys as rows of the page step.
struct DecodedKeys<T>(T);

impl<S: Simd, T: Sums<S>> ScoreKeys<S> for DecodedKeys<T> {
    #[inline(always)]
    fn score<const QUERIES: usize>(&self, simd: S, page: &mut PageStep<'_>, base: usize, low: usize, high: usize) {
        let k_dim = page.k_dim;
        let vectors = k_dim / S::F32_LANES;
        let queries = S::as_simd_f32s(&page.queries.panels[base * k_dim..(base + QUERIES) * k_dim]).0;
        let keys = S::as_simd_f32s(&page.keys[low * k_dim..]).0.chunks_exact(BLOCK * vectors);
        let logits = page.scores[low * BLOCK..].as_chunks_mut::<LOGITS>().0;
        for (keys, logits) in keys.zip(logits).take((high - low).div_ceil(BLOCK)) {
            let mut products = [simd.splat_f32s(0.0); LOGITS];
            for c in 0..vectors {
                for token in 0..BLOCK {
                    let key = keys[token * vectors + c];
                    for query in 0..QUERIES {
                        let sum = &mut products[token * BLOCK + query];
                        *sum = simd.mul_add_e_f32s(queries[query * vectors + c], key, *sum);
                    }
                }
            }
            *logits = self.0.sums(&products);
        }
    }
}

/// Logits to weights for the panel that starts at query `base`: zero where a token is not visible.
#[inline(always)]
fn softmax(page: &mut PageStep<'_>, base: usize, low: usize, high: usize) {
    let softcap = page.softcap;
    let queries = &mut *page.queries;
    let panel = base..base + BLOCK;
    // What a query has, in the lanes of its logits.
    let spread = |values: &[f32]| -> [f32; LOGITS] { std::array::from_fn(|lane| values[lane % BLOCK]) };
    let bias = spread(&queries.bias[panel.clone()]);
    let first: [u32; LOGITS] = std::array::from_fn(|lane| queries.first[base + lane % BLOCK]);
    let visible: [u32; LOGITS] = std::array::from_fn(|lane| queries.visible[base + lane % BLOCK]);
    let blocks = (high - low).div_ceil(BLOCK);
    let logits = &mut page.scores[low * BLOCK..].as_chunks_mut::<LOGITS>().0[..blocks];
    let token_of = |block: usize, lane: usize| (low + block * BLOCK + lane / BLOCK) as u32;
    // Wrapping makes one comparison of two.
    let sees = |block: usize, lane: usize| token_of(block, lane).wrapping_sub(first[lane]) < visible[lane];

    let mut top = spread(&queries.m[panel.clone()]);
    for (block, logits) in logits.iter_mut().enumerate() {
        for lane in 0..LOGITS {
            let mut s = logits[lane] + bias[lane];
            if let Some(cap) = softcap {
                s = cap * tanh(s / cap);
            }
            logits[lane] = s;
            // A NaN logit loses the comparison and shows up in the sum.
            top[lane] = if sees(block, lane) & (s > top[lane]) { s } else { top[lane] };
        }
    }
    for (lane, query) in panel.clone().enumerate() {
        let m = (1..BLOCK).fold(top[lane], |m, i| if top[lane + i * BLOCK] > m { top[lane + i * BLOCK] } else { m });
        queries.alpha[query] = exp(queries.m[query] - m);
        queries.m[query] = m;
    }
    let m = spread(&queries.m[panel.clone()]);
    let mut sums = [0f32; LOGITS];
    for (block, logits) in logits.iter_mut().enumerate() {
        for lane in 0..LOGITS {
            let weight = if sees(block, lane) { exp(logits[lane] - m[lane]) } else { 0.0 };
            logits[lane] = weight;
            sums[lane] += weight;
        }
    }
    for (lane, query) in panel.enumerate() {
        let sum: f32 = (0..BLOCK).map(|i| sums[lane + i * BLOCK]).sum();
        queries.l[query] = queries.l[query] * queries.alpha[query] + sum;
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use avx512::{across, four};

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::super::half_pages::{HalfKeys, HalfValues};
    use super::super::weigh::Rows;
    use super::{DecodedKeys, LOGITS, PageStep, Sums, step};
    use pulp::x86::V4;
    use pulp::{NullaryFnOnce, Simd, cast, f32x16};

    pub(super) struct Few<'a> {
        pub(super) simd: V4,
        pub(super) page: PageStep<'a>,
    }

    impl NullaryFnOnce for Few<'_> {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            let Few { simd, page } = self;
            let (vectors, [next_k, next_v]) = (page.v_stride / V4::F32_LANES, page.next);
            let rows = Rows { values: page.values, v_stride: page.v_stride };
            match page.halves {
                [None, None] => step(simd, page, &DecodedKeys(simd), &rows),
                [Some(page_k), None] => step(simd, page, &HalfKeys { page: page_k, next: next_k }, &rows),
                [None, Some(page_v)] => {
                    step(simd, page, &DecodedKeys(simd), &HalfValues { page: page_v, next: next_v, vectors })
                }
                [Some(page_k), Some(page_v)] => {
                    let values = HalfValues { page: page_v, next: next_v, vectors };
                    step(simd, page, &HalfKeys { page: page_k, next: next_k }, &values)
                }
            }
        }
    }

    impl Sums<V4> for V4 {
        #[inline(always)]
        fn sums(&self, vectors: &[f32x16; LOGITS]) -> [f32; LOGITS] {
            cast(sums(*self, vectors))
        }
    }

    // Functions, not closures: only these are sure to be compiled into their caller, and so for AVX-512.

    /// The sums of 16 vectors' lanes, by halving: 15 additions and 30 shuffles in all.
    #[inline(always)]
    fn sums(simd: V4, v: &[f32x16; LOGITS]) -> f32x16 {
        let low = across(simd, four(simd, v[0], v[1], v[2], v[3]), four(simd, v[4], v[5], v[6], v[7]));
        let high = across(simd, four(simd, v[8], v[9], v[10], v[11]), four(simd, v[12], v[13], v[14], v[15]));
        across(simd, low, high)
    }

    /// Within each 128 bits: the sums of a's lanes 0 and 2, b's, a's lanes 1 and 3, b's.
    #[inline(always)]
    fn two(simd: V4, a: f32x16, b: f32x16) -> f32x16 {
        let (a, b) = (cast(a), cast(b));
        simd.add_f32s(cast(simd.avx512f._mm512_unpacklo_ps(a, b)), cast(simd.avx512f._mm512_unpackhi_ps(a, b)))
    }

    /// Within each 128 bits: the sums of a, b, c and d.
    #[inline(always)]
    pub(in crate::kernel) fn four(simd: V4, a: f32x16, b: f32x16, c: f32x16, d: f32x16) -> f32x16 {
        let (a, b) = (cast(two(simd, a, b)), cast(two(simd, c, d)));
        simd.add_f32s(cast(simd.avx512f._mm512_unpacklo_pd(a, b)), cast(simd.avx512f._mm512_unpackhi_pd(a, b)))
    }

    /// Neighbouring quarters of a added, then of b.
    #[inline(always)]
    pub(in crate::kernel) fn across(simd: V4, a: f32x16, b: f32x16) -> f32x16 {
        let (a, b) = (cast(a), cast(b));
        let even = cast(simd.avx512f._mm512_shuffle_f32x4::<0x88>(a, b));
        simd.add_f32s(even, cast(simd.avx512f._mm512_shuffle_f32x4::<0xdd>(a, b)))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn each_vector_has_its_own_sum() {
            let Some(simd) = V4::try_new() else { return };
            let value = |vector: usize, lane: usize| (vector * 37 % 19 * 16 + lane * 5 % 16) as f32;
            let vectors: [f32x16; LOGITS] =
                std::array::from_fn(|vector| cast(std::array::from_fn::<f32, LOGITS, _>(|lane| value(vector, lane))));
            let got: [f32; LOGITS] = cast(sums(simd, &vectors));
            for (vector, got) in got.iter().enumerate() {
                assert_eq!(*got, (0..LOGITS).map(|lane| value(vector, lane)).sum::<f32>(), "{vector}");
            }
        }
    }
}

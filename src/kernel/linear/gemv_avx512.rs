//! Few rows on AVX-512, for blocks of integer codes with scales. Sixteen scales are converted at once, a few rows ahead
//! of their codes; of 4-bit codes a block's 16 possible values are one vector, and a permutation by the codes is the
//! whole decoding.

use super::Product;
use crate::num::weights::{Block, Q4_0, Q4_1, Q8_0};
use pulp::x86::V4;
use pulp::{NullaryFnOnce, Simd, cast, f32x16};
use std::arch::x86_64::__m128i;

/// Blocks whose scales are converted together: two dozen lines of L1, little enough that the processor is still fetching
/// the next rows while it works on these.
const BLOCKS_AHEAD: usize = 64;

/// Blocks of 32 codes.
pub(super) trait Wide: Block {
    /// The values of a block with scales `[d, m]`.
    fn values(simd: V4, block: &Self::Bytes, scales: [f32; 2]) -> [f32x16; 2];
}

impl Wide for Q4_0 {
    #[inline(always)]
    fn values(simd: V4, block: &[u8; 18], [d, _]: [f32; 2]) -> [f32x16; 2] {
        let [_, _, codes @ ..] = block;
        let table = simd.mul_f32s(simd.sub_f32s(CODES, simd.splat_f32s(8.0)), simd.splat_f32s(d));
        by_nibbles(simd, table, codes)
    }
}

impl Wide for Q4_1 {
    #[inline(always)]
    fn values(simd: V4, block: &[u8; 20], [d, m]: [f32; 2]) -> [f32x16; 2] {
        let [_, _, _, _, codes @ ..] = block;
        by_nibbles(simd, simd.mul_add_f32s(CODES, simd.splat_f32s(d), simd.splat_f32s(m)), codes)
    }
}

impl Wide for Q8_0 {
    #[inline(always)]
    fn values(simd: V4, block: &[u8; 34], [d, _]: [f32; 2]) -> [f32x16; 2] {
        let [_, _, codes @ ..] = block;
        let d = simd.splat_f32s(d);
        let halves: &[[u8; 16]; 2] = bytemuck::cast_ref(codes);
        let value = |half: &[u8; 16]| {
            let wide = simd.avx512f._mm512_cvtepi8_epi32(sixteen(simd, half));
            simd.mul_f32s(cast(simd.avx512f._mm512_cvtepi32_ps(wide)), d)
        };
        [value(&halves[0]), value(&halves[1])]
    }
}

/// The codes of 4 bits.
const CODES: f32x16 = f32x16(0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.);

/// Sixteen bytes as a vector. A cast of an array may go through memory and wait for it.
#[inline(always)]
fn sixteen(simd: V4, bytes: &[u8; 16]) -> __m128i {
    let [low, high]: [[u8; 8]; 2] = bytemuck::cast(*bytes);
    simd.sse2._mm_set_epi64x(i64::from_le_bytes(high), i64::from_le_bytes(low))
}

/// Entries of a table: by the low 4 bits of all bytes, then by the high ones.
#[inline(always)]
fn by_nibbles(simd: V4, table: f32x16, codes: &[u8; 16]) -> [f32x16; 2] {
    let avx = simd.avx512f;
    // A permutation reads 4 bits of each index: the low nibbles need no mask.
    let low = avx._mm512_cvtepu8_epi32(sixteen(simd, codes));
    let high = avx._mm512_srli_epi32::<4>(low);
    [cast(avx._mm512_permutexvar_ps(low, cast(table))), cast(avx._mm512_permutexvar_ps(high, cast(table)))]
}

/// The scales `[d, m]` of blocks.
#[inline(always)]
fn scales_of<T: Wide>(simd: V4, blocks: &[T::Bytes], scales: &mut [[f32; 2]; BLOCKS_AHEAD]) {
    let mut bits = [0u32; BLOCKS_AHEAD];
    for (bits, block) in bits.iter_mut().zip(blocks) {
        *bits = T::scale_bits(block);
    }
    let eights = scales.as_chunks_mut::<8>().0.iter_mut().zip(bits.as_chunks::<8>().0);
    for (scales, &bits) in eights.take(blocks.len().div_ceil(8)) {
        let values: f32x16 = cast(simd.avx512f._mm512_cvtph_ps(cast(bits)));
        *scales = cast(values);
    }
}

/// Sums of some outputs, `[outs][R]`, over R rows.
pub(super) struct WideDots<'a, T, const R: usize> {
    simd: V4,
    x: [&'a [[f32x16; 2]]; R],
    weights: &'a [u8],
    row_bytes: usize,
    sums: &'a mut [f32],
    codes: std::marker::PhantomData<T>,
}

impl<'a, T: Wide, const R: usize> WideDots<'a, T, R> {
    pub(super) fn new(simd: V4, product: Product<'a>, weights: &'a [u8], sums: &'a mut [f32]) -> Self {
        let x = std::array::from_fn(|row| V4::as_simd_f32s(product.x.row(row)).0.as_chunks().0);
        WideDots { simd, x, weights, row_bytes: product.row_bytes, sums, codes: std::marker::PhantomData }
    }

    /// The sums, compiled for AVX-512.
    pub(super) fn run(self) {
        self.simd.vectorize(self);
    }
}

impl<T: Wide, const R: usize> NullaryFnOnce for WideDots<'_, T, R> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let simd = self.simd;
        let in_row = self.row_bytes / T::BYTES;
        // Whole rows ahead where rows are short, parts of one where they are long.
        let rows_ahead = (BLOCKS_AHEAD / in_row.max(1)).max(1);
        let mut scales = [[0f32; 2]; BLOCKS_AHEAD];
        let groups = self.weights.chunks(rows_ahead * self.row_bytes).zip(self.sums.chunks_mut(rows_ahead * R));
        for (weights, sums) in groups {
            let blocks = T::blocks(weights).0;
            if in_row <= BLOCKS_AHEAD {
                scales_of::<T>(simd, blocks, &mut scales);
                let rows = blocks.chunks_exact(in_row).zip(scales.chunks_exact(in_row)).zip(sums.chunks_exact_mut(R));
                for ((blocks, scales), sums) in rows {
                    let mut acc = [[simd.splat_f32s(0.0); 2]; R];
                    add::<T, R>(simd, blocks, scales, self.x, &mut acc);
                    store(simd, &acc, sums);
                }
            } else {
                let mut acc = [[simd.splat_f32s(0.0); 2]; R];
                for (part, blocks) in blocks.chunks(BLOCKS_AHEAD).enumerate() {
                    scales_of::<T>(simd, blocks, &mut scales);
                    add::<T, R>(simd, blocks, &scales, self.x.map(|x| &x[part * BLOCKS_AHEAD..]), &mut acc);
                }
                store(simd, &acc, sums);
            }
        }
    }
}

/// Adds the products of blocks to the sums of each row.
#[inline(always)]
fn add<T: Wide, const R: usize>(
    simd: V4,
    blocks: &[T::Bytes],
    scales: &[[f32; 2]],
    mut x: [&[[f32x16; 2]]; R],
    acc: &mut [[f32x16; 2]; R],
) {
    for x in &mut x {
        *x = &x[..blocks.len()];
    }
    for (i, (block, &scales)) in blocks.iter().zip(scales).enumerate() {
        let [low, high] = T::values(simd, block, scales);
        for row in 0..R {
            acc[row][0] = simd.mul_add_f32s(low, x[row][i][0], acc[row][0]);
            acc[row][1] = simd.mul_add_f32s(high, x[row][i][1], acc[row][1]);
        }
    }
}

#[inline(always)]
fn store<const R: usize>(simd: V4, acc: &[[f32x16; 2]; R], sums: &mut [f32]) {
    for (sum, acc) in sums.iter_mut().zip(acc) {
        *sum = simd.reduce_sum_f32s(simd.add_f32s(acc[0], acc[1]));
    }
}

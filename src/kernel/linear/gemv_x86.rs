//! Few rows on AVX-512, for 4-bit codes: a block's 16 possible values are one vector, and a permutation by the
//! codes is the whole decoding.

use super::Product;
use super::gemv::rows_of_scales;
use crate::num::weights::{Block, Q4_0, Q4_1, scales_of};
use pulp::x86::V4;
use pulp::{NullaryFnOnce, Simd, cast, f32x16};

/// Blocks of 32 4-bit codes.
pub(super) trait Nibbles: Block {
    /// The values of the 16 codes with scales `[d, m]`.
    fn values(simd: V4, codes: f32x16, scales: [f32; 2]) -> f32x16;

    /// The codes of a block.
    fn codes(block: &Self::Bytes) -> [u8; 16];
}

impl Nibbles for Q4_0 {
    #[inline(always)]
    fn values(simd: V4, codes: f32x16, [d, _]: [f32; 2]) -> f32x16 {
        simd.mul_f32s(simd.sub_f32s(codes, simd.splat_f32s(8.0)), simd.splat_f32s(d))
    }

    #[inline(always)]
    fn codes(block: &[u8; 18]) -> [u8; 16] {
        let [_, _, codes @ ..] = *block;
        codes
    }
}

impl Nibbles for Q4_1 {
    #[inline(always)]
    fn values(simd: V4, codes: f32x16, [d, m]: [f32; 2]) -> f32x16 {
        simd.mul_add_f32s(codes, simd.splat_f32s(d), simd.splat_f32s(m))
    }

    #[inline(always)]
    fn codes(block: &[u8; 20]) -> [u8; 16] {
        let [_, _, _, _, codes @ ..] = *block;
        codes
    }
}

/// Sums of some outputs, `[outs][R]`, over R rows.
pub(super) struct NibbleDots<'a, T, const R: usize> {
    simd: V4,
    x: [&'a [[f32x16; 2]]; R],
    weights: &'a [u8],
    row_bytes: usize,
    sums: &'a mut [f32],
    codes: std::marker::PhantomData<T>,
}

impl<'a, T: Nibbles, const R: usize> NibbleDots<'a, T, R> {
    pub(super) fn new(simd: V4, product: Product<'a>, weights: &'a [u8], sums: &'a mut [f32]) -> Self {
        let x = std::array::from_fn(|row| V4::as_simd_f32s(product.x.row(row)).0.as_chunks().0);
        NibbleDots { simd, x, weights, row_bytes: product.row_bytes, sums, codes: std::marker::PhantomData }
    }

    /// The sums, compiled for AVX-512.
    pub(super) fn run(self) {
        self.simd.vectorize(self);
    }
}

impl<T: Nibbles, const R: usize> NullaryFnOnce for NibbleDots<'_, T, R> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let (simd, avx) = (self.simd, self.simd.avx512f);
        let codes = f32x16(0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.);
        let in_row = self.row_bytes / T::BYTES;
        let group = rows_of_scales(in_row);
        let mut scales = vec![[0f32; 2]; group * in_row];
        let groups = self.weights.chunks(group * self.row_bytes).zip(self.sums.chunks_mut(group * R));
        for (weights, sums) in groups {
            let blocks = T::blocks(weights).0;
            scales_of::<T>(blocks, &mut scales[..blocks.len()]);
            let rows = blocks.chunks_exact(in_row).zip(scales.chunks_exact(in_row)).zip(sums.chunks_exact_mut(R));
            for ((blocks, scales), sums) in rows {
                let mut x = self.x;
                for x in &mut x {
                    *x = &x[..blocks.len()];
                }
                let mut acc = [[simd.splat_f32s(0.0); 2]; R];
                for (i, (block, &scales)) in blocks.iter().zip(scales).enumerate() {
                    let values = T::values(simd, codes, scales);
                    // A permutation reads 4 bits of each index: the low nibbles need no mask.
                    let low = avx._mm512_cvtepu8_epi32(cast(T::codes(block)));
                    let high = avx._mm512_srli_epi32::<4>(low);
                    let low: f32x16 = cast(avx._mm512_permutexvar_ps(low, cast(values)));
                    let high: f32x16 = cast(avx._mm512_permutexvar_ps(high, cast(values)));
                    for row in 0..R {
                        acc[row][0] = simd.mul_add_f32s(low, x[row][i][0], acc[row][0]);
                        acc[row][1] = simd.mul_add_f32s(high, x[row][i][1], acc[row][1]);
                    }
                }
                for row in 0..R {
                    sums[row] = simd.reduce_sum_f32s(simd.add_f32s(acc[row][0], acc[row][1]));
                }
            }
        }
    }
}

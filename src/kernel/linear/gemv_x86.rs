//! Few rows on AVX-512, for 4-bit codes: a block's 16 possible values are one vector, and a permutation by the
//! codes is the whole decoding.

use super::Product;
use crate::num::weights::{Block, Q4_0, Q4_1, half_to_f32};
use pulp::x86::V4;
use pulp::{NullaryFnOnce, Simd, cast, f32x16};

/// 32 4-bit codes whose values are `code * scale + shift`.
pub(super) trait Nibbles: Block {
    /// Scale, shift and codes of a block.
    fn parts(block: &Self::Bytes) -> (f32, f32, [u8; 16]);
}

impl Nibbles for Q4_0 {
    #[inline(always)]
    fn parts(block: &[u8; 18]) -> (f32, f32, [u8; 16]) {
        let [d0, d1, codes @ ..] = *block;
        let d = half_to_f32(u16::from_le_bytes([d0, d1]));
        (d, -8.0 * d, codes)
    }
}

impl Nibbles for Q4_1 {
    #[inline(always)]
    fn parts(block: &[u8; 20]) -> (f32, f32, [u8; 16]) {
        let [d0, d1, m0, m1, codes @ ..] = *block;
        (half_to_f32(u16::from_le_bytes([d0, d1])), half_to_f32(u16::from_le_bytes([m0, m1])), codes)
    }
}

/// Sums of some outputs, `[outs][R]`, over R rows.
pub(super) struct NibbleDots<'a, T, const R: usize> {
    simd: V4,
    x: [&'a [f32x16]; R],
    weights: &'a [u8],
    row_bytes: usize,
    sums: &'a mut [f32],
    codes: std::marker::PhantomData<T>,
}

impl<'a, T: Nibbles, const R: usize> NibbleDots<'a, T, R> {
    pub(super) fn new(simd: V4, product: Product<'a>, weights: &'a [u8], sums: &'a mut [f32]) -> Self {
        let x = std::array::from_fn(|row| V4::as_simd_f32s(product.x.row(row)).0);
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
        for (weights, sums) in self.weights.chunks_exact(self.row_bytes).zip(self.sums.chunks_exact_mut(R)) {
            let blocks = T::blocks(weights).0;
            let mut x = self.x;
            for row in 0..R {
                x[row] = &self.x[row][..2 * blocks.len()];
            }
            let mut acc = [[simd.splat_f32s(0.0); 2]; R];
            for (at, block) in blocks.iter().enumerate() {
                let (scale, shift, bytes) = T::parts(block);
                let values = simd.mul_add_f32s(codes, simd.splat_f32s(scale), simd.splat_f32s(shift));
                // A permutation reads 4 bits of each index: the low nibbles need no mask.
                let low = avx._mm512_cvtepu8_epi32(cast(bytes));
                let high = avx._mm512_srli_epi32::<4>(low);
                let low: f32x16 = cast(avx._mm512_permutexvar_ps(low, cast(values)));
                let high: f32x16 = cast(avx._mm512_permutexvar_ps(high, cast(values)));
                for row in 0..R {
                    acc[row][0] = simd.mul_add_f32s(low, x[row][2 * at], acc[row][0]);
                    acc[row][1] = simd.mul_add_f32s(high, x[row][2 * at + 1], acc[row][1]);
                }
            }
            for row in 0..R {
                sums[row] = simd.reduce_sum_f32s(simd.add_f32s(acc[row][0], acc[row][1]));
            }
        }
    }
}

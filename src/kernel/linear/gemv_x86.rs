//! Few rows on AVX-512, for 4-bit codes: a block's 16 possible values are one vector, and a permutation by the
//! codes is the whole decoding.

use super::Product;
use crate::num::weights::{Q4_0, Q4_1, half_to_f32};
use pulp::x86::V4;
use pulp::{NullaryFnOnce, cast, f32x16};

/// 32 4-bit codes whose values are `code * scale + shift`.
pub(super) trait Nibbles {
    /// Bytes of a block; the codes are the last 16.
    const BYTES: usize;

    /// Scale and shift of a block.
    fn scale(block: &[u8]) -> (f32, f32);
}

impl Nibbles for Q4_0 {
    const BYTES: usize = 18;

    #[inline(always)]
    fn scale(block: &[u8]) -> (f32, f32) {
        let d = half_to_f32(u16::from_le_bytes([block[0], block[1]]));
        (d, -8.0 * d)
    }
}

impl Nibbles for Q4_1 {
    const BYTES: usize = 20;

    #[inline(always)]
    fn scale(block: &[u8]) -> (f32, f32) {
        let halves = [u16::from_le_bytes([block[0], block[1]]), u16::from_le_bytes([block[2], block[3]])];
        (half_to_f32(halves[0]), half_to_f32(halves[1]))
    }
}

/// Sums of some outputs, `[outs][R]`, over R rows.
pub(super) struct NibbleDots<'a, T, const R: usize> {
    simd: V4,
    x: [&'a [[f32; 32]]; R],
    weights: &'a [u8],
    row_bytes: usize,
    sums: &'a mut [f32],
    codes: std::marker::PhantomData<T>,
}

impl<'a, T: Nibbles, const R: usize> NibbleDots<'a, T, R> {
    pub(super) fn new(simd: V4, product: Product<'a>, weights: &'a [u8], sums: &'a mut [f32]) -> Self {
        let x = std::array::from_fn(|row| product.x.row(row).as_chunks::<32>().0);
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
        let avx = self.simd.avx512f;
        let codes: f32x16 = cast([0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15f32]);
        for (weights, sums) in self.weights.chunks_exact(self.row_bytes).zip(self.sums.chunks_exact_mut(R)) {
            let mut acc = [[avx._mm512_setzero_ps(); 2]; R];
            for (at, block) in weights.chunks_exact(T::BYTES).enumerate() {
                let (scale, shift) = T::scale(block);
                let values = avx._mm512_fmadd_ps(cast(codes), avx._mm512_set1_ps(scale), avx._mm512_set1_ps(shift));
                let bytes: [u8; 16] = bytemuck::pod_read_unaligned(&block[T::BYTES - 16..T::BYTES]);
                // A permutation reads 4 bits of each index: the low nibble needs no mask.
                let low = avx._mm512_cvtepu8_epi32(cast(bytes));
                let high = avx._mm512_srli_epi32::<4>(low);
                let low = avx._mm512_permutexvar_ps(low, values);
                let high = avx._mm512_permutexvar_ps(high, values);
                for row in 0..R {
                    let (x_low, x_high) = self.x[row][at].split_at(16);
                    let x_low: [f32; 16] = bytemuck::pod_read_unaligned(bytemuck::cast_slice(x_low));
                    let x_high: [f32; 16] = bytemuck::pod_read_unaligned(bytemuck::cast_slice(x_high));
                    acc[row][0] = avx._mm512_fmadd_ps(low, cast(x_low), acc[row][0]);
                    acc[row][1] = avx._mm512_fmadd_ps(high, cast(x_high), acc[row][1]);
                }
            }
            for (sum, acc) in sums.iter_mut().zip(acc) {
                *sum = avx._mm512_reduce_add_ps(avx._mm512_add_ps(acc[0], acc[1]));
            }
        }
    }
}

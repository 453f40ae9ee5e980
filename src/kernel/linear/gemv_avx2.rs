//! Few rows on AVX2, for blocks of integer codes with scales: codes meet x as they are, and a block's scale meets the
//! sum of its products once. What a type adds to each value meets the sum of x, which all outputs share.

use super::Product;
use super::gemv::rows_of_scales;
use crate::num::weights::{Block, Q4_0, Q4_1, Q8_0, scales_of};
use pulp::x86::V3;
use pulp::{NullaryFnOnce, Simd, cast, f32x8};
use std::arch::x86_64::__m128i;

/// Blocks of 32 integer codes whose values are `d * code + offset`.
pub(super) trait Codes: Block {
    /// Whether there is an offset.
    const OFFSET: bool;

    /// What is added to each value of a block with scales `[d, m]`.
    fn offset(scales: [f32; 2]) -> f32;

    /// The codes of a block, 8 at a time.
    fn codes(simd: V3, block: &Self::Bytes) -> [f32x8; 4];
}

impl Codes for Q4_0 {
    // Eight less is exact here, while as an offset it would cost digits where codes are near eight.
    const OFFSET: bool = false;

    #[inline(always)]
    fn offset(_: [f32; 2]) -> f32 {
        0.0
    }

    #[inline(always)]
    fn codes(simd: V3, block: &[u8; 18]) -> [f32x8; 4] {
        let [_, _, codes @ ..] = block;
        let mut values = nibbles(simd, codes);
        for value in &mut values {
            *value = simd.sub_f32s(*value, simd.splat_f32s(8.0));
        }
        values
    }
}

impl Codes for Q4_1 {
    const OFFSET: bool = true;

    #[inline(always)]
    fn offset([_, m]: [f32; 2]) -> f32 {
        m
    }

    #[inline(always)]
    fn codes(simd: V3, block: &[u8; 20]) -> [f32x8; 4] {
        let [_, _, _, _, codes @ ..] = block;
        nibbles(simd, codes)
    }
}

impl Codes for Q8_0 {
    const OFFSET: bool = false;

    #[inline(always)]
    fn offset(_: [f32; 2]) -> f32 {
        0.0
    }

    #[inline(always)]
    fn codes(simd: V3, block: &[u8; 34]) -> [f32x8; 4] {
        let [_, _, codes @ ..] = block;
        let eights: &[[u8; 8]; 4] = bytemuck::cast_ref::<[u8; 32], _>(codes);
        let mut values = [simd.splat_f32s(0.0); 4];
        for i in 0..4 {
            let wide = simd.avx2._mm256_cvtepi8_epi32(eight(simd, &eights[i]));
            values[i] = cast(simd.avx._mm256_cvtepi32_ps(wide));
        }
        values
    }
}

/// Eight bytes as the lower half of a vector. A cast of an array would go through memory and wait for it.
#[inline(always)]
fn eight(simd: V3, bytes: &[u8; 8]) -> __m128i {
    simd.sse2._mm_set_epi64x(0, i64::from_le_bytes(*bytes))
}

/// 32 codes of 4 bits: the low ones of all bytes, then the high ones.
#[inline(always)]
fn nibbles(simd: V3, codes: &[u8; 16]) -> [f32x8; 4] {
    let eights: &[[u8; 8]; 2] = bytemuck::cast_ref(codes);
    let mask = simd.avx._mm256_set1_epi32(15);
    let mut values = [simd.splat_f32s(0.0); 4];
    for i in 0..2 {
        let wide = simd.avx2._mm256_cvtepu8_epi32(eight(simd, &eights[i]));
        values[i] = cast(simd.avx._mm256_cvtepi32_ps(simd.avx2._mm256_and_si256(wide, mask)));
        values[i + 2] = cast(simd.avx._mm256_cvtepi32_ps(simd.avx2._mm256_srli_epi32::<4>(wide)));
    }
    values
}

/// Sums of each 32 values of each row of x, `[rows][blocks]`; nothing for types without an offset.
pub(super) fn block_sums<T: Codes>(product: &Product<'_>) -> Vec<f32> {
    if !T::OFFSET {
        return Vec::new();
    }
    let sum = |block: &[f32; 32]| {
        let mut sums = [0f32; 8];
        for values in block.as_chunks::<8>().0 {
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += value;
            }
        }
        sums.iter().sum::<f32>()
    };
    (0..product.rows).flat_map(|row| product.x.row(row).as_chunks::<32>().0.iter().map(sum)).collect()
}

/// Sums of some outputs, `[outs][R]`, over R rows.
pub(super) struct CodeDots<'a, T, const R: usize> {
    simd: V3,
    x: [&'a [[f32x8; 4]]; R],
    /// Of [`block_sums`].
    x_sums: [&'a [f32]; R],
    weights: &'a [u8],
    row_bytes: usize,
    sums: &'a mut [f32],
    codes: std::marker::PhantomData<T>,
}

impl<'a, T: Codes, const R: usize> CodeDots<'a, T, R> {
    pub(super) fn new(
        simd: V3,
        product: Product<'a>,
        x_sums: &'a [f32],
        weights: &'a [u8],
        sums: &'a mut [f32],
    ) -> Self {
        let x = std::array::from_fn(|row| V3::as_simd_f32s(product.x.row(row)).0.as_chunks().0);
        let blocks = x_sums.len() / R;
        let x_sums = std::array::from_fn(|row| &x_sums[row * blocks..][..blocks]);
        CodeDots { simd, x, x_sums, weights, row_bytes: product.row_bytes, sums, codes: std::marker::PhantomData }
    }

    /// The sums, compiled for AVX2.
    pub(super) fn run(self) {
        self.simd.vectorize(self);
    }
}

impl<T: Codes, const R: usize> NullaryFnOnce for CodeDots<'_, T, R> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let simd = self.simd;
        let in_row = self.row_bytes / T::BYTES;
        let group = rows_of_scales(in_row);
        let mut scales = vec![[0f32; 2]; group * in_row];
        let groups = self.weights.chunks(group * self.row_bytes).zip(self.sums.chunks_mut(group * R));
        for (weights, sums) in groups {
            let blocks = T::blocks(weights).0;
            scales_of::<T>(blocks, &mut scales[..blocks.len()]);
            let rows = blocks.chunks_exact(in_row).zip(scales.chunks_exact(in_row)).zip(sums.chunks_exact_mut(R));
            for ((blocks, scales), sums) in rows {
                let (mut x, mut x_sums) = (self.x, self.x_sums);
                for x in &mut x {
                    *x = &x[..blocks.len()];
                }
                if T::OFFSET {
                    for x_sums in &mut x_sums {
                        *x_sums = &x_sums[..blocks.len()];
                    }
                }
                let mut acc = [[simd.splat_f32s(0.0); 2]; R];
                let mut offsets = [0f32; R];
                // Counted, not zipped: the iterators' state would live in memory beside this many vectors.
                let scales = &scales[..blocks.len()];
                for i in 0..blocks.len() {
                    let codes = T::codes(simd, &blocks[i]);
                    let d = simd.splat_f32s(scales[i][0]);
                    for row in 0..R {
                        let x = &x[row][i];
                        let low = simd.mul_add_f32s(codes[1], x[1], simd.mul_f32s(codes[0], x[0]));
                        let high = simd.mul_add_f32s(codes[3], x[3], simd.mul_f32s(codes[2], x[2]));
                        acc[row][0] = simd.mul_add_f32s(d, low, acc[row][0]);
                        acc[row][1] = simd.mul_add_f32s(d, high, acc[row][1]);
                        if T::OFFSET {
                            offsets[row] += T::offset(scales[i]) * x_sums[row][i];
                        }
                    }
                }
                for row in 0..R {
                    sums[row] = simd.reduce_sum_f32s(simd.add_f32s(acc[row][0], acc[row][1])) + offsets[row];
                }
            }
        }
    }
}

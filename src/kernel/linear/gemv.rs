//! Few rows: weights stream past, decoded in registers, and meet every row.

#[cfg(target_arch = "x86_64")]
use super::gemv_avx2::{CodeDots, Codes, block_sums};
#[cfg(target_arch = "x86_64")]
use super::gemv_avx512::{Wide, WideDots};
use super::{FEW, Product};
use crate::num::weights::{Block, scales_of, with_block};
#[cfg(target_arch = "x86_64")]
use crate::num::weights::{Q4_0, Q4_1, Q8_0, WeightType};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

/// Bytes of weights below which a task would cost more than it saves.
const TASK_BYTES: usize = 16 << 10;

/// Sums as `[outs][rows]`, for at most [`FEW`] rows.
pub(super) fn multiply(product: Product<'_>) -> Vec<f32> {
    let mut sums = vec![0f32; product.outs * product.rows];
    let tasks = 8 * rayon::current_num_threads();
    let outs = (product.outs / tasks).max(TASK_BYTES / product.row_bytes).max(1);
    let arch = Arch::new();
    #[cfg(target_arch = "x86_64")]
    let x_sums = if product.weight == WeightType::Q4_1 { block_sums::<Q4_1>(&product) } else { Vec::new() };
    let task = |(sums, weights): (&mut [f32], &[u8])| {
        #[cfg(target_arch = "x86_64")]
        if let Some(simd) = pulp::x86::V4::try_new() {
            match product.weight {
                WeightType::Q4_0 => return wide::<Q4_0>(simd, product, weights, sums),
                WeightType::Q4_1 => return wide::<Q4_1>(simd, product, weights, sums),
                WeightType::Q8_0 => return wide::<Q8_0>(simd, product, weights, sums),
                _ => {}
            }
        } else if let Some(simd) = pulp::x86::V3::try_new() {
            match product.weight {
                WeightType::Q4_0 => return codes::<Q4_0>(simd, product, &x_sums, weights, sums),
                WeightType::Q4_1 => return codes::<Q4_1>(simd, product, &x_sums, weights, sums),
                WeightType::Q8_0 => return codes::<Q8_0>(simd, product, &x_sums, weights, sums),
                _ => {}
            }
        }
        with_block!(product.weight, B => match product.rows {
            1 => arch.dispatch(Dots::<B, 1>::new(product, weights, sums)),
            2 => arch.dispatch(Dots::<B, 2>::new(product, weights, sums)),
            3 => arch.dispatch(Dots::<B, 3>::new(product, weights, sums)),
            _ => arch.dispatch(Dots::<B, FEW>::new(product, weights, sums)),
        })
    };
    let (sum_chunk, weight_chunk) = (outs * product.rows, outs * product.row_bytes);
    if outs >= product.outs {
        task((&mut sums, product.weights));
    } else {
        sums.par_chunks_mut(sum_chunk).zip(product.weights.par_chunks(weight_chunk)).for_each(task);
    }
    sums
}

#[cfg(target_arch = "x86_64")]
fn wide<T: Wide>(simd: pulp::x86::V4, product: Product<'_>, weights: &[u8], sums: &mut [f32]) {
    match product.rows {
        1 => WideDots::<T, 1>::new(simd, product, weights, sums).run(),
        2 => WideDots::<T, 2>::new(simd, product, weights, sums).run(),
        3 => WideDots::<T, 3>::new(simd, product, weights, sums).run(),
        _ => WideDots::<T, FEW>::new(simd, product, weights, sums).run(),
    }
}

#[cfg(target_arch = "x86_64")]
fn codes<T: Codes>(simd: pulp::x86::V3, product: Product<'_>, x_sums: &[f32], weights: &[u8], sums: &mut [f32]) {
    match product.rows {
        1 => CodeDots::<T, 1>::new(simd, product, x_sums, weights, sums).run(),
        2 => CodeDots::<T, 2>::new(simd, product, x_sums, weights, sums).run(),
        3 => CodeDots::<T, 3>::new(simd, product, x_sums, weights, sums).run(),
        _ => CodeDots::<T, FEW>::new(simd, product, x_sums, weights, sums).run(),
    }
}

struct Dots<'a, B, const R: usize> {
    x: [&'a [[f32; 32]]; R],
    /// The rows' columns after the last whole block, then zeros.
    x_end: [[f32; 32]; R],
    weights: &'a [u8],
    row_bytes: usize,
    sums: &'a mut [f32],
    block: std::marker::PhantomData<B>,
}

impl<'a, B: Block, const R: usize> Dots<'a, B, R> {
    fn new(product: Product<'a>, weights: &'a [u8], sums: &'a mut [f32]) -> Self {
        let x: [&[f32]; R] = std::array::from_fn(|row| product.x.row(row));
        let x_end = x.map(|x| {
            let rest = x.as_chunks::<32>().1;
            let mut end = [0f32; 32];
            end[..rest.len()].copy_from_slice(rest);
            end
        });
        Dots {
            x: x.map(|x| x.as_chunks().0),
            x_end,
            weights,
            row_bytes: product.row_bytes,
            sums,
            block: std::marker::PhantomData,
        }
    }
}

impl<B: Block, const R: usize> WithSimd for Dots<'_, B, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let in_row = self.row_bytes / B::BYTES;
        let group = rows_of_scales(in_row);
        let mut scales = vec![[0f32; 2]; if B::SCALED { group * in_row } else { 0 }];
        let groups = self.weights.chunks(group * self.row_bytes).zip(self.sums.chunks_mut(group * R));
        for (weights, sums) in groups {
            // Rows of types with scales are whole blocks, one after another.
            let all = if B::SCALED { B::blocks(weights).0 } else { &[] };
            scales_of::<B>(all, &mut scales[..all.len()]);
            let rows = weights.chunks_exact(self.row_bytes).zip(sums.chunks_exact_mut(R));
            for (at, (weights, sums)) in rows.enumerate() {
                let mut acc = [[simd.splat_f32s(0.0); 2]; R];
                let (blocks, end) = B::blocks(weights);
                let scales = if B::SCALED { &scales[at * in_row..][..blocks.len()] } else { &[] };
                let mut x = self.x;
                for x in &mut x {
                    *x = &x[..blocks.len()];
                }
                for (i, block) in blocks.iter().enumerate() {
                    let mut values = [0f32; 32];
                    B::decode_scaled(block, if B::SCALED { scales[i] } else { [0.0; 2] }, &mut values);
                    for row in 0..R {
                        add_dot(simd, &values, &x[row][i], &mut acc[row]);
                    }
                }
                if !end.is_empty() {
                    let mut values = [0f32; 32];
                    B::decode(&B::padded(end), &mut values);
                    for (acc, x) in acc.iter_mut().zip(&self.x_end) {
                        add_dot(simd, &values, x, acc);
                    }
                }
                for row in 0..R {
                    sums[row] = simd.reduce_sum_f32s(simd.add_f32s(acc[row][0], acc[row][1]));
                }
            }
        }
    }
}

/// Rows of `in_row` blocks whose scales are converted at once: enough to fill vectors, few enough for L1.
pub(super) fn rows_of_scales(in_row: usize) -> usize {
    (512 / in_row.max(1)).max(1)
}

/// Adds the products of 32 values to two vectors of sums.
#[inline(always)]
fn add_dot<S: Simd>(simd: S, a: &[f32; 32], b: &[f32; 32], acc: &mut [S::f32s; 2]) {
    let (a, b) = (S::as_simd_f32s(a).0, S::as_simd_f32s(b).0);
    for i in 0..32 / S::F32_LANES {
        acc[i % 2] = simd.mul_add_e_f32s(a[i], b[i], acc[i % 2]);
    }
}

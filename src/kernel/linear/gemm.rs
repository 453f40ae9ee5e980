//! Many rows: panels of weights are decoded once and meet the rows in register tiles.
//!
//! Vectors run along the columns, so that neither side is rearranged; a tile of M rows and N outputs keeps M x N
//! vectors of sums in registers and loads M + N vectors for M x N multiply-adds.

use super::Product;
use crate::num::weights::{Block, decode_row, with_block};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;
use std::cell::RefCell;

/// Bytes of a decoded panel: a part of a core's L2 cache.
const PANEL_BYTES: usize = 192 << 10;
/// Columns a tile sums before it moves on: N rows of them stay in L1.
const DEPTH: usize = 1024;
/// Bytes of x that one tile of outputs meets before the next does: another part of L2.
const X_BYTES: usize = 512 << 10;
/// Outputs that panels are multiples of: both register tiles' N divide it.
const OUTS: usize = 12;

/// Sums as `[panels][rows][width]`, the last panel filled up with nothing of meaning.
pub(super) struct Panels {
    pub(super) width: usize,
    pub(super) sums: Vec<Vec<f32>>,
}

/// Products of all rows with all outputs.
pub(super) fn multiply(product: Product<'_>) -> Panels {
    let fits = PANEL_BYTES / (4 * product.columns);
    let wanted = product.outs.div_ceil(4 * rayon::current_num_threads());
    let width = fits.min(wanted).clamp(1, 96).next_multiple_of(OUTS);
    let arch = Arch::new();
    let sums = product
        .weights
        .par_chunks(width * product.row_bytes)
        .map(|weights| with_block!(product.weight, B => arch.dispatch(Panel::<B>::new(product, weights, width))))
        .collect();
    Panels { width, sums }
}

thread_local! {
    /// The decoded panel; kept, because fresh pages would cost as much as the decoding.
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

struct Panel<'a, B> {
    product: Product<'a>,
    weights: &'a [u8],
    width: usize,
    block: std::marker::PhantomData<B>,
}

impl<'a, B> Panel<'a, B> {
    fn new(product: Product<'a>, weights: &'a [u8], width: usize) -> Self {
        Panel { product, weights, width, block: std::marker::PhantomData }
    }
}

impl<B: Block> WithSimd for Panel<'_, B> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Vec<f32> {
        let columns = self.product.columns;
        let mut sums = vec![0f32; self.product.rows * self.width];
        // Nothing inside runs another task, so the borrow cannot meet itself.
        let mut panel = SCRATCH.take();
        panel.resize(panel.len().max(self.width * columns), 0.0);
        let rows = self.weights.chunks_exact(self.product.row_bytes);
        let filled = rows.len();
        for (row, values) in rows.zip(panel.chunks_exact_mut(columns)) {
            decode_row::<B>(row, values);
        }
        panel[filled * columns..self.width * columns].fill(0.0);
        if S::REGISTER_COUNT >= 32 {
            tiles::<S, 4, 6>(simd, self.product, &panel, self.width, &mut sums);
        } else {
            tiles::<S, 3, 4>(simd, self.product, &panel, self.width, &mut sums);
        }
        SCRATCH.set(panel);
        sums
    }
}

/// All tiles of a panel: a stretch of columns, a stretch of x, a tile of outputs, a tile of rows.
#[inline(always)]
fn tiles<S: Simd, const M: usize, const N: usize>(
    simd: S,
    product: Product<'_>,
    panel: &[f32],
    width: usize,
    sums: &mut [f32],
) {
    let columns = product.columns;
    let stretch = (X_BYTES / (4 * columns.min(DEPTH))).next_multiple_of(M);
    for from in (0..columns).step_by(DEPTH) {
        let to = (from + DEPTH).min(columns);
        for first in (0..product.rows).step_by(stretch) {
            let end = (first + stretch).min(product.rows);
            for out in (0..width).step_by(N) {
                let w: [&[f32]; N] = std::array::from_fn(|n| &panel[(out + n) * columns..][from..to]);
                let mut row = first;
                while row + M <= end {
                    let x: [&[f32]; M] = std::array::from_fn(|m| &product.x.row(row + m)[from..to]);
                    let tile = tile(simd, x, w);
                    for m in 0..M {
                        add(&mut sums[(row + m) * width + out..][..N], &tile[m]);
                    }
                    row += M;
                }
                for row in row..end {
                    let tile = tile(simd, [&product.x.row(row)[from..to]], w);
                    add(&mut sums[row * width + out..][..N], &tile[0]);
                }
            }
        }
    }
}

#[inline(always)]
fn add(sums: &mut [f32], tile: &[f32]) {
    for (sum, value) in sums.iter_mut().zip(tile) {
        *sum += value;
    }
}

/// Dot products of M rows of x with N rows of weights, all of one length.
#[inline(always)]
fn tile<S: Simd, const M: usize, const N: usize>(simd: S, x: [&[f32]; M], w: [&[f32]; N]) -> [[f32; N]; M] {
    let whole = x[0].len() / S::F32_LANES;
    let mut xs = x.map(|_| &[] as &[S::f32s]);
    let mut ws = w.map(|_| &[] as &[S::f32s]);
    for (vectors, x) in xs.iter_mut().zip(x) {
        *vectors = &S::as_simd_f32s(x).0[..whole];
    }
    for (vectors, w) in ws.iter_mut().zip(w) {
        *vectors = &S::as_simd_f32s(w).0[..whole];
    }
    let mut acc = [[simd.splat_f32s(0.0); N]; M];
    for k in 0..whole {
        let mut wk = [simd.splat_f32s(0.0); N];
        for n in 0..N {
            wk[n] = ws[n][k];
        }
        for m in 0..M {
            let xk = xs[m][k];
            for n in 0..N {
                acc[m][n] = simd.mul_add_e_f32s(xk, wk[n], acc[m][n]);
            }
        }
    }
    // Loops, not `map`: a closure inside a library function is compiled without this function's vectors.
    let mut sums = [[0f32; N]; M];
    for m in 0..M {
        for n in 0..N {
            sums[m][n] = simd.reduce_sum_f32s(acc[m][n]);
        }
    }
    for k in whole * S::F32_LANES..x[0].len() {
        for m in 0..M {
            for n in 0..N {
                sums[m][n] += x[m][k] * w[n][k];
            }
        }
    }
    sums
}

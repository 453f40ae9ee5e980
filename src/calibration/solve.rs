//! From moments to the map that makes a codec's noise cheapest.
//!
//! A codec's noise in stored coordinates is about isotropic and as large as the row: its cost in the logits is
//! tr(F C Fᵀ) · tr(F⁻ᵀ M F⁻¹), with C the covariance of the rows and M the second moment of what they are multiplied
//! with. FᵀF = C^{-1/2} (C^{1/2} M C^{1/2})^{1/2} C^{-1/2}, the geometric mean of C⁻¹ and M, makes that least; which root
//! of it does not matter, so it is the symmetric one, then rotated as by `hadamard`, which spreads outliers.

use crate::num::{eigen, rotate};

/// Share of the mean eigenvalue added to every eigenvalue of C and of M.
pub const SHRINKAGE: f64 = 1e-3;

/// The most that F's largest singular value may be to its smallest; smaller ones are raised.
pub const MOST_STRETCH: f64 = 100.0;

/// The largest channel, bounded by norms, that a stored row of the calibration text may have: a quarter of f16's.
pub const MOST_STORED: f64 = 16_384.0;

/// Moments of one KV head and side that a map is made from.
#[derive(Clone, Copy, Debug)]
pub struct Moments<'a> {
    /// Channels.
    pub dim: usize,
    /// Covariance C of the rows about their mean, `[dim][dim]`.
    pub covariance: &'a [f64],
    /// Second moment M of the queries (K), or `WᵀW` of the output projection's columns (V).
    pub weight: &'a [f64],
    /// A bound on the norm of a row about its mean.
    pub largest: f64,
}

/// F, `[dim][dim]` by rows: of the best shape, and scaled so that rows have one unit of energy a channel in the mean and
/// none of the calibration text leaves [`MOST_STORED`]. The rotation where there is nothing to learn from.
pub fn map(moments: &Moments<'_>) -> Vec<f32> {
    let n = moments.dim;
    let (covariance, weight) = (shrunk(moments.covariance, n), shrunk(moments.weight, n));
    let of_covariance = eigen(&covariance, n);
    let (half, inverse_half) = (power(&of_covariance, n, f64::sqrt), power(&of_covariance, n, |x| 1.0 / x.sqrt()));
    let inner = product(&product(&half, &weight, n), &half, n);
    let middle = power(&eigen(&inner, n), n, |x| x.max(0.0).sqrt());
    let geometric = eigen(&product(&product(&inverse_half, &middle, n), &inverse_half, n), n);
    let largest = geometric.0.iter().copied().fold(0.0, f64::max);
    let least = largest / (MOST_STRETCH * MOST_STRETCH);
    let root = power(&geometric, n, |x| x.max(least).sqrt());
    if !root.iter().all(|x| x.is_finite()) || largest <= 0.0 {
        return rotated(&identity(n), n, 1.0);
    }
    // tr(F C Fᵀ) does not depend on the rotation.
    let energy: f64 = root.iter().zip(product(&root, moments.covariance, n)).map(|(a, b)| a * b).sum();
    let unit = (n as f64 / energy).sqrt();
    let bound = MOST_STORED / (largest.sqrt() * moments.largest);
    let scale = [unit, bound].into_iter().filter(|s| s.is_finite() && *s > 0.0).fold(f64::INFINITY, f64::min);
    rotated(&root, n, if scale.is_finite() { scale } else { 1.0 })
}

/// A moment with its eigenvalues held up; the identity for one of zeros.
fn shrunk(matrix: &[f64], n: usize) -> Vec<f64> {
    let mean = (0..n).map(|i| matrix[i * n + i]).sum::<f64>() / n as f64;
    // Written so that NaN is seen as nothing.
    if !(mean > 0.0 && mean.is_finite()) {
        return identity(n);
    }
    let mut shrunk = matrix.to_vec();
    (0..n).for_each(|i| shrunk[i * n + i] += SHRINKAGE * mean);
    shrunk
}

fn identity(n: usize) -> Vec<f64> {
    (0..n * n).map(|i| f64::from(u8::from(i / n == i % n))).collect()
}

/// A function of a symmetric matrix, by its eigenvalues.
fn power((values, vectors): &(Vec<f64>, Vec<f64>), n: usize, f: impl Fn(f64) -> f64) -> Vec<f64> {
    let mut out = vec![0.0; n * n];
    for (&value, vector) in values.iter().zip(vectors.chunks_exact(n)) {
        let value = f(value);
        for (row, &x) in out.chunks_exact_mut(n).zip(vector) {
            row.iter_mut().zip(vector).for_each(|(o, y)| *o += value * x * y);
        }
    }
    out
}

fn product(a: &[f64], b: &[f64], n: usize) -> Vec<f64> {
    let mut out = vec![0.0; n * n];
    for (row, out) in a.chunks_exact(n).zip(out.chunks_exact_mut(n)) {
        for (&x, from) in row.iter().zip(b.chunks_exact(n)) {
            out.iter_mut().zip(from).for_each(|(o, y)| *o += x * y);
        }
    }
    out
}

/// `scale · R · matrix`, R the rotation of `hadamard`.
fn rotated(matrix: &[f64], n: usize, scale: f64) -> Vec<f32> {
    let mut turn = vec![0.0f64; n * n];
    for column in 0..n {
        let mut unit = vec![0.0f32; n];
        unit[column] = 1.0;
        rotate(&mut unit);
        unit.iter().enumerate().for_each(|(row, &x)| turn[row * n + column] = f64::from(x));
    }
    product(&turn, matrix, n).iter().map(|x| (x * scale) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::basis::{Calibration, HeadMap, LayerMaps};
    use crate::num::testing::Normal;

    /// A moment with eigenvalues over two decades.
    fn moment(seed: u64, n: usize) -> Vec<f64> {
        let mut normal = Normal::new(seed);
        let mut sum = vec![0.0; n * n];
        for _ in 0..4 * n {
            let row: Vec<f64> =
                normal.row(n).iter().zip(0..).map(|(&x, i)| f64::from(x) * 0.1f64.powf(i as f64 / n as f64)).collect();
            sum.iter_mut().enumerate().for_each(|(at, s)| *s += row[at / n] * row[at % n]);
        }
        sum
    }

    fn cost(map: &[f32], covariance: &[f64], weight: &[f64], n: usize) -> f64 {
        let map: Vec<f64> = map.iter().map(|&x| f64::from(x)).collect();
        let inverse = crate::num::invert(&map, n).expect("regular");
        let trace = |f: &dyn Fn(usize, usize) -> f64, of: &[f64]| -> f64 {
            (0..n)
                .flat_map(|r| (0..n * n).map(move |at| (r, at)))
                .map(|(r, at)| f(r, at / n) * of[at] * f(r, at % n))
                .sum()
        };
        trace(&|r, i| map[r * n + i], covariance) * trace(&|r, i| inverse[i * n + r], weight)
    }

    #[test]
    fn no_rotation_and_no_neighbour_is_cheaper() {
        let n = 16;
        // What queries ask for is not what keys are full of.
        let (covariance, mut weight) = (moment(1, n), moment(2, n));
        weight.reverse();
        let best = map(&Moments { dim: n, covariance: &covariance, weight: &weight, largest: 1.0 });
        let least = cost(&best, &covariance, &weight, n);
        assert!(least < 0.7 * cost(&rotated(&identity(n), n, 1.0), &covariance, &weight, n));
        for seed in 3..13 {
            let noise = Normal::new(seed).row(n * n);
            let other: Vec<f32> = best.iter().zip(noise).map(|(x, e)| x * (1.0 + 0.1 * e)).collect();
            // Shrinking gives the least up to a thousandth of the mean.
            assert!(cost(&other, &covariance, &weight, n) > 0.999 * least, "{seed}");
        }
    }

    #[test]
    fn rows_are_of_unit_energy_and_stay_within_f16() {
        let n = 32;
        let (covariance, weight) = (moment(4, n), moment(5, n));
        let energy = |map: &[f32]| {
            let map: Vec<f64> = map.iter().map(|&x| f64::from(x)).collect();
            map.iter().zip(product(&map, &covariance, n)).map(|(a, b)| a * b).sum::<f64>() / n as f64
        };
        let tame = Moments { dim: n, covariance: &covariance, weight: &weight, largest: 10.0 };
        assert!((energy(&map(&tame)) - 1.0).abs() < 1e-3);
        let wild = map(&Moments { largest: 1e9, ..tame });
        // A channel is at most its row of F times the largest row.
        for row in wild.chunks_exact(n) {
            let norm = row.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
            assert!(norm * 1e9 < 1.001 * MOST_STORED, "{norm}");
        }
        assert!(energy(&wild) < 1e-3);
    }

    #[test]
    fn any_moments_give_a_map_that_is_accepted() {
        let (zero, ones) = (vec![0.0; 64], vec![1.0; 64]);
        let one_direction: Vec<f64> = (0..64).map(|i| if i == 0 { 1e12 } else { 0.0 }).collect();
        let broken = vec![f64::NAN; 64];
        for covariance in [&zero, &ones, &one_direction, &broken] {
            for weight in [&zero, &ones, &one_direction, &broken] {
                for largest in [0.0, 1.0, 1e6, f64::INFINITY, f64::NAN] {
                    let map = map(&Moments { dim: 8, covariance, weight, largest });
                    let head = || HeadMap { mean: vec![0.0; 8], map: map.clone() };
                    let layer = LayerMaps { k: vec![head()], v: vec![head()] };
                    Calibration::new("x", vec![layer]).unwrap_or_else(|e| panic!("{covariance:?} {weight:?}: {e}"));
                }
            }
        }
    }
}

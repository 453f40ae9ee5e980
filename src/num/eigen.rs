//! Eigenvalues and eigenvectors of a small symmetric matrix.

/// Sweeps after which rounding is all that is left; matrices of a thousand rows take about ten.
const MOST_SWEEPS: usize = 64;

/// Eigenvalues of the symmetric `matrix`, `[n][n]`, and its eigenvectors, one a row in the same order, by cyclic Jacobi
/// rotations (Golub and Van Loan, Matrix Computations, 8.5). Only the upper triangle is looked at.
///
/// # Panics
/// If `matrix` does not hold n² values.
pub fn eigen(matrix: &[f64], n: usize) -> (Vec<f64>, Vec<f64>) {
    assert_eq!(matrix.len(), n * n, "values of a square matrix");
    let mut a: Vec<f64> = (0..n * n).map(|i| matrix[(i / n).min(i % n) * n + (i / n).max(i % n)]).collect();
    let mut vectors = vec![0.0; n * n];
    (0..n).for_each(|i| vectors[i * n + i] = 1.0);
    let whole: f64 = a.iter().map(|x| x * x).sum();
    for _ in 0..MOST_SWEEPS {
        let off: f64 = (0..n).flat_map(|p| (p + 1..n).map(move |q| (p, q))).map(|(p, q)| a[p * n + q].powi(2)).sum();
        if off.is_nan() || off <= whole * 1e-30 {
            break;
        }
        for (p, q) in (0..n).flat_map(|p| (p + 1..n).map(move |q| (p, q))) {
            let (apq, app, aqq) = (a[p * n + q], a[p * n + p], a[q * n + q]);
            if apq == 0.0 {
                continue;
            }
            let theta = (aqq - app) / (2.0 * apq);
            let tangent = theta.signum() / (theta.abs() + theta.hypot(1.0));
            let cosine = 1.0 / tangent.hypot(1.0);
            let sine = tangent * cosine;
            turn_rows(&mut a, n, (p, q), (cosine, sine));
            // The matrix is symmetric: its columns are turned like its rows.
            for k in 0..n {
                let (x, y) = (a[k * n + p], a[k * n + q]);
                a[k * n + p] = cosine * x - sine * y;
                a[k * n + q] = sine * x + cosine * y;
            }
            turn_rows(&mut vectors, n, (p, q), (cosine, sine));
        }
    }
    ((0..n).map(|i| a[i * n + i]).collect(), vectors)
}

fn turn_rows(matrix: &mut [f64], n: usize, (p, q): (usize, usize), (cosine, sine): (f64, f64)) {
    let (head, tail) = matrix.split_at_mut(q * n);
    for (x, y) in head[p * n..(p + 1) * n].iter_mut().zip(&mut tail[..n]) {
        (*x, *y) = (cosine * *x - sine * *y, sine * *x + cosine * *y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::testing::Normal;

    #[test]
    fn vectors_are_orthonormal_and_give_the_matrix() {
        for n in [1, 2, 3, 16, 65] {
            let rows: Vec<f64> = Normal::new(n as u64).row(n * n).iter().map(|&x| f64::from(x)).collect();
            let matrix: Vec<f64> = (0..n * n).map(|i| rows[i] + rows[i % n * n + i / n]).collect();
            let (values, vectors) = eigen(&matrix, n);
            for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))) {
                let sum = |f: &dyn Fn(usize) -> f64| (0..n).map(f).sum::<f64>();
                let dot = sum(&|k| vectors[i * n + k] * vectors[j * n + k]);
                assert!((dot - f64::from(u8::from(i == j))).abs() < 1e-12, "{n}: vectors {i} and {j}: {dot}");
                let again = sum(&|k| values[k] * vectors[k * n + i] * vectors[k * n + j]);
                assert!((again - matrix[i * n + j]).abs() < 1e-10 * n as f64, "{n}: ({i}, {j}) is {again}");
            }
        }
    }

    #[test]
    fn degenerate_ones_end() {
        assert_eq!(eigen(&[], 0), (vec![], vec![]));
        assert_eq!(eigen(&[0.0; 4], 2).0, [0.0, 0.0]);
        assert_eq!(eigen(&[2.0, 0.0, 0.0, 2.0], 2).0, [2.0, 2.0]);
        assert!(eigen(&[f64::NAN; 9], 3).0.iter().all(|x| x.is_nan()));
    }
}

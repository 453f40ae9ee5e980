//! The inverse of a small dense matrix.

/// The inverse of `matrix`, `[n][n]` by rows, by Gauss and Jordan's elimination with the largest pivot of each column;
/// `None` where a pivot is zero or not finite.
///
/// # Panics
/// If `matrix` does not hold n² values.
pub fn invert(matrix: &[f64], n: usize) -> Option<Vec<f64>> {
    assert_eq!(matrix.len(), n * n, "values of a square matrix");
    let mut left = matrix.to_vec();
    let mut right = vec![0.0; n * n];
    (0..n).for_each(|i| right[i * n + i] = 1.0);
    for column in 0..n {
        let pivot = (column..n).max_by(|&a, &b| {
            let size = |row: usize| left[row * n + column].abs();
            size(a).total_cmp(&size(b))
        })?;
        let factor = left[pivot * n + column];
        if factor == 0.0 || !factor.is_finite() {
            return None;
        }
        for matrix in [&mut left, &mut right] {
            for c in 0..n {
                matrix.swap(column * n + c, pivot * n + c);
            }
            matrix[column * n..(column + 1) * n].iter_mut().for_each(|x| *x /= factor);
        }
        for row in (0..n).filter(|&row| row != column) {
            let factor = left[row * n + column];
            if factor == 0.0 {
                continue;
            }
            for matrix in [&mut left, &mut right] {
                let (own, from) = if row < column {
                    let (head, tail) = matrix.split_at_mut(column * n);
                    (&mut head[row * n..(row + 1) * n], &tail[..n])
                } else {
                    let (head, tail) = matrix.split_at_mut(row * n);
                    (&mut tail[..n], &head[column * n..(column + 1) * n])
                };
                own.iter_mut().zip(from).for_each(|(x, y)| *x -= factor * y);
            }
        }
    }
    right.iter().all(|x| x.is_finite()).then_some(right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::testing::Normal;

    #[test]
    fn a_matrix_times_its_inverse_is_one() {
        for n in [1, 2, 7, 64] {
            let matrix: Vec<f64> = Normal::new(n as u64).row(n * n).iter().map(|&x| f64::from(x)).collect();
            let inverse = invert(&matrix, n).expect("regular");
            for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))) {
                let got: f64 = (0..n).map(|k| matrix[i * n + k] * inverse[k * n + j]).sum();
                let want = f64::from(u8::from(i == j));
                assert!((got - want).abs() < 1e-8, "{n}: ({i}, {j}) is {got}");
            }
        }
    }

    #[test]
    fn singular_and_infinite_ones_have_none() {
        assert_eq!(invert(&[0.0], 1), None);
        assert_eq!(invert(&[1.0, 2.0, 2.0, 4.0], 2), None);
        assert_eq!(invert(&[f64::NAN, 0.0, 0.0, 1.0], 2), None);
        assert_eq!(invert(&[f64::INFINITY, 0.0, 0.0, 1.0], 2), None);
        assert_eq!(invert(&[0.0, 1.0, 2.0, 0.0], 2), Some(vec![0.0, 0.5, 1.0, 0.0]));
        assert_eq!(invert(&[], 0), Some(vec![]));
    }
}

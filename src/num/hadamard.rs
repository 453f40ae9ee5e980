//! The randomised Hadamard transform: signs, then a Walsh-Hadamard transform in blocks.
//!
//! It spreads a row's energy over its channels, so that their values look Gaussian and one
//! codebook fits them all (QuIP#, arXiv 2402.04396; QuaRot, arXiv 2404.00456).

/// The sign of channel `c` ahead of the transform, +1 or −1: one bit of an integer hash.
///
/// The same in every shader ([`WGSL_HADAMARD`](crate::num::WGSL_HADAMARD)) and in every file that
/// holds rotated pages: never change it.
pub fn hadamard_sign(c: u32) -> f32 {
    let mut x = c.wrapping_add(0x9e37_79b9);
    x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
    x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
    x ^= x >> 16;
    if x & 1 == 1 { -1.0 } else { 1.0 }
}

/// Channels of a block: the largest power of two that divides `len`. 0 for 0.
pub fn hadamard_block(len: usize) -> usize {
    if len == 0 { 0 } else { 1 << len.trailing_zeros() }
}

/// The orthonormal Walsh-Hadamard transform of every block of `row`, in place; its own inverse.
///
/// Rows of any length: blocks have [`hadamard_block`] channels.
pub fn fwht(row: &mut [f32]) {
    let block = hadamard_block(row.len());
    if block < 2 {
        return;
    }
    let scale = 1.0 / (block as f32).sqrt();
    for part in row.chunks_exact_mut(block) {
        let mut half = 1;
        while half < block {
            for pair in part.chunks_exact_mut(2 * half) {
                let (low, high) = pair.split_at_mut(half);
                for (a, b) in low.iter_mut().zip(high) {
                    (*a, *b) = (*a + *b, *a - *b);
                }
            }
            half *= 2;
        }
        for x in part {
            *x *= scale;
        }
    }
}

/// Signs, then [`fwht`]: the forward rotation of a row, in place.
pub fn rotate(row: &mut [f32]) {
    sign(row);
    fwht(row);
}

/// The inverse of [`rotate`], in place.
pub fn unrotate(row: &mut [f32]) {
    fwht(row);
    sign(row);
}

fn sign(row: &mut [f32]) {
    for (c, x) in row.iter_mut().enumerate() {
        *x *= hadamard_sign(c as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::testing::Normal;

    #[test]
    fn equals_the_matrix() {
        // Entry (i, j) of a block is (−1)^popcount(i & j) / √block.
        for len in [8, 24, 64, 80, 96] {
            let x = Normal::new(len as u64).row(len);
            let block = hadamard_block(len);
            let mut got = x.clone();
            fwht(&mut got);
            for (i, g) in got.iter().enumerate() {
                let start = i / block * block;
                let sum: f64 = (0..block)
                    .map(|j| {
                        let s = if ((i - start) & j).count_ones() % 2 == 1 { -1.0 } else { 1.0 };
                        s * f64::from(x[start + j])
                    })
                    .sum();
                let want = sum / (block as f64).sqrt();
                assert!((f64::from(*g) - want).abs() < 1e-5, "{len} {i}: {g} {want}");
            }
        }
    }

    #[test]
    fn inverts_and_keeps_norms() {
        for len in [8, 40, 64, 80, 96, 128, 192, 256, 512] {
            let x = Normal::new(7).row(len);
            let mut y = x.clone();
            rotate(&mut y);
            let norm = |v: &[f32]| v.iter().map(|a| f64::from(*a).powi(2)).sum::<f64>();
            assert!((norm(&x) / norm(&y) - 1.0).abs() < 1e-5);
            unrotate(&mut y);
            assert!(x.iter().zip(&y).all(|(a, b)| (a - b).abs() < 1e-5));
        }
    }

    #[test]
    fn signs_are_balanced_and_fixed() {
        let sum: f32 = (0..512).map(hadamard_sign).sum();
        assert!(sum.abs() < 64.0, "{sum}");
        let word = (0..32).fold(0u32, |w, c| w | u32::from(hadamard_sign(c) < 0.0) << c);
        println!("signs of channels 0 to 31: {word:#010x}");
    }
}

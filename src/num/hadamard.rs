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

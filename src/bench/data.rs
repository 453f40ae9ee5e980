//! Rows that can be made again from their place: sums of four uniform numbers, of variance 1.

use rayon::prelude::*;

/// What a row is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Q,
    K,
    V,
}

/// SplitMix64's finaliser.
fn mixed(x: u64) -> u64 {
    let z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Fills a row of all heads at `position` of sequence `sequence`.
pub(super) fn row(kind: Kind, sequence: u32, position: u32, out: &mut [f32]) {
    let place = mixed(u64::from(sequence) << 34 | u64::from(position) << 2 | kind as u64);
    for (at, x) in out.iter_mut().enumerate() {
        let bits = mixed(place ^ (at as u64).wrapping_mul(0xd1b5_4a32_d192_ed03));
        let sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
        // Four uniform numbers of 0..65535: mean 131070, variance 65536²/3.
        *x = (sum as f32 - 131_070.0) * (1.732_050_8 / 65_536.0);
    }
}

/// Rows of `width` values for (sequence, position) pairs, one after another.
pub(super) fn rows(kind: Kind, places: &[(u32, u32)], width: usize) -> Vec<f32> {
    let mut out = vec![0.0; places.len() * width];
    out.par_chunks_exact_mut(width).zip(places).for_each(|(out, &(sequence, at))| row(kind, sequence, at, out));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_standardised_and_differ_by_place() {
        let places: Vec<(u32, u32)> = (0..2).flat_map(|s| (0..200).map(move |p| (s, p))).collect();
        let k = rows(Kind::K, &places, 128);
        let mean = k.iter().map(|&x| f64::from(x)).sum::<f64>() / k.len() as f64;
        let square = k.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / k.len() as f64;
        assert!(mean.abs() < 0.01 && (square - 1.0).abs() < 0.02, "{mean} {square}");
        for (at, row) in k.chunks_exact(128).enumerate().skip(1) {
            assert_ne!(row, &k[..128], "row {at}");
        }
        assert_ne!(rows(Kind::V, &places, 128), k);
        assert_eq!(rows(Kind::K, &places[3..4], 128), k[3 * 128..4 * 128]);
    }
}

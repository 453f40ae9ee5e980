use super::*;
use crate::num::testing::Normal;

fn round_trip(side: Side, head_dim: usize, values: &[f32]) -> Vec<f32> {
    let codec = Tq3.codec(side, PageGeometry { tokens: 64, head_dim }).expect("a legal geometry");
    let mut page = vec![0; codec.layout().page_words];
    let mut all = vec![0.0; 64 * head_dim];
    all[..values.len()].copy_from_slice(values);
    codec.encode(&all, &mut page);
    let mut out = vec![0.0; 64 * head_dim];
    codec.decode(&page, 0..64, &mut out);
    out.truncate(values.len());
    out
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

#[test]
fn gaussian_rows_cost_what_the_codebook_says() {
    for (head_dim, want) in [(64, 0.0328), (128, 0.0338), (256, 0.0344)] {
        let mut normal = Normal::new(head_dim as u64);
        let (mut nmse, mut slope, mut rows) = ([0f64; 2], 0f64, 0f64);
        for _ in 0..64 {
            let values = normal.row(64 * head_dim);
            for (i, side) in Side::BOTH.into_iter().enumerate() {
                let out = round_trip(side, head_dim, &values);
                for (x, y) in values.chunks_exact(head_dim).zip(out.chunks_exact(head_dim)) {
                    let norm = dot(x, x);
                    nmse[i] += (norm - 2.0 * dot(x, y) + dot(y, y)) / norm;
                    if side == Side::K {
                        slope += dot(x, y) / norm;
                        rows += 1.0;
                    }
                }
            }
        }
        let [k, v] = nmse.map(|n| n / rows);
        let slope = slope / rows;
        println!("d{head_dim}: NMSE V {v:.5} (want {want}), K {k:.5}; K slope {slope:.5} over {rows} rows");
        assert!((v / want - 1.0).abs() < 0.02, "{v}");
        assert!(k < 1.05 * want, "{k}");
        assert!((slope - 1.0).abs() < 0.002, "{slope}");
    }
}

#[test]
fn random_queries_see_unbiased_scores() {
    // Regression of stored on true inner products with independent queries.
    let head_dim = 128;
    let mut normal = Normal::new(11);
    let (mut cross, mut square) = (0f64, 0f64);
    for _ in 0..8 {
        let values = normal.row(64 * head_dim);
        let out = round_trip(Side::K, head_dim, &values);
        for _ in 0..64 {
            let q = normal.row(head_dim);
            for (x, y) in values.chunks_exact(head_dim).zip(out.chunks_exact(head_dim)) {
                cross += dot(&q, x) * dot(&q, y);
                square += dot(&q, x).powi(2);
            }
        }
    }
    let slope = cross / square;
    println!("slope of scores: {slope:.5}");
    assert!((slope - 1.0).abs() < 0.002, "{slope}");
}

#[test]
fn norms_of_values_are_kept() {
    let values = Normal::new(5).row(64 * 128);
    let out = round_trip(Side::V, 128, &values);
    for (x, y) in values.chunks_exact(128).zip(out.chunks_exact(128)) {
        assert!((dot(y, y) / dot(x, x) - 1.0).abs() < 2e-3);
    }
}

#[test]
fn scales_follow_the_row() {
    // A power of two on the row moves γ only, over f16's range.
    let row = Normal::new(6).row(128);
    for side in Side::BOTH {
        let base = round_trip(side, 128, &row);
        for power in [-8, -1, 1, 8] {
            let factor = 2f32.powi(power);
            let scaled: Vec<f32> = row.iter().map(|x| x * factor).collect();
            let out = round_trip(side, 128, &scaled);
            assert!(base.iter().zip(&out).all(|(a, b)| (a * factor - b).abs() <= 1e-6 * a.abs() * factor), "{power}");
        }
    }
}

#[test]
fn faults_and_extremes() {
    let dim = 64;
    let normal = Normal::new(9).row(dim);
    for side in Side::BOTH {
        assert!(round_trip(side, dim, &[0.0; 64]).iter().all(|x| *x == 0.0));
        assert!(round_trip(side, dim, &[-0.0; 64]).iter().all(|x| *x == 0.0));
        // NaN poisons its token and no other.
        let mut rows = [normal.clone(), normal.clone(), normal.clone()].concat();
        rows[dim + 3] = f32::NAN;
        rows[dim + 4] = -f32::NAN;
        let out = round_trip(side, dim, &rows);
        assert!(out[dim..2 * dim].iter().all(|x| x.is_nan()));
        assert!(out[..dim].iter().chain(&out[2 * dim..]).all(|x| x.is_finite()));
        // Infinities, the greatest and the least magnitudes stay finite and keep their signs.
        for x in [f32::INFINITY, f32::MAX, 1e30, 1e6] {
            let mut row = normal.clone();
            (row[0], row[1]) = (x, -x);
            let out = round_trip(side, dim, &row);
            assert!(out.iter().all(|y| y.is_finite()), "{x}: {out:?}");
            assert!(out[0] > 1e4 && out[1] < -1e4, "{x}: {} {}", out[0], out[1]);
        }
        for x in [1e-45, f32::MIN_POSITIVE, 1e-30, 1e-10] {
            let out = round_trip(side, dim, &vec![x; dim]);
            assert!(out.iter().all(|y| (0.0..2e-7).contains(y)), "{x}: {out:?}");
        }
        let small: Vec<f32> = normal.iter().map(|x| x * 1e-3).collect();
        let out = round_trip(side, dim, &small);
        assert!(dot(&small, &out) / dot(&small, &small) > 0.9);
    }
}

#[test]
fn every_code_is_reached_and_returns() {
    // A row that repeats the codebook keeps its codes: its thresholds stand within the gaps.
    let row: Vec<f32> = (0..64).map(|c| integer(c % 8)).collect();
    let mut codes = [0; 64];
    for side in Side::BOTH {
        // Uniform codes have a greater mean square than Gaussian ones: compare with the definition.
        let _ = encode::quantise(side, &row, &mut codes);
        let rms = (dot(&row, &row) / 64.0).sqrt();
        for (x, code) in row.iter().zip(codes) {
            let unit = f64::from(*x) / rms * f64::from(TQ_UNIT);
            let nearest = (0..8).min_by(|a, b| {
                let d = |c: &u32| (f64::from(integer(*c)) - unit).abs();
                d(a).total_cmp(&d(b))
            });
            assert_eq!(nearest, Some(u32::from(code)));
        }
    }
    let integers: Vec<f32> = (0..8).map(integer).collect();
    assert_eq!(integers, [-88.0, -55.0, -31.0, -10.0, 10.0, 31.0, 55.0, 88.0]);
}

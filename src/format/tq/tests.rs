use super::*;
use crate::num::testing::Normal;

/// The formats and their codebooks.
fn formats() -> [(&'static dyn Format, Book); 3] {
    [(&Tq2, Book::of(2)), (&Tq3, Book::of(3)), (&Tq4, Book::of(4))]
}

fn round_trip(format: &dyn Format, side: Side, head_dim: usize, values: &[f32]) -> Vec<f32> {
    let codec = format.codec(side, PageGeometry { tokens: 64, head_dim }).expect("a legal geometry");
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
fn gaussian_rows_cost_what_the_codebooks_say() {
    // NMSE of V and of K for head sizes 64, 128 and 256, from an f64 model of the rule over 60,000 rows each.
    let want: [[[f64; 2]; 3]; 3] = [
        [[0.11719, 0.12883], [0.11945, 0.13132], [0.12057, 0.13255]],
        [[0.03284, 0.03371], [0.03381, 0.03472], [0.03432, 0.03524]],
        [[0.00888, 0.00895], [0.00918, 0.00925], [0.00936, 0.00943]],
    ];
    for ((format, _), want) in formats().into_iter().zip(want) {
        for (head_dim, [want_v, want_k]) in [64, 128, 256].into_iter().zip(want) {
            let mut normal = Normal::new(head_dim as u64);
            let (mut nmse, mut slope, mut rows) = ([0f64; 2], 0f64, 0f64);
            for _ in 0..32 {
                let values = normal.row(64 * head_dim);
                for (i, side) in Side::BOTH.into_iter().enumerate() {
                    let out = round_trip(format, side, head_dim, &values);
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
            let ([k, v], slope) = (nmse.map(|n| n / rows), slope / rows);
            let name = format.name();
            println!("{name} d{head_dim}: NMSE V {v:.5} (model {want_v}), K {k:.5} ({want_k}); K slope {slope:.5}");
            assert!((v / want_v - 1.0).abs() < 0.02 && (k / want_k - 1.0).abs() < 0.02, "{name} {v} {k}");
            assert!((slope - 1.0).abs() < 0.002, "{name} {slope}");
        }
    }
}

#[test]
fn random_queries_see_unbiased_scores() {
    // Regression of stored on true inner products with independent queries.
    // The slope strays by about the root of NMSE over the root of (rows times queries that count, at most 128 of
    // a dimension): tq2 gets most pages.
    let head_dim = 128;
    for ((format, _), pages) in formats().into_iter().zip([32, 8, 4]) {
        let mut normal = Normal::new(11);
        let (mut cross, mut square) = (0f64, 0f64);
        for _ in 0..pages {
            let values = normal.row(64 * head_dim);
            let out = round_trip(format, Side::K, head_dim, &values);
            for _ in 0..64 {
                let q = normal.row(head_dim);
                for (x, y) in values.chunks_exact(head_dim).zip(out.chunks_exact(head_dim)) {
                    cross += dot(&q, x) * dot(&q, y);
                    square += dot(&q, x).powi(2);
                }
            }
        }
        let slope = cross / square;
        println!("{}: slope of scores {slope:.5}", format.name());
        assert!((slope - 1.0).abs() < 0.002, "{} {slope}", format.name());
    }
}

#[test]
fn norms_of_values_are_kept() {
    let values = Normal::new(5).row(64 * 128);
    for (format, _) in formats() {
        let out = round_trip(format, Side::V, 128, &values);
        for (x, y) in values.chunks_exact(128).zip(out.chunks_exact(128)) {
            assert!((dot(y, y) / dot(x, x) - 1.0).abs() < 2e-3);
        }
    }
}

#[test]
fn scales_follow_the_row() {
    // A power of two on the row moves γ only, over f16's range.
    let row = Normal::new(6).row(128);
    for (format, side) in formats().into_iter().flat_map(|(f, _)| Side::BOTH.map(|side| (f, side))) {
        let base = round_trip(format, side, 128, &row);
        for power in [-8, -1, 1, 8] {
            let factor = 2f32.powi(power);
            let scaled: Vec<f32> = row.iter().map(|x| x * factor).collect();
            let out = round_trip(format, side, 128, &scaled);
            assert!(base.iter().zip(&out).all(|(a, b)| (a * factor - b).abs() <= 1e-6 * a.abs() * factor), "{power}");
        }
    }
}

#[test]
fn faults_and_extremes() {
    let dim = 64;
    let normal = Normal::new(9).row(dim);
    for (format, side) in formats().into_iter().flat_map(|(f, _)| Side::BOTH.map(|side| (f, side))) {
        assert!(round_trip(format, side, dim, &[0.0; 64]).iter().all(|x| *x == 0.0));
        assert!(round_trip(format, side, dim, &[-0.0; 64]).iter().all(|x| *x == 0.0));
        // NaN poisons its token and no other.
        let mut rows = [normal.clone(), normal.clone(), normal.clone()].concat();
        rows[dim + 3] = f32::NAN;
        rows[dim + 4] = -f32::NAN;
        let out = round_trip(format, side, dim, &rows);
        assert!(out[dim..2 * dim].iter().all(|x| x.is_nan()));
        assert!(out[..dim].iter().chain(&out[2 * dim..]).all(|x| x.is_finite()));
        // Infinities, the greatest and the least magnitudes stay finite and keep their signs.
        for x in [f32::INFINITY, f32::MAX, 1e30, 1e6] {
            let mut row = normal.clone();
            (row[0], row[1]) = (x, -x);
            let out = round_trip(format, side, dim, &row);
            assert!(out.iter().all(|y| y.is_finite()), "{x}: {out:?}");
            assert!(out[0] > 1e4 && out[1] < -1e4, "{x}: {} {}", out[0], out[1]);
        }
        for x in [1e-45, f32::MIN_POSITIVE, 1e-30, 1e-10] {
            let out = round_trip(format, side, dim, &vec![x; dim]);
            assert!(out.iter().all(|y| (0.0..2e-7).contains(y)), "{x}: {out:?}");
        }
        let small: Vec<f32> = normal.iter().map(|x| x * 1e-3).collect();
        let out = round_trip(format, side, dim, &small);
        assert!(dot(&small, &out) / dot(&small, &small) > 0.9);
    }
}

#[test]
fn every_code_is_reached_and_is_the_nearest() {
    for (format, book) in formats() {
        let count = 2 * book.magnitudes.len();
        let row: Vec<f32> = (0..64).map(|c| book.integer(c % count)).collect();
        let mut codes = [0; 64];
        for side in Side::BOTH {
            // Uniform codes have a greater mean square than Gaussian ones: compare with the definition.
            let _ = encode::quantise(&book, side, &row, &mut codes);
            let rms = (dot(&row, &row) / 64.0).sqrt();
            for (x, code) in row.iter().zip(codes) {
                let unit = f64::from(*x) / rms * f64::from(book.unit);
                let nearest = (0..count).min_by(|a, b| {
                    let d = |c: &usize| (f64::from(book.integer(*c)) - unit).abs();
                    d(a).total_cmp(&d(b))
                });
                assert_eq!(nearest, Some(usize::from(code)), "{}", format.name());
            }
        }
        let integers: Vec<f32> = (0..count).map(|c| book.integer(c)).collect();
        assert!(integers.is_sorted() && integers.iter().zip(integers.iter().rev()).all(|(a, b)| *a == -b));
        // Eight bits hold them.
        assert!(integers.iter().all(|x| x.fract() == 0.0 && x.abs() <= 127.0));
    }
    let integers: Vec<f32> = (0..8).map(|c| Book::of(3).integer(c)).collect();
    assert_eq!(integers, [-88.0, -55.0, -31.0, -10.0, 10.0, 31.0, 55.0, 88.0]);
}

#[test]
fn a_page_of_three_bits_starts_as_one_of_two() {
    for side in Side::BOTH {
        for tokens in crate::shape::PAGE_TOKENS {
            for head_dim in [8, 64, 80, 128, 192, 512] {
                let geometry = PageGeometry { tokens, head_dim };
                let [two, three] = [&Tq2 as &dyn Format, &Tq3].map(|f| f.codec(side, geometry).expect("legal"));
                let (two, three) = (two.layout(), three.layout());
                assert_eq!((&two.planes[0], &two.scalars), (&three.planes[0], &three.scalars));
                assert_eq!((two.planes.len(), two.page_words), (1, three.planes[1].offset_words));
            }
        }
    }
}

#[test]
fn a_demoted_page_reads_as_the_middles_of_its_cells() {
    let geometry = PageGeometry { tokens: 64, head_dim: 128 };
    let values = Normal::new(12).row(geometry.values());
    for side in Side::BOTH {
        let [two, three] = [&Tq2 as &dyn Format, &Tq3].map(|f| f.codec(side, geometry).expect("legal"));
        let mut page = vec![0; three.layout().page_words];
        three.encode(&values, &mut page);
        page.truncate(two.layout().page_words);
        let mut out = vec![0.0; values.len()];
        two.decode(&page, 0..64, &mut out);
        let nmse = (dot(&values, &values) - 2.0 * dot(&values, &out) + dot(&out, &out)) / dot(&values, &values);
        println!("{side:?}: NMSE of a tq3 page without its last plane {nmse:.4}");
        assert!(nmse < 0.125, "{nmse}");
    }
}

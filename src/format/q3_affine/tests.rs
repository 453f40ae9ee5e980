use super::*;
use crate::num::testing::Normal;

fn round_trip(side: Side, head_dim: usize, values: &[f32]) -> Vec<f32> {
    let codec = Q3Affine.codec(side, PageGeometry { tokens: 64, head_dim }).expect("a legal geometry");
    let mut page = vec![u32::MAX; codec.layout().page_words];
    let mut all = vec![0.0; 64 * head_dim];
    all[..values.len()].copy_from_slice(values);
    codec.encode(&all, &mut page);
    let mut out = vec![0.0; 64 * head_dim];
    codec.decode(&page, 0..64, &mut out);
    out.truncate(values.len());
    out
}

#[test]
fn eight_levels_from_least_to_greatest() {
    for side in Side::BOTH {
        let row: Vec<f32> = (0..16).map(|c| -3.0 + 0.5 * (c % 8) as f32).collect();
        assert_eq!(round_trip(side, 16, &row), row);
        // Half-way goes up; a thousandth below does not.
        let mut row = row;
        (row[2], row[3]) = (-2.75, -2.7505);
        let out = round_trip(side, 16, &row);
        assert_eq!(out[2..4], [-2.5, -3.0]);
        // A constant row is its zero in f16, and steps of what that lacks.
        assert_eq!(round_trip(side, 16, &[1.5; 16]), [1.5; 16]);
        assert!(round_trip(side, 16, &[0.1; 16]).iter().all(|x| (x - 0.1).abs() < 1e-6));
        assert!(round_trip(side, 16, &[-0.0; 16]).iter().all(|x| x.to_bits() == 0));
    }
}

#[test]
fn errors_are_half_a_step() {
    for head_dim in [8, 64, 128, 256] {
        let values = Normal::new(head_dim as u64).row(64 * head_dim);
        for side in Side::BOTH {
            let out = round_trip(side, head_dim, &values);
            for (x, y) in values.chunks_exact(head_dim).zip(out.chunks_exact(head_dim)) {
                let (least, most) = x.iter().fold((f32::MAX, f32::MIN), |(a, b), x| (a.min(*x), b.max(*x)));
                // Half a step, and what f16 rounds off zero and scale.
                let bound = (most - least) / 14.0 * 1.01 + (least.abs() + most.abs()) / 1024.0;
                assert!(x.iter().zip(y).all(|(x, y)| (x - y).abs() <= bound));
            }
        }
    }
}

#[test]
fn gaussian_rows_cost_what_an_f64_model_says() {
    for (head_dim, want) in [(64, 0.03684), (128, 0.04578), (256, 0.05451)] {
        let (mut error, mut energy) = (0f64, 0f64);
        let mut normal = Normal::new(head_dim as u64);
        for _ in 0..16 {
            let values = normal.row(64 * head_dim);
            for (x, y) in values.iter().zip(round_trip(Side::K, head_dim, &values)) {
                error += f64::from(x - y).powi(2);
                energy += f64::from(*x).powi(2);
            }
        }
        let nmse = error / energy;
        println!("d{head_dim}: NMSE {nmse:.5}, model {want}");
        assert!((nmse / want - 1.0).abs() < 0.02, "{nmse}");
    }
}

#[test]
fn faults_and_extremes() {
    let normal = Normal::new(9).row(64);
    for side in Side::BOTH {
        // NaN poisons its token and no other.
        let mut rows = [normal.clone(), normal.clone(), normal.clone()].concat();
        rows[64 + 3] = f32::NAN;
        rows[64 + 4] = -f32::NAN;
        let out = round_trip(side, 64, &rows);
        assert!(out[64..128].iter().all(|x| x.is_nan()));
        assert!(out[..64].iter().chain(&out[128..]).all(|x| x.is_finite()));
        for x in [f32::INFINITY, f32::MAX, 1e6, 65504.0] {
            let mut row = normal.clone();
            (row[0], row[1]) = (x, -x);
            let out = round_trip(side, 64, &row);
            assert!(out[1] == -65504.0 && (out[0] / 65504.0 - 1.0).abs() < 1e-3, "{x}: {} {}", out[0], out[1]);
        }
        for x in [1e-45, f32::MIN_POSITIVE, 1e-30, 1e-10] {
            let row: Vec<f32> = normal.iter().map(|y| y * x).collect();
            assert!(round_trip(side, 64, &row).iter().all(|y| *y == 0.0), "{x}");
        }
    }
}

use super::quantise::block;
use super::*;
use crate::num::testing::Normal;
use crate::num::{f16_bits, f16_value};

/// llama.cpp's rule, written out from its definition in steps of its own: f16 bits of d, and q.
fn peer(bits: usize, x: &[f32]) -> (u16, Vec<i32>) {
    let mut peak = 0f32;
    for v in x {
        if v.abs() > peak.abs() {
            peak = *v;
        }
    }
    let d = if bits == 8 { peak.abs() / 127.0 } else { peak / -8.0 };
    let id = if d == 0.0 { 0.0 } else { 1.0 / d };
    let code = |x: &f32| {
        let y = x * id;
        match bits {
            // roundf: half away from zero.
            8 => (y.abs() + 0.5).floor().copysign(y) as i32,
            _ => ((y + 8.5) as i32).min(15),
        }
    };
    (f16_bits(d), x.iter().map(code).collect())
}

/// A page's values by the peer's rule: d · q, and d · (q − 8).
fn peer_values(bits: usize, values: &[f32]) -> Vec<f32> {
    let of = |x: &[f32]| -> Vec<f32> {
        let (d, q) = peer(bits, x);
        let offset = if bits == 8 { 0 } else { 8 };
        q.into_iter().map(|q| (q - offset) as f32 * f16_value(d)).collect()
    };
    values.chunks_exact(BLOCK).flat_map(of).collect()
}

fn formats() -> [(usize, &'static dyn Format); 2] {
    [(8, &Q8_0), (4, &Q4_0)]
}

fn round_trip(format: &dyn Format, side: Side, tokens: usize, head_dim: usize, values: &[f32]) -> Vec<f32> {
    let codec = format.codec(side, PageGeometry { tokens, head_dim }).expect("a legal geometry");
    let mut page = vec![u32::MAX; codec.layout().page_words];
    let mut all = vec![0.0; tokens * head_dim];
    all[..values.len()].copy_from_slice(values);
    codec.encode(&all, &mut page);
    let mut out = vec![0.0; tokens * head_dim];
    codec.decode(&page, 0..tokens, &mut out);
    out.truncate(values.len());
    out
}

#[test]
fn values_are_the_peers() {
    for (bits, format) in formats() {
        for side in Side::BOTH {
            for (tokens, head_dim) in [(16, 32), (32, 96), (64, 128), (128, 512)] {
                let mut values = Normal::new(head_dim as u64).row(tokens * head_dim);
                // Ties, equal magnitudes of both signs, zeros, several powers of two.
                for (i, x) in values.iter_mut().enumerate() {
                    match i / BLOCK % 5 {
                        0 => *x = (i as f32 - 1000.0) / 16.0,
                        1 => *x = if i % 3 == 0 { 2.0 } else { -2.0 },
                        2 => *x = 0.0,
                        3 => *x *= 2f32.powi(i as i32 % 19 - 9),
                        _ => (),
                    }
                }
                let out = round_trip(format, side, tokens, head_dim, &values);
                assert_eq!(out, peer_values(bits, &values), "{} {side:?} {tokens} {head_dim}", format.name());
            }
        }
    }
}

#[test]
fn known_blocks() {
    // 127 is d = 1; halves go away from zero.
    let mut x = [0f32; BLOCK];
    x[..6].copy_from_slice(&[127.0, 0.5, -0.5, 1.5, -2.5, 0.49999997]);
    let (d, codes) = block::<8>(&x);
    assert_eq!((d, codes[..6].iter().map(|c| *c as i8).collect()), (0x3c00, vec![127, 1, -1, 2, -3, 0]));
    // -8 is d = 1, 8 is d = -1 and its opposite is clamped; 8.5 + the f32 below 0.5 rounds to 9.
    x[..6].copy_from_slice(&[-8.0, 8.0, 0.5, 0.49999997, -0.50000006, 0.4999]);
    let (d, codes) = block::<4>(&x);
    assert_eq!((d, [codes[0], codes[1], codes[2]]), (0x3c00, [0xf0, 0x99, 0x88]));
    x[0] = 8.0;
    let (d, codes) = block::<4>(&x);
    assert_eq!((d, codes[0] & 15), (0xbc00, 0));
    let (d, codes) = block::<4>(&[0.0; BLOCK]);
    assert_eq!((d, &codes[..16]), (0x8000, &[0x88; 16][..]));
    assert_eq!(block::<8>(&[-0.0; BLOCK]), (0, [0; BLOCK]));
}

/// The shader's division by 127, word for word.
fn wgsl_127th(x: f32) -> f32 {
    let bits = x.to_bits();
    let m = (bits & 0x7f_ffff) | 0x80_0000;
    let k = if (m << 7) / 127 >= 0x100_0000 { 6 } else { 7 };
    let n = m << k;
    let q = n / 127;
    let r = n - q * 127;
    f32::from_bits((((bits >> 23) & 0xff).wrapping_sub(k) << 23).wrapping_add(q - 0x80_0000) + u32::from(2 * r > 127))
}

/// The shader's q4_0 code, word for word.
fn wgsl_code(y: f32) -> i32 {
    let large = f32::from_bits(y.to_bits() + 0x0c00_0000);
    let sum = large.floor() as i32 + 142606336;
    let last = if sum >= 134217728 { 8 } else { 4 };
    ((sum + last) >> 24).clamp(0, 15)
}

#[test]
fn shader_arithmetic_equals_the_cpus() {
    for exponent in [64u32, 100, 126, 127, 128, 200, 254] {
        for low in (0..0x80_0000u32).step_by(61).chain([0x7f_ffff, 0x7e_0000, 0x7d_ffff, 0x7e_0001]) {
            let x = f32::from_bits((exponent << 23) | low);
            assert_eq!(wgsl_127th(x).to_bits(), (x / 127.0).to_bits(), "{x:e}");
        }
    }
    let mut random = Normal::new(1);
    // Everywhere, and a few steps around every half.
    let anywhere = (0..200_000).map(|_| (random.bits() as u32 as f32 / u32::MAX as f32) * 16.0 - 8.0);
    let halves: Vec<f32> = (-8..8)
        .flat_map(|n| {
            let half = n as f32 + 0.5;
            (-20..=20).map(move |step: i32| f32::from_bits(half.to_bits().wrapping_add_signed(step)))
        })
        .collect();
    for y in anywhere.chain(halves).chain([-8.0, 8.0, 0.0, -0.0, 1e-30, -1e-30, -8.000001, 8.000001]) {
        assert_eq!(wgsl_code(y), ((y + 8.5) as i32).min(15), "{y:e}");
    }
}

#[test]
fn gaussian_blocks_cost_what_an_f64_model_says() {
    for ((_, format), want) in formats().into_iter().zip([2.857e-5, 7.379e-3]) {
        let values = Normal::new(8).row(128 * 512);
        let out = round_trip(format, Side::V, 128, 512, &values);
        let error: f64 = values.iter().zip(&out).map(|(x, y)| f64::from(x - y).powi(2)).sum();
        let energy: f64 = values.iter().map(|x| f64::from(*x).powi(2)).sum();
        println!("{}: NMSE {:.3e}, model {want:.3e}", format.name(), error / energy);
        assert!((error / energy / want - 1.0).abs() < 0.02, "{} {}", format.name(), error / energy);
    }
}

#[test]
fn faults_and_extremes() {
    let normal = Normal::new(9).row(96);
    for (_, format) in formats() {
        for side in Side::BOTH {
            // NaN poisons its block and no other.
            let mut rows = normal.clone();
            (rows[35], rows[36]) = (f32::NAN, -f32::NAN);
            let out = round_trip(format, side, 16, 96, &rows);
            assert!(out[32..64].iter().all(|x| x.is_nan()));
            assert!(out[..32].iter().chain(&out[64..]).all(|x| x.is_finite()));
            for x in [f32::INFINITY, f32::MAX, 1e30, 1e7] {
                let mut row = normal.clone();
                (row[0], row[1]) = (x, -x);
                let out = round_trip(format, side, 16, 96, &row);
                assert!(out.iter().all(|y| y.is_finite()) && out[0] > 4e5 && out[1] < -4e5, "{x}: {out:?}");
            }
            for x in [1e-45, f32::MIN_POSITIVE, 1e-30] {
                assert!(round_trip(format, side, 16, 96, &[x; 96]).iter().all(|y| *y == 0.0), "{x}");
            }
        }
    }
}

#[test]
fn head_sizes_of_broken_blocks_are_refused() {
    for (_, format) in formats() {
        for head_dim in [8, 80, 120, 144] {
            for side in Side::BOTH {
                let Err(error) = format.codec(side, PageGeometry { tokens: 64, head_dim }) else {
                    panic!("{} took {head_dim}", format.name())
                };
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                let said = error.to_string();
                assert!(said.contains(format.name()) && said.contains(&head_dim.to_string()), "{said}");
                assert!(said.contains("multiple of 32") && said.contains("fp8"), "{said}");
            }
        }
    }
}

//! Every format against its layout: the fast decoders against the slow one, and what pages hold.

use super::*;
use crate::num::testing::Normal;
use crate::num::{bf16_value, e4m3_decode_finite, f16_value};

const DIMS: [usize; 9] = [8, 24, 64, 80, 96, 128, 192, 256, 512];

/// Whether a format is for a head size: blocks are of 32 channels.
fn takes(name: &str, head_dim: usize) -> bool {
    !["q8_0", "q4_0"].contains(&name) || head_dim.is_multiple_of(32)
}

fn for_each(mut check: impl FnMut(&str, &dyn Codec)) {
    for (_, format) in FormatRegistry::builtin().iter() {
        for side in Side::BOTH {
            for head_dim in DIMS {
                for tokens in crate::shape::PAGE_TOKENS {
                    if takes(format.name(), head_dim) {
                        let codec = format.codec(side, PageGeometry { tokens, head_dim }).expect("a legal geometry");
                        check(format.name(), &*codec);
                    }
                }
            }
        }
    }
}

/// The definition of a stored value, from its bits where the layout says they stand.
fn slow(name: &str, layout: &Layout, page: &[u32], t: usize, c: usize) -> f32 {
    let bits = layout.read(page, 0, t, c);
    match name {
        "f32" => f32::from_bits(bits),
        "f16" => f16_value(bits as u16),
        "bf16" => bf16_value(bits as u16),
        "fp8" => e4m3_decode_finite(bits as u8) * f32::from_bits(layout.read_scalar(page, 0, t, c)),
        "tq2" => {
            let scale = f16_value(layout.read_scalar(page, 0, t, c) as u16) * (1.0 / 40.9);
            [-64.0, -20.0, 20.0, 64.0][bits as usize] * scale
        }
        "tq4" => {
            let magnitudes = [5.0, 15.0, 25.0, 36.0, 48.0, 62.0, 79.0, 104.0];
            let code = bits as usize;
            let integer: f32 = if code < 8 { -magnitudes[7 - code] } else { magnitudes[code - 8] };
            integer * (f16_value(layout.read_scalar(page, 0, t, c) as u16) * (1.0 / 38.14))
        }
        "q8_0" => f32::from(bits as u8 as i8) * f16_value(layout.read_scalar(page, 0, t, c) as u16),
        "q4_0" => (bits as f32 - 8.0) * f16_value(layout.read_scalar(page, 0, t, c) as u16),
        "q3_affine" => {
            let code = bits << 1 | layout.read(page, 1, t, c);
            let pair = layout.read_scalar(page, 0, t, c);
            code as f32 * f16_value(pair as u16) + f16_value((pair >> 16) as u16)
        }
        "tq3" | "tq3n" => {
            let code = bits << 1 | layout.read(page, 1, t, c);
            let integers = [-88.0, -55.0, -31.0, -10.0, 10.0, 31.0, 55.0, 88.0];
            let scale = f16_value(layout.read_scalar(page, 0, t, c) as u16) * (1.0 / 40.9);
            integers[code as usize] * scale
        }
        _ => panic!("no definition of {name}"),
    }
}

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

#[test]
fn fast_decoders_equal_the_slow_one() {
    for_each(|name, codec| {
        let layout = codec.layout();
        let PageGeometry { tokens, head_dim } = layout.geometry;
        // Random words: every bit pattern, NaN scales among them.
        let mut random = Normal::new((tokens * head_dim) as u64);
        let page: Vec<u32> = (0..layout.page_words).map(|_| random.bits() as u32).collect();
        let ranges = [0..tokens, 0..1, 1..2, 7..9, 3..tokens - 2, tokens - 1..tokens, 5..5];
        for range in ranges {
            let mut out = vec![0.0; range.len() * head_dim];
            codec.decode(&page, range.clone(), &mut out);
            for (row, t) in out.chunks_exact(head_dim).zip(range) {
                for (c, got) in row.iter().enumerate() {
                    let want = slow(name, layout, &page, t, c);
                    assert!(
                        same(*got, want),
                        "{name} {:?} {:?} ({t}, {c}): {got} {want}",
                        layout.side,
                        layout.geometry
                    );
                }
            }
        }
    });
}

#[test]
fn encoders_write_what_the_layout_says() {
    for_each(|name, codec| {
        let layout = codec.layout();
        let PageGeometry { tokens, head_dim } = layout.geometry;
        let values = Normal::new(3).row(tokens * head_dim);
        let mut page = vec![0xdead_beef; layout.page_words];
        codec.encode(&values, &mut page);
        let (mut error, mut energy) = (0f64, 0f64);
        for (i, x) in values.iter().enumerate() {
            let got = slow(name, layout, &page, i / head_dim, i % head_dim);
            error += f64::from(got - x).powi(2);
            energy += f64::from(*x).powi(2);
        }
        let (nmse, most) = (
            error / energy,
            match name {
                "f32" => 0.0,
                "f16" => 1e-7,
                "bf16" => 4e-6,
                "fp8" => 1e-3,
                "tq2" => 0.16,
                "tq3" | "tq3n" => 0.045,
                "tq4" => 0.0115,
                "q8_0" => 3.2e-5,
                "q4_0" => 0.008,
                "q3_affine" => 0.075,
                _ => f64::NAN,
            },
        );
        assert!(nmse <= most, "{name} {:?} {:?}: {nmse}", layout.side, layout.geometry);
    });
}

#[test]
fn tokens_written_alone_make_the_same_page() {
    for_each(|name, codec| {
        assert_eq!(codec.token_writable(), ["f32", "f16", "bf16"].contains(&name));
        assert_eq!(codec.wgsl_store("p").is_empty(), !codec.token_writable());
        if !codec.token_writable() {
            return;
        }
        let layout = codec.layout();
        let PageGeometry { tokens, head_dim } = layout.geometry;
        let values = Normal::new(4).row(tokens * head_dim);
        let (mut whole, mut single) = (vec![0; layout.page_words], vec![0; layout.page_words]);
        codec.encode(&values, &mut whole);
        for t in (0..tokens).rev() {
            codec.write_token(&mut single, t, &values[t * head_dim..(t + 1) * head_dim]);
        }
        assert_eq!(whole, single, "{name}");
    });
}

#[test]
fn halves_saturate_and_keep_nan() {
    let geometry = PageGeometry { tokens: 16, head_dim: 8 };
    let row = [1e9, -1e9, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -0.0, 65504.0, 1e-8];
    for side in Side::BOTH {
        let mut out = vec![0.0; 8];
        let codec = F16.codec(side, geometry).expect("a legal geometry");
        let mut page = vec![0; codec.layout().page_words];
        codec.write_token(&mut page, 3, &row);
        codec.decode(&page, 3..4, &mut out);
        assert_eq!(out[..4], [65504.0, -65504.0, 65504.0, -65504.0]);
        assert!(out[4].is_nan() && same(out[5], -0.0) && out[6] == 65504.0 && out[7] == 0.0);
        let codec = Bf16.codec(side, geometry).expect("a legal geometry");
        codec.write_token(&mut page, 3, &row);
        codec.decode(&page, 3..4, &mut out);
        assert!(out[2] == f32::INFINITY && out[3] == f32::NEG_INFINITY && out[4].is_nan());
    }
}

#[test]
fn odd_geometries_are_refused_with_a_reason() {
    for (_, format) in FormatRegistry::builtin().iter() {
        for (tokens, head_dim) in [(63, 64), (256, 64), (0, 64), (64, 0), (64, 4), (64, 100), (64, 520)] {
            let Err(error) = format.codec(Side::K, PageGeometry { tokens, head_dim }) else {
                panic!("{} took {tokens} tokens of {head_dim}", format.name());
            };
            assert_eq!(error.kind(), crate::ErrorKind::Unsupported);
            assert!(!error.message().is_empty());
        }
    }
}

#[test]
fn page_sizes() {
    let bytes = |format: &dyn Format, tokens, head_dim| {
        Side::BOTH.map(|side| {
            let codec = format.codec(side, PageGeometry { tokens, head_dim }).expect("a legal geometry");
            assert_eq!(codec.layout().page_words % UNIT_WORDS, 0);
            codec.layout().page_bytes()
        })
    };
    assert_eq!(bytes(&Tq3, 64, 128), [3200; 2]);
    assert_eq!(bytes(&Tq3, 64, 256), [6272; 2]);
    assert_eq!(bytes(&Tq3, 64, 64), [1664; 2]);
    assert_eq!([bytes(&Tq2, 64, 128), bytes(&Tq2, 64, 256)], [[2176; 2], [4224; 2]]);
    assert_eq!([bytes(&Tq4, 64, 128), bytes(&Tq4, 64, 64)], [[64 * 64 + 128; 2], [64 * 32 + 128; 2]]);
    assert_eq!([bytes(&Q8_0, 64, 128), bytes(&Q4_0, 64, 128)], [[8704; 2], [4608; 2]]);
    assert_eq!(bytes(&Q3Affine, 64, 128), [3072 + 256; 2]);
    assert_eq!(bytes(&Fp8, 64, 128), [64 * 128 + 16; 2]);
    assert_eq!(bytes(&Fp8, 64, 24), [64 * 32 + 16, 64 * 24 + 16]);
    assert_eq!(bytes(&F16, 64, 128), [128 * 128; 2]);
    let layout = Tq3.codec(Side::K, PageGeometry { tokens: 64, head_dim: 128 }).expect("legal").layout().clone();
    assert_eq!(layout.resident_bits_per_value(), 3.125);
    // The start of a page, up to plane1, is a page of two-bit codes.
    assert_eq!(layout.planes[1].offset_words * 4, 2176);
    for (format, bits) in [(&Q8_0 as &dyn Format, 8.5), (&Q4_0, 4.5), (&Tq2, 2.125), (&Tq4, 4.125), (&Q3Affine, 3.25)] {
        let codec = format.codec(Side::V, PageGeometry { tokens: 16, head_dim: 128 }).expect("legal");
        assert_eq!(codec.layout().resident_bits_per_value(), bits, "{}", format.name());
    }
    // Padding channels of the last group count: 96 of K for 80.
    let layout = Tq4.codec(Side::K, PageGeometry { tokens: 64, head_dim: 80 }).expect("legal").layout().clone();
    assert_eq!(layout.page_bytes(), 64 * 96 / 2 + 128);
}

/// Prints values decoded a second; run with `--ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn decoding_speed() {
    for (_, format) in FormatRegistry::builtin().iter() {
        for side in Side::BOTH {
            for head_dim in [64, 128, 256] {
                let geometry = PageGeometry { tokens: 64, head_dim };
                let codec = format.codec(side, geometry).expect("a legal geometry");
                let pages: Vec<Vec<u32>> = (0..16)
                    .map(|i| {
                        let mut page = vec![0; codec.layout().page_words];
                        codec.encode(&Normal::new(i).row(geometry.values()), &mut page);
                        page
                    })
                    .collect();
                let mut out = vec![0.0; geometry.values()];
                let mut best = f64::MAX;
                for _ in 0..50 {
                    let start = std::time::Instant::now();
                    for page in &pages {
                        codec.decode(std::hint::black_box(page), 0..64, &mut out);
                        std::hint::black_box(&mut out);
                    }
                    best = best.min(start.elapsed().as_secs_f64() / (pages.len() * geometry.values()) as f64);
                }
                println!("{:>9} {:?} d{head_dim}: {:.2} G values/s", format.name(), side, 1e-9 / best);
            }
        }
    }
}

use super::*;

fn round_trip(values: &[f32], side: Side) -> (Vec<f32>, f32) {
    let geometry = PageGeometry { tokens: 16, head_dim: 8 };
    let codec = Fp8.codec(side, geometry).expect("a legal geometry");
    let mut all = vec![0.0; geometry.values()];
    all[..values.len()].copy_from_slice(values);
    let mut page = vec![u32::MAX; codec.layout().page_words];
    codec.encode(&all, &mut page);
    let mut out = all.clone();
    codec.decode(&page, 0..16, &mut out);
    for t in 0..16 {
        for c in 0..8 {
            assert_ne!(codec.layout().read(&page, 0, t, c) & 0x7f, 0x7f);
        }
    }
    (out[..values.len()].to_vec(), f32::from_bits(codec.layout().read_scalar(&page, 0, 0, 0)))
}

#[test]
fn saturates_by_policy() {
    for side in Side::BOTH {
        assert_eq!(round_trip(&[447.0, 448.0, -1.0], side), (vec![448.0, 448.0, -1.0], 1.0));
        assert_eq!(round_trip(&[0.0, -0.0], side).1, 1.0);
        let (values, scale) = round_trip(&[449.0, 1e6, 1.0], side);
        assert!((values[1] / 1e6 - 1.0).abs() < 1e-6 && (scale - 1e6 / 448.0).abs() < 1e-3, "{values:?} {scale}");
        let (values, scale) = round_trip(&[f32::INFINITY, f32::NEG_INFINITY, 448.0], side);
        assert_eq!((values, scale), (vec![448.0, -448.0, 448.0], 1.0));
        let (values, _) = round_trip(&[f32::MAX, f32::MIN, 1.0], side);
        assert_eq!(values, [f32::MAX, f32::MIN, 0.0]);
        let (values, scale) = round_trip(&[1e-45, f32::MIN_POSITIVE], side);
        assert!(scale == SCALE_MIN && values.iter().all(|x| x.is_finite()), "{values:?}");
        let (values, scale) = round_trip(&[1.0, f32::NAN, 2.0], side);
        assert!(scale.is_nan() && values.iter().all(|x| x.is_nan()), "{values:?}");
    }
    // B10: code 1 under a great scale stays finite when the query is folded in last.
    assert!((e4m3_decode_finite(1) * SCALE_MAX * 0.25).is_finite());
}

#[test]
fn scale_limits_are_what_they_claim() {
    assert_eq!(f64::from(SCALE_MAX) * 448.0, f64::from(f32::MAX));
    assert_eq!(SCALE_MIN, 2f32.powi(-120));
    assert!((1.0 / SCALE_MIN).is_finite() && (1.0 / SCALE_MAX).is_normal());
}

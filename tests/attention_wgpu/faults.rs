//! Edge cases of masking and softmax, and NaN: it reaches the rows that see it, and no others.

use crate::on_each;
use kvarto::conformance::{Built, Case, Kernel, Outcome, Values};

const KERNELS: [Kernel; 2] = [Kernel::Decode, Kernel::Prefill];

/// Bits of the output of a row, all heads.
fn row_bits(built: &Built, outcome: &Outcome, row: usize) -> Vec<u32> {
    (0..built.case.q_heads()).flat_map(|head| built.output(outcome, row, head).iter().map(|x| x.to_bits())).collect()
}

/// Four rows at the end of ten tokens; the last token's key or value in one channel is NaN.
fn with_nan(case: &Case, key: bool) -> Built {
    let mut built = case.build().expect("a case");
    let side = if key { built.k_slabs.get_mut("f32") } else { built.v_slabs.get_mut("f32") }.expect("the slab");
    let layout = side.codec.codec.layout().clone();
    let (word, _) = layout.position(0, 9, 5);
    side.words[side.used[0] * layout.page_words + word] = f32::NAN.to_bits();
    built
}

#[test]
fn nan_reaches_the_rows_that_see_it_and_no_others() {
    on_each(|backend| {
        for kernel in KERNELS {
            let case = Case {
                kernel,
                kv_heads: 1,
                group: 3,
                page_tokens: 16,
                sequences: vec![(10, 4)],
                row_tile: if kernel == Kernel::Decode { 4 } else { 16 },
                formats: |_, _| ("f32", "f32"),
                ..Case::default()
            };
            let clean = case.build().expect("a case");
            let want = clean.run(backend).expect("a run");
            for key in [true, false] {
                let built = with_nan(&case, key);
                let got = built.run(backend).expect("a run");
                for row in 0..3 {
                    assert_eq!(row_bits(&built, &got, row), row_bits(&clean, &want, row), "{kernel:?} row {row}");
                }
                for head in 0..3 {
                    let out = built.output(&got, 3, head);
                    let nans = out.iter().filter(|x| x.is_nan()).count();
                    assert_eq!(nans, if key { out.len() } else { 1 }, "{kernel:?} key {key} head {head}: {out:?}");
                }
            }
        }
    });
}

#[test]
fn a_query_that_is_nan_spoils_its_own_outputs_only() {
    on_each(|backend| {
        for kernel in KERNELS {
            let row_tile = if kernel == Kernel::Decode { 4 } else { 16 };
            let case = Case { kernel, sequences: vec![(70, 4)], row_tile, softcap: Some(5.0), ..Case::default() };
            let clean = case.build().expect("a case");
            let want = clean.run(backend).expect("a run");
            let mut built = case.build().expect("a case");
            // Row 2, query head 4.
            built.queries[(2 * case.q_heads() + 4) * case.k_dim + 7] = f32::NAN;
            let got = built.run(backend).expect("a run");
            for (row, head) in (0..4).flat_map(|row| (0..case.q_heads()).map(move |head| (row, head))) {
                let (a, b) = (built.output(&got, row, head), clean.output(&want, row, head));
                if (row, head) == (2, 4) {
                    assert!(a.iter().all(|x| x.is_nan()), "{kernel:?}: {a:?}");
                } else {
                    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(a), bits(b), "{kernel:?} row {row} head {head}");
                }
            }
        }
    });
}

#[test]
fn rows_without_a_visible_key_are_zero() {
    on_each(|backend| {
        for kernel in KERNELS {
            for sink in [None, Some(0.25)] {
                // Rows 0 and 1 stand before the first token; the second sequence holds nothing.
                let case = Case {
                    kernel,
                    sink,
                    first_position: 4,
                    sequences: vec![(2, 4), (0, 1), (33, 1)],
                    page_tokens: 16,
                    basis: kvarto::conformance::BASES[2],
                    row_tile: if kernel == Kernel::Decode { 4 } else { 16 },
                    ..Case::default()
                };
                let built = case.build().expect("a case");
                let got = built.run(backend).expect("a run");
                built.compare(&got, 2e-5).unwrap_or_else(|e| panic!("{e}"));
                for row in [0, 1, 4] {
                    let out = row_bits(&built, &got, row);
                    assert!(out.iter().all(|bits| *bits == 0), "{kernel:?} row {row}: {out:x?}");
                }
            }
        }
    });
}

#[test]
fn softcap_does_not_overflow() {
    on_each(|backend| {
        for kernel in KERNELS {
            let row_tile = if kernel == Kernel::Decode { 1 } else { 16 };
            for logit in [100.0, 1000.0, 5000.0, 10000.0, -10000.0] {
                let case = Case { kernel, row_tile, values: Values::Logit(logit), ..Case::default() };
                let case =
                    Case { softcap: Some(50.0), formats: |_, _| ("f32", "f32"), sequences: vec![(40, 1)], ..case };
                case.check(backend, 5e-5).unwrap_or_else(|e| panic!("{e}"));
            }
        }
    });
}

#[test]
fn equal_scores_over_many_splits_average() {
    on_each(|backend| {
        for (kernel, row_tile) in [(Kernel::Decode, 1), (Kernel::Prefill, 16)] {
            let case = Case { kernel, row_tile, values: Values::Ramp, sequences: vec![(4096, 1)], ..Case::default() };
            let case = Case { pages_per_item: 4, kv_heads: 1, formats: |_, _| ("f32", "f32"), ..case };
            let built = case.build().expect("a case");
            let got = built.run(backend).expect("a run");
            let out = built.output(&got, 0, 0);
            assert!(out.iter().all(|x| (x - 0.499878).abs() <= 2e-6), "{kernel:?}: {out:?}");
            built.compare(&got, 2e-6).unwrap_or_else(|e| panic!("{e}"));
        }
    });
}

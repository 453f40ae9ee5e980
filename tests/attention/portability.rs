//! Cases that failed in the field elsewhere: see the numbered list in the portability notes.

use crate::{TOLERANCE, cpu};
use kvarto::conformance::{BASES, Case, Formats, Kernel, Values};
use kvarto::kernel::PartialState;

const EXACT: Formats = |_, _| ("f32", "f32");

/// B01: logits far above the cap stay finite, and the cap is applied.
#[test]
fn softcap_of_large_logits() {
    for (logit, capped) in
        [(100.0f32, 48.201_38f64), (1000.0, 50.0), (4400.0, 50.0), (5000.0, 50.0), (1e4, 50.0), (-1e4, -50.0)]
    {
        // Two tokens, logits `logit` and 0: the state's log-sum-exp shows the capped one.
        let case = Case {
            sequences: vec![(2, 1)],
            formats: EXACT,
            softcap: Some(50.0),
            values: Values::Logit(logit),
            ..Case::default()
        };
        let built = case.build().expect("a case");
        let outcome = built.run(&mut cpu()).unwrap();
        built.compare(&outcome, TOLERANCE).unwrap();
        let state = PartialState::read(&outcome.partials, 0, case.v_dim).expect("a state");
        let want = capped.max(0.0) + (-capped.abs()).exp().ln_1p();
        assert!((f64::from(state.lse()) - want).abs() < 1e-4, "{logit}: {} {want}", state.lse());
    }
}

/// B03: rows before the first key are zeros with an empty state; the rest see what they should.
#[test]
fn rows_without_a_visible_key() {
    for kernel in [Kernel::Decode, Kernel::Prefill] {
        let case = Case { sequences: vec![(2, 4)], formats: EXACT, first_position: 100, kernel, ..Case::default() };
        let built = case.build().expect("a case");
        assert_eq!(built.row_info.iter().map(|r| r.0).collect::<Vec<_>>(), [98, 99, 100, 101]);
        let outcome = built.run(&mut cpu()).unwrap();
        built.compare(&outcome, TOLERANCE).unwrap();
        for head in 0..case.q_heads() {
            for row in 0..2 {
                assert!(built.output(&outcome, row, head).iter().all(|&x| x == 0.0));
                let index = built.states_of[row * case.q_heads() + head][0];
                let state = PartialState::read(&outcome.partials, index, case.v_dim).expect("a state");
                assert_eq!(state, PartialState::empty(case.v_dim));
                assert_eq!(state.lse(), f32::NEG_INFINITY);
            }
            let first = &built.tokens[0][head / case.group][0].value;
            assert!(built.output(&outcome, 2, head).iter().zip(first).all(|(&a, &b)| f64::from(a) == b));
        }
    }
}

/// B06: a sequence without tokens beside others gives zeros, and without it no bit of the others changes.
#[test]
fn an_empty_sequence_in_a_batch() {
    // Positions from 5 on: a row of an empty sequence stands at the position before.
    let sequences = vec![(17, 1), (33, 1), (1, 1), (0, 1)];
    let mut built = Case { sequences, first_position: 5, ..Case::default() }.build().expect("a case");
    let with = built.run(&mut cpu()).unwrap();
    built.compare(&with, TOLERANCE).unwrap();
    let heads = built.case.q_heads();
    assert!((0..heads).all(|head| built.output(&with, 3, head).iter().all(|&x| x == 0.0)));

    (built.rows, built.merged_rows) = (3, 3);
    built.queries.truncate(3 * heads * built.case.k_dim);
    let without = built.run(&mut cpu()).unwrap();
    for (row, head) in (0..3).flat_map(|row| (0..heads).map(move |head| (row, head))) {
        assert_eq!(built.output(&with, row, head), built.output(&without, row, head));
    }
}

/// B08: pages that no row sees come first; the maximum starts at the first visible one.
#[test]
fn leading_pages_wholly_masked() {
    for kernel in [Kernel::Decode, Kernel::Prefill] {
        let case = Case {
            sequences: vec![(128, 1)],
            window: Some(64),
            formats: EXACT,
            values: Values::Logit(0.0),
            pages_per_item: usize::MAX,
            kernel,
            ..Case::default()
        };
        let built = case.build().expect("a case");
        let outcome = built.run(&mut cpu()).unwrap();
        built.compare(&outcome, TOLERANCE).unwrap();
        for head in 0..case.q_heads() {
            let tokens = &built.tokens[0][head / case.group][64..];
            for (c, &got) in built.output(&outcome, 0, head).iter().enumerate() {
                let mean = tokens.iter().map(|t| t.value[c]).sum::<f64>() / 64.0;
                assert!((f64::from(got) - mean).abs() < 1e-6, "{got} {mean}");
            }
        }
    }
}

/// B13: the sink's logit counts once a row, however many splits there are, and under every basis.
#[test]
fn sink_counts_once() {
    let mut backend = cpu();
    for basis in BASES {
        for (len, page_tokens) in [(3, 16), (100, 16)] {
            let case = Case {
                sequences: vec![(len, 1)],
                page_tokens,
                formats: EXACT,
                sink: Some(2.0),
                basis,
                pages_per_item: 1,
                values: Values::Logit(0.0),
                ..Case::default()
            };
            case.check(&mut backend, TOLERANCE).unwrap();
        }
    }
    // Three keys of value 1 (by the ramp's scale) and logit 0: 3 / (3 + e²).
    let case = Case {
        sequences: vec![(3, 1)],
        formats: EXACT,
        sink: Some(2.0),
        values: Values::Ramp,
        kv_heads: 1,
        group: 1,
        ..Case::default()
    };
    let built = case.build().expect("a case");
    let outcome = built.run(&mut backend).unwrap();
    // Values 0, 1/3 and 2/3 sum to 1: the output is 1 / (3 + e²).
    for &x in built.output(&outcome, 0, 0) {
        assert!((3.0 * x - 0.288_766).abs() < 1e-6, "{x}");
    }
}

/// B16: K of 192 and V of 128 channels in fp8.
#[test]
fn head_sizes_differ_in_fp8() {
    for first in [99, 1] {
        let case = Case {
            k_dim: 192,
            v_dim: 128,
            kv_heads: 16,
            group: 1,
            sequences: vec![(99, first)],
            formats: |_, _| ("fp8", "fp8"),
            row_tile: 32,
            kernel: Kernel::Prefill,
            ..Case::default()
        };
        case.check(&mut cpu(), TOLERANCE).unwrap();
    }
}

/// B17: head size 256 with grouped queries, all pairs of four formats.
#[test]
fn head_size_256_in_all_format_pairs() {
    const PAIRS: [Formats; 16] = {
        macro_rules! pairs {
            ($($k:literal)*) => { [$(
                |_, _| ($k, "f16"), |_, _| ($k, "bf16"), |_, _| ($k, "fp8"), |_, _| ($k, "tq3"),
            )*] };
        }
        pairs!("f16" "bf16" "fp8" "tq3")
    };
    let mut backend = cpu();
    for formats in PAIRS {
        let case = Case {
            k_dim: 256,
            v_dim: 256,
            kv_heads: 4,
            group: 4,
            sequences: vec![(150, 2)],
            formats,
            ..Case::default()
        };
        case.check(&mut backend, TOLERANCE).unwrap();
    }
}

/// B20: 4096 keys in 16 splits, equal logits, value j/4096: the mean, whatever the width of vectors.
#[test]
fn sixteen_splits_of_a_ramp() {
    let case =
        Case { sequences: vec![(4096, 1)], formats: EXACT, pages_per_item: 4, values: Values::Ramp, ..Case::default() };
    let built = case.build().expect("a case");
    assert_eq!(built.states_of[0].len(), 16);
    let outcome = built.run(&mut cpu()).unwrap();
    for head in 0..case.q_heads() {
        for &x in built.output(&outcome, 0, head) {
            assert!((x - 0.499_878).abs() < 1e-6, "{x}");
        }
    }
}

/// B18: every head size that a format takes runs and matches.
#[test]
fn supported_head_sizes_run() {
    let mut backend = cpu();
    let formats: [Formats; 10] = [
        |_, _| ("f32", "f32"),
        |_, _| ("f16", "f16"),
        |_, _| ("bf16", "bf16"),
        |_, _| ("fp8", "fp8"),
        |_, _| ("tq3", "tq3"),
        |_, _| ("tq2", "tq2"),
        |_, _| ("tq4", "tq4"),
        |_, _| ("q8_0", "q8_0"),
        |_, _| ("q4_0", "q4_0"),
        |_, _| ("q3_affine", "q3_affine"),
    ];
    for dim in [8, 40, 64, 72, 80, 96, 112, 120, 128, 160, 192, 256, 512] {
        for formats in formats {
            if kvarto::conformance::grid::head_dim(formats(0, 0).0, dim) != dim {
                continue;
            }
            let case =
                Case { k_dim: dim, v_dim: dim, kv_heads: 1, sequences: vec![(70, 2)], formats, ..Case::default() };
            case.check(&mut backend, TOLERANCE).unwrap();
        }
    }
}

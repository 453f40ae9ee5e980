//! query, decode or prefill, merge: cases of more shapes than the grid's, compared with the CPU's kernels as well.

use crate::cpu;
use kvarto::backend::Backend as _;
use kvarto::conformance::{BASES, CALIBRATED, Case, Formats, Kernel};

/// Runs on Vulkan with all that it has and within WebGPU's defaults, and on the CPU, compares both with the reference and with one another, and Vulkan with itself.
fn check(case: &Case) {
    crate::on_both_tiers(|backend| {
        let built = case.build().expect("a case");
        let tolerance = built.tolerance(backend.caps());
        let got = built.run(backend).unwrap_or_else(|e| panic!("{case:?}: {e}"));
        let error = built.compare(&got, tolerance).unwrap_or_else(|e| panic!("{e}"));
        let again = built.run(backend).expect("a second run");
        assert_eq!(got.out, again.out, "two runs differ in {case:?}");
        let bits = |states: &[f32]| states.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&got.partials), bits(&again.partials), "two runs' states differ in {case:?}");

        let cpu = built.run(&mut cpu()).unwrap_or_else(|e| panic!("CPU, {case:?}: {e}"));
        let mut largest = 0.0f64;
        for (row, head) in (0..built.rows).flat_map(|row| (0..case.q_heads()).map(move |head| (row, head))) {
            let (a, b) = (built.output(&got, row, head), built.output(&cpu, row, head));
            for (c, (&a, &b)) in a.iter().zip(b).enumerate() {
                let apart = (f64::from(a) - f64::from(b)).abs() / f64::from(b.abs().max(1.0));
                assert!(apart <= 2.0 * tolerance, "row {row} head {head} channel {c}: {a} and CPU {b} in {case:?}");
                largest = largest.max(apart);
            }
        }
        let formats = (case.formats)(0, 0);
        println!("{:?} {formats:?}: error {error:.2e}, from the CPU {largest:.2e}", case.kernel);
    });
}

const F32: Formats = |_, _| ("f32", "f32");
const F16: Formats = |_, _| ("f16", "f16");
const BF16: Formats = |_, _| ("bf16", "bf16");
const FP8: Formats = |_, _| ("fp8", "fp8");
const TQ3: Formats = |_, _| ("tq3", "tq3");
/// Pages of different formats within a sequence, K and V apart.
const MIXED: Formats = |sequence, page| match (sequence + page) % 3 {
    0 => ("tq3", "fp8"),
    1 => ("fp8", "tq3"),
    _ => ("f16", "f16"),
};

#[test]
fn decode_f32() {
    check(&Case { formats: F32, sequences: vec![(150, 1)], group: 1, workgroup: 64, ..Case::default() });
}

#[test]
fn decode_f16_128() {
    let sequences = vec![(333, 1), (64, 1), (1, 1)];
    let case = Case { k_dim: 128, v_dim: 128, group: 4, sequences, row_tile: 1, workgroup: 128, ..Case::default() };
    check(&Case { formats: F16, pages_per_item: 3, ..case });
}

#[test]
fn decode_bf16_80_window() {
    let case = Case { k_dim: 80, v_dim: 80, group: 8, page_tokens: 32, window: Some(70), ..Case::default() };
    check(&Case { formats: BF16, sequences: vec![(190, 2)], row_tile: 2, basis: BASES[1], workgroup: 128, ..case });
}

#[test]
fn decode_fp8_96_softcap() {
    let case = Case { k_dim: 96, v_dim: 96, group: 5, page_tokens: 16, softcap: Some(2.0), ..Case::default() };
    check(&Case { formats: FP8, sequences: vec![(101, 4)], row_tile: 4, pages_per_item: 5, workgroup: 64, ..case });
}

#[test]
fn decode_tq3_192_128() {
    let case = Case { k_dim: 192, v_dim: 128, group: 3, page_tokens: 128, sink: Some(0.5), ..Case::default() };
    check(&Case { formats: TQ3, sequences: vec![(300, 3)], row_tile: 4, basis: BASES[2], workgroup: 256, ..case });
}

#[test]
fn decode_mixed_256() {
    let case = Case { k_dim: 256, v_dim: 256, group: 6, basis: BASES[1], sink: Some(-1.0), ..Case::default() };
    check(&Case { formats: MIXED, sequences: vec![(400, 1)], row_tile: 1, workgroup: 64, first_position: 7, ..case });
}

#[test]
fn decode_tq3_80_of_few_tokens() {
    let case = Case { k_dim: 80, v_dim: 64, group: 2, page_tokens: 16, basis: BASES[2], ..Case::default() };
    check(&Case { formats: TQ3, sequences: vec![(45, 8), (3, 2)], row_tile: 8, workgroup: 64, ..case });
}

#[test]
fn decode_and_prefill_in_calibrated_bases() {
    let case = Case { k_dim: 80, v_dim: 64, group: 3, page_tokens: 16, sink: Some(0.3), ..Case::default() };
    check(&Case {
        formats: F16,
        sequences: vec![(45, 4)],
        row_tile: 4,
        basis: BASES[3],
        workgroup: 64,
        ..case.clone()
    });
    check(&Case {
        formats: FP8,
        sequences: vec![(45, 2)],
        row_tile: 2,
        basis: CALIBRATED,
        workgroup: 128,
        ..case.clone()
    });
    let case = Case { kernel: Kernel::Prefill, sequences: vec![(90, 17)], row_tile: 16, workgroup: 64, ..case };
    check(&Case { formats: F16, basis: BASES[3], ..case });
}

#[test]
fn decode_of_16_heads_and_rows() {
    let case = Case { group: 16, kv_heads: 1, page_tokens: 32, window: Some(33), formats: F16, ..Case::default() };
    check(&Case { sequences: vec![(100, 11)], row_tile: 16, basis: BASES[2], workgroup: 64, ..case });
}

#[test]
fn decode_512() {
    let case = Case { k_dim: 512, v_dim: 512, group: 7, kv_heads: 1, page_tokens: 32, ..Case::default() };
    check(&Case { formats: |_, _| ("f16", "fp8"), sequences: vec![(70, 1)], row_tile: 1, workgroup: 128, ..case });
}

#[test]
fn prefill_f16_128() {
    let case = Case { k_dim: 128, v_dim: 128, group: 4, kernel: Kernel::Prefill, workgroup: 128, ..Case::default() };
    check(&Case { formats: F16, sequences: vec![(150, 40), (20, 20)], row_tile: 16, pages_per_item: 99, ..case });
}

#[test]
fn prefill_fp8_64_window() {
    let case = Case { group: 3, page_tokens: 16, window: Some(21), kernel: Kernel::Prefill, ..Case::default() };
    check(&Case { formats: FP8, sequences: vec![(90, 33)], row_tile: 32, basis: BASES[1], pages_per_item: 4, ..case });
}

#[test]
fn prefill_tq3_256_softcap() {
    let case = Case { k_dim: 256, v_dim: 256, group: 1, softcap: Some(3.0), ..Case::default() };
    let case = Case { kernel: Kernel::Prefill, sequences: vec![(130, 17)], row_tile: 16, basis: BASES[2], ..case };
    check(&Case { formats: TQ3, workgroup: 256, ..case });
}

#[test]
fn prefill_f32_80_sink() {
    let case = Case { k_dim: 80, v_dim: 96, group: 7, page_tokens: 128, sink: Some(1.0), ..Case::default() };
    let case = Case { kernel: Kernel::Prefill, sequences: vec![(140, 9)], row_tile: 16, workgroup: 128, ..case };
    check(&Case { formats: F32, basis: BASES[2], ..case });
}

#[test]
fn prefill_mixed_192_128() {
    let case = Case { k_dim: 192, v_dim: 128, group: 2, page_tokens: 32, formats: MIXED, ..Case::default() };
    let case = Case { kernel: Kernel::Prefill, sequences: vec![(200, 30)], row_tile: 32, workgroup: 64, ..case };
    check(&Case { basis: BASES[1], first_position: 1000, ..case });
}

#[test]
fn prefill_bf16_of_one_row() {
    let case = Case { group: 16, kv_heads: 1, formats: BF16, kernel: Kernel::Prefill, ..Case::default() };
    check(&Case { sequences: vec![(70, 1)], row_tile: 16, workgroup: 256, ..case });
}

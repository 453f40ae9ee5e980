//! The grid of attention's cases in WGSL, and what else must hold there as on the CPU.

use crate::codes::{codec, run};
use crate::{on_both_tiers, on_floor, support};
use kvarto::backend::Backend;
use kvarto::backend::wgpu::OpenOptions;
use kvarto::conformance::grid::{FormatFactors, cases, mixed};
use kvarto::conformance::{Case, Kernel, Outcome, StoredSide};
use kvarto::shape;

fn state_bits(outcome: &Outcome) -> Vec<u32> {
    outcome.partials.iter().map(|x| x.to_bits()).collect()
}

/// Cases on a device of its own: most of the time is the driver's compiler, which takes one core.
fn check(options: &OpenOptions, of: impl Fn(usize) -> bool) {
    let mut backend = match support::gpu::open("vulkan", options) {
        Ok(backend) => backend,
        Err(error) => return support::require_or_skip("vulkan", &error.to_string()),
    };
    let all = cases(FormatFactors::Sides);
    let (mut worst, mut seen) = (0.0f64, 0);
    for (number, case) in all.iter().enumerate().filter(|(number, _)| of(*number)) {
        let built = case.build().expect("a case");
        let outcome = built.run(&mut backend).unwrap_or_else(|e| panic!("case {number}: {e}, {case:?}"));
        let again = built.run(&mut backend).expect("a second run");
        assert!(
            outcome.out == again.out && state_bits(&outcome) == state_bits(&again),
            "case {number}: two runs differ in {case:?}"
        );
        match built.compare(&outcome, built.tolerance(backend.caps())) {
            Ok(error) => worst = worst.max(error),
            Err(message) => panic!("case {number} of {}: {message}", all.len()),
        }
        seen += 1;
    }
    println!("{seen} cases of {}, largest error {worst:.2e}", all.len());
}

#[test]
fn every_pair_of_choices_even_cases() {
    check(&OpenOptions::default(), |number| number % 2 == 0);
}

#[test]
fn every_pair_of_choices_odd_cases() {
    check(&OpenOptions::default(), |number| number % 2 == 1);
}

/// As on a device of WebGPU's defaults: a third of the cases, every format among them, at the tight limit.
#[test]
fn every_third_case_of_the_floor_tier() {
    check(&support::gpu::floor(), |number| number % 3 == 0);
}

#[test]
fn formats_mix_within_a_sequence() {
    on_both_tiers(|backend| {
        for kernel in [Kernel::Decode, Kernel::Prefill] {
            let case = Case { row_tile: if kernel == Kernel::Decode { 8 } else { 32 }, ..mixed(kernel) };
            let tolerance = case.build().expect("a case").tolerance(backend.caps());
            case.check(backend, tolerance).unwrap_or_else(|e| panic!("{e}"));
        }
    });
}

/// Pages of a side written out as f32 pages by the shaders' own decoder and encoder.
fn dequantise(backend: &mut dyn Backend, side: &mut StoredSide, which: shape::Side) {
    let geometry = side.codec.codec.layout().geometry;
    let exact = codec("f32", which, geometry);
    let count = side.words.len() / side.codec.codec.layout().page_words;
    side.words = run(backend, &side.codec, &exact, &side.words, &vec![geometry.tokens; count]);
    side.codec = exact;
}

#[test]
fn reading_a_format_equals_writing_it_out_and_reading_that() {
    on_floor(|backend| {
        for kernel in [Kernel::Decode, Kernel::Prefill] {
            let case = Case { row_tile: if kernel == Kernel::Decode { 8 } else { 32 }, ..mixed(kernel) };
            let direct = case.build().expect("a case");
            let mut dense = case.build().expect("a case");
            dense.k_slabs.values_mut().for_each(|side| dequantise(backend, side, shape::Side::K));
            dense.v_slabs.values_mut().for_each(|side| dequantise(backend, side, shape::Side::V));
            let (a, b) = (direct.run(backend).expect("a run"), dense.run(backend).expect("a run"));
            let mut largest = 0.0f32;
            for (row, head) in (0..direct.rows).flat_map(|row| (0..case.q_heads()).map(move |head| (row, head))) {
                for (a, b) in direct.output(&a, row, head).iter().zip(dense.output(&b, row, head)) {
                    let apart = (a - b).abs();
                    assert!(apart <= 1e-3, "{kernel:?} row {row} head {head}: {a} and {b}");
                    largest = largest.max(apart);
                }
            }
            println!("{kernel:?}: {largest:.2e} apart");
        }
    });
}

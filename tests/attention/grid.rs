//! The grid on the CPU, and what else must hold of splits, kernels and partial states.

use crate::{TOLERANCE, cpu};
use kvarto::conformance::grid::{FormatFactors, cases, mixed};
use kvarto::conformance::{BASES, Case, Kernel, Random};
use kvarto::kernel::PartialState;

#[test]
fn every_pair_of_choices_equals_the_dense_reference() {
    let mut backend = cpu();
    let (mut worst, cases) = (0.0f64, cases(FormatFactors::Pairs));
    for (number, case) in cases.iter().enumerate() {
        match case.check(&mut backend, TOLERANCE) {
            Ok(error) => worst = worst.max(error),
            Err(message) => panic!("case {number} of {}: {message}", cases.len()),
        }
    }
    println!("{} cases, largest error {worst:.2e}", cases.len());
}

#[test]
fn formats_mix_within_a_sequence() {
    let mut backend = cpu();
    for kernel in [Kernel::Decode, Kernel::Prefill] {
        for pages_per_item in [1, 2, usize::MAX] {
            let case = Case { pages_per_item, ..mixed(kernel) };
            case.check(&mut backend, TOLERANCE).unwrap();
        }
    }
}

#[test]
fn decode_and_prefill_agree() {
    let mut backend = cpu();
    let decode = Case { row_tile: 1, ..mixed(Kernel::Decode) }.build().expect("a case");
    let prefill = mixed(Kernel::Prefill).build().expect("a case");
    let (a, b) = (decode.run(&mut backend).unwrap(), prefill.run(&mut backend).unwrap());
    for row in 0..decode.rows {
        for head in 0..decode.case.q_heads() {
            for (a, b) in decode.output(&a, row, head).iter().zip(prefill.output(&b, row, head)) {
                assert!((a - b).abs() < 1e-5, "row {row} head {head}: {a} {b}");
            }
        }
    }
}

#[test]
fn the_same_step_gives_the_same_bits_on_any_number_of_threads() {
    let built = mixed(Kernel::Decode).build().expect("a case");
    let first = built.run(&mut cpu()).unwrap();
    let bits = |o: &kvarto::conformance::Outcome| o.partials.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    for threads in [1, 2, 3] {
        let mut backend = kvarto::backend::CpuBackend::new(threads).unwrap();
        for _ in 0..2 {
            let again = built.run(&mut backend).unwrap();
            assert!(first.out == again.out && bits(&first) == bits(&again), "{threads} threads");
        }
    }
}

#[test]
fn partial_states_merge_in_any_order() {
    let built = Case { pages_per_item: 1, basis: BASES[0], ..mixed(Kernel::Decode) }.build().expect("a case");
    let outcome = built.run(&mut cpu()).unwrap();
    let mut random = Random::new(5);
    for (index, states) in built.states_of.iter().enumerate() {
        let (row, head) = (index / built.case.q_heads(), index % built.case.q_heads());
        let mut order = states.clone();
        for _ in 0..3 {
            random.shuffle(&mut order);
            let mut merged = PartialState::empty(built.case.v_dim);
            // As a tree: two halves, then both.
            let mut other = merged.clone();
            for (i, &state) in order.iter().enumerate() {
                let state = PartialState::read(&outcome.partials, state, built.case.v_dim).expect("a state");
                if i % 2 == 0 { merged.merge(&state) } else { other.merge(&state) }
            }
            merged.merge(&other);
            for (a, b) in merged.output().iter().zip(built.output(&outcome, row, head)) {
                assert!((a - b).abs() < 2e-6, "row {row} head {head}: {a} {b}");
            }
        }
    }
}

#[test]
fn splits_do_not_matter() {
    let mut backend = cpu();
    for pages_per_item in [1, 2, 3, 5, 8, 13, 100] {
        let case = Case { sequences: vec![(4097, 2), (64, 1)], pages_per_item, ..Case::default() };
        case.check(&mut backend, TOLERANCE).unwrap();
    }
}

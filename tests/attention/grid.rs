//! Formats, head sizes, group sizes, page sizes, lengths, rows, splits, masks and bases, in all pairs of values.

use crate::harness::{BASES, Case, Formats, Kernel, Random};
use crate::{TOLERANCE, cpu};
use kvarto::kernel::PartialState;
use std::collections::BTreeSet;

/// One format pair for all pages: all pairs of five formats, and the others against themselves, f16 and one another.
const FORMATS: [Formats; 50] = {
    macro_rules! pairs {
        ($($k:literal)*, $($own:literal $other:literal)*) => { [
            $( |_, _| ($k, "f32"), |_, _| ($k, "f16"), |_, _| ($k, "bf16"), |_, _| ($k, "fp8"), |_, _| ($k, "tq3"), )*
            $(
                |_, _| ($own, $own), |_, _| ($own, "f16"), |_, _| ("f16", $own), |_, _| ($own, $other),
                |_, _| ($other, $own),
            )*
        ] };
    }
    pairs!(
        "f32" "f16" "bf16" "fp8" "tq3",
        "tq2" "tq3" "tq4" "tq2" "q8_0" "q4_0" "q4_0" "fp8" "q3_affine" "tq4"
    )
};
const DIMS: [(usize, usize); 6] = [(64, 64), (80, 80), (96, 96), (128, 128), (192, 128), (256, 256)];
const GROUPS: [usize; 5] = [1, 3, 4, 7, 8];
const PAGES: [usize; 4] = [16, 32, 64, 128];
const LENGTHS: [usize; 10] = [0, 1, 15, 16, 17, 63, 64, 65, 1000, 4097];
const ROWS: [usize; 6] = [1, 2, 5, 16, 40, 64];
const SPLITS: [usize; 4] = [1, 3, 8, usize::MAX];
const WINDOWS: [Option<u32>; 3] = [None, Some(1), Some(100)];
const CAPS: [Option<f32>; 2] = [None, Some(3.0)];
const SINKS: [Option<f32>; 2] = [None, Some(1.5)];

const LEVELS: [usize; 11] = [
    FORMATS.len(),
    DIMS.len(),
    GROUPS.len(),
    PAGES.len(),
    LENGTHS.len(),
    ROWS.len(),
    SPLITS.len(),
    WINDOWS.len(),
    CAPS.len(),
    SINKS.len(),
    BASES.len(),
];

/// The least head size from `dim` on that the format takes: blocks are of 32 channels.
pub fn head_dim(format: &str, dim: usize) -> usize {
    if ["q8_0", "q4_0"].contains(&format) { dim.next_multiple_of(32) } else { dim }
}

/// Choices of levels in which every pair of levels of two factors occurs (greedily, so not the fewest).
fn all_pairs() -> Vec<[usize; LEVELS.len()]> {
    let mut random = Random::new(17);
    let mut left = BTreeSet::new();
    for (b, levels_b) in LEVELS.into_iter().enumerate() {
        for (a, levels_a) in LEVELS.into_iter().enumerate().take(b) {
            left.extend((0..levels_a).flat_map(|x| (0..levels_b).map(move |y| (a, x, b, y))));
        }
    }
    let pairs = |choice: &[usize; LEVELS.len()]| {
        let choice = *choice;
        (0..LEVELS.len()).flat_map(move |a| (a + 1..LEVELS.len()).map(move |b| (a, choice[a], b, choice[b])))
    };
    let mut chosen = Vec::new();
    while let Some(&(a, x, b, y)) = left.first() {
        let candidate = (0..60).map(|_| {
            let mut choice = LEVELS.map(|n| random.below(n));
            (choice[a], choice[b]) = (x, y);
            choice
        });
        let best = candidate.max_by_key(|c| pairs(c).filter(|p| left.contains(p)).count()).expect("candidates");
        pairs(&best).for_each(|pair| {
            left.remove(&pair);
        });
        chosen.push(best);
    }
    chosen
}

#[test]
fn every_pair_of_choices_equals_the_dense_reference() {
    let mut backend = cpu();
    let (mut worst, cases) = (0.0f64, all_pairs());
    for (number, choice) in cases.iter().enumerate() {
        let [formats, dims, group, page, length, rows, split, window, cap, sink, basis] = *choice;
        let (k_format, v_format) = FORMATS[formats](0, 0);
        let (k_dim, v_dim) = (head_dim(k_format, DIMS[dims].0), head_dim(v_format, DIMS[dims].1));
        let (length, rows) = (LENGTHS[length], ROWS[rows]);
        // Two sequences of other lengths beside it; rows of none without tokens.
        let short = LENGTHS[number % 8];
        let lengths = [(length, rows.min(length)), (short, short.min(1)), (65 + number % 64, 3)];
        let case = Case {
            k_dim,
            v_dim,
            group: GROUPS[group],
            kv_heads: 1 + number % 2,
            page_tokens: PAGES[page],
            sequences: lengths.to_vec(),
            formats: FORMATS[formats],
            window: WINDOWS[window],
            softcap: CAPS[cap],
            sink: SINKS[sink],
            basis: BASES[basis],
            pages_per_item: SPLITS[split],
            row_tile: if rows > 16 { 32 } else { 16 },
            kernel: if rows > 16 { Kernel::Prefill } else { Kernel::Decode },
            first_position: [0, 1000][number % 2],
            seed: number as u64,
            ..Case::default()
        };
        match case.check(&mut backend, TOLERANCE) {
            Ok(error) => worst = worst.max(error),
            Err(message) => panic!("case {number} of {}: {message}", cases.len()),
        }
    }
    println!("{} cases, largest error {worst:.2e}", cases.len());
}

const MIXED: Formats = |sequence, page| {
    const NAMES: [&str; 10] = ["f32", "f16", "bf16", "fp8", "tq3", "tq2", "tq4", "q8_0", "q4_0", "q3_affine"];
    (NAMES[(page + sequence) % 10], NAMES[(page * 3 + page / 10 + sequence) % 10])
};

fn mixed(kernel: Kernel) -> Case {
    Case {
        k_dim: 128,
        v_dim: 128,
        group: 4,
        page_tokens: 16,
        sequences: vec![(700, 7), (0, 0), (333, 16), (1, 1), (16, 16), (90, 40)],
        formats: MIXED,
        basis: BASES[1],
        row_tile: if kernel == Kernel::Decode { 8 } else { 64 },
        kernel,
        ..Case::default()
    }
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
    let decode = Case { row_tile: 1, ..mixed(Kernel::Decode) }.build();
    let prefill = mixed(Kernel::Prefill).build();
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
    let built = mixed(Kernel::Decode).build();
    let first = built.run(&mut cpu()).unwrap();
    let bits = |o: &crate::harness::Outcome| o.partials.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
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
    let built = Case { pages_per_item: 1, basis: BASES[0], ..mixed(Kernel::Decode) }.build();
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

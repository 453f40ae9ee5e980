//! Formats, head sizes, group sizes, page sizes, lengths, rows, splits, masks and bases, in all pairs of values: the
//! cases that every backend's attention faces.

use super::{BASES, Case, Formats, Kernel, Random};
use std::collections::BTreeSet;

/// One format pair for all pages: all pairs of five formats, then the others against themselves, f16 and one another.
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
/// Pairs of the first five formats.
const FIRST_PAIRS: usize = 25;
/// The built-in formats.
pub const NAMES: [&str; 11] = ["f32", "f16", "bf16", "fp8", "tq3", "tq2", "tq4", "q8_0", "q4_0", "q3_affine", "tq3n"];
const DIMS: [(usize, usize); 6] = [(64, 64), (80, 80), (96, 96), (128, 128), (192, 128), (256, 256)];
const GROUPS: [usize; 5] = [1, 3, 4, 7, 8];
const PAGES: [usize; 4] = [16, 32, 64, 128];
const LENGTHS: [usize; 10] = [0, 1, 15, 16, 17, 63, 64, 65, 1000, 4097];
const ROWS: [usize; 6] = [1, 2, 5, 16, 40, 64];
/// Where [`ROWS`] stand among the factors beside formats.
const ROWS_FACTOR: usize = 4;
/// More rows than this are a prefill.
const MOST_DECODE_ROWS: usize = 16;
const SPLITS: [usize; 4] = [1, 3, 8, usize::MAX];
const WINDOWS: [Option<u32>; 3] = [None, Some(1), Some(100)];
const CAPS: [Option<f32>; 2] = [None, Some(3.0)];
const SINKS: [Option<f32>; 2] = [None, Some(1.5)];

/// Values of the factors beside formats.
const LEVELS: [usize; 10] = [
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

/// How formats enter the pairs.
#[derive(Clone, Copy, Debug)]
pub enum FormatFactors {
    /// Each pair of formats is a value of one factor: it meets every value of every other.
    Pairs,
    /// The first five formats of K and of V are two factors: every pair of them occurs, and each meets every value of
    /// every other factor on either side. The further pairs occur once each, the other factors' values in turn.
    Sides,
}

/// The least head size from `dim` on that the format takes: blocks are of 32 channels.
pub fn head_dim(format: &str, dim: usize) -> usize {
    if ["q8_0", "q4_0"].contains(&format) { dim.next_multiple_of(32) } else { dim }
}

/// Choices of levels in which every pair of levels of two factors occurs (greedily, so not the fewest).
fn all_pairs(levels: &[usize]) -> Vec<Vec<usize>> {
    let mut random = Random::new(17);
    let mut left = BTreeSet::new();
    for (b, &levels_b) in levels.iter().enumerate() {
        for (a, &levels_a) in levels.iter().enumerate().take(b) {
            left.extend((0..levels_a).flat_map(|x| (0..levels_b).map(move |y| (a, x, b, y))));
        }
    }
    let pairs = |choice: &[usize]| -> Vec<_> {
        let others = |a: usize| (a + 1..choice.len()).map(move |b| (a, choice[a], b, choice[b]));
        (0..choice.len()).flat_map(others).collect()
    };
    let mut chosen = Vec::new();
    while let Some(&(a, x, b, y)) = left.first() {
        let candidate = (0..60).map(|_| {
            let mut choice: Vec<usize> = levels.iter().map(|&n| random.below(n)).collect();
            (choice[a], choice[b]) = (x, y);
            choice
        });
        let new = |choice: &Vec<usize>| pairs(choice).iter().filter(|p| left.contains(p)).count();
        let best = candidate.max_by_key(new).expect("candidates");
        for pair in pairs(&best) {
            left.remove(&pair);
        }
        chosen.push(best);
    }
    chosen
}

/// The formats, and the levels of the other factors.
fn split(choice: &[usize]) -> (Formats, &[usize]) {
    let (formats, others) = choice.split_at(choice.len() - LEVELS.len());
    (FORMATS[formats.iter().fold(0, |at, &choice| at * 5 + choice)], others)
}

fn case(number: usize, choice: &[usize]) -> Case {
    let (formats, others) = split(choice);
    let &[dims, group, page, length, rows, split, window, cap, sink, basis] = others else {
        panic!("{} factors beside formats", others.len());
    };
    let (k_format, v_format) = formats(0, 0);
    let (k_dim, v_dim) = (head_dim(k_format, DIMS[dims].0), head_dim(v_format, DIMS[dims].1));
    let (length, rows) = (LENGTHS[length], ROWS[rows]);
    // Two sequences of other lengths beside it; rows of none without tokens.
    let short = LENGTHS[number % 8];
    let lengths = [(length, rows.min(length)), (short, short.min(1)), (65 + number % 64, 3)];
    Case {
        k_dim,
        v_dim,
        group: GROUPS[group],
        kv_heads: 1 + number % 2,
        page_tokens: PAGES[page],
        sequences: lengths.to_vec(),
        formats,
        window: WINDOWS[window],
        softcap: CAPS[cap],
        sink: SINKS[sink],
        basis: BASES[basis],
        pages_per_item: SPLITS[split],
        row_tile: if rows > MOST_DECODE_ROWS { 32 } else { 16 },
        kernel: if rows > MOST_DECODE_ROWS { Kernel::Prefill } else { Kernel::Decode },
        first_position: [0, 1000][number % 2],
        seed: number as u64,
        workgroup: [64, 128, 256][number % 3],
        ..Case::default()
    }
}

/// The cases, in an order that is always the same.
pub fn cases(factors: FormatFactors) -> Vec<Case> {
    choices(factors).iter().enumerate().map(|(number, choice)| case(number, choice)).collect()
}

/// A part of the cases of [`FormatFactors::Sides`], with their numbers there: every format that occurs on a side with a
/// kernel is met so, and every value of every other factor at least once (greedily, so not the fewest).
pub fn covering() -> Vec<(usize, Case)> {
    let choices = choices(FormatFactors::Sides);
    let values = |choice: &[usize]| -> BTreeSet<(bool, usize, usize)> {
        let (formats, others) = split(choice);
        let at = |name| NAMES.iter().position(|n| *n == name).unwrap_or(NAMES.len());
        let (k, v) = formats(0, 0);
        let prefill = ROWS[others[ROWS_FACTOR]] > MOST_DECODE_ROWS;
        let formats = [(prefill, 0, at(k)), (prefill, 1, at(v))];
        let others = others.iter().enumerate().map(|(factor, &level)| (false, 2 + factor, level));
        formats.into_iter().chain(others).collect()
    };
    let of: Vec<_> = choices.iter().map(|choice| values(choice)).collect();
    let mut left: BTreeSet<_> = of.iter().flatten().copied().collect();
    let mut chosen = BTreeSet::new();
    while !left.is_empty() {
        let new = |number: &usize| of[*number].intersection(&left).count();
        // The first of the best: `max_by_key` gives the last.
        let Some(best) = (0..of.len()).rev().max_by_key(new) else { break };
        left.retain(|value| !of[best].contains(value));
        chosen.insert(best);
    }
    chosen.into_iter().map(|number| (number, case(number, &choices[number]))).collect()
}

fn choices(factors: FormatFactors) -> Vec<Vec<usize>> {
    match factors {
        FormatFactors::Pairs => all_pairs(&[&[FORMATS.len()], &LEVELS[..]].concat()),
        FormatFactors::Sides => {
            let mut choices = all_pairs(&[&[5, 5], &LEVELS[..]].concat());
            // A stride for each factor, so that their values do not go together.
            choices.extend((FIRST_PAIRS..FORMATS.len()).map(|pair| {
                let others = LEVELS.iter().enumerate().map(|(factor, levels)| pair * (factor + 1) % levels);
                [pair / 5, pair % 5].into_iter().chain(others).collect()
            }));
            choices
        }
    }
}

/// Pages of all formats within a sequence, in other combinations of K and V in each.
pub const MIXED: Formats = |sequence, page| {
    // Every format on either side, but few pairs: each is a kernel of its own to compile.
    let at = (page + sequence) % 10;
    (NAMES[at], NAMES[(at * 3 + 1) % 10])
};

/// V of heads whose last block of channels is short, beside a full one.
const SHORT: Formats =
    |_, page| [("f16", "tq3"), ("fp8", "tq2"), ("f16", "tq4"), ("f16", "fp8"), ("f16", "q3_affine")][page % 5];

/// A head of V with a full and a short block of 128 channels, in pages of as many tokens.
pub fn short_block(kernel: Kernel, page_tokens: usize) -> Case {
    Case {
        k_dim: 64,
        v_dim: 192,
        group: 2,
        page_tokens,
        formats: SHORT,
        sequences: vec![(page_tokens * 6, 2)],
        ..mixed(kernel)
    }
}

/// Pages in two parts on either side and on both, beside some in one piece.
const PARTS: Formats = |_, page| [("tq3n", "tq3n"), ("tq3n", "fp8"), ("f16", "tq3n"), ("tq2", "f16")][page % 4];

/// Pages whose further parts stand in slabs of their own.
pub fn in_parts(kernel: Kernel) -> Case {
    Case {
        k_dim: 96,
        v_dim: 96,
        group: 4,
        formats: PARTS,
        in_parts: true,
        basis: BASES[1],
        sequences: vec![(700, 2), (130, if kernel == Kernel::Decode { 1 } else { 40 })],
        row_tile: if kernel == Kernel::Decode { 2 } else { 32 },
        kernel,
        ..Case::default()
    }
}

/// The widest window that there is, beside which no position may wrap.
pub fn widest_window(kernel: Kernel) -> Case {
    Case {
        k_dim: 64,
        v_dim: 64,
        group: 2,
        window: Some(u32::MAX),
        sequences: vec![(300, 1), (70, if kernel == Kernel::Decode { 2 } else { 40 })],
        row_tile: if kernel == Kernel::Decode { 2 } else { 32 },
        kernel,
        ..Case::default()
    }
}

/// Long, empty and short sequences of one to forty rows, over [`MIXED`] pages.
pub fn mixed(kernel: Kernel) -> Case {
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

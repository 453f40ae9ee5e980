//! Inputs of the self-test, and dense attention in f64 over what pages hold: every score, one softmax, one sum.

use super::{HEAD_DIM, KV_HEADS, LAYERS, Q_HEADS, STEPS};
use crate::num::hadamard_sign;

/// Rows of one layer: `[token][head][channel]`.
pub(super) struct Layer {
    pub q: Vec<f32>,
    pub k: Vec<f32>,
    pub v: Vec<f32>,
}

/// All tokens of all layers.
pub(super) struct Data(pub Vec<Layer>);

impl Data {
    pub fn new() -> Self {
        let tokens: usize = STEPS.iter().sum();
        let mut random = Normal(0x6b76_6172_746f);
        let layers = (0..LAYERS).map(|_| Layer {
            q: random.take(tokens * Q_HEADS * HEAD_DIM),
            k: random.take(tokens * KV_HEADS * HEAD_DIM),
            v: random.take(tokens * KV_HEADS * HEAD_DIM),
        });
        Data(layers.collect())
    }
}

/// The vector of a token and head.
pub(super) fn vector(x: &[f32], heads: usize, token: usize, head: usize) -> &[f32] {
    &x[(token * heads + head) * HEAD_DIM..][..HEAD_DIM]
}

/// Keys and values of one KV head, a vector a token, in the model's coordinates.
#[derive(Default)]
pub(super) struct Held {
    pub keys: Vec<Vec<f64>>,
    pub values: Vec<Vec<f64>>,
}

/// Output of a query that sees the first `seen` tokens.
pub(super) fn attend(held: &Held, seen: usize, query: &[f32]) -> Vec<f64> {
    let dot = |key: &Vec<f64>| key.iter().zip(query).map(|(k, &q)| k * f64::from(q)).sum::<f64>();
    let scores: Vec<f64> = held.keys[..seen].iter().map(|k| dot(k) / (HEAD_DIM as f64).sqrt()).collect();
    let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
    let total: f64 = weights.iter().sum();
    let mut out = vec![0.0; HEAD_DIM];
    for (weight, value) in weights.iter().zip(&held.values) {
        for (out, v) in out.iter_mut().zip(value) {
            *out += weight / total * v;
        }
    }
    out
}

/// Rows of vectors in f64, out of the rotated basis where they are in it: the textbook's matrix, entry (i, j) being
/// (-1)^popcount(i & j) / sqrt(block), then the channels' signs.
pub(super) fn model_coordinates(rows: &[f32], rotated: bool) -> Vec<Vec<f64>> {
    let wide = rows.chunks(HEAD_DIM).map(|row| row.iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
    if !rotated {
        return wide.collect();
    }
    let block = 1usize << HEAD_DIM.trailing_zeros();
    wide.map(|row| {
        let entry = |c: usize| {
            let start = c / block * block;
            let signed =
                |j: usize| if ((c - start) & j).count_ones() % 2 == 1 { -row[start + j] } else { row[start + j] };
            (0..block).map(signed).sum::<f64>() / (block as f64).sqrt() * f64::from(hadamard_sign(c as u32))
        };
        (0..HEAD_DIM).map(entry).collect()
    })
    .collect()
}

/// The larger of `worst` and the length of the difference, as a fraction of the expected vector's; NaN as soon as
/// anything is.
pub(super) fn worst_of(worst: f64, got: &[f32], expected: &[f64]) -> f64 {
    let length = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let off = length(&mut got.iter().zip(expected).map(|(&g, e)| f64::from(g) - e));
    let error = off / length(&mut expected.iter().copied());
    if worst.is_nan() || error <= worst { worst } else { error }
}

/// Standard normal numbers by Box and Muller over SplitMix64: the same on every machine.
struct Normal(u64);

impl Normal {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((z ^ (z >> 31)) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn take(&mut self, count: usize) -> Vec<f32> {
        let mut next = || ((-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()) as f32;
        (0..count).map(|_| next()).collect()
    }
}

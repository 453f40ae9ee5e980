//! Inputs of the self-test, and dense attention over them in f64: every score, one softmax, one sum.

use super::{HEAD_DIM, KV_HEADS, LAYERS, Q_HEADS, STEPS};

/// Rows of one layer in one step.
pub(super) struct Rows<'a> {
    pub q: &'a [f32],
    pub k: &'a [f32],
    pub v: &'a [f32],
    pub expected: &'a [f64],
}

struct Layer {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    expected: Vec<f64>,
}

/// All tokens of all layers: `[token][head][channel]`.
pub(super) struct Data(Vec<Layer>);

impl Data {
    pub fn new() -> Self {
        let tokens: usize = STEPS.iter().sum();
        let mut random = Normal(0x6b76_6172_746f);
        let layers = (0..LAYERS).map(|_| {
            let q = random.take(tokens * Q_HEADS * HEAD_DIM);
            let k = random.take(tokens * KV_HEADS * HEAD_DIM);
            let v = random.take(tokens * KV_HEADS * HEAD_DIM);
            let expected = attend(&q, &k, &v, tokens);
            Layer { q, k, v, expected }
        });
        Data(layers.collect())
    }

    /// `rows` rows from token `at` on.
    pub fn rows(&self, layer: usize, at: usize, rows: usize) -> Rows<'_> {
        let l = &self.0[layer];
        let (q, kv) = (Q_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM);
        Rows {
            q: &l.q[at * q..(at + rows) * q],
            k: &l.k[at * kv..(at + rows) * kv],
            v: &l.v[at * kv..(at + rows) * kv],
            expected: &l.expected[at * q..(at + rows) * q],
        }
    }

    /// Makes one head's expected output that of another.
    #[cfg(test)]
    pub fn spoil(&mut self) {
        let expected = &mut self.0[LAYERS - 1].expected;
        let end = expected.len();
        expected.copy_within(0..HEAD_DIM, end - HEAD_DIM);
    }
}

/// Exact outputs of all queries, each over the tokens up to its own.
fn attend(q: &[f32], k: &[f32], v: &[f32], tokens: usize) -> Vec<f64> {
    let row = |x: &[f32], heads: usize, token: usize, head: usize| -> Vec<f64> {
        let at = (token * heads + head) * HEAD_DIM;
        x[at..at + HEAD_DIM].iter().map(|&x| f64::from(x)).collect()
    };
    let all = |x: &[f32], head: usize| -> Vec<Vec<f64>> { (0..tokens).map(|t| row(x, KV_HEADS, t, head)).collect() };
    let mut out = vec![0.0; tokens * Q_HEADS * HEAD_DIM];
    for head in 0..Q_HEADS {
        let kv_head = head / (Q_HEADS / KV_HEADS);
        let (keys, values) = (all(k, kv_head), all(v, kv_head));
        for token in 0..tokens {
            let query = row(q, Q_HEADS, token, head);
            let dot = |key: &Vec<f64>| key.iter().zip(&query).map(|(k, q)| k * q).sum::<f64>();
            let scores: Vec<f64> = keys[..=token].iter().map(|k| dot(k) / (HEAD_DIM as f64).sqrt()).collect();
            let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
            let total: f64 = weights.iter().sum();
            let at = (token * Q_HEADS + head) * HEAD_DIM;
            for (weight, value) in weights.iter().zip(&values) {
                for (out, v) in out[at..at + HEAD_DIM].iter_mut().zip(value) {
                    *out += weight / total * v;
                }
            }
        }
    }
    out
}

/// The larger of `worst` and the relative errors of heads' outputs; NaN as soon as one is.
pub(super) fn worst_of(worst: f64, got: &[f32], expected: &[f64]) -> f64 {
    let heads = got.chunks(HEAD_DIM).zip(expected.chunks(HEAD_DIM));
    heads.fold(worst, |worst, (got, expected)| {
        let length = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
        let off = length(&mut got.iter().zip(expected).map(|(&g, e)| f64::from(g) - e));
        let error = off / length(&mut expected.iter().copied());
        if worst.is_nan() || error <= worst { worst } else { error }
    })
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

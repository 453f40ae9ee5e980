//! Dense attention in f64, the textbook's way: every score, one softmax, one weighted sum.
//!
//! It shares no code with the library's kernels and knows nothing of pages, splits or bases.

/// One cached token of one KV head, in the model's own coordinates.
#[derive(Clone, Debug)]
pub struct Token {
    /// Position in its sequence.
    pub position: u64,
    /// `k_dim` channels.
    pub key: Vec<f64>,
    /// `v_dim` channels.
    pub value: Vec<f64>,
}

/// One query of one head.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// `k_dim` channels.
    pub q: &'a [f64],
    /// Position of its row.
    pub position: u64,
    /// Factor of the dot products.
    pub scale: f64,
    /// Tokens seen, the query's own included.
    pub window: Option<u64>,
    /// The most that a logit can be.
    pub softcap: Option<f64>,
    /// A logit that takes weight and gives no value.
    pub sink: Option<f64>,
}

/// Output of the query over the tokens, zeros when it sees none.
pub fn attend(tokens: &[Token], query: &Query<'_>, v_dim: usize) -> Vec<f64> {
    let seen = |t: &&Token| {
        t.position <= query.position && query.window.is_none_or(|window| query.position - t.position < window)
    };
    let tokens: Vec<&Token> = tokens.iter().filter(seen).collect();
    if tokens.is_empty() {
        return vec![0.0; v_dim];
    }
    let mut scores: Vec<f64> = tokens
        .iter()
        .map(|t| {
            let dot: f64 = t.key.iter().zip(query.q).map(|(k, q)| k * q).sum();
            let s = dot * query.scale;
            query.softcap.map_or(s, |cap| cap * (s / cap).tanh())
        })
        .collect();
    scores.extend(query.sink);
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, |a, b| if b <= a { a } else { b });
    let weights: Vec<f64> = scores.iter().map(|s| (s - largest).exp()).collect();
    let total: f64 = weights.iter().sum();
    let mut out = vec![0.0; v_dim];
    for (t, w) in tokens.iter().zip(&weights) {
        for (o, v) in out.iter_mut().zip(&t.value) {
            *o += w / total * v;
        }
    }
    out
}

/// The inverse of the storage transform of one row: blocks of the largest power of two that divides its length,
/// by the matrix with entries (−1)^popcount(i & j) / √block, then the channels' signs.
pub fn unrotate(row: &[f64], sign: impl Fn(u32) -> f32) -> Vec<f64> {
    let block = 1usize << row.len().trailing_zeros();
    let scale = 1.0 / (block as f64).sqrt();
    (0..row.len())
        .map(|c| {
            let start = c / block * block;
            let sum: f64 = (0..block)
                .map(|j| if ((c - start) & j).count_ones() % 2 == 1 { -row[start + j] } else { row[start + j] })
                .sum();
            sum * scale * f64::from(sign(c as u32))
        })
        .collect()
}

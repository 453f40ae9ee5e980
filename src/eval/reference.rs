//! What the dense cache says of a batch of windows: the rows that others replay, and the logits they are held against.

use super::prefill::Prefill;
use super::scores::{RowScore, score_row};
use rayon::prelude::*;

/// The dense cache's words on windows of equal length.
#[derive(Clone, Debug)]
pub struct Reference {
    /// Rows of each window's tokens before the first scored one's query.
    pub prefills: Vec<Prefill>,
    /// Of each window `[scored token][vocab]`.
    pub(super) logits: Vec<Vec<f32>>,
    pub(super) vocab: usize,
}

impl Reference {
    /// Bytes of a batch's logits.
    pub fn logit_bytes(windows: usize, scored: usize, vocab: usize) -> u64 {
        (windows as u64).saturating_mul(scored as u64).saturating_mul(vocab as u64).saturating_mul(4)
    }

    /// Scores `rows` tokens from `first` on of every window against `logits`, `[window][row][vocab]`; `targets` are the
    /// windows' tokens that follow. By window.
    pub fn score(&self, first: usize, rows: usize, logits: &[f32], targets: &[&[u32]]) -> Vec<Vec<RowScore>> {
        let count = self.logits.len() * rows;
        let scores: Vec<RowScore> = (0..count)
            .into_par_iter()
            .map(|at| {
                let (window, row) = (at / rows, at % rows);
                let reference = &self.logits[window][(first + row) * self.vocab..][..self.vocab];
                score_row(reference, &logits[at * self.vocab..][..self.vocab], targets[window][first + row])
            })
            .collect();
        scores.chunks(rows.max(1)).map(<[RowScore]>::to_vec).collect()
    }
}

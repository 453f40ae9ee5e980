//! How scored tokens are fed: one a step, or more where that is the same.

use crate::engine::SeqId;
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Answer, Model, ModelRows};
use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

/// How the tokens of a window are fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One query a step, as decoding does.
    Stepwise,
    /// Several rows a step, cut where the cache would change between one-row steps ([`crate::engine::Engine::steady_rows`]):
    /// each query sees for every key what the stepwise cache holds then. In the middle of each stretch one row goes alone:
    /// its time is that of decoding, and its reads count for the stretch.
    Emulated,
    /// Steps of that many rows, whatever the cache does. An exact tail is then as much longer as a step has rows, so the
    /// results flatter every profile that has one.
    Chunked(usize),
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mode::Stepwise => f.write_str("stepwise"),
            Mode::Emulated => f.write_str("emulated"),
            Mode::Chunked(rows) => write!(f, "chunked by {rows}"),
        }
    }
}

/// Time that feeding took, and what its steps read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// Rows of steps with one row a sequence.
    pub single_rows: u64,
    /// Their time.
    pub single: Duration,
    /// All rows.
    pub rows: u64,
    /// All time, scoring on the host left out.
    pub all: Duration,
    /// Bits read a cached value, summed over the rows that single steps stand for.
    read_bits: f64,
    /// Those rows.
    read_rows: f64,
}

impl Pace {
    /// Tokens a second of steps with one row a sequence.
    pub fn decode_tokens_per_s(&self) -> Option<f64> {
        rate(self.single_rows, self.single)
    }

    /// Bits of pages read a cached value in a step of one row a sequence, mean over all rows.
    pub fn read_bits_per_value(&self) -> Option<f64> {
        (self.read_rows > 0.0).then(|| self.read_bits / self.read_rows)
    }

    /// Tokens a second of all steps.
    pub fn tokens_per_s(&self) -> Option<f64> {
        rate(self.rows, self.all)
    }
}

fn rate(rows: u64, time: Duration) -> Option<f64> {
    (rows > 0 && !time.is_zero()).then(|| rows as f64 / time.as_secs_f64())
}

/// Feeds each sequence its tokens, all sequences in the same steps, and hands over the logits after every token:
/// `hear(first token, rows, logits)` with `logits` as `[sequence][row][vocab]`.
///
/// # Errors
/// `Shape` for lists of different lengths, or more sequences than a step has rows; `Interrupted` when `stop` says so between
/// steps; as [`Model::step`], and what `hear` says.
pub fn feed(
    model: &mut Model,
    sequences: &[(SeqId, &[u32])],
    mode: Mode,
    mut hear: impl FnMut(usize, usize, &[f32]) -> Result<()>,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Pace> {
    let count = sequences.first().map_or(0, |(_, tokens)| tokens.len());
    if sequences.iter().any(|(_, tokens)| tokens.len() != count) {
        return Err(Error::new(ErrorKind::Shape, "sequences of one batch are fed the same number of tokens", ""));
    }
    let most = model.chunk_tokens().min(model.logit_rows()) / sequences.len().max(1);
    if most == 0 {
        return Err(Error::new(
            ErrorKind::Shape,
            format!("{} sequences in steps of {} rows", sequences.len(), model.chunk_tokens()),
            "score fewer windows at once",
        ));
    }
    let ids: Vec<SeqId> = sequences.iter().map(|&(seq, _)| seq).collect();
    let (mut pace, mut at) = (Pace::default(), 0);
    // Rows of the steps to come, and for how many rows' reads each stands.
    let mut ahead: VecDeque<(usize, usize)> = VecDeque::new();
    while at < count {
        if stop() {
            return Err(Error::new(ErrorKind::Interrupted, "stopped while scoring", ""));
        }
        let Some((rows, stands_for)) = ahead.pop_front() else {
            let left = most.min(count - at);
            match mode {
                Mode::Stepwise => ahead.push_back((1, 1)),
                Mode::Chunked(rows) => ahead.push_back((rows.clamp(1, left), 1)),
                Mode::Emulated => {
                    let rows = (model.engine().steady_rows(&ids)? as usize).min(left);
                    let before = (rows - 1) / 2;
                    ahead.extend([(before, 0), (1, rows), (rows - 1 - before, 0)].into_iter().filter(|s| s.0 > 0));
                }
            }
            continue;
        };
        let step: Vec<ModelRows<'_>> = sequences
            .iter()
            .map(|&(seq, tokens)| ModelRows {
                seq,
                tokens: &tokens[at..at + rows],
                committed: true,
                answer: Answer::AllLogits,
            })
            .collect();
        let read_before = model.engine().reads();
        let start = Instant::now();
        let answers = model.step(&step)?;
        let time = start.elapsed();
        let fed = (rows * sequences.len()) as u64;
        pace.rows += fed;
        pace.all += time;
        if rows == 1 {
            pace.single_rows += fed;
            pace.single += time;
            let (steps, bits) = model.engine().reads();
            if steps > read_before.0 {
                pace.read_rows += stands_for as f64;
                pace.read_bits += (bits - read_before.1) * stands_for as f64;
            }
        }
        hear(at, rows, &answers.logits)?;
        at += rows;
    }
    Ok(pace)
}

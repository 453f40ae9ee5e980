//! How scored tokens are fed: one a step, or more where that is the same.

use crate::engine::SeqId;
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Answer, Model, ModelRows};
use std::fmt;
use std::time::{Duration, Instant};

/// How the tokens of a window are fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One query a step, as decoding does.
    Stepwise,
    /// Several rows a step, cut where the cache would change between one-row steps ([`crate::engine::Engine::steady_rows`]):
    /// each query sees for every key what the stepwise cache holds then. Every other step has one row, whose time and
    /// reads are those of decoding.
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

/// Time that feeding took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Rows of steps with one row a sequence.
    pub single_rows: u64,
    /// Their time.
    pub single: Duration,
    /// All rows.
    pub rows: u64,
    /// All time, scoring on the host left out.
    pub all: Duration,
}

impl Pace {
    /// Tokens a second of steps with one row a sequence.
    pub fn decode_tokens_per_s(&self) -> Option<f64> {
        rate(self.single_rows, self.single)
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
    let (mut pace, mut at, mut single_next) = (Pace::default(), 0, true);
    while at < count {
        if stop() {
            return Err(Error::new(ErrorKind::Interrupted, "stopped while scoring", ""));
        }
        let rows = match mode {
            Mode::Stepwise => 1,
            Mode::Chunked(rows) => rows.max(1),
            Mode::Emulated if single_next => 1,
            Mode::Emulated => model.engine().steady_rows(&ids)? as usize,
        };
        let rows = rows.min(most).min(count - at);
        single_next = rows > 1;
        let step: Vec<ModelRows<'_>> = sequences
            .iter()
            .map(|&(seq, tokens)| ModelRows {
                seq,
                tokens: &tokens[at..at + rows],
                committed: true,
                answer: Answer::AllLogits,
            })
            .collect();
        let start = Instant::now();
        let answers = model.step(&step)?;
        let time = start.elapsed();
        let fed = (rows * sequences.len()) as u64;
        pace.rows += fed;
        pace.all += time;
        if rows == 1 {
            pace.single_rows += fed;
            pace.single += time;
        }
        hear(at, rows, &answers.logits)?;
        at += rows;
    }
    Ok(pace)
}

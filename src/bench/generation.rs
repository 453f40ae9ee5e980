//! A model's speed at a depth: the prefill that leads there, and single tokens from there on.

use super::Quantiles;
use crate::error::{Error, ErrorKind, Result};
use crate::model::tokenizer::Tokenizer;
use crate::model::{Answer, Model, ModelRows};
use std::time::Instant;

/// What was measured.
#[derive(Clone, Debug)]
pub struct GenerationReport {
    /// Tokens in the cache before the first timed decode.
    pub depth: usize,
    /// Tokens a second of the prefill that filled them.
    pub prefill_tokens_per_s: f64,
    /// Tokens a second of single-token steps, each step one sample.
    pub decode_tokens_per_s: Quantiles,
    /// Bits of slots in use a cached value.
    pub resident_bits_per_value: Option<f64>,
    /// Bits read a cached value, mean over the steps.
    pub read_bits_per_value: Option<f64>,
}

/// Plain words for prompts of any length.
const TEXT: &str = "The cache of a language model holds a key and a value for every token, layer and head. ";

/// Refuses what does not fit a model of `positions` positions.
///
/// # Errors
/// `Usage` with the limit and the values.
pub fn check_depth(depth: usize, steps: usize, positions: usize) -> Result<()> {
    match depth > 0 && steps > 0 && depth.saturating_add(steps) <= positions {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::Usage,
            format!("depth {depth} and {steps} tokens; the model has {positions} positions"),
            "give 1 or more of each, and together no more than it has",
        )),
    }
}

/// Prefills `depth` tokens and decodes `steps` more, greedily.
///
/// # Errors
/// `Usage` when they do not fit the model's positions; as [`Model::step`].
pub fn generation(model: &mut Model, tokenizer: &Tokenizer, depth: usize, steps: usize) -> Result<GenerationReport> {
    check_depth(depth, steps, model.config().context_length)?;
    let unit = tokenizer.encode(TEXT, false)?;
    if unit.is_empty() {
        return Err(Error::new(
            ErrorKind::File,
            "the tokenizer makes no tokens of plain English",
            "check the model file",
        ));
    }
    let prompt: Vec<u32> = unit.iter().copied().cycle().take(depth).collect();
    // Once for nothing: memory is touched and threads are awake.
    let warm = model.engine().create()?;
    model.prefill(warm, &prompt[..depth.min(32)], Answer::Best, |_| false)?;
    model.engine().release(warm)?;

    let seq = model.engine().create()?;
    let start = Instant::now();
    let mut answer = model.prefill(seq, &prompt, Answer::Best, |_| false)?;
    let prefill_tokens_per_s = depth as f64 / start.elapsed().as_secs_f64();
    let mut speeds = Vec::with_capacity(steps);
    for _ in 0..steps {
        let start = Instant::now();
        answer = model.step(&[ModelRows { seq, tokens: &answer.best, committed: true, answer: Answer::Best }])?;
        speeds.push(1.0 / start.elapsed().as_secs_f64());
    }
    let stats = model.engine().stats();
    model.engine().release(seq)?;
    let decode_tokens_per_s =
        Quantiles::of(speeds).ok_or_else(|| Error::new(ErrorKind::Device, "no times were taken", ""))?;
    Ok(GenerationReport {
        depth,
        prefill_tokens_per_s,
        decode_tokens_per_s,
        resident_bits_per_value: stats.resident_bits_per_value,
        read_bits_per_value: stats.read_bits_per_value,
    })
}

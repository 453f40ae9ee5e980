//! From logits to the next token.
//!
//! The chain is llama.cpp's: repeat penalty, top-k, top-p, min-p, temperature, draw. The numbers are plain
//! IEEE additions and multiplications, our own exponential among them, so that one seed gives the same
//! tokens on every platform.

use std::cmp::Ordering;

use crate::error::{Error, ErrorKind, Result};

mod math;

use math::{SplitMix64, exp};

/// How to sample. The defaults are llama.cpp's, with the repeat penalty off.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerOptions {
    /// Divides the logits before the draw; 0 takes the likeliest token.
    pub temperature: f32,
    /// Keep this many likeliest tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep the fewest likeliest tokens whose probabilities reach this; 1 keeps all.
    pub top_p: f32,
    /// Keep tokens at least this share as likely as the likeliest; 0 keeps all.
    pub min_p: f32,
    /// Divides positive logits of recent tokens and multiplies negative ones; 1 changes nothing.
    pub repeat_penalty: f32,
    /// How many of the newest tokens count as recent; 0 turns the penalty off.
    pub repeat_last_n: usize,
    /// The seed of the draws; `None` takes one from the system.
    pub seed: Option<u64>,
}

impl Default for SamplerOptions {
    fn default() -> Self {
        SamplerOptions {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repeat_penalty: 1.0,
            repeat_last_n: 64,
            seed: None,
        }
    }
}

impl SamplerOptions {
    /// Checks every number; the `Usage` error names the flag.
    pub fn validate(&self) -> Result<()> {
        // Each test is written so that NaN fails it.
        let checks = [
            ("--temperature", self.temperature, (0.0..=1e4).contains(&self.temperature), "a number from 0 to 10000"),
            ("--top-p", self.top_p, (0.0..=1.0).contains(&self.top_p), "a number from 0 to 1"),
            ("--min-p", self.min_p, (0.0..=1.0).contains(&self.min_p), "a number from 0 to 1"),
            (
                "--repeat-penalty",
                self.repeat_penalty,
                (0.01..=100.0).contains(&self.repeat_penalty),
                "a number from 0.01 to 100",
            ),
        ];
        match checks.iter().find(|(_, _, valid, _)| !valid) {
            None => Ok(()),
            Some((flag, value, _, wanted)) => {
                Err(Error::new(ErrorKind::Usage, format!("{flag} is {value}; {wanted} is wanted"), "change the flag"))
            }
        }
    }
}

/// Draws tokens. Holds the state of its random numbers and the room it sorts in.
#[derive(Clone, Debug)]
pub struct Sampler {
    options: SamplerOptions,
    seed: u64,
    random: SplitMix64,
    candidates: Vec<Candidate>,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    id: u32,
    logit: f32,
    /// Not yet divided by the sum over all candidates.
    weight: f64,
}

impl Sampler {
    /// A sampler with checked options.
    pub fn new(options: SamplerOptions) -> Result<Self> {
        options.validate()?;
        let seed = options.seed.unwrap_or_else(rand::random);
        Ok(Sampler { options, seed, random: SplitMix64::new(seed), candidates: Vec::new() })
    }

    /// The seed in use, given or taken from the system: the same one gives the same tokens again.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The next token after `history` (oldest first), from one row of logits; applies the penalty to `logits`.
    ///
    /// A NaN or +∞ among the logits, or nothing above -∞, is a `Device` error; no logits, or a recent token
    /// outside them, is a `Shape` error. Ties go to the lowest id.
    pub fn sample(&mut self, logits: &mut [f32], history: &[u32]) -> Result<u32> {
        check(logits)?;
        self.penalise(logits, history)?;
        let options = &self.options;
        // The likeliest is all that temperature 0 needs, and no filter ever takes it away.
        if options.temperature == 0.0 {
            return Ok(arg_max(logits));
        }
        let all = logits.iter().enumerate().filter(|(_, l)| **l > f32::NEG_INFINITY);
        self.candidates.clear();
        self.candidates.extend(all.map(|(id, &logit)| Candidate { id: id as u32, logit, weight: 0.0 }));
        if options.top_k > 0 && options.top_k < self.candidates.len() {
            self.candidates.select_nth_unstable_by(options.top_k - 1, likelier);
            self.candidates.truncate(options.top_k);
        }
        // One order for sums and draws, whatever the selection above left.
        self.candidates.sort_unstable_by(likelier);
        self.keep_top_p();
        self.keep_min_p();
        Ok(self.draw())
    }

    fn penalise(&self, logits: &mut [f32], history: &[u32]) -> Result<()> {
        let SamplerOptions { repeat_penalty, repeat_last_n, .. } = self.options;
        let mut recent = history[history.len().saturating_sub(repeat_last_n)..].to_vec();
        if repeat_penalty == 1.0 || recent.is_empty() {
            return Ok(());
        }
        // Once a token, however often it came.
        recent.sort_unstable();
        recent.dedup();
        let count = logits.len();
        for id in recent {
            let logit = logits.get_mut(id as usize).ok_or_else(|| {
                Error::new(
                    ErrorKind::Shape,
                    format!("token {id} of the history is outside the {count} logits"),
                    "pass the history of the same model",
                )
            })?;
            *logit = if *logit > 0.0 { *logit / repeat_penalty } else { *logit * repeat_penalty };
        }
        Ok(())
    }

    /// Fills in weights at `temperature`, the likeliest having 1, and returns their sum.
    fn weigh(&mut self, temperature: f32) -> f64 {
        let Some(&Candidate { logit: most, .. }) = self.candidates.first() else { return 0.0 };
        let mut sum = 0.0;
        for candidate in &mut self.candidates {
            candidate.weight = exp((f64::from(candidate.logit) - f64::from(most)) / f64::from(temperature));
            sum += candidate.weight;
        }
        sum
    }

    fn keep_top_p(&mut self) {
        let top_p = f64::from(self.options.top_p);
        if top_p >= 1.0 {
            return;
        }
        let wanted = self.weigh(1.0) * top_p;
        let mut reached = 0.0;
        let kept = self.candidates.iter().position(|candidate| {
            reached += candidate.weight;
            reached >= wanted
        });
        self.candidates.truncate(kept.map_or(usize::MAX, |last| last + 1));
    }

    fn keep_min_p(&mut self) {
        let min_p = f64::from(self.options.min_p);
        if min_p > 0.0 {
            self.weigh(1.0);
            let kept = self.candidates.partition_point(|candidate| candidate.weight >= min_p);
            // The likeliest has weight 1, so this keeps at least it.
            self.candidates.truncate(kept.max(1));
        }
    }

    fn draw(&mut self) -> u32 {
        let sum = self.weigh(self.options.temperature);
        let mut left = self.random.unit() * sum;
        for candidate in &self.candidates {
            left -= candidate.weight;
            if left < 0.0 {
                return candidate.id;
            }
        }
        // Rounding may leave a crumb: it belongs to the last that has any weight.
        self.candidates.iter().rev().find(|c| c.weight > 0.0).map_or(0, |c| c.id)
    }
}

/// Higher logits first, then lower ids: a total order, so that results never depend on how a sort works.
fn likelier(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.partial_cmp(&a.logit).unwrap_or(Ordering::Equal).then(a.id.cmp(&b.id))
}

fn arg_max(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (id, &logit) in logits.iter().enumerate() {
        if logit > logits[best] {
            best = id;
        }
    }
    best as u32
}

fn check(logits: &[f32]) -> Result<()> {
    if logits.is_empty() {
        return Err(Error::new(ErrorKind::Shape, "no logits to sample from", "pass one row of logits"));
    }
    let device = |message: String| {
        Error::new(ErrorKind::Device, message, "the forward pass went wrong; run `kvarto doctor` and report it")
    };
    if let Some(id) = logits.iter().position(|l| l.is_nan() || *l == f32::INFINITY) {
        return Err(device(format!("the logit of token {id} is {}; logits must be numbers", logits[id])));
    }
    if logits.iter().all(|&l| l == f32::NEG_INFINITY) {
        return Err(device(format!("all {} logits are -inf; no token can be drawn", logits.len())));
    }
    Ok(())
}

#[cfg(test)]
mod tests;

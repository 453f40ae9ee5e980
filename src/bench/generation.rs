//! A model's speed at a depth: what leads there, single tokens from there on, and where their time goes.

use super::data::{self, Kind};
use super::{Quantiles, SPIN_UP};
use crate::backend::{SPAN, Timing};
use crate::engine::{Input, SeqId, SeqRows};
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::RowView;
use crate::model::tokenizer::Tokenizer;
use crate::model::{Answer, Model, ModelRows};
use std::collections::BTreeMap;
use std::time::Instant;

/// How the cache comes to its depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// By a prefill of tokens, which is timed.
    Prefill,
    /// By random rows, the same in every layer: the model does not run. Attention weighs them all about alike.
    Rows,
}

/// A measurement to make.
#[derive(Clone, Debug)]
pub struct GenerationBench {
    /// Tokens that prompts are made of, again and again.
    pub unit: Vec<u32>,
    /// Tokens in the cache before the first timed decode; 0 for [`Fill::Rows`] alone.
    pub depth: usize,
    /// Timed single-token steps.
    pub steps: usize,
    /// How the cache is filled.
    pub fill: Fill,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct GenerationReport {
    /// Tokens in the cache before the first timed decode.
    pub depth: usize,
    /// Tokens a second of the prefill that filled them; `None` where random rows did.
    pub prefill_tokens_per_s: Option<f64>,
    /// Tokens a second of single-token steps, each step one sample.
    pub decode_tokens_per_s: Quantiles,
    /// Nanoseconds of a token on the device, from its first kernel to its last, in steps of their own; `None` without
    /// timestamps.
    pub device_ns: Option<Quantiles>,
    /// By kernel, each timed by itself in steps of their own, which costs a GPU some microseconds a dispatch: name,
    /// dispatches and nanoseconds of a token, most first.
    pub by_kernel: Vec<(&'static str, f64, f64)>,
    /// Bits of slots in use a cached value.
    pub resident_bits_per_value: Option<f64>,
    /// Bits read a cached value, mean over the steps.
    pub read_bits_per_value: Option<f64>,
}

/// Plain words for prompts of any length.
const TEXT: &str = "The cache of a language model holds a key and a value for every token, layer and head. ";

/// Every kernel that a step of one row can hold: a run of them is the device's share of a token.
const KERNELS: [&str; 18] = [
    "embed",
    "rms_norm",
    "linear",
    "rope",
    "head_norm",
    "add",
    "gated_mul",
    "gather",
    "argmax",
    "append",
    "query",
    "decode",
    "prefill",
    "merge",
    "mean",
    "convert",
    "copy_slots",
    "summarise_box",
];

/// Rows of one step while the cache is filled.
const FILL_ROWS: usize = 1024;

/// Most steps that a pass beside the timed one takes.
const PASS_STEPS: usize = 32;

/// Refuses what does not fit a model of `positions` positions.
///
/// # Errors
/// `Usage` with the limit and the values.
pub fn check_depth(depth: usize, steps: usize, positions: usize, fill: Fill) -> Result<()> {
    let enough = depth > 0 || fill == Fill::Rows;
    match enough && steps > 0 && depth.saturating_add(held_steps(steps)) <= positions {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::Usage,
            format!(
                "depth {depth} and {steps} tokens, {} with those of later passes; the model has {positions} positions",
                held_steps(steps)
            ),
            "give 1 or more of each, and together no more than it has",
        )),
    }
}

/// Tokens that a measurement of `steps` steps adds to a sequence: the timed ones, and those of two passes.
pub fn held_steps(steps: usize) -> usize {
    steps.saturating_add(2 * steps.min(PASS_STEPS))
}

/// Tokens for prompts.
///
/// # Errors
/// `File` when the tokenizer makes none of plain English.
pub fn prompt_unit(tokenizer: &Tokenizer) -> Result<Vec<u32>> {
    let unit = tokenizer.encode(TEXT, false)?;
    match unit.is_empty() {
        false => Ok(unit),
        true => {
            Err(Error::new(ErrorKind::File, "the tokenizer makes no tokens of plain English", "check the model file"))
        }
    }
}

impl GenerationBench {
    /// Fills the cache to the depth and decodes from there on, greedily: for the clock, then for the device's own time,
    /// then kernel by kernel.
    ///
    /// # Errors
    /// `Usage` when they do not fit the model's positions; as [`Model::step`].
    pub fn run(&self, model: &mut Model) -> Result<GenerationReport> {
        check_depth(self.depth, self.steps, model.config().context_length, self.fill)?;
        let prompt: Vec<u32> = self.unit.iter().copied().cycle().take(self.depth.max(1)).collect();
        // Once for nothing: memory is touched, threads are awake, and a card is at its clock.
        let warm = model.engine().create()?;
        let mut best = model.prefill(warm, &prompt[..prompt.len().min(32)], Answer::Best, |_| false)?.best;
        let start = Instant::now();
        let software = model.engine().backend().caps().software;
        let mut room = model.config().context_length.saturating_sub(33).min(self.depth.max(64));
        while !software && room > 0 && start.elapsed() < SPIN_UP {
            best = decode(model, warm, &best)?;
            room -= 1;
        }
        model.engine().release(warm)?;

        let seq = model.engine().create()?;
        let start = Instant::now();
        let (mut best, prefill_tokens_per_s) = match self.fill {
            Fill::Prefill => {
                let best = model.prefill(seq, &prompt, Answer::Best, |_| false)?.best;
                (best, Some(self.depth as f64 / start.elapsed().as_secs_f64()))
            }
            Fill::Rows => {
                fill(model, seq, self.depth)?;
                (prompt[..1].to_vec(), None)
            }
        };
        let mut speeds = Vec::with_capacity(self.steps);
        for _ in 0..self.steps {
            let start = Instant::now();
            best = decode(model, seq, &best)?;
            speeds.push(1.0 / start.elapsed().as_secs_f64());
        }
        let stats = model.engine().stats();
        let device_ns = self.device_pass(model, seq, &mut best)?;
        let by_kernel = self.kernel_pass(model, seq, &mut best)?;
        model.engine().release(seq)?;
        let decode_tokens_per_s =
            Quantiles::of(speeds).ok_or_else(|| Error::new(ErrorKind::Device, "no times were taken", ""))?;
        Ok(GenerationReport {
            depth: self.depth,
            prefill_tokens_per_s,
            decode_tokens_per_s,
            device_ns,
            by_kernel,
            resident_bits_per_value: stats.resident_bits_per_value,
            read_bits_per_value: stats.read_bits_per_value,
        })
    }

    /// Times of whole tokens on the device.
    fn device_pass(&self, model: &mut Model, seq: SeqId, best: &mut Vec<u32>) -> Result<Option<Quantiles>> {
        model.engine().set_timing(Timing::Spans(&KERNELS))?;
        let mut spans = Vec::new();
        for _ in 0..self.steps.min(PASS_STEPS) {
            *best = decode(model, seq, best)?;
            let times = model.engine().take_times()?;
            spans.extend(times.iter().filter(|t| t.kernel == SPAN && t.nanoseconds > 0).map(|t| t.nanoseconds as f64));
        }
        model.engine().set_timing(Timing::None)?;
        Ok(Quantiles::of(spans))
    }

    /// Each kernel's time of a token.
    fn kernel_pass(&self, model: &mut Model, seq: SeqId, best: &mut Vec<u32>) -> Result<Vec<(&'static str, f64, f64)>> {
        model.engine().set_timing(Timing::Kernels)?;
        let mut sums: BTreeMap<&'static str, (u64, u64)> = BTreeMap::new();
        let steps = self.steps.min(PASS_STEPS);
        for _ in 0..steps {
            *best = decode(model, seq, best)?;
            for time in model.engine().take_times()? {
                let sum = sums.entry(time.kernel).or_default();
                *sum = (sum.0 + time.dispatches, sum.1 + time.nanoseconds);
            }
        }
        model.engine().set_timing(Timing::None)?;
        let mean = |sum: u64| sum as f64 / steps as f64;
        let mut each: Vec<_> = sums.into_iter().map(|(kernel, (n, ns))| (kernel, mean(n), mean(ns))).collect();
        each.sort_by(|a, b| b.2.total_cmp(&a.2));
        Ok(each)
    }
}

fn decode(model: &mut Model, seq: SeqId, token: &[u32]) -> Result<Vec<u32>> {
    Ok(model.step(&[ModelRows { seq, tokens: token, committed: true, answer: Answer::Best }])?.best)
}

/// Appends `depth` random rows to every layer of a sequence.
fn fill(model: &mut Model, seq: SeqId, depth: usize) -> Result<()> {
    let width = model.config().kv_heads * model.config().head_dim;
    let (layers, most) = (model.config().layers, model.chunk_tokens().min(FILL_ROWS));
    let engine = model.engine();
    let bytes = (most * width * 4) as u64;
    let buffers = [engine.backend().alloc("bench k", bytes)?, engine.backend().alloc("bench v", bytes)?];
    let mut fill = || -> Result<()> {
        for held in (0..depth).step_by(most) {
            let count = most.min(depth - held);
            let places: Vec<(u32, u32)> = (held..held + count).map(|at| (0, at as u32)).collect();
            let mut step = engine.begin_step(&[SeqRows { seq, rows: count as u32, committed: true }])?;
            for (kind, buffer) in [Kind::K, Kind::V].into_iter().zip(buffers) {
                step.backend().write(buffer, 0, bytemuck::cast_slice(&data::rows(kind, &places, width)))?;
            }
            let [k, v] = buffers.map(|buffer| Input::Device(RowView::dense(buffer, count as u32, width as u32)));
            (0..layers).try_for_each(|layer| step.append(layer, k, v))?;
            step.finish()?;
        }
        Ok(())
    };
    let filled = fill();
    buffers.into_iter().for_each(|buffer| engine.backend().free(buffer));
    filled
}

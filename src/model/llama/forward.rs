//! One step of the model: every sequence's rows through every layer, in one submission.

use super::Model;
use super::kernels::Branch;
use super::observe::{Watcher, hand_over};
use crate::backend::{BufferId, BufferSlice, read_blocking};
use crate::engine::{Engine, Event, Input, Output, SeqId, SeqRows, Step, TokenPiece};
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::RowView;
use crate::model::tokenizer::Tokenizer;
use crate::needs::TapKind;

/// What a step should say about a sequence's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answer {
    /// Nothing: the rows only fill the cache.
    #[default]
    Nothing,
    /// The likeliest token after the last row, chosen on the device.
    Best,
    /// The logits after the last row.
    LastLogits,
    /// The logits after every row.
    AllLogits,
}

/// Rows from which a step on a software adapter takes long enough to be stopped within.
const LONG_ROWS: u32 = 17;

/// Tokens of one sequence in a step.
#[derive(Clone, Copy, Debug)]
pub struct ModelRows<'a> {
    /// Which sequence.
    pub seq: SeqId,
    /// Its next tokens.
    pub tokens: &'a [u32],
    /// Whether they stand, or may be taken back.
    pub committed: bool,
    /// What to say about them.
    pub answer: Answer,
}

/// What a step said, in the order of its sequences and rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers {
    /// One a sequence that asked for [`Answer::Best`].
    pub best: Vec<u32>,
    /// `[rows asked for][vocab]`.
    pub logits: Vec<f32>,
}

impl Model {
    /// Runs the rows of a step and waits for its answers.
    ///
    /// # Errors
    /// `Shape` for more rows than a step takes, an unknown sequence or a token outside the vocabulary; `OutOfPages`
    /// and `OutOfMemory` leave every sequence as it was; `Device` also when a logit is not a number.
    pub fn step(&mut self, rows: &[ModelRows<'_>]) -> Result<Answers> {
        self.step_unless(rows, None)
    }

    /// Like [`Model::step`]. On a software adapter, the CPU included, a step of more than 16 rows goes in two
    /// submissions a layer, and `stop` is asked after each; elsewhere a step is over before anybody could wish so.
    ///
    /// # Errors
    /// Also `Interrupted` when `stop` says so: every sequence has the tokens it had before the step.
    pub fn step_unless(&mut self, rows: &[ModelRows<'_>], stop: Option<&mut dyn FnMut() -> bool>) -> Result<Answers> {
        self.run(rows, stop, None)
    }

    /// A step that can be stopped and watched.
    pub(super) fn run(
        &mut self,
        rows: &[ModelRows<'_>],
        stop: Option<&mut dyn FnMut() -> bool>,
        mut watch: Option<Watcher<'_>>,
    ) -> Result<Answers> {
        let (tokens, wanted, best_only) = self.check_rows(rows)?;
        let count = tokens.len() as u32;
        let Model { config, engine, weights, kernels, ropes, buffers, tells, .. } = self;
        let step_rows: Vec<SeqRows> =
            rows.iter().map(|r| SeqRows { seq: r.seq, rows: r.tokens.len() as u32, committed: r.committed }).collect();
        let step_tokens: Vec<Option<&[u32]>> = rows.iter().map(|r| Some(r.tokens)).collect();
        let mut step = engine.begin_step_with_tokens(&step_rows, &step_tokens)?;
        if count == 0 {
            step.finish()?;
            return Ok(Answers::default());
        }
        let positions = step.positions();
        let backend = step.backend();
        kernels.ask_limits(backend);
        let mut stop = stop.filter(|_| count >= LONG_ROWS && backend.caps().software);
        backend.write(buffers.tokens, 0, bytemuck::cast_slice(&tokens))?;
        for (rope, &buffer) in ropes.iter().zip(&buffers.ropes) {
            backend.write(buffer, 0, bytemuck::cast_slice(&rope.rows(&positions)))?;
        }
        if !wanted.is_empty() {
            backend.write(buffers.indices, 0, bytemuck::cast_slice(&wanted))?;
        }

        let hidden = config.hidden as u32;
        let (q, kv) = ((config.q_heads * config.head_dim) as u32, (config.kv_heads * config.head_dim) as u32);
        let ffn = config.ffn as u32;
        let x = RowView::dense(buffers.x, count, hidden);
        let normed = RowView::dense(buffers.normed, count, hidden);
        let qkv = RowView::dense(buffers.qkv, count, q + 2 * kv);
        let attention = RowView::dense(buffers.attention, count, q);
        let gate_up = RowView::dense(buffers.gate_up, count, 2 * ffn);
        let inner = RowView::dense(buffers.hidden, count, ffn);
        let scratch = [normed, RowView::dense(buffers.branch, count, hidden)];
        let (q_heads, kv_heads) = (config.q_heads as u32, config.kv_heads as u32);
        let table = |layer| {
            let buffer = buffers.ropes[usize::from(config.slides(layer))];
            words(buffer, u64::from(count) * config.rope.dim_count as u64)
        };

        kernels.embed(step.recording(), words(buffers.tokens, u64::from(count)), &weights.embedding, x, count)?;
        for (layer, block) in weights.blocks.iter().enumerate() {
            let to = step.recording();
            kernels.norm(to, x, block.attention_norm, normed, count)?;
            step.tap(layer, TapKind::Hidden, Input::Device(normed))?;
            let to = step.recording();
            kernels.linear_side_by_side(to, &block.qkv, normed, qkv, count)?;
            if let Some(bias) = block.qkv_bias {
                kernels.add(to, qkv, RowView::repeated(bias), count, q + 2 * kv)?;
            }
            if let Some(norms) = &block.head_norms {
                kernels.head_norm(to, qkv, norms.q, count, q_heads)?;
                kernels.head_norm(to, qkv.right(q), norms.k, count, kv_heads)?;
            }
            step.tap(layer, TapKind::QueriesPreRope, Input::Device(qkv))?;
            // Q and K lie side by side: one call turns both.
            kernels.rope(step.recording(), qkv, table(layer), count, q_heads + kv_heads)?;
            step.append(layer, Input::Device(qkv.right(q)), Input::Device(qkv.right(q + kv)))?;
            step.attend(layer, Input::Device(qkv), Output::Device(attention))?;
            if let Some(watch) = &mut watch {
                hand_over(&mut step, buffers, (layer, &positions), (q as usize, kv as usize), *watch)?;
            }
            let to = step.recording();
            let branch = Branch { matrix: &block.output, inner: attention, norm: block.post_attention_norm, scratch };
            kernels.add_branch(to, &branch, x, count)?;
            pause(&mut step, buffers.x, &mut stop)?;
            let to = step.recording();
            kernels.norm(to, x, block.ffn_norm, normed, count)?;
            kernels.linear_side_by_side(to, &block.gate_up, normed, gate_up, count)?;
            kernels.gated_mul(to, gate_up, gate_up.right(ffn), inner, count, ffn)?;
            let branch = Branch { matrix: &block.down, inner, norm: block.post_ffn_norm, scratch };
            kernels.add_branch(to, &branch, x, count)?;
            step.tap(layer, TapKind::Residual, Input::Device(x))?;
            pause(&mut step, buffers.x, &mut stop)?;
        }
        let answers = wanted.len() as u32;
        if answers > 0 {
            let to = step.recording();
            let last = RowView::dense(buffers.last, answers, hidden);
            let chosen = RowView::dense(buffers.normed, answers, hidden);
            let logits = RowView::dense(buffers.logits, answers, config.vocab as u32);
            kernels.gather(to, (x, count), words(buffers.indices, u64::from(answers)), (last, answers), hidden)?;
            kernels.norm(to, last, weights.output_norm, chosen, answers)?;
            kernels.linear(to, weights.head(), chosen, logits, answers, false)?;
            if best_only {
                kernels.argmax(to, logits, words(buffers.best, u64::from(answers)), answers, config.vocab as u32)?;
            }
        }
        let answers = collect(&mut step, buffers.best, buffers.logits, answers as usize, config.vocab, best_only);
        match answers {
            Ok(answers) => {
                step.finish()?;
                if let Some(tokenizer) = tells.as_ref().filter(|_| engine.listened()) {
                    tell(engine, tokenizer, rows, &positions);
                }
                Ok(answers)
            }
            Err(error) => Err(error),
        }
    }

    /// Tokens of all rows, indices of the rows whose logits are wanted, and whether only arg-maxes are.
    fn check_rows(&self, rows: &[ModelRows<'_>]) -> Result<(Vec<u32>, Vec<u32>, bool)> {
        let (mut tokens, mut wanted) = (Vec::new(), Vec::new());
        let best_only = rows.iter().all(|r| matches!(r.answer, Answer::Best | Answer::Nothing));
        for r in rows {
            if let Some(&token) = r.tokens.iter().find(|&&t| t as usize >= self.config.vocab) {
                return Err(Error::new(
                    ErrorKind::Shape,
                    format!("token {token} is outside the vocabulary of {}", self.config.vocab),
                    "",
                ));
            }
            let start = tokens.len() as u32;
            tokens.extend_from_slice(r.tokens);
            match r.answer {
                Answer::Nothing => {}
                Answer::Best if !best_only => {
                    return Err(Error::new(
                        ErrorKind::Shape,
                        "a step answers with tokens or with logits, not both",
                        "",
                    ));
                }
                Answer::Best | Answer::LastLogits => {
                    if r.tokens.is_empty() {
                        return Err(Error::new(ErrorKind::Shape, "an answer is asked for no rows", ""));
                    }
                    wanted.push(tokens.len() as u32 - 1);
                }
                Answer::AllLogits => wanted.extend(start..tokens.len() as u32),
            }
        }
        for (what, count, most) in
            [("rows", tokens.len(), self.chunk_tokens), ("rows with logits", wanted.len(), self.logit_rows)]
        {
            if count > most {
                return Err(Error::new(
                    ErrorKind::Shape,
                    format!("a step of {count} {what}; this model was loaded for {most}"),
                    "cut the step, or load with larger chunk_tokens or logit_rows",
                ));
            }
        }
        Ok((tokens, wanted, best_only))
    }
}

/// Tells listeners which tokens a step gave to the cache.
fn tell(engine: &mut Engine, tokenizer: &Tokenizer, rows: &[ModelRows<'_>], positions: &[u32]) {
    let mut at = 0;
    for r in rows.iter().filter(|r| !r.tokens.is_empty()) {
        let piece = |&id: &u32| TokenPiece { id, text: tokenizer.token_bytes(id).unwrap_or_default().to_vec() };
        let tokens = r.tokens.iter().map(piece).collect();
        let first_position = positions.get(at).copied().unwrap_or_default();
        engine.announce(Event::Tokens { sequence: r.seq, first_position, tokens });
        at += r.tokens.len();
    }
}

/// Where there is somebody to ask: waits for what is recorded so far, which wrote `done`, and asks.
fn pause(step: &mut Step<'_>, done: BufferId, stop: &mut Option<&mut dyn FnMut() -> bool>) -> Result<()> {
    let Some(stop) = stop else { return Ok(()) };
    step.submit()?;
    read_blocking(step.backend(), done, 0, 4)?;
    match stop() {
        true => Err(Error::new(ErrorKind::Interrupted, "stopped within a step", "")),
        false => Ok(()),
    }
}

/// Submits, and reads what was asked for.
fn collect(
    step: &mut Step<'_>,
    best: BufferId,
    logits: BufferId,
    count: usize,
    vocab: usize,
    best_only: bool,
) -> Result<Answers> {
    step.submit()?;
    let mut answers = Answers::default();
    if count == 0 {
        return Ok(answers);
    }
    if best_only {
        let bytes = read_blocking(step.backend(), best, 0, count as u64 * 4)?;
        answers.best = bytemuck::pod_collect_to_vec(&bytes);
        if answers.best.iter().any(|&t| t as usize >= vocab) {
            return Err(not_a_number());
        }
    } else {
        let bytes = read_blocking(step.backend(), logits, 0, (count * vocab) as u64 * 4)?;
        answers.logits = bytemuck::pod_collect_to_vec(&bytes);
        if answers.logits.iter().any(|x| x.is_nan()) {
            return Err(not_a_number());
        }
    }
    Ok(answers)
}

fn not_a_number() -> Error {
    Error::new(
        ErrorKind::Device,
        "the model's logits hold values that are not numbers",
        "check the model file; run `kvarto doctor` for the device",
    )
}

fn words(buffer: BufferId, words: u64) -> BufferSlice {
    BufferSlice::whole(buffer, words.max(1) * 4)
}

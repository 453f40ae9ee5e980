//! The run: batches of windows, the dense reference of each, then every candidate on the same rows.

use super::figures::CacheFigures;
use super::mode::{Mode, Pace, feed};
use super::prefill::Prefill;
use super::record::{Record, SCHEMA, Subject, TokenScores, WindowOf};
use super::reference::Reference;
use super::windows::{Text, Window};
use crate::engine::{Registry, SeqId};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Answer, CacheOptions, Model};
use crate::profile::Profile;

/// A profile to be judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// What reports call it.
    pub label: String,
    /// The profile.
    pub profile: Profile,
    /// Calibrations that its bases read, see [`crate::calibration::ids`].
    pub calibrations: Vec<String>,
}

impl Candidate {
    /// `subject` with the candidate in it.
    pub fn subject(&self, subject: &Subject) -> Subject {
        let (label, profile, calibrations) = (self.label.clone(), self.profile.to_toml(), self.calibrations.clone());
        Subject { label, profile, calibrations, ..subject.clone() }
    }
}

/// Windows of one length, and how they are scored.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The texts that windows name.
    pub texts: Vec<Text>,
    /// The windows, all of one length.
    pub windows: Vec<Window>,
    /// Tokens scored at each window's end.
    pub score_tokens: usize,
    /// How they are fed.
    pub mode: Mode,
    /// Bound on the bytes of logits of the dense cache held at once; batches are cut to it.
    pub logit_bytes: u64,
}

/// Hears how a run goes on.
pub trait Progress {
    /// Something begins, such as `tq3, text.txt`.
    fn stage(&mut self, what: &str);
    /// That many tokens more are done of [`Runner::work`].
    fn advance(&mut self, tokens: u64);
    /// Whether to stop.
    fn stopped(&self) -> bool;
}

/// Runs plans on a model.
pub struct Runner {
    /// Gone after an error that took it.
    model: Option<Model>,
    registry: Registry,
    subject: Subject,
    on_cache: Option<CacheHook>,
}

/// Hears of each candidate's cache, empty yet, and the candidate's label.
pub type CacheHook = Box<dyn FnMut(&mut Model, &str) -> Result<()>>;

impl Plan {
    /// Checks the sizes against each other and the model.
    ///
    /// # Errors
    /// `Usage` with the limit and the values.
    pub fn check(&self, context_length: usize) -> Result<()> {
        let Some(tokens) = self.windows.first().map(|w| w.ids.len()) else {
            return Err(Error::new(
                ErrorKind::Usage,
                "there is no window to score",
                "give a text and 1 or more windows",
            ));
        };
        if tokens > context_length {
            return Err(Error::new(
                ErrorKind::Usage,
                format!("windows of {tokens} tokens; the model has {context_length} positions"),
                "give a smaller --window",
            ));
        }
        if self.score_tokens == 0 || self.score_tokens + 2 > tokens {
            return Err(Error::new(
                ErrorKind::Usage,
                format!("{} tokens to score in windows of {tokens}", self.score_tokens),
                match tokens.saturating_sub(2) {
                    0 => "give a larger --window: two tokens are needed before the scored ones".into(),
                    most => format!("give --score-tokens from 1 to {most}: two tokens are needed before"),
                },
            ));
        }
        match self.windows.iter().all(|w| w.ids.len() == tokens) {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Usage, "the windows of a plan have different lengths", "")),
        }
    }

    /// Tokens of the prefill: the scored ones are predicted from the token before each.
    fn history(&self) -> usize {
        self.windows.first().map_or(0, |w| w.ids.len()).saturating_sub(self.score_tokens + 1)
    }

    /// Windows that are stepped together, as ranges.
    fn batches(&self, vocab: usize, most_rows: usize) -> Vec<std::ops::Range<usize>> {
        let one = Reference::logit_bytes(1, self.score_tokens, vocab).max(1);
        let most = (self.logit_bytes / one).clamp(1, most_rows.max(1) as u64) as usize;
        let count = self.windows.len();
        // Even shares: no last batch of one.
        let share = count.div_ceil(count.div_ceil(most).max(1)).max(1);
        (0..count).step_by(share).map(|start| start..(start + share).min(count)).collect()
    }

    /// Where window `at` stands.
    pub fn window_of(&self, at: usize) -> WindowOf {
        let window = &self.windows[at];
        let text = &self.texts[window.text];
        WindowOf {
            text: text.name.clone(),
            text_sha256: text.sha256.clone(),
            index: window.index,
            of: self.windows.iter().filter(|w| w.text == window.text).count(),
            start: window.start,
            tokens: window.ids.len(),
            scored: self.score_tokens,
        }
    }
}

impl Runner {
    /// Over a loaded model, whose cache will be exchanged; `subject` is what records say of model and machine.
    pub fn new(model: Model, registry: Registry, subject: Subject) -> Self {
        Runner { model: Some(model), registry, subject, on_cache: None }
    }

    /// Calls `hook` whenever a candidate's cache is under the model; an error of it ends the run.
    pub fn on_cache(&mut self, hook: CacheHook) {
        self.on_cache = Some(hook);
    }

    /// The model, as the last run left it.
    pub fn model(&mut self) -> Option<&mut Model> {
        self.model.as_mut()
    }

    /// Tokens that a run goes through, for progress. `wanted(candidate, window)` says what is still to be done.
    pub fn work(&self, plan: &Plan, candidates: &[Candidate], wanted: &dyn Fn(usize, usize) -> bool) -> u64 {
        let Some(model) = &self.model else { return 0 };
        let mut work = 0;
        for batch in plan.batches(model.config().vocab, batch_rows(model)) {
            let missing = (0..candidates.len()).filter(|&c| batch.clone().any(|w| wanted(c, w))).count() as u64;
            if missing > 0 {
                let each = plan.history() as u64 + plan.score_tokens as u64 * (1 + missing);
                work += each * batch.len() as u64;
            }
        }
        work
    }

    /// Scores every candidate on every window that is `wanted(candidate, window)`; `done` gets each record as it is made.
    /// A candidate runs on all windows of a batch or on none.
    ///
    /// # Errors
    /// `Usage` for a plan that does not fit; `Interrupted` when progress says stop, with the records so far handed over; what
    /// loading a cache or a step says, naming the candidate.
    pub fn run(
        &mut self,
        plan: &Plan,
        candidates: &[Candidate],
        wanted: &dyn Fn(usize, usize) -> bool,
        progress: &mut dyn Progress,
        done: &mut dyn FnMut(usize, usize, Record) -> Result<()>,
    ) -> Result<()> {
        let Some(model) = &self.model else { return Err(gone()) };
        plan.check(model.config().context_length)?;
        for batch in plan.batches(model.config().vocab, batch_rows(model)) {
            let missing: Vec<usize> = (0..candidates.len()).filter(|&c| batch.clone().any(|w| wanted(c, w))).collect();
            if missing.is_empty() {
                continue;
            }
            let reference = self.reference(plan, batch.clone(), progress)?;
            for at in missing {
                let candidate = &candidates[at];
                let named = |e: Error| match e.kind() {
                    ErrorKind::Interrupted => e,
                    _ => e.context(format!("profile {}", candidate.label)),
                };
                let records = self.candidate(plan, batch.clone(), candidate, &reference, progress).map_err(named)?;
                for (window, record) in batch.clone().zip(records) {
                    done(at, window, record)?;
                }
            }
        }
        Ok(())
    }

    /// Prefills the windows on a dense cache and notes what it says of the scored tokens.
    fn reference(
        &mut self,
        plan: &Plan,
        batch: std::ops::Range<usize>,
        progress: &mut dyn Progress,
    ) -> Result<Reference> {
        let dense = Profile { k_basis: Some("none".into()), v_basis: Some("none".into()), ..Profile::dense() };
        // Sliding layers keep every row here: a candidate's prefill begins with them.
        let rewind_tokens = plan.windows[batch.start].ids.len();
        self.exchange(dense, rewind_tokens * batch.len(), rewind_tokens)?;
        self.with_model(|model| self::reference(model, plan, batch, progress))
    }

    fn candidate(
        &mut self,
        plan: &Plan,
        batch: std::ops::Range<usize>,
        candidate: &Candidate,
        reference: &Reference,
        progress: &mut dyn Progress,
    ) -> Result<Vec<Record>> {
        progress.stage(&candidate.label);
        let tokens = plan.windows[batch.start].ids.len();
        self.take_up(candidate, tokens * batch.len())?;
        let (cache, scores, pace) = self.with_model(|model| {
            let (scores, pace) = self::candidate(model, plan, batch.clone(), reference, progress)?;
            let cache = CacheFigures::of(model.engine());
            Ok((cache.with_reads(pace.read_bits_per_value()), scores, pace))
        })?;
        let mut records = Vec::with_capacity(batch.len());
        for (window, tokens) in batch.clone().zip(scores) {
            if !tokens.whole() {
                return Err(Error::new(
                    ErrorKind::Device,
                    "a score is not a finite number",
                    "the cache answers with nonsense; run `kvarto doctor` for the device and its formats",
                ));
            }
            records.push(Record {
                schema: SCHEMA,
                subject: candidate.subject(&self.subject),
                window: plan.window_of(window),
                mode: plan.mode.to_string(),
                batch: batch.len(),
                cache: cache.clone(),
                decode_tokens_per_s: pace.decode_tokens_per_s(),
                scored_tokens_per_s: pace.tokens_per_s(),
                tokens,
            });
        }
        Ok(records)
    }

    /// A cache of another profile under the model, with room for that many tokens; moves are as long as they like, so that none
    /// waits for a later step.
    pub(super) fn exchange(&mut self, profile: Profile, context_tokens: usize, rewind_tokens: usize) -> Result<()> {
        let options = CacheOptions {
            page_tokens: profile.page_tokens,
            context_tokens,
            kv_budget_bytes: None,
            rewind_tokens,
            move_bytes: Some(u64::MAX),
            page_items: false,
        };
        let model = self.held()?;
        self.model = Some(model.with_cache(profile, self.registry.clone(), &options)?);
        Ok(())
    }

    /// A candidate's cache under the model.
    pub(super) fn take_up(&mut self, candidate: &Candidate, context_tokens: usize) -> Result<()> {
        self.exchange(candidate.profile.clone(), context_tokens, 0)?;
        match (&mut self.on_cache, &mut self.model) {
            (Some(hook), Some(model)) => hook(model, &candidate.label),
            _ => Ok(()),
        }
    }

    /// The model for a while.
    pub(super) fn with_model<T>(&mut self, work: impl FnOnce(&mut Model) -> Result<T>) -> Result<T> {
        work(self.model.as_mut().ok_or_else(gone)?)
    }

    fn held(&mut self) -> Result<Model> {
        self.model.take().ok_or_else(gone)
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Device, "an earlier failure took the model", "load it again: make another runner")
}

/// Windows that one step can hold.
fn batch_rows(model: &Model) -> usize {
    model.chunk_tokens().min(model.logit_rows())
}

fn reference(
    model: &mut Model,
    plan: &Plan,
    batch: std::ops::Range<usize>,
    progress: &mut dyn Progress,
) -> Result<Reference> {
    let (history, vocab) = (plan.history(), model.config().vocab);
    let mut prefills = Vec::with_capacity(batch.len());
    let mut sequences: Vec<(SeqId, &[u32])> = Vec::with_capacity(batch.len());
    for window in &plan.windows[batch.clone()] {
        progress.stage("prefill");
        let seq = model.engine().create()?;
        let mut told = 0;
        model.prefill(seq, &window.ids[..history], Answer::Nothing, |tokens| {
            progress.advance(tokens.saturating_sub(told) as u64);
            told = told.max(tokens);
            progress.stopped()
        })?;
        progress.advance(history.saturating_sub(told) as u64);
        prefills.push(Prefill::take(model.engine(), seq, history)?);
        sequences.push((seq, &window.ids[history..history + plan.score_tokens]));
    }
    progress.stage("dense");
    let mut logits: Vec<Vec<f32>> = vec![Vec::with_capacity(plan.score_tokens * vocab); batch.len()];
    // No page of 16 bits ever changes, so that rows of one step see what they would see one by one.
    let mode = Mode::Chunked(usize::MAX);
    let progress = std::cell::RefCell::new(progress);
    let mut hear = |_: usize, rows: usize, said: &[f32]| {
        for (to, from) in logits.iter_mut().zip(said.chunks_exact(rows * vocab)) {
            to.extend_from_slice(from);
        }
        progress.borrow_mut().advance((rows * batch.len()) as u64);
        Ok(())
    };
    feed(model, &sequences, mode, &mut hear, &mut || progress.borrow().stopped())?;
    Ok(Reference { prefills, logits, vocab })
}

fn candidate(
    model: &mut Model,
    plan: &Plan,
    batch: std::ops::Range<usize>,
    reference: &Reference,
    progress: &mut dyn Progress,
) -> Result<(Vec<TokenScores>, Pace)> {
    let (history, chunk) = (plan.history(), model.chunk_tokens());
    let mut sequences: Vec<(SeqId, &[u32])> = Vec::with_capacity(batch.len());
    let mut targets: Vec<&[u32]> = Vec::with_capacity(batch.len());
    for (window, prefill) in plan.windows[batch.clone()].iter().zip(&reference.prefills) {
        let seq = model.engine().create()?;
        prefill.replay(model.engine(), seq, chunk)?;
        sequences.push((seq, &window.ids[history..history + plan.score_tokens]));
        targets.push(&window.ids[history + 1..]);
    }
    let mut scores = vec![TokenScores::default(); batch.len()];
    let progress = std::cell::RefCell::new(progress);
    let mut hear = |first: usize, rows: usize, said: &[f32]| {
        for (to, from) in scores.iter_mut().zip(reference.score(first, rows, said, &targets)) {
            to.extend(&from);
        }
        progress.borrow_mut().advance((rows * batch.len()) as u64);
        Ok(())
    };
    let pace = feed(model, &sequences, plan.mode, &mut hear, &mut || progress.borrow().stopped())?;
    Ok((scores, pace))
}

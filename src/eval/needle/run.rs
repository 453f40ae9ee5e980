//! A run: batches of cases of one length, dense first, then every profile on the same contexts.

use super::super::prefill::Prefill;
use super::super::runner::{Candidate, Progress, Runner};
use super::ask::{Outcome, ask};
use super::results::Verdict;
use super::tasks::Case;
use crate::engine::SeqId;
use crate::error::{Error, ErrorKind, Result};
use crate::model::tokenizer::Tokenizer;
use crate::model::{Answer, Model};
use crate::profile::Profile;
use std::ops::Range;

/// Most cases of a batch.
const BATCH: usize = 8;
/// Bytes of rows that a batch holds on the host.
const BATCH_BYTES: u64 = 1 << 30;

/// Ranges of cases that are run together: neighbours of one length, as many as the host should hold.
pub fn batches(cases: &[Case], values_per_token: usize) -> Vec<Range<usize>> {
    let mut batches: Vec<Range<usize>> = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        let bytes = case.length as u64 * values_per_token as u64 * 2;
        let most = (BATCH_BYTES / bytes.max(1)).clamp(1, BATCH as u64) as usize;
        match batches.last_mut() {
            Some(last) if cases[last.start].length == case.length && last.len() < most => last.end = at + 1,
            _ => batches.push(at..at + 1),
        }
    }
    batches
}

impl Runner {
    /// Runs the candidates on the batches of which `wanted(candidate, batch)` says so; `done(candidate, batch, verdicts)` gets
    /// each as it is made. Progress counts the tokens of contexts, each profile's once.
    ///
    /// # Errors
    /// `Interrupted` when progress says stop; what loading a cache or a step says, naming the candidate.
    #[allow(clippy::too_many_arguments)] // one caller; a struct would only rename the list
    pub fn needle(
        &mut self,
        tokenizer: &Tokenizer,
        cases: &[Case],
        batches: &[Range<usize>],
        candidates: &[Candidate],
        wanted: &dyn Fn(usize, usize) -> bool,
        progress: &mut dyn Progress,
        done: &mut dyn FnMut(usize, usize, Vec<Verdict>) -> Result<()>,
    ) -> Result<()> {
        for (number, batch) in batches.iter().enumerate() {
            let missing: Vec<usize> = (0..candidates.len()).filter(|&c| wanted(c, number)).collect();
            if missing.is_empty() {
                continue;
            }
            let own = &cases[batch.clone()];
            let tokens: u64 = own.iter().map(|case| case.context.len() as u64).sum();
            let (room, length) = (own.len(), own.iter().map(|case| case.length).max().unwrap_or(0));
            let dense = Profile { k_basis: Some("none".into()), v_basis: Some("none".into()), ..Profile::dense() };
            self.exchange(dense, length * room, length)?;
            let (prefills, reference) = self.with_model(|model| prefill(model, tokenizer, own, progress))?;
            for at in missing {
                let candidate = &candidates[at];
                progress.stage(&candidate.label);
                let named = |e: Error| match e.kind() {
                    ErrorKind::Interrupted => e,
                    _ => e.context(format!("profile {}", candidate.label)),
                };
                self.take_up(candidate, length * room).map_err(named)?;
                let (outcomes, cache) = self
                    .with_model(|model| {
                        let chunk = model.chunk_tokens();
                        let mut held: Vec<(SeqId, &Case)> = Vec::with_capacity(own.len());
                        for (prefill, case) in prefills.iter().zip(own) {
                            let seq = model.engine().create()?;
                            prefill.replay(model.engine(), seq, chunk)?;
                            held.push((seq, case));
                        }
                        ask(model, tokenizer, &held, &mut || progress.stopped())
                    })
                    .map_err(named)?;
                let verdict = |((case, dense), own): ((&Case, &Outcome), Outcome)| Verdict {
                    label: candidate.label.clone(),
                    task: case.task,
                    length: case.length,
                    depth: case.depth,
                    index: case.index,
                    dense: dense.clone(),
                    own,
                    resident_bits_per_value: cache.resident_bits_per_value,
                };
                let verdicts = own.iter().zip(&reference).zip(outcomes).map(verdict).collect();
                progress.advance(tokens);
                done(at, number, verdicts)?;
            }
        }
        Ok(())
    }
}

/// Contexts prefilled on the dense cache under the model: their rows, and dense's outcomes.
fn prefill(
    model: &mut Model,
    tokenizer: &Tokenizer,
    cases: &[Case],
    progress: &mut dyn Progress,
) -> Result<(Vec<Prefill>, Vec<Outcome>)> {
    let (mut prefills, mut held) = (Vec::with_capacity(cases.len()), Vec::with_capacity(cases.len()));
    for case in cases {
        progress.stage("prefill");
        let seq = model.engine().create()?;
        model.prefill(seq, &case.context, Answer::Nothing, |_| progress.stopped())?;
        progress.advance(case.context.len() as u64);
        prefills.push(Prefill::take(model.engine(), seq, case.context.len())?);
        held.push((seq, case));
    }
    progress.stage("dense");
    let (outcomes, _) = ask(model, tokenizer, &held, &mut || progress.stopped())?;
    Ok((prefills, outcomes))
}

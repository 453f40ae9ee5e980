//! Scoring windows: records found in the folder of results, or made.

use super::flags::RunFlags;
use super::progress::Meter;
use super::session::{self, Opened, Session};
use kvarto::Result;
use kvarto::engine::Registry;
use kvarto::eval::{Candidate, Identity, Mode, Plan, Record};

/// A model, and the plans of all window lengths.
pub struct Scoring {
    session: Session,
    plans: Vec<Plan>,
}

/// How a mode is told on standard error.
pub fn explain(mode: Mode) -> String {
    match mode {
        Mode::Stepwise => "one token a step".into(),
        Mode::Emulated => {
            "steps cut where the cache changes: every query sees what it would see in a step of its own".into()
        }
        Mode::Chunked(rows) => format!(
            "steps of {rows} tokens: their exact tails are up to {rows} tokens longer than in decoding, so results flatter"
        ),
    }
}

impl Scoring {
    /// Loads what the flags name.
    ///
    /// # Errors
    /// `Usage` for windows that do not fit the model or a text; `File` for a text or model that cannot be read; what the
    /// backend says.
    pub fn open(flags: &RunFlags, candidates: &mut [Candidate], registry: Registry) -> Result<Self> {
        flags.common.backend.wanted()?;
        let texts = session::texts(&flags.windows)?;
        let opened = Opened::open(&flags.common)?;
        opened.calibrate(candidates)?;
        let mut plans = Vec::with_capacity(flags.windows.window.len());
        for &tokens in &flags.windows.window {
            let plan = Plan {
                windows: session::windows(&flags.windows, tokens, &texts, &opened.tokenizer)?,
                texts: texts.clone(),
                score_tokens: flags.score_tokens,
                mode: flags.mode(),
                logit_bytes: (flags.logits_mib as u64) << 20,
            };
            plan.check(opened.config.context_length)?;
            plans.push(plan);
        }
        Ok(Scoring { session: opened.load(&flags.common, registry)?, plans })
    }

    /// The records of all candidates on all windows, by length, candidate and window.
    ///
    /// # Errors
    /// As [`kvarto::eval::Runner::run`]; `File` for a record that cannot be kept.
    pub fn run(self, candidates: &[Candidate], meter: &mut Meter) -> Result<Vec<Record>> {
        let Scoring { mut session, plans } = self;
        let mut found: Vec<Vec<Vec<Option<Record>>>> = Vec::with_capacity(plans.len());
        let mut work = 0;
        for plan in &plans {
            let kept: Vec<Vec<_>> = candidates
                .iter()
                .map(|candidate| {
                    (0..plan.windows.len()).map(|window| kept(&session, plan, candidate, window)).collect()
                })
                .collect();
            work += session.runner.work(plan, candidates, &|c, w| kept[c][w].is_none());
            found.push(kept);
        }
        meter.begin(work);
        for (plan, found) in plans.iter().zip(&mut found) {
            let missing: Vec<Vec<bool>> = found.iter().map(|row| row.iter().map(Option::is_none).collect()).collect();
            let Session { runner, folder, .. } = &mut session;
            let mut done = |candidate: usize, window: usize, record: Record| {
                if let Some(folder) = folder.as_ref() {
                    let identity =
                        Identity { subject: &record.subject, window: &record.window, mode: record.mode.as_str() };
                    folder.save(&identity.file(), &record)?;
                }
                found[candidate][window] = Some(record);
                Ok(())
            };
            runner.run(plan, candidates, &|c, w| missing[c][w], meter, &mut done)?;
        }
        Ok(found.into_iter().flatten().flatten().flatten().collect())
    }
}

/// The record of an earlier run.
fn kept(session: &Session, plan: &Plan, candidate: &Candidate, window: usize) -> Option<Record> {
    let subject = candidate.subject(&session.subject);
    let (window, mode) = (plan.window_of(window), plan.mode.to_string());
    session.earlier()?.record(&Identity { subject: &subject, window: &window, mode: &mode })
}

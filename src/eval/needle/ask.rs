//! Asking: questions on forks of a context, greedy answers, and what they are worth.

use super::super::figures::CacheFigures;
use super::tasks::Case;
use crate::engine::SeqId;
use crate::error::{Error, ErrorKind, Result};
use crate::model::tokenizer::Tokenizer;
use crate::model::{Answer, Model, ModelRows};
use serde::{Deserialize, Serialize};

/// What was answered in a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The answers, by question.
    pub answers: Vec<String>,
    /// What was wanted, by question.
    pub wanted: Vec<Vec<String>>,
    /// Share of the wanted texts that the answers hold, mean over questions.
    pub score: f64,
}

impl Outcome {
    fn of(case: &Case, answers: Vec<String>) -> Self {
        let share = |(wanted, answer): (&Vec<String>, &String)| {
            let found = wanted.iter().filter(|text| holds(answer, text)).count();
            found as f64 / wanted.len().max(1) as f64
        };
        let wanted: Vec<Vec<String>> = case.questions.iter().map(|q| q.wanted.clone()).collect();
        let score = wanted.iter().zip(&answers).map(share).sum::<f64>() / wanted.len().max(1) as f64;
        Outcome { answers, wanted, score }
    }
}

/// Whether `text` stands in `answer` as a word or a number of its own.
fn holds(answer: &str, text: &str) -> bool {
    answer.split(|c: char| !c.is_alphanumeric()).any(|word| word == text)
}

/// One question in the making.
struct Thread {
    seq: SeqId,
    forced: Vec<u32>,
    made: Vec<u32>,
    most: usize,
    ended: bool,
}

impl Thread {
    /// The token of step `at`, unless the answer has ended.
    fn token(&self, at: usize) -> Option<u32> {
        match at < self.forced.len() {
            true => self.forced.get(at).copied(),
            false if self.ended || self.made.len() >= self.most => None,
            false => self.made.last().copied(),
        }
    }
}

/// Asks every question of each case on a fork of its sequence, all of them in the same steps of one token each. Says what the
/// cache was at the end, pages that forks share counted once.
///
/// # Errors
/// `Shape` for more questions than a step has rows; `Interrupted` when `stop` says so; as [`Model::step`].
pub fn ask(
    model: &mut Model,
    tokenizer: &Tokenizer,
    cases: &[(SeqId, &Case)],
    stop: &mut dyn FnMut() -> bool,
) -> Result<(Vec<Outcome>, CacheFigures)> {
    let mut threads: Vec<Vec<Thread>> = Vec::with_capacity(cases.len());
    for (seq, case) in cases {
        let mut own = Vec::with_capacity(case.questions.len());
        for question in &case.questions {
            own.push(Thread {
                seq: model.engine().fork(*seq)?,
                forced: question.ids.clone(),
                made: Vec::new(),
                most: question.answer_tokens,
                ended: false,
            });
        }
        threads.push(own);
        // A fork alone owns its pages once the context's own sequence has ended.
        model.engine().release(*seq)?;
    }
    let mut at = 0;
    loop {
        if stop() {
            return Err(Error::new(ErrorKind::Interrupted, "stopped while asking", ""));
        }
        let mut running: Vec<&mut Thread> = threads.iter_mut().flatten().filter(|t| t.token(at).is_some()).collect();
        if running.is_empty() {
            break;
        }
        let tokens: Vec<[u32; 1]> = running.iter().filter_map(|t| t.token(at).map(|token| [token])).collect();
        let most = model.chunk_tokens().min(model.logit_rows());
        let mut best = Vec::with_capacity(tokens.len());
        for (threads, tokens) in running.chunks(most).zip(tokens.chunks(most)) {
            let rows: Vec<ModelRows<'_>> = threads
                .iter()
                .zip(tokens)
                .map(|(t, token)| ModelRows { seq: t.seq, tokens: token, committed: true, answer: Answer::Best })
                .collect();
            best.extend(model.step(&rows)?.best);
        }
        for (thread, token) in running.iter_mut().zip(best) {
            if at + 1 >= thread.forced.len() && thread.made.len() < thread.most {
                thread.made.push(token);
                thread.ended = tokenizer.is_eos(token);
            }
        }
        at += 1;
    }
    let cache = CacheFigures::of(model.engine());
    let mut outcomes = Vec::with_capacity(cases.len());
    for ((_, case), threads) in cases.iter().zip(threads) {
        let mut answers = Vec::with_capacity(threads.len());
        for thread in threads {
            model.engine().release(thread.seq)?;
            let made = thread.made.iter().copied().filter(|&id| !tokenizer.is_eos(id)).collect::<Vec<_>>();
            answers.push(tokenizer.decode(&made)?);
        }
        outcomes.push(Outcome::of(case, answers));
    }
    Ok((outcomes, cache))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_holds_words_and_not_parts_of_them() {
        assert!(holds(" 48213. The", "48213") && holds(" apples, heron", "heron") && holds("heron", "heron"));
        assert!(!holds(" 482134", "48213") && !holds(" 4821", "48213") && !holds("", "heron"));
        assert!(!holds("herons", "heron"));
    }
}

//! From a prompt to an answer: prefill, then one token a step until something says stop.

use super::llama::{Answer, Model, ModelRows};
use super::sampler::{Sampler, SamplerOptions};
use super::tokenizer::Tokenizer;
use crate::engine::SeqId;
use crate::error::{Error, ErrorKind, Result};
use std::time::Instant;

/// What to generate and when to stop.
#[derive(Clone, Debug)]
pub struct GenerateOptions {
    /// Most new tokens.
    pub max_tokens: usize,
    /// How tokens are drawn.
    pub sampler: SamplerOptions,
    /// Texts that end the answer; they are not part of it.
    pub stop: Vec<String>,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended it, or a stop text came.
    Stop,
    /// `max_tokens` were made.
    Length,
    /// The caller asked.
    Cancelled,
}

impl FinishReason {
    /// The word used in JSON output.
    pub fn as_str(self) -> &'static str {
        match self {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::Cancelled => "cancelled",
        }
    }
}

/// A finished answer.
#[derive(Clone, Debug)]
pub struct Generation {
    /// Its text, without the stop text that ended it.
    pub text: String,
    /// New tokens, the one that ended it included.
    pub token_ids: Vec<u32>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// The seed of the draws.
    pub seed: u64,
    /// Tokens of the prompt that were computed.
    pub prompt_tokens: usize,
    /// Time of the prefill up to the first token, seconds.
    pub prefill_seconds: f64,
    /// Time from the first token to the last, seconds.
    pub decode_seconds: f64,
}

impl Generation {
    /// Prompt tokens a second; `None` for a prefill too short to time.
    pub fn prefill_tokens_per_s(&self) -> Option<f64> {
        rate(self.prompt_tokens, self.prefill_seconds)
    }

    /// New tokens a second, the first excluded; `None` below two tokens.
    pub fn decode_tokens_per_s(&self) -> Option<f64> {
        rate(self.token_ids.len().saturating_sub(1), self.decode_seconds)
    }
}

fn rate(count: usize, seconds: f64) -> Option<f64> {
    (count > 0 && seconds > 0.0).then(|| count as f64 / seconds)
}

/// Appends `prompt` to `seq` and generates. `say` gets each piece of text as it is certain; `cancelled` is asked
/// between steps.
///
/// # Errors
/// `Usage` for an empty prompt or sampler numbers out of range; as [`Model::step`]. What was generated before a
/// cancellation is returned, not lost.
pub fn generate(
    model: &mut Model,
    tokenizer: &Tokenizer,
    seq: SeqId,
    prompt: &[u32],
    options: &GenerateOptions,
    mut say: impl FnMut(&str),
    mut cancelled: impl FnMut() -> bool,
) -> Result<Generation> {
    options.sampler.validate()?;
    let mut sampler = Sampler::new(options.sampler.clone())?;
    // Greedy without a penalty needs no logits on the host.
    let greedy = options.sampler.temperature == 0.0 && options.sampler.repeat_penalty == 1.0;
    let answer = if greedy { Answer::Best } else { Answer::LastLogits };
    let mut history = prompt.to_vec();
    let mut out = Generation {
        text: String::new(),
        token_ids: Vec::new(),
        finish_reason: FinishReason::Length,
        seed: sampler.seed(),
        prompt_tokens: prompt.len(),
        prefill_seconds: 0.0,
        decode_seconds: 0.0,
    };
    let mut speech = Speech::new(&options.stop);
    let mut stream = tokenizer.stream();
    let start = Instant::now();
    let mut answers = match model.prefill(seq, prompt, answer, |_| cancelled()) {
        Ok(answers) => answers,
        Err(error) if error.kind() == ErrorKind::Interrupted => {
            out.finish_reason = FinishReason::Cancelled;
            out.prompt_tokens = 0;
            return Ok(out);
        }
        Err(error) => return Err(error),
    };
    let mut first = None;
    while out.token_ids.len() < options.max_tokens {
        let token = match answers.best.first() {
            Some(&token) => token,
            None => sampler.sample(&mut answers.logits, &history)?,
        };
        let now = Instant::now();
        let since = *first.get_or_insert(now);
        out.decode_seconds = (now - since).as_secs_f64();
        out.token_ids.push(token);
        history.push(token);
        if tokenizer.is_eos(token) {
            out.finish_reason = FinishReason::Stop;
            break;
        }
        if speech.hear(&stream.push(token), &mut say) {
            out.finish_reason = FinishReason::Stop;
            break;
        }
        if cancelled() {
            out.finish_reason = FinishReason::Cancelled;
            break;
        }
        if out.token_ids.len() < options.max_tokens {
            answers = model.step(&[ModelRows { seq, tokens: &[token], committed: true, answer }])?;
        }
    }
    out.prefill_seconds = first.unwrap_or_else(Instant::now).duration_since(start).as_secs_f64();
    if !speech.ended {
        let rest = stream.finish();
        if !speech.hear(&rest, &mut say) {
            speech.flush(&mut say);
        } else {
            out.finish_reason = FinishReason::Stop;
        }
    }
    out.text = speech.said;
    Ok(out)
}

/// Holds text back while it could still be the beginning of a stop text.
struct Speech<'a> {
    stop: &'a [String],
    held: String,
    said: String,
    ended: bool,
}

impl<'a> Speech<'a> {
    fn new(stop: &'a [String]) -> Self {
        Speech { stop, held: String::new(), said: String::new(), ended: false }
    }

    /// Takes a piece of text; true once a stop text came.
    fn hear(&mut self, piece: &str, say: &mut impl FnMut(&str)) -> bool {
        self.held.push_str(piece);
        let found = self.stop.iter().filter(|s| !s.is_empty()).filter_map(|s| self.held.find(s.as_str())).min();
        if let Some(at) = found {
            self.held.truncate(at);
            self.flush(say);
            self.ended = true;
            return true;
        }
        let keep = (0..self.held.len())
            .filter(|&at| self.held.is_char_boundary(at))
            .find(|&at| self.stop.iter().any(|s| s.starts_with(&self.held[at..])))
            .unwrap_or(self.held.len());
        self.emit(keep, say);
        false
    }

    fn flush(&mut self, say: &mut impl FnMut(&str)) {
        self.emit(self.held.len(), say);
    }

    fn emit(&mut self, length: usize, say: &mut impl FnMut(&str)) {
        if length > 0 {
            let rest = self.held.split_off(length);
            let piece = std::mem::replace(&mut self.held, rest);
            say(&piece);
            self.said.push_str(&piece);
        }
    }
}

/// Checks that a prompt and the answer fit the model's positions.
///
/// # Errors
/// `Usage` with the limit, the count and the remedy.
pub fn check_context(prompt_tokens: usize, max_tokens: usize, context_length: usize) -> Result<()> {
    // No sum of what a user typed may overflow.
    let all = prompt_tokens.saturating_add(max_tokens);
    if all > context_length {
        return Err(Error::new(
            ErrorKind::Usage,
            format!(
                "{prompt_tokens} prompt tokens and {max_tokens} new ones are {all}; the model has {context_length} positions"
            ),
            "shorten the prompt or lower --max-tokens",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speak(stop: &[&str], pieces: &[&str]) -> (String, bool) {
        let stop: Vec<String> = stop.iter().map(|s| s.to_string()).collect();
        let mut speech = Speech::new(&stop);
        let mut heard = String::new();
        let mut ended = false;
        for piece in pieces {
            if speech.hear(piece, &mut |t| heard.push_str(t)) {
                ended = true;
                break;
            }
        }
        if !ended {
            speech.flush(&mut |t| heard.push_str(t));
        }
        assert_eq!(heard, speech.said);
        (heard, ended)
    }

    #[test]
    fn stop_texts_end_the_answer_even_across_pieces() {
        assert_eq!(speak(&["END"], &["ab", "cE", "N", "Dxx"]), ("abc".into(), true));
        assert_eq!(speak(&["END"], &["ab", "cE", "N", "x"]), ("abcENx".into(), false));
        assert_eq!(speak(&["zz", "b"], &["abzz"]), ("a".into(), true));
        assert_eq!(speak(&["é!"], &["caf", "é", "s"]), ("cafés".into(), false));
        assert_eq!(speak(&["", "q"], &["ab"]), ("ab".into(), false));
    }
}

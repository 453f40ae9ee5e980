//! A chat that stays in the cache: each turn appends only what is new.
//!
//! The template is rendered over all messages, as models expect; what the cache holds already is not computed again.
//! Where a template rewrites earlier turns, the common beginning is kept and the rest is read anew, and counted.

use super::chat_template::{ChatTemplate, Message};
use super::generate::{FinishReason, GenerateOptions, Generation, check_context, generate};
use super::llama::Model;
use super::tokenizer::Tokenizer;
use crate::engine::SeqId;
use crate::error::{Error, ErrorKind, Result};

/// What happened to a turn's tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnTokens {
    /// Found in the cache.
    pub kept: usize,
    /// Computed, the newest message's and the template's own among them.
    pub read: usize,
    /// Of those, tokens that an earlier turn had computed already.
    pub read_again: usize,
}

/// A chat over one sequence of a model's cache.
#[derive(Debug)]
pub struct Conversation {
    sequence: SeqId,
    system: Option<Message>,
    messages: Vec<Message>,
    /// Tokens in the cache, in order.
    cached: Vec<u32>,
    /// The text that `cached` and `pending` stand for, when it is known to the letter.
    text: Option<String>,
    /// The last token of an answer: drawn, but not yet read by the model.
    pending: Option<u32>,
    turn: TurnTokens,
}

impl Conversation {
    /// An empty chat, with a system message if one is given.
    ///
    /// # Errors
    /// What the engine says.
    pub fn new(model: &mut Model, system: Option<String>) -> Result<Self> {
        Ok(Conversation {
            sequence: model.engine().create()?,
            system: system.map(|text| Message::new("system", text)),
            messages: Vec::new(),
            cached: Vec::new(),
            text: None,
            pending: None,
            turn: TurnTokens::default(),
        })
    }

    /// The sequence that holds it.
    pub fn sequence(&self) -> SeqId {
        self.sequence
    }

    /// Messages so far, the system's first.
    pub fn messages(&self) -> impl Iterator<Item = &Message> {
        self.system.iter().chain(&self.messages)
    }

    /// Tokens in the cache, in order.
    pub fn tokens(&self) -> &[u32] {
        &self.cached
    }

    /// What the newest turn kept and read.
    pub fn turn(&self) -> TurnTokens {
        self.turn
    }

    /// A second chat with the same past. Both share every page of it until one writes there.
    ///
    /// # Errors
    /// What the engine says.
    pub fn fork(&self, model: &mut Model) -> Result<Self> {
        Ok(Conversation {
            sequence: model.engine().fork(self.sequence)?,
            system: self.system.clone(),
            messages: self.messages.clone(),
            cached: self.cached.clone(),
            text: self.text.clone(),
            pending: self.pending,
            turn: self.turn,
        })
    }

    /// Forgets everything but the system message.
    ///
    /// # Errors
    /// What the engine says.
    pub fn reset(&mut self, model: &mut Model) -> Result<()> {
        let fresh = Conversation::new(model, self.system.take().map(|m| m.content))?;
        let old = std::mem::replace(self, fresh);
        model.engine().release(old.sequence)
    }

    /// Gives the cache's pages back.
    ///
    /// # Errors
    /// What the engine says.
    pub fn close(self, model: &mut Model) -> Result<()> {
        model.engine().release(self.sequence)
    }

    /// Says `message` and generates the answer, which becomes part of the chat; as [`generate`] for `say` and
    /// `cancelled`. A cancelled answer stays with what was said of it; one cancelled before its first token leaves the
    /// chat as it was.
    ///
    /// # Errors
    /// `Usage` when the message holds a control token, the template refuses it or the chat outgrows the model's
    /// positions; as [`generate`]. The chat is as it was then.
    #[allow(clippy::too_many_arguments)] // the model's parts, the words, and two callbacks
    pub fn say(
        &mut self,
        model: &mut Model,
        tokenizer: &Tokenizer,
        template: &ChatTemplate,
        message: &str,
        options: &GenerateOptions,
        say: impl FnMut(&str),
        cancelled: impl FnMut() -> bool,
    ) -> Result<Generation> {
        refuse_control(tokenizer, message)?;
        let mut messages: Vec<Message> = self.messages().cloned().collect();
        messages.push(Message::new("user", message));
        let rendered = template.render(&messages, true)?;
        let (kept, fresh) = self.fresh_tokens(tokenizer, &rendered)?;
        // An answer has what is left of the model's positions, and that is something.
        let positions = model.config().context_length;
        check_context(kept + fresh.len(), 1, positions)
            .map_err(|e| Error::new(ErrorKind::Usage, e.message(), "begin anew, or say less"))?;
        let room = positions - kept - fresh.len();
        let options = &GenerateOptions { max_tokens: options.max_tokens.min(room), ..options.clone() };
        let before = self.cached.len();
        let turn = TurnTokens { kept, read: fresh.len(), read_again: before - kept };
        let kept = self.rewind(model, kept)?;
        // A window's tokens can be gone: then all is read anew.
        let (turn, fresh) = match kept == turn.kept {
            true => (turn, fresh),
            false => {
                let all = tokenizer.encode(&rendered, true)?;
                (TurnTokens { kept: 0, read: all.len(), read_again: before }, all)
            }
        };
        if kept == 0
            && let Some(turn) = self.system_tokens(tokenizer, &rendered, &fresh)?
        {
            model.engine().anchor(self.sequence, 0..turn)?;
        }
        let result = generate(model, tokenizer, self.sequence, &fresh, options, say, cancelled);
        let answered = matches!(&result, Ok(generation) if !generation.token_ids.is_empty());
        if !answered {
            self.rewind(model, kept)?;
            return result;
        }
        let generation = result?;
        self.turn = turn;
        self.messages.push(Message::new("user", message));
        self.messages.push(Message::new("assistant", generation.text.clone()));
        self.cached.extend_from_slice(&fresh);
        let (last, read) = generation.token_ids.split_last().map_or((None, &[][..]), |(l, r)| (Some(*l), r));
        self.cached.extend_from_slice(read);
        let ended = last.is_some_and(|t| tokenizer.is_eos(t));
        // The token that ends an answer is the template's to write.
        self.pending = last.filter(|_| !ended);
        // A stop text was spoken but is not part of the answer: the cache then holds more than the text says.
        let whole = ended || generation.finish_reason != FinishReason::Stop;
        self.text = whole.then(|| rendered + &generation.text);
        Ok(generation)
    }

    /// How many of `ids`, the tokens of `rendered`, are the system message and what the template writes before it.
    fn system_tokens(&self, tokenizer: &Tokenizer, rendered: &str, ids: &[u32]) -> Result<Option<u32>> {
        let content = self.system.as_ref().map(|m| m.content.trim()).filter(|text| !text.is_empty());
        let end = content.and_then(|text| Some(rendered.find(text)? + text.len()));
        let Some(turn) = end.and_then(|end| rendered.get(..end)) else { return Ok(None) };
        let same = tokenizer.encode(turn, true)?.iter().zip(ids).take_while(|(a, b)| a == b).count();
        Ok(u32::try_from(same).ok().filter(|&same| same > 0))
    }

    /// How many cached tokens stay, and those to compute for `rendered`.
    fn fresh_tokens(&self, tokenizer: &Tokenizer, rendered: &str) -> Result<(usize, Vec<u32>)> {
        if let Some(rest) = self.text.as_ref().and_then(|text| rendered.strip_prefix(text.as_str())) {
            // No byte of the past changed, so its tokens stand, even where writing it again would cut it otherwise.
            let mut fresh: Vec<u32> = self.pending.into_iter().collect();
            fresh.extend(tokenizer.encode_further(rest, true)?);
            if !fresh.is_empty() {
                return Ok((self.cached.len(), fresh));
            }
        }
        let all = tokenizer.encode(rendered, true)?;
        let same = self.cached.iter().zip(&all).take_while(|(a, b)| a == b).count();
        // At least one token is read, so that there are logits.
        let kept = same.min(all.len().saturating_sub(1));
        Ok((kept, all[kept..].to_vec()))
    }

    /// Keeps the first `n` cached tokens, or none when a window's tokens are gone; says how many.
    fn rewind(&mut self, model: &mut Model, n: usize) -> Result<usize> {
        let engine = model.engine();
        // What an interrupted turn appended counts too.
        let held = engine.lengths(self.sequence)?.logical as usize;
        if held == n {
            return Ok(n);
        }
        let kept = match engine.truncate(self.sequence, n as u32) {
            Ok(()) => n,
            Err(error) if error.kind() == ErrorKind::Shape => {
                engine.truncate(self.sequence, 0)?;
                0
            }
            Err(error) => return Err(error),
        };
        if kept < self.cached.len() {
            self.cached.truncate(kept);
            self.text = None;
            self.pending = None;
        }
        Ok(kept)
    }
}

/// Refuses a control token in a user's words: it would end the turn, or begin another's.
///
/// # Errors
/// `Usage` naming the token.
pub fn refuse_control(tokenizer: &Tokenizer, text: &str) -> Result<()> {
    let ids = tokenizer.encode(text, true)?;
    match ids.iter().find(|&&id| Some(id) != tokenizer.bos() && tokenizer.is_control(id)) {
        None => Ok(()),
        Some(&id) => Err(Error::new(
            ErrorKind::Usage,
            format!(
                "the message holds the control token {:?}, which would end its turn",
                tokenizer.token_text(id).unwrap_or("?")
            ),
            "take it out of the message",
        )),
    }
}

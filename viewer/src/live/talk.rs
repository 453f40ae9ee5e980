//! A sequence that prompts go on with: a chat, or a plain text.

use kvarto::Result;
use kvarto::engine::SeqId;
use kvarto::model::Model;
use kvarto::model::chat_template::ChatTemplate;
use kvarto::model::conversation::Conversation;
use kvarto::model::generate::{GenerateOptions, Generation, check_context, generate};
use kvarto::model::tokenizer::Tokenizer;

/// A sequence and what it is.
pub(super) enum Talk {
    /// Turns in the model's template.
    Chat(Box<Conversation>),
    /// A text, and the token that the answer before ended with, which the cache does not hold yet.
    Text(SeqId, Option<u32>),
}

impl Talk {
    /// A new sequence.
    pub fn new(model: &mut Model, chat: bool) -> Result<Self> {
        Ok(match chat {
            true => Talk::Chat(Box::new(Conversation::new(model, None)?)),
            false => Talk::Text(model.engine().create()?, None),
        })
    }

    pub fn sequence(&self) -> SeqId {
        match self {
            Talk::Chat(chat) => chat.sequence(),
            Talk::Text(sequence, _) => *sequence,
        }
    }

    /// A fork that has the first `tokens` tokens. A chat stays one where all of it is kept; a part of one is a text.
    pub fn fork(&self, model: &mut Model, tokens: u32) -> Result<Self> {
        let held = model.engine().lengths(self.sequence())?.logical;
        match self {
            Talk::Chat(chat) if tokens >= held => Ok(Talk::Chat(Box::new(chat.fork(model)?))),
            Talk::Text(sequence, last) if tokens >= held => Ok(Talk::Text(model.engine().fork(*sequence)?, *last)),
            _ => Ok(Talk::Text(model.engine().fork_at(self.sequence(), tokens)?, None)),
        }
    }

    /// Answers.
    #[allow(clippy::too_many_arguments)] // the model's parts, the words, and two callbacks
    pub fn answer(
        &mut self,
        model: &mut Model,
        tokenizer: &Tokenizer,
        template: Option<&ChatTemplate>,
        words: &str,
        options: &GenerateOptions,
        say: impl FnMut(&str),
        cancelled: impl FnMut() -> bool,
    ) -> Result<Generation> {
        let (sequence, last) = match (self, template) {
            (Talk::Chat(chat), Some(template)) => {
                return chat.say(model, tokenizer, template, words, options, say, cancelled);
            }
            (Talk::Chat(chat), None) => (chat.sequence(), None),
            (Talk::Text(sequence, last), _) => (*sequence, Some(last)),
        };
        let held = model.engine().lengths(sequence)?.logical as usize;
        let mut ids: Vec<u32> = last.as_ref().and_then(|last| **last).into_iter().collect();
        let fresh = if held == 0 { tokenizer.encode(words, false)? } else { tokenizer.encode_further(words, false)? };
        ids.extend(fresh);
        check_context(held + ids.len(), options.max_tokens, model.config().context_length)?;
        let generation = generate(model, tokenizer, sequence, &ids, options, say, cancelled)?;
        if let Some(last) = last {
            *last = generation.token_ids.last().copied().filter(|id| !tokenizer.is_eos(*id));
        }
        Ok(generation)
    }
}

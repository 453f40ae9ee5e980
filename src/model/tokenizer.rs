//! Text to token ids and back, from the vocabulary a GGUF file carries.
//!
//! Byte-level BPE (`tokenizer.ggml.model` = `gpt2`) is built here over the `tokenizers` crate, SentencePiece's BPE
//! (`llama`) by our own code. Special tokens are cut out of the text before either, so that one vocabulary serves text
//! that may name them (a rendered chat template) and text that must not (what a user typed).

mod bpe;
mod bytes;
mod pieces;
mod stream;
mod vocab;

use std::sync::Arc;

pub use stream::Stream;

use super::gguf::Gguf;
use crate::error::{Error, ErrorKind, Result};
use pieces::Pieces;
use vocab::{Kind, Spelling, Vocab};

/// A tokenizer. Clones share the vocabulary.
#[derive(Clone)]
pub struct Tokenizer(Arc<Inner>);

struct Inner {
    vocab: Vocab,
    model: Model,
}

/// How plain text becomes ids.
enum Model {
    ByteLevel {
        bpe: Box<tokenizers::Tokenizer>,
        /// UTF-8 bytes that no token stands for; the BPE would drop them without a word.
        missing: Vec<u8>,
    },
    Pieces(Box<Pieces>),
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("tokens", &self.len()).field("eos", &self.eos_ids()).finish()
    }
}

impl Tokenizer {
    /// Builds the tokenizer of a model file.
    ///
    /// `tokenizer.ggml.model` must be `llama` (SentencePiece's BPE), or `gpt2` and `tokenizer.ggml.pre` one of `smollm`,
    /// `gpt-2`, `llama-bpe`, `qwen2`, `default`; another is `Unsupported`, naming it. Missing or inconsistent keys are
    /// `File` errors.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self> {
        let spelling = match gguf.str("tokenizer.ggml.model")? {
            "gpt2" => Spelling::ByteLevel,
            "llama" => Spelling::Pieces,
            other => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("key `tokenizer.ggml.model` is `{}`; `gpt2` and `llama` are built", other.escape_debug()),
                    "use a model whose tokenizer is byte-level BPE or SentencePiece's BPE, such as smollm2-135m",
                ));
            }
        };
        let vocab = Vocab::from_gguf(gguf, spelling)?;
        let model = match spelling {
            Spelling::ByteLevel => {
                let (bpe, missing) = bpe::build(gguf, &vocab)?;
                Model::ByteLevel { bpe: Box::new(bpe), missing }
            }
            Spelling::Pieces => Model::Pieces(Box::new(Pieces::build(gguf, &vocab)?)),
        };
        Ok(Tokenizer(Arc::new(Inner { vocab, model })))
    }

    /// The ids of `text`, led by the beginning-of-sequence token where the file asks for one (and `text` does not
    /// already begin with it).
    ///
    /// With `parse_special`, control tokens such as `<|im_end|>` written in `text` become those tokens; without,
    /// they are plain characters, so that typed text cannot end a turn. Tokens the file calls user-defined are
    /// matched either way, as their models were trained. A byte the vocabulary has no token for is a `Usage` error.
    pub fn encode(&self, text: &str, parse_special: bool) -> Result<Vec<u32>> {
        let mut ids = self.cut(text, parse_special, true)?;
        let vocab = &self.0.vocab;
        if let Some(bos) = vocab.bos.filter(|&bos| vocab.add_bos && ids.first() != Some(&bos)) {
            ids.insert(0, bos);
        }
        Ok(ids)
    }

    /// The ids of text that goes on after other text: as [`encode`](Self::encode), but nothing is put before it, neither
    /// a token nor the space that some vocabularies begin a text with.
    pub fn encode_further(&self, text: &str, parse_special: bool) -> Result<Vec<u32>> {
        self.cut(text, parse_special, false)
    }

    /// Special tokens and what lies between; `begins` when no text stands before.
    fn cut(&self, text: &str, parse_special: bool, mut begins: bool) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        let mut plain_from = 0;
        let mut at = 0;
        let vocab = &self.0.vocab;
        while at < text.len() {
            match vocab.special_at(&text.as_bytes()[at..], parse_special) {
                Some((id, length)) => {
                    self.encode_plain(&text[plain_from..at], plain_from, begins, &mut ids)?;
                    ids.push(id);
                    begins = true;
                    at += length;
                    plain_from = at;
                }
                None => at += 1,
            }
        }
        self.encode_plain(&text[plain_from..], plain_from, begins, &mut ids)?;
        Ok(ids)
    }

    fn encode_plain(&self, text: &str, from: usize, begins: bool, ids: &mut Vec<u32>) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let without_token = |at: usize| {
            Error::new(
                ErrorKind::Usage,
                format!(
                    "the text's byte {} is {:#04x}; the vocabulary has no token for it",
                    from + at,
                    text.as_bytes().get(at).copied().unwrap_or_default()
                ),
                "take that character out of the text",
            )
        };
        match &self.0.model {
            Model::ByteLevel { bpe, missing } => {
                if let Some(at) = text.bytes().position(|byte| missing.contains(&byte)) {
                    return Err(without_token(at));
                }
                let encoding = bpe.encode_fast(text, false).map_err(|e| {
                    Error::new(ErrorKind::Unsupported, format!("the text cannot be tokenized: {e}"), "report this text")
                })?;
                ids.extend_from_slice(encoding.get_ids());
                Ok(())
            }
            Model::Pieces(pieces) => {
                pieces.encode(text, begins, ids).map_err(|c| without_token(text.find(c).unwrap_or_default()))
            }
        }
    }

    /// The text of `ids`, control tokens included: the inverse of [`encode`](Self::encode) with `parse_special`.
    /// Bytes that are not UTF-8 become U+FFFD. An id outside the vocabulary is a `Shape` error.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        let mut bytes = Vec::new();
        // `encode` put a space before each stretch of plain text.
        let prefixed = matches!(&self.0.model, Model::Pieces(pieces) if pieces.space_prefix);
        let mut begins = prefixed;
        for &id in ids {
            let token = self.token_bytes(id).ok_or_else(|| {
                Error::new(
                    ErrorKind::Shape,
                    format!("token {id} is outside the vocabulary of {}", self.len()),
                    "decode with the tokenizer of the model that made it",
                )
            })?;
            let plain = matches!(self.0.vocab.kinds.get(id as usize), Some(Kind::Normal | Kind::Byte));
            let token = token.strip_prefix(b" ").filter(|_| begins && plain).unwrap_or(token);
            begins = prefixed && !plain;
            bytes.extend_from_slice(token);
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A decoder for ids that come one at a time. Control tokens are left out of its text.
    pub fn stream(&self) -> Stream {
        Stream::new(self.clone())
    }

    /// How many tokens the vocabulary has. Logits may be longer, where the embedding is padded.
    pub fn len(&self) -> usize {
        self.0.vocab.tokens.len()
    }

    /// Never true: a vocabulary without tokens is refused.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tokens that end a generation: the file's end-of-sequence and end-of-turn tokens, and those known by
    /// their text (`<|im_end|>`, `<|endoftext|>` and the like). Ascending.
    pub fn eos_ids(&self) -> &[u32] {
        &self.0.vocab.end
    }

    /// True when `id` ends a generation.
    pub fn is_eos(&self, id: u32) -> bool {
        self.eos_ids().binary_search(&id).is_ok()
    }

    /// The beginning-of-sequence token, if the file names one.
    pub fn bos(&self) -> Option<u32> {
        self.0.vocab.bos
    }

    /// The end-of-sequence token, if the file names one.
    pub fn eos(&self) -> Option<u32> {
        self.0.vocab.eos
    }

    /// True when [`encode`](Self::encode) puts the beginning-of-sequence token first.
    pub fn add_bos(&self) -> bool {
        self.0.vocab.add_bos
    }

    /// The token as the file spells it (`Ġ` or `▁` for a space); `None` outside the vocabulary.
    pub fn token_text(&self, id: u32) -> Option<&str> {
        self.0.vocab.tokens.get(id as usize).map(String::as_str)
    }

    /// The bytes `id` adds to a text; `None` outside the vocabulary. A token may hold part of a character.
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.0.vocab.bytes.get(id as usize).map(Vec::as_slice)
    }

    /// True for tokens that steer the model and stand for no text.
    pub fn is_control(&self, id: u32) -> bool {
        self.0.vocab.kinds.get(id as usize) == Some(&Kind::Control)
    }
}

#[cfg(test)]
mod tests;

//! Texts and the disjoint windows of tokens that are scored.

use crate::error::{Error, ErrorKind, Result};
use crate::model::gguf::hex;
use crate::model::tokenizer::Tokenizer;
use sha2::{Digest, Sha256};
use std::path::Path;

/// A text to be judged on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// What reports call it: the file's name.
    pub name: String,
    /// SHA-256 of its bytes.
    pub sha256: String,
    /// The text.
    pub text: String,
}

/// Longest file that is read, bytes.
const MOST_BYTES: u64 = 1 << 30;

impl Text {
    /// Reads a file.
    ///
    /// # Errors
    /// `File` for one that cannot be read, is too long, is no UTF-8 text or holds nothing but white space.
    pub fn open(path: &Path) -> Result<Self> {
        let shown = path.display();
        let fault =
            |what: String| Error::new(ErrorKind::File, format!("text {shown}: {what}"), "give a UTF-8 text file");
        let meta = std::fs::metadata(path).map_err(|e| fault(e.to_string()))?;
        if !meta.is_file() {
            return Err(fault("it is no regular file".into()));
        }
        if meta.len() > MOST_BYTES {
            return Err(fault(format!("it has {} bytes, a text at most {MOST_BYTES}", meta.len())));
        }
        let bytes = std::fs::read(path).map_err(|e| fault(e.to_string()))?;
        let name = path.file_name().map_or_else(|| shown.to_string(), |n| n.to_string_lossy().into_owned());
        Text::of(&name, bytes).map_err(|e| Error::new(e.kind(), format!("text {shown}: {}", e.message()), e.remedy()))
    }

    /// A text from its bytes.
    ///
    /// # Errors
    /// `File` for what is no UTF-8 text or holds nothing but white space.
    pub fn of(name: &str, bytes: Vec<u8>) -> Result<Self> {
        let fault = |what: String| Error::new(ErrorKind::File, what, "give a UTF-8 text file");
        let sha256 = hex(&Sha256::digest(&bytes));
        let text = String::from_utf8(bytes)
            .map_err(|e| fault(format!("it is no UTF-8 text (byte {})", e.utf8_error().valid_up_to())))?;
        if let Some(at) = text.find('\0') {
            return Err(fault(format!("it holds a zero byte at {at}: no text")));
        }
        if text.trim().is_empty() {
            return Err(fault("it is empty".into()));
        }
        Ok(Text { name: name.into(), sha256, text })
    }
}

/// A run of a text's tokens, seen by the model as if it began there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The text, by its place in the list of texts.
    pub text: usize,
    /// Its number among the text's windows.
    pub index: usize,
    /// Its first token's place in the text.
    pub start: usize,
    /// Token ids; the first is the model's beginning-of-text token where the model wants one.
    pub ids: Vec<u32>,
}

/// How windows are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Tokens of a window.
    pub tokens: usize,
    /// Windows a text.
    pub count: usize,
}

impl Windows {
    /// `count` disjoint windows of `text`, spread over it evenly.
    ///
    /// # Errors
    /// `Usage` for a text with too few tokens, saying how many it has and how many are wanted.
    pub fn cut(&self, tokenizer: &Tokenizer, text: &Text, at: usize) -> Result<Vec<Window>> {
        let ids = tokenizer.encode_further(&text.text, false)?;
        let first = tokenizer.bos().filter(|_| tokenizer.add_bos());
        let own = self.tokens.saturating_sub(usize::from(first.is_some()));
        let wanted = own.checked_mul(self.count).filter(|_| own > 0 && self.count > 0);
        let Some(spare) = wanted.and_then(|wanted| ids.len().checked_sub(wanted)) else {
            return Err(Error::new(
                ErrorKind::Usage,
                format!(
                    "text {} has {} tokens; {} windows of {} take {}",
                    text.name,
                    ids.len(),
                    self.count,
                    self.tokens,
                    wanted.map_or_else(|| "at least one each".into(), |n| n.to_string())
                ),
                "give a longer text, fewer --windows or a smaller --window",
            ));
        };
        let window = |index: usize| {
            let start = index * own + (spare / self.count) * index;
            let ids = first.into_iter().chain(ids[start..start + own].iter().copied()).collect();
            Window { text: at, index, start, ids }
        };
        Ok((0..self.count).map(window).collect())
    }
}

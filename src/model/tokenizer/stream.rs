//! Decoding as tokens come, never cutting a character.

use super::Tokenizer;

/// Turns ids into text one at a time. A token may end inside a character: its bytes wait for the rest.
#[derive(Debug)]
pub struct Stream {
    tokenizer: Tokenizer,
    waiting: Vec<u8>,
}

impl Stream {
    pub(super) fn new(tokenizer: Tokenizer) -> Self {
        Stream { tokenizer, waiting: Vec::new() }
    }

    /// The text that `id` completes; often empty. Control tokens give none, and an id outside the vocabulary
    /// (a padded row of the logits) gives U+FFFD.
    pub fn push(&mut self, id: u32) -> String {
        if self.tokenizer.is_control(id) {
            return String::new();
        }
        let replacement = "\u{FFFD}".as_bytes();
        self.waiting.extend_from_slice(self.tokenizer.token_bytes(id).unwrap_or(replacement));
        self.take_whole()
    }

    /// What is left at the end: U+FFFD for a character that never came whole, else nothing.
    pub fn finish(&mut self) -> String {
        let rest = String::from_utf8_lossy(&self.waiting).into_owned();
        self.waiting.clear();
        rest
    }

    /// Takes whole characters off the front. Bytes that can begin no character become U+FFFD; a begun one stays.
    fn take_whole(&mut self) -> String {
        let mut text = String::new();
        let mut taken = 0;
        for chunk in self.waiting.utf8_chunks() {
            text.push_str(chunk.valid());
            taken += chunk.valid().len();
            let invalid = chunk.invalid();
            let at_end = taken + invalid.len() == self.waiting.len();
            if at_end && begun(invalid) {
                break;
            }
            if !invalid.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
                taken += invalid.len();
            }
        }
        self.waiting.drain(..taken);
        text
    }
}

/// True when `bytes` may still become a character.
fn begun(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|e| e.error_len().is_none())
}

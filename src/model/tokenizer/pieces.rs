//! SentencePiece's BPE (`tokenizer.ggml.model` = `llama`): of all neighbours whose union is a piece, those with the
//! highest score merge first; a character that is no piece goes byte by byte. (SentencePiece, arXiv 1808.06226; the
//! order of merges is `bpe_model.cc`'s.)

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use super::vocab::{Kind, Vocab, byte_piece};
use crate::error::{Error, ErrorKind, Result};
use crate::model::gguf::Gguf;

/// What stands for a space inside a piece.
pub(super) const SPACE: char = '\u{2581}';
const NONE: usize = usize::MAX;

/// Pieces by their text, and what they merge by.
pub(super) struct Pieces {
    ids: HashMap<Box<str>, u32>,
    scores: Vec<f32>,
    bytes: [Option<u32>; 256],
    /// A stretch of plain text begins as if a space stood before it.
    pub space_prefix: bool,
}

/// A stretch of text that is a piece, or a single character; an empty one was merged into its left neighbour.
#[derive(Clone, Copy)]
struct Symbol {
    start: usize,
    len: usize,
    left: usize,
    right: usize,
}

/// Two neighbours whose union is a piece.
struct Merge {
    score: f32,
    left: usize,
    right: usize,
    /// Bytes of both: tells whether one of them has changed since.
    len: usize,
}

impl Ord for Merge {
    /// The highest score is the greatest, then the leftmost.
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Merge {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Merge {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Merge {}

impl Pieces {
    /// The pieces of `vocab`, with the scores of `gguf`.
    pub fn build(gguf: &Gguf, vocab: &Vocab) -> Result<Self> {
        const SCORES: &str = "tokenizer.ggml.scores";
        let wrong = |why: String| {
            Error::new(
                ErrorKind::File,
                format!("key `{SCORES}` {why}"),
                "convert the model anew; its scores rank merges",
            )
        };
        let scores = gguf.array_f32(SCORES)?;
        if scores.len() != vocab.tokens.len() {
            let tokens = vocab.tokens.len();
            return Err(wrong(format!("has {} entries; the vocabulary has {tokens} tokens", scores.len())));
        }
        if let Some(at) = scores.iter().position(|score| score.is_nan()) {
            return Err(wrong(format!("holds NaN for token {at}")));
        }
        let mut ids = HashMap::new();
        let mut bytes = [None; 256];
        for (id, (token, kind)) in vocab.tokens.iter().zip(&vocab.kinds).enumerate() {
            match kind {
                Kind::Byte => bytes[usize::from(byte_piece(token).unwrap_or_default())] = Some(id as u32),
                // Typed text never becomes a control token; user-defined ones are cut out before.
                Kind::Control => {}
                // Where a text occurs twice the first id is the one encoded to; both decode.
                Kind::Normal | Kind::UserDefined => {
                    ids.entry(token.as_str().into()).or_insert(id as u32);
                }
            }
        }
        let space_prefix = gguf.optional::<bool>("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
        Ok(Pieces { ids, scores, bytes, space_prefix })
    }

    /// Appends the ids of `text`, which `begins` a stretch of plain text or goes on after one; the error is a character that is no piece and has bytes without a token.
    pub fn encode(&self, text: &str, begins: bool, out: &mut Vec<u32>) -> Result<(), char> {
        let lead = if self.space_prefix && begins { " " } else { "" };
        let text: String = lead.chars().chain(text.chars()).map(|c| if c == ' ' { SPACE } else { c }).collect();
        let mut symbols: Vec<Symbol> = Vec::new();
        for (at, (start, c)) in text.char_indices().enumerate() {
            symbols.push(Symbol { start, len: c.len_utf8(), left: at.checked_sub(1).unwrap_or(NONE), right: at + 1 });
        }
        if let Some(last) = symbols.last_mut() {
            last.right = NONE;
        }
        let mut merges = BinaryHeap::new();
        for right in 1..symbols.len() {
            self.propose(&text, &symbols, right - 1, right, &mut merges);
        }
        while let Some(Merge { left, right, len, .. }) = merges.pop() {
            let (a, b) = (symbols[left], symbols[right]);
            if a.len == 0 || b.len == 0 || a.len + b.len != len {
                continue;
            }
            symbols[left] = Symbol { len, right: b.right, ..a };
            symbols[right].len = 0;
            if b.right != NONE {
                symbols[b.right].left = left;
                self.propose(&text, &symbols, left, b.right, &mut merges);
            }
            if a.left != NONE {
                self.propose(&text, &symbols, a.left, left, &mut merges);
            }
        }
        for symbol in symbols.iter().filter(|symbol| symbol.len > 0) {
            let piece = &text[symbol.start..symbol.start + symbol.len];
            match self.ids.get(piece) {
                Some(&id) => out.push(id),
                None => {
                    for byte in piece.bytes() {
                        let missing = || piece.chars().next().map_or(SPACE, |c| if c == SPACE { ' ' } else { c });
                        out.push(self.bytes[usize::from(byte)].ok_or_else(missing)?);
                    }
                }
            }
        }
        Ok(())
    }

    /// Notes the union of two neighbours, if it is a piece.
    fn propose(&self, text: &str, symbols: &[Symbol], left: usize, right: usize, merges: &mut BinaryHeap<Merge>) {
        let start = symbols[left].start;
        let len = symbols[left].len + symbols[right].len;
        if let Some(&id) = self.ids.get(&text[start..start + len]) {
            merges.push(Merge { score: self.scores[id as usize], left, right, len });
        }
    }
}

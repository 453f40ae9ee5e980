//! The vocabulary: tokens, their kinds, and the ids with a meaning.

use super::bytes::bytes_of;
use super::pieces::SPACE;
use crate::error::{Error, ErrorKind, Result};
use crate::model::gguf::Gguf;

/// Texts that end a generation whether or not the file says so.
const END_TEXTS: &[&str] =
    &["<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<end_of_turn>"];

/// How tokens spell text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// GPT-2's characters for bytes.
    ByteLevel,
    /// SentencePiece's: text with U+2581 for spaces, and `<0x0A>` for bytes.
    Pieces,
}

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Text.
    Normal,
    /// Steers the model; never text. Matched only where special tokens are parsed.
    Control,
    /// A text the model's makers added whole; always matched.
    UserDefined,
    /// One byte, spelled `<0x0A>`.
    Byte,
}

pub(super) struct Vocab {
    pub tokens: Vec<String>,
    /// What each token adds to a text.
    pub bytes: Vec<Vec<u8>>,
    pub kinds: Vec<Kind>,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub add_bos: bool,
    /// Ids that end a generation, ascending.
    pub end: Vec<u32>,
    /// Special tokens by first byte, the longest first.
    specials: Vec<Vec<u32>>,
}

impl Vocab {
    pub fn from_gguf(gguf: &Gguf, spelling: Spelling) -> Result<Self> {
        const TOKENS: &str = "tokenizer.ggml.tokens";
        let tokens = gguf.array_str(TOKENS)?.to_vec();
        if tokens.is_empty() {
            return Err(Error::new(ErrorKind::File, format!("key `{TOKENS}` is empty"), "convert the model anew"));
        }
        let id = |name: &str| -> Result<Option<u32>> {
            let key = format!("tokenizer.ggml.{name}_token_id");
            match gguf.optional::<u32>(&key)? {
                // Some converters write -1 as 2^32 - 1 for "none".
                Some(id) if id as usize >= tokens.len() && id != u32::MAX => Err(Error::new(
                    ErrorKind::File,
                    format!("key `{key}` is {id}; the vocabulary has {} tokens", tokens.len()),
                    "convert the model anew",
                )),
                other => Ok(other.filter(|&id| id != u32::MAX)),
            }
        };
        let (bos, eos, eot, eom) = (id("bos")?, id("eos")?, id("eot")?, id("eom")?);
        let mut kinds = kinds(gguf, tokens.len())?;
        let mut end: Vec<u32> = [eos, eot, eom].into_iter().flatten().collect();
        for (id, token) in tokens.iter().enumerate() {
            if END_TEXTS.contains(&token.as_str()) {
                end.push(id as u32);
            }
        }
        end.sort_unstable();
        end.dedup();
        // A file without token types still must not print these or take them from typed text.
        for &id in end.iter().chain(&bos) {
            kinds[id as usize] = Kind::Control;
        }
        if spelling == Spelling::ByteLevel {
            kinds.iter_mut().filter(|kind| **kind == Kind::Byte).for_each(|kind| *kind = Kind::Normal);
        }
        for (kind, token) in kinds.iter_mut().zip(&tokens) {
            if *kind == Kind::Byte && byte_piece(token).is_none() {
                *kind = Kind::Normal;
            }
        }
        let bytes = tokens.iter().zip(&kinds).map(|(token, kind)| match kind {
            Kind::Normal if spelling == Spelling::Pieces => token.replace(SPACE, " ").into_bytes(),
            Kind::Normal => bytes_of(token),
            Kind::Byte => byte_piece(token).into_iter().collect(),
            Kind::Control | Kind::UserDefined => token.as_bytes().to_vec(),
        });
        let bytes = bytes.collect();
        let mut specials: Vec<Vec<u32>> = vec![Vec::new(); 256];
        for (id, (token, kind)) in tokens.iter().zip(&kinds).enumerate() {
            if let (Some(&first), Kind::Control | Kind::UserDefined) = (token.as_bytes().first(), kind) {
                specials[usize::from(first)].push(id as u32);
            }
        }
        for bucket in &mut specials {
            bucket.sort_by_key(|&id| std::cmp::Reverse(tokens[id as usize].len()));
        }
        let add_bos = gguf.optional::<bool>("tokenizer.ggml.add_bos_token")?;
        let add_bos = add_bos.unwrap_or(spelling == Spelling::Pieces);
        Ok(Vocab { tokens, bytes, kinds, bos, eos, add_bos, end, specials })
    }

    /// The longest special token that `rest` begins with, and its length in bytes. Control tokens only where
    /// `parse_special`.
    pub fn special_at(&self, rest: &[u8], parse_special: bool) -> Option<(u32, usize)> {
        let bucket = &self.specials[usize::from(*rest.first()?)];
        bucket.iter().find_map(|&id| {
            let wanted = parse_special || self.kinds[id as usize] == Kind::UserDefined;
            let token = self.tokens[id as usize].as_bytes();
            (wanted && rest.starts_with(token)).then_some((id, token.len()))
        })
    }
}

/// The byte that `<0x0A>` and the like stand for.
pub(super) fn byte_piece(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    let hexadecimal = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    hexadecimal.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

/// Token kinds; all normal when the file has none. `tokenizer.ggml.scores` is not read here: byte-level BPE ranks
/// tokens by its merges, so a short or missing list of scores does no harm there.
fn kinds(gguf: &Gguf, tokens: usize) -> Result<Vec<Kind>> {
    const KEY: &str = "tokenizer.ggml.token_type";
    let Some(types) = gguf.optional::<Vec<i32>>(KEY)? else { return Ok(vec![Kind::Normal; tokens]) };
    if types.len() != tokens {
        return Err(Error::new(
            ErrorKind::File,
            format!("key `{KEY}` has {} entries; the vocabulary has {tokens} tokens", types.len()),
            "convert the model anew",
        ));
    }
    let kind = |ty| match ty {
        2 | 3 => Kind::Control,
        4 => Kind::UserDefined,
        6 => Kind::Byte,
        _ => Kind::Normal,
    };
    Ok(types.into_iter().map(kind).collect())
}

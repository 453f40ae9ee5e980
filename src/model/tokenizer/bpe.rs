//! Byte-level BPE over the `tokenizers` crate.

use std::collections::HashMap;

use tokenizers::models::bpe::{BPE, Vocab as BpeVocab};
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{SplitDelimiterBehavior, Tokenizer};

use super::bytes::char_of;
use super::vocab::Vocab;
use crate::error::{Error, ErrorKind, Result};
use crate::model::gguf::Gguf;

const MERGES: &str = "tokenizer.ggml.merges";
const PRE: &str = "tokenizer.ggml.pre";

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// How text is cut before BPE.
struct PreTokenizer {
    parts: Vec<PreTokenizerWrapper>,
    /// A piece that is a token whole is taken without merging.
    ignore_merges: bool,
    /// Text is brought to Unicode's composed form first.
    nfc: bool,
}

/// The BPE of `vocab` with the merges of `gguf`, and the bytes that can occur in UTF-8 and have no token.
pub(super) fn build(gguf: &Gguf, vocab: &Vocab) -> Result<(Tokenizer, Vec<u8>)> {
    let pre = pre_tokenizer(gguf)?;
    let merges = merges(gguf, vocab)?;
    let mut ids = BpeVocab::default();
    for (id, token) in vocab.tokens.iter().enumerate() {
        // Where a text occurs twice the first id is the one encoded to; both decode.
        ids.entry(token.clone()).or_insert(id as u32);
    }
    let utf8_bytes = (0x00..=0xBF).chain(0xC2..=0xF4);
    let missing = utf8_bytes.filter(|&b| !ids.contains_key(char_of(b).encode_utf8(&mut [0; 4]) as &str)).collect();
    let model = BPE::builder().vocab_and_merges(ids, merges).ignore_merges(pre.ignore_merges).build();
    let mut tokenizer = Tokenizer::new(model.map_err(failed)?);
    tokenizer.with_pre_tokenizer(Some(Sequence::new(pre.parts)));
    if pre.nfc {
        tokenizer.with_normalizer(Some(NFC)).map_err(failed)?;
    }
    Ok((tokenizer, missing))
}

/// The merges as pairs. Each half and their union must be tokens: the crate below indexes by that promise.
fn merges(gguf: &Gguf, vocab: &Vocab) -> Result<Vec<(String, String)>> {
    let known: HashMap<&str, ()> = vocab.tokens.iter().map(|token| (token.as_str(), ())).collect();
    let wrong = |index: usize, merge: &str, why: &str| {
        Error::new(
            ErrorKind::File,
            format!("key `{MERGES}`, entry {index} ({merge:?}): {why}"),
            "the file is damaged or was written by a faulty tool; convert the model anew",
        )
    };
    let mut union = String::new();
    let lines = gguf.array_str(MERGES)?;
    let mut pairs = Vec::with_capacity(lines.len());
    for (index, line) in lines.iter().enumerate() {
        // A space inside a token is spelled `Ġ`, so the only space parts the two.
        let (a, b) = line.split_once(' ').ok_or_else(|| wrong(index, line, "not two tokens with a space between"))?;
        union.clear();
        union.extend([a, b]);
        for token in [a, b, &union] {
            if !known.contains_key(token) {
                return Err(wrong(index, line, &format!("{token:?} is not in the vocabulary")));
            }
        }
        pairs.push((a.to_owned(), b.to_owned()));
    }
    Ok(pairs)
}

/// The pre-tokenizer the file names. The patterns are those the models were trained with.
fn pre_tokenizer(gguf: &Gguf) -> Result<PreTokenizer> {
    let gpt2: PreTokenizerWrapper = ByteLevel::new(false, false, true).into();
    let bytes_only: PreTokenizerWrapper = ByteLevel::new(false, false, false).into();
    let (parts, ignore_merges, nfc) = match gguf.str(PRE)? {
        "smollm" => (vec![Digits::new(true).into(), gpt2], false, false),
        "gpt-2" => (vec![gpt2], false, false),
        "llama-bpe" => (vec![split(LLAMA3)?, bytes_only], true, false),
        "qwen2" => (vec![split(QWEN2)?, bytes_only], false, true),
        "default" => {
            let cuts = [
                r"[\p{P}\$\+<=>\^~\|]+",
                r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
                r"\p{N}+",
                "[0-9][0-9][0-9]",
            ];
            let mut parts = cuts.into_iter().map(split).collect::<Result<Vec<_>>>()?;
            parts.push(bytes_only);
            (parts, false, false)
        }
        other => {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "key `{PRE}` is `{}`; smollm, gpt-2, llama-bpe, qwen2 and default are built",
                    other.escape_debug()
                ),
                "use a model with one of these pre-tokenizers",
            ));
        }
    };
    Ok(PreTokenizer { parts, ignore_merges, nfc })
}

fn split(pattern: &str) -> Result<PreTokenizerWrapper> {
    let pattern = SplitPattern::Regex(pattern.to_owned());
    Ok(Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(failed)?.into())
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::File, format!("the tokenizer cannot be built: {error}"), "convert the model anew")
}

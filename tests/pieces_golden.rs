//! SentencePiece vocabularies against `tests/golden/pieces.json` (the library sentencepiece) and
//! `tests/golden/gemma3-tokenizer.json` (llama.cpp over Gemma 3's file).
#![cfg(feature = "model")]

#[path = "support/gguf_writer.rs"]
mod gguf_writer;
mod support;

use gguf_writer::{GgufWriter, V, tiny_llama};
use kvarto::ErrorKind;
use kvarto::model::gguf::Gguf;
use kvarto::model::tokenizer::Tokenizer;
use serde_json::Value;

fn golden(name: &str) -> Value {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    serde_json::from_slice(&std::fs::read(path).expect("the golden file is there")).expect("JSON")
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().expect("ids").iter().map(|id| id.as_u64().expect("an id") as u32).collect()
}

/// A model's file with the vocabulary `pieces` and nothing else to do with Llama.
fn file(pieces: &[(&str, f32, i32)], prefix: bool) -> GgufWriter {
    tiny_llama(3)
        .set("tokenizer.ggml.model", "llama")
        .set("tokenizer.ggml.tokens", V::Strs(pieces.iter().map(|p| p.0.into()).collect()))
        .key("tokenizer.ggml.scores", V::F32s(pieces.iter().map(|p| p.1).collect()))
        .set("tokenizer.ggml.token_type", V::I32s(pieces.iter().map(|p| p.2).collect()))
        .set("tokenizer.ggml.bos_token_id", V::U32(1))
        .set("tokenizer.ggml.eos_token_id", V::U32(2))
        .key("tokenizer.ggml.add_space_prefix", V::Bool(prefix))
}

fn build(writer: &GgufWriter) -> Tokenizer {
    Tokenizer::from_gguf(&Gguf::parse(writer.build()).expect("a file")).expect("a tokenizer")
}

#[test]
fn a_small_vocabulary_is_cut_as_its_own_library_cuts_it() {
    let golden = golden("pieces.json");
    for (name, prefix) in [("plain", false), ("prefix", true)] {
        let golden = &golden[name];
        let (texts, scores) = (golden["pieces"].as_array().unwrap(), golden["scores"].as_array().unwrap());
        let types = golden["types"].as_array().unwrap();
        let pieces: Vec<(&str, f32, i32)> = texts
            .iter()
            .zip(scores)
            .zip(types)
            .map(|((t, s), k)| (t.as_str().unwrap(), s.as_f64().unwrap() as f32, k.as_i64().unwrap() as i32))
            .collect();
        let tokenizer = build(&file(&pieces, prefix));
        let cases = golden["cases"].as_array().unwrap();
        assert!(cases.len() >= 30);
        for case in cases {
            let text = case["text"].as_str().unwrap();
            let encoded = tokenizer.encode(text, false).expect("encodes");
            // The first token is added, as these files do unless they say otherwise.
            assert_eq!(encoded[0], 1);
            assert_eq!(encoded[1..], ids(&case["ids"]), "{name} {text:?}");
            // The mark of a space is a space from then on.
            assert_eq!(tokenizer.decode(&encoded[1..]).expect("text"), text.replace('\u{2581}', " "), "{name}");
        }
    }
}

#[test]
fn pieces_merge_by_score_and_then_from_the_left() {
    let pieces = [
        ("<unk>", 0.0, 2),
        ("<s>", 0.0, 3),
        ("</s>", 0.0, 3),
        ("a", -9.0, 1),
        ("b", -9.0, 1),
        ("ab", -2.0, 1),
        ("ba", -1.0, 1),
        ("aa", -3.0, 1),
        ("aab", -4.0, 1),
        ("<tool>", 0.0, 4),
        ("\u{2581}", -9.0, 1),
        ("<0xC3>", 0.0, 6),
        ("<0xA9>", 0.0, 6),
    ];
    let writer = file(&pieces, false).key("tokenizer.ggml.add_bos_token", V::Bool(false));
    let tokenizer = build(&writer);
    let encode = |text: &str, special| tokenizer.encode(text, special).expect("encodes");
    assert_eq!(encode("aba", false), [3, 6]);
    assert_eq!(encode("aaa", false), [7, 3]);
    // First the union of the last two, then of all.
    assert_eq!(encode("aab", false), [8]);
    assert_eq!(encode("", true), [0; 0]);
    // Control tokens only where they may be named, user-defined ones always, bytes for what is no piece.
    assert_eq!(encode("a</s>b", true), [3, 2, 4]);
    assert_eq!(encode("a<tool>b", false), [3, 9, 4]);
    assert_eq!(encode("é a", false), [11, 12, 10, 3]);
    assert_eq!(tokenizer.decode(&[11, 12, 10, 3]).expect("text"), "é a");
    let mut stream = tokenizer.stream();
    assert_eq!([11, 12, 10, 2, 3].map(|id| stream.push(id)), ["", "é", " ", "", "a"]);
    for (text, at) in [("aé\u{ea}", "byte 3 is 0xc3"), ("ab</s>", "byte 2 is 0x3c")] {
        let error = tokenizer.encode(text, false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.message().contains(at), "{error}");
    }
    // A space stands before each stretch of text where the file wants one, and is gone again in the text.
    let prefixed = build(&writer.set("tokenizer.ggml.add_space_prefix", V::Bool(true)));
    let encoded = prefixed.encode("ab<tool>b", false).expect("encodes");
    assert_eq!(encoded, [10, 5, 9, 10, 4]);
    assert_eq!(prefixed.decode(&encoded).expect("text"), "ab<tool>b");
    assert_eq!(prefixed.encode_further("ab<tool>b", false).expect("encodes"), [5, 9, 10, 4]);
}

#[cfg(feature = "cli")]
#[test]
fn gemmas_vocabulary_is_cut_as_llama_cpp_cuts_it() {
    let Some(path) = kvarto::model::store::resolve_cached("gemma3-270m") else {
        return support::require_or_skip(
            "gemma3",
            "gemma3-270m is not in the cache; run `kvarto models fetch gemma3-270m`",
        );
    };
    let tokenizer = Tokenizer::from_gguf(&Gguf::open(path).expect("the file opens")).expect("a tokenizer");
    let golden = golden("gemma3-tokenizer.json");
    let cases = golden["cases"].as_array().expect("cases");
    assert!(cases.len() > 35);
    for case in cases {
        let (text, special) = (case["text"].as_str().expect("text"), case["special"].as_bool().expect("a flag"));
        let encoded = tokenizer.encode(text, special).expect("encodes");
        assert_eq!(encoded, ids(&case["ids"]), "{text:?}, special tokens {special}");
        assert_eq!(tokenizer.decode(&encoded[1..]).expect("text"), text.replace('\u{2581}', " "));
    }
    assert_eq!((tokenizer.len(), tokenizer.bos(), tokenizer.eos_ids()), (262_144, Some(2), &[1, 106][..]));
}

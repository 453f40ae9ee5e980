use super::*;
use crate::model::chat_template::{ChatTemplate, Message};

#[path = "../../../tests/support/gguf_writer.rs"]
mod gguf_writer;

use gguf_writer::{GgufWriter, V, tiny_llama};

fn build(writer: GgufWriter) -> Result<Tokenizer> {
    Tokenizer::from_gguf(&Gguf::parse(writer.build()).unwrap())
}

#[track_caller]
fn refused(writer: GgufWriter, kind: ErrorKind, words: &[&str]) {
    let error = build(writer).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(words.iter().all(|word| error.message().contains(word)), "{words:?} are not all in {error}");
}

/// The real model, or a skip with its reason. `KVARTO_REQUIRE=model` turns the skip into a failure.
fn real_model() -> Option<Gguf> {
    #[cfg(feature = "cli")]
    if let Some(path) = crate::model::store::resolve_cached("smollm2-135m") {
        return Some(Gguf::open(path).unwrap());
    }
    let required = std::env::var("KVARTO_REQUIRE").is_ok_and(|list| list.split(',').any(|name| name == "model"));
    assert!(!required, "KVARTO_REQUIRE names model, and smollm2-135m is not in the cache");
    eprintln!("skipped: smollm2-135m is not in the cache; run `kvarto models fetch smollm2-135m`");
    None
}

#[test]
fn bytes_merge_and_come_back() {
    let tokenizer = build(tiny_llama(3)).unwrap();
    assert_eq!(tokenizer.len(), 260);
    assert_eq!(tokenizer.encode("abba", false).unwrap(), [256, 98, 97]);
    assert_eq!(tokenizer.encode("", true).unwrap(), [0; 0]);
    for text in ["é 日本語 🙂\r\n\t\0", "  a  b ", "<|im_end|><tool>"] {
        for parse_special in [false, true] {
            assert_eq!(tokenizer.decode(&tokenizer.encode(text, parse_special).unwrap()).unwrap(), text);
        }
    }
    assert_eq!(tokenizer.decode(&[260]).unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(
        (tokenizer.token_text(256), tokenizer.token_text(32), tokenizer.token_text(260)),
        (Some("ab"), Some("Ġ"), None)
    );
}

#[test]
fn typed_text_cannot_end_a_turn() {
    let tokenizer = build(tiny_llama(3)).unwrap();
    assert_eq!(tokenizer.encode("a<|im_end|>b", true).unwrap(), [97, 258, 98]);
    assert!(!tokenizer.encode("a<|im_end|>b", false).unwrap().contains(&258));
    // User-defined tokens are text that was trained as one piece.
    assert_eq!(tokenizer.encode("a<tool>b", false).unwrap(), [97, 259, 98]);
    assert_eq!((tokenizer.eos_ids(), tokenizer.is_eos(258), tokenizer.is_eos(0)), (&[258][..], true, false));
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.add_bos()), (Some(257), Some(258), false));
}

#[test]
fn the_first_token_is_added_when_asked_for_and_never_twice() {
    let tokenizer = build(tiny_llama(3).key("tokenizer.ggml.add_bos_token", V::Bool(true))).unwrap();
    assert_eq!(tokenizer.encode("a", false).unwrap(), [257, 97]);
    assert_eq!(tokenizer.encode("<|im_start|>a", true).unwrap(), [257, 97]);
    // Text that goes on gets none, and keeps the one that is written in it.
    assert_eq!(tokenizer.encode_further("a", false).unwrap(), [97]);
    assert_eq!(tokenizer.encode_further("<|im_start|>a", true).unwrap(), [257, 97]);
}

#[test]
fn a_stream_never_cuts_a_character() {
    let tokenizer = build(tiny_llama(3)).unwrap();
    let text = "aé日🙂b";
    let mut stream = tokenizer.stream();
    let pieces: Vec<String> = tokenizer.encode(text, false).unwrap().into_iter().map(|id| stream.push(id)).collect();
    assert!(!pieces.iter().any(|piece| piece.contains('\u{FFFD}')), "{pieces:?}");
    assert_eq!(pieces.concat() + &stream.finish(), text);
    // Half a character, then something else; a byte that begins none; a control token; a padded row.
    let mut stream = tokenizer.stream();
    assert_eq!(
        [0xE6, 0x97, 97, 0xFF, 258, 999].map(|id| stream.push(id)),
        ["", "", "\u{FFFD}a", "\u{FFFD}", "", "\u{FFFD}"]
    );
    assert_eq!((stream.push(0xF0), stream.finish(), stream.finish()), ("".into(), "\u{FFFD}".into(), "".into()));
}

#[test]
fn odd_files_load_and_wrong_ones_are_named() {
    let types: Vec<u32> = (0..260).map(|id| [1, 3][usize::from(id == 257 || id == 258)]).collect();
    let tokenizer = build(tiny_llama(3).set("tokenizer.ggml.token_type", V::U32s(types))).unwrap();
    assert!(tokenizer.is_control(257) && !tokenizer.is_control(259));
    build(tiny_llama(3).key("tokenizer.ggml.scores", V::F32s(vec![0.0; 3]))).unwrap();
    // Without token types, the ends of a turn are still control tokens.
    assert!(build(tiny_llama(3).without("tokenizer.ggml.token_type")).unwrap().is_control(258));
    let none = tiny_llama(3).set("tokenizer.ggml.bos_token_id", V::U32(u32::MAX));
    assert_eq!(build(none).unwrap().bos(), None);

    let set = |key: &str, value: V| tiny_llama(3).set(&format!("tokenizer.ggml.{key}"), value);
    refused(set("model", "llama".into()), ErrorKind::File, &["tokenizer.ggml.scores", "missing"]);
    let pieces = |scores| set("model", "llama".into()).key("tokenizer.ggml.scores", V::F32s(scores));
    refused(pieces(vec![0.0; 3]), ErrorKind::File, &["tokenizer.ggml.scores", "3", "260"]);
    refused(pieces(vec![f32::NAN; 260]), ErrorKind::File, &["tokenizer.ggml.scores", "NaN"]);
    refused(set("model", "bert".into()), ErrorKind::Unsupported, &["`bert`"]);
    refused(set("pre", "klingon".into()), ErrorKind::Unsupported, &["tokenizer.ggml.pre", "`klingon`"]);
    refused(tiny_llama(3).without("tokenizer.ggml.pre"), ErrorKind::File, &["tokenizer.ggml.pre", "missing"]);
    refused(tiny_llama(3).without("tokenizer.ggml.merges"), ErrorKind::File, &["tokenizer.ggml.merges", "missing"]);
    refused(set("token_type", V::I32s(vec![1; 9])), ErrorKind::File, &["token_type", "9", "260"]);
    refused(set("tokens", V::Strs(vec![])), ErrorKind::File, &["tokenizer.ggml.tokens"]);
    refused(set("eos_token_id", V::U32(260)), ErrorKind::File, &["eos_token_id", "260"]);
    for wrong in ["ab", "a zz", "ab ab", "b a"] {
        refused(set("merges", V::Strs(vec![wrong.into()])), ErrorKind::File, &["merges", wrong]);
    }
}

#[test]
fn a_byte_without_a_token_is_an_error() {
    let mut tokens: Vec<String> = gguf_writer::byte_alphabet().into_iter().map(String::from).collect();
    tokens[4] = "unused".into();
    tokens.push("ab".into());
    let vocabulary = ["token_type", "bos_token_id", "eos_token_id"];
    let writer = vocabulary.iter().fold(tiny_llama(3), |w, key| w.without(&format!("tokenizer.ggml.{key}")));
    let tokenizer = build(writer.set("tokenizer.ggml.tokens", V::Strs(tokens))).unwrap();
    let error = tokenizer.encode("ab\u{4}", false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(error.message().contains("byte 2 is 0x04"), "{error}");
}

#[test]
fn every_pre_tokenizer_is_built_and_cuts_as_trained() {
    for pre in ["smollm", "gpt-2", "llama-bpe", "qwen2", "default"] {
        let tokenizer = build(tiny_llama(3).set("tokenizer.ggml.pre", pre)).unwrap();
        let text = "I'll say: ab 12345 —  \n\n x\t\t";
        assert_eq!(tokenizer.decode(&tokenizer.encode(text, false).unwrap()).unwrap(), text, "{pre}");
    }
    // With a merge "1 2", only the rules that keep digits together can use it.
    let merged = |pre: &str| {
        let mut tokens: Vec<String> = gguf_writer::byte_alphabet().into_iter().map(String::from).collect();
        tokens.extend(["12".into(), "<|im_start|>".into(), "<|im_end|>".into(), "<tool>".into()]);
        let writer = tiny_llama(3).set("tokenizer.ggml.tokens", V::Strs(tokens)).set("tokenizer.ggml.pre", pre);
        let tokenizer = build(writer.set("tokenizer.ggml.merges", V::Strs(vec!["1 2".into()]))).unwrap();
        tokenizer.encode("0012", false).unwrap().contains(&256)
    };
    assert_eq!(["smollm", "gpt-2", "llama-bpe", "qwen2", "default"].map(merged), [false, true, false, false, false]);
}

#[test]
fn the_real_models_tokens_are_an_independent_implementations() {
    let Some(gguf) = real_model() else { return };
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    // Made with a separate BPE in Python over the same vocabulary and merges.
    let cases: &[(&str, &[u32])] = &[
        ("Hello world", &[19556, 905]),
        ("The year 2024 had 366 days.", &[504, 713, 216, 34, 32, 34, 36, 761, 216, 35, 38, 38, 2009, 30]),
        ("  two  spaces\n\n\ttab ", &[216, 827, 216, 5600, 1116, 197, 15999, 216]),
        ("I'll don't", &[57, 3060, 1326, 982]),
        ("naïve café — 日本語 🙂", &[3546, 46494, 37366, 1841, 17097, 241, 115, 40993, 179, 120, 248, 47526]),
        (
            "fn main() { println!(\"{}\", x_1); }",
            &[7853, 1085, 1000, 1662, 1628, 34115, 17, 43331, 1002, 1792, 79, 33, 4258, 4029],
        ),
        ("½ and ٣", &[16738, 284, 216, 164, 113]),
        ("a<|im_end|>b", &[81, 44, 108, 306, 79, 486, 108, 46, 82]),
    ];
    for (text, ids) in cases {
        assert_eq!(tokenizer.encode(text, false).unwrap(), *ids, "{text}");
        assert_eq!(tokenizer.decode(ids).unwrap(), *text);
    }
    assert_eq!(tokenizer.encode("a<|im_end|>b", true).unwrap(), [81, 2, 82]);
    assert_eq!((tokenizer.len(), tokenizer.bos(), tokenizer.eos_ids()), (49152, Some(1), &[0, 2][..]));
}

#[test]
fn the_real_models_template_writes_its_chat() {
    let Some(gguf) = real_model() else { return };
    let chat = [Message::new("user", "Hi")];
    let text = ChatTemplate::from_gguf(&gguf).unwrap().render(&chat, true).unwrap();
    let system = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n";
    assert_eq!(text, format!("{system}<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"));
    let ids = Tokenizer::from_gguf(&gguf).unwrap().encode(&text, true).unwrap();
    assert_eq!((ids[0], ids.iter().filter(|&&id| id == 1).count()), (1, 3));
}

#[test]
fn a_file_without_a_template_says_so() {
    let error = ChatTemplate::from_gguf(&Gguf::parse(tiny_llama(3).build()).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::File);
    assert!(error.message().contains("tokenizer.chat_template"), "{error}");
}

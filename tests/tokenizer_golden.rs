//! The tokenizer against `tests/golden/smollm2-tokenizer.json`, made with the `tokenizers` library from Python and
//! checked there against a second one.
#![cfg(feature = "cli")]

mod support;

use kvarto::ErrorKind;
use kvarto::model::tokenizer::Tokenizer;
use support::model::{golden, ids};

/// One difference is meant: the reference drops a byte that the vocabulary has no token for, in silence. Here that is
/// an error that names the byte, since a prompt that is not what was written should not pass for it.
#[test]
fn every_case_gives_the_golden_ids() {
    let Some(gguf) = support::model::open() else { return };
    let tokenizer = Tokenizer::from_gguf(&gguf).expect("a tokenizer");
    let file = golden("smollm2-tokenizer.json");
    assert_eq!(tokenizer.len() as u64, file["vocab_size"].as_u64().expect("a size"));
    let missing = ids(&file["missing_bytes"]);
    let cases = file["cases"].as_array().expect("cases");
    assert_eq!(cases.len(), 56);
    let mut refused = 0;
    for case in cases {
        let text = case["text"].as_str().expect("text");
        let special = case["parse_special"].as_bool().expect("a flag");
        let encoded = tokenizer.encode(text, special);
        match text.bytes().find(|&byte| missing.contains(&u32::from(byte))) {
            Some(byte) => {
                assert!(!case["round_trip"].as_bool().expect("a flag"), "{text:?}");
                let error = encoded.expect_err("a byte without a token is refused");
                assert_eq!(error.kind(), ErrorKind::Usage);
                assert!(error.message().contains(&format!("{byte:#04x}")), "{error}");
                refused += 1;
            }
            None => {
                let encoded = encoded.expect("encodes");
                assert_eq!(encoded, ids(&case["ids"]), "{text:?}");
                assert_eq!(tokenizer.decode(&encoded).expect("decodes"), text);
                // Piece by piece the same text comes out, where no control token hides itself.
                if !encoded.iter().any(|&id| tokenizer.is_control(id)) {
                    let mut stream = tokenizer.stream();
                    let mut pieces: String = encoded.iter().map(|&id| stream.push(id)).collect();
                    pieces += &stream.finish();
                    assert_eq!(pieces, text);
                }
            }
        }
    }
    assert_eq!(refused, 3);
}

#[test]
fn refuses_exactly_the_bytes_that_have_no_token() {
    let Some(gguf) = support::model::open() else { return };
    let tokenizer = Tokenizer::from_gguf(&gguf).expect("a tokenizer");
    let missing = ids(&golden("smollm2-tokenizer.json")["missing_bytes"]);
    for byte in 0..128u32 {
        let text = char::from_u32(byte).expect("ASCII").to_string();
        assert_eq!(tokenizer.encode(&text, false).is_err(), missing.contains(&byte), "{byte:#04x}");
    }
}

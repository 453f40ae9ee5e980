//! Texts and windows that are refused, and why.

use crate::support;
use kvarto::ErrorKind;
use kvarto::eval::{Text, Windows};
use kvarto::model::tokenizer::Tokenizer;

/// Plain English of this repository.
pub fn english() -> Text {
    // A text that nobody edits.
    Text::of("english", include_bytes!("../../LICENSE-APACHE").to_vec()).expect("a text")
}

#[test]
fn what_is_no_text_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t");
    for (bytes, word) in
        [(&b""[..], "empty"), (b" \n\t", "empty"), (b"ab\xff\xfe", "byte 2"), (b"a\0b", "zero byte at 1")]
    {
        std::fs::write(&path, bytes).expect("written");
        let error = Text::open(&path).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::File, "{error}");
        assert!(error.message().contains(word) && error.message().contains(&path.display().to_string()), "{error}");
        assert!(!error.remedy().is_empty());
    }
    assert!(Text::open(folder.path()).expect_err("a folder").message().contains("no regular file"));
    assert!(Text::open(&folder.path().join("none")).is_err());
}

#[test]
fn windows_are_disjoint_and_whole() {
    let Some(gguf) = support::model::open() else { return };
    let tokenizer = Tokenizer::from_gguf(&gguf).expect("a tokenizer");
    let text = english();
    let all = tokenizer.encode_further(&text.text, false).expect("tokens");
    let windows = Windows { tokens: 300, count: 3 }.cut(&tokenizer, &text, 0).expect("windows");
    let mut end = 0;
    for (at, window) in windows.iter().enumerate() {
        assert_eq!((window.index, window.ids.len()), (at, 300));
        assert!(window.start >= end, "window {at} begins at {}, the one before ends at {end}", window.start);
        end = window.start + 300;
        assert_eq!(window.ids, all[window.start..end]);
    }
    let error = Windows { tokens: 300, count: all.len() / 300 + 1 }.cut(&tokenizer, &text, 0).expect_err("too many");
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(error.message().contains(&format!("has {} tokens", all.len())), "{error}");
    for odd in
        [Windows { tokens: 0, count: 1 }, Windows { tokens: 10, count: 0 }, Windows { tokens: usize::MAX, count: 2 }]
    {
        assert!(odd.cut(&tokenizer, &text, 0).is_err(), "{odd:?}");
    }
}

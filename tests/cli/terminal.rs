//! Nothing that a user or a file put in reaches the terminal as anything but text.

use super::gguf_writer::{V, tiny_llama};
use super::{Said, bare, run};

/// Colours, a title, a turn of the writing direction, a C1 sequence, and a line that looks like ours.
const HOSTILE: &str = "\u{1b}[31m\u{1b}]0;owned\u{7}\u{202e}\u{9b}2J\rx\u{8}\u{7f}";
const FORGED: &str = "x\nerror: forged";

#[track_caller]
fn harmless(said: &Said, what: &str) {
    for text in [&said.out, &said.err] {
        let steers = |c: &char| (c.is_control() && !matches!(c, '\n' | '\t')) || ('\u{200e}'..'\u{2070}').contains(c);
        assert_eq!(text.chars().find(|c| steers(c) && !"\u{2019}\u{2026}".contains(*c)), None, "{what}: {text:?}");
    }
    assert!(!said.err.lines().any(|line| line.starts_with("error: forged")), "{what}: {}", said.err);
}

#[test]
fn no_value_of_the_command_line_steers() {
    let (mut count, mut codes) = (0, [0; 4]);
    for hostile in [HOSTILE, FORGED] {
        let path = format!("/nowhere/{hostile}.gguf");
        let flag = format!("--{hostile}");
        let lines: [&[&str]; 22] = [
            &["generate", "hi", "--kv", hostile],
            &["generate", "hi", "--kv", &format!("k={hostile},v=f16")],
            &["generate", "hi", "--kv", &format!("{hostile}=f16")],
            &["generate", "hi", "--model", hostile],
            &["generate", "hi", "--model", &path],
            &["generate", "hi", "--basis", hostile],
            &["generate", "hi", "--backend", hostile],
            &["generate", "hi", "--seed", hostile],
            &["generate", "hi", "--temperature", hostile],
            &["generate", "hi", "--timing", hostile],
            &["generate", "hi", "--top-k", hostile],
            &["generate", "hi", &flag],
            &["generate", "hi", &format!("--chat={hostile}")],
            &["generate", "hi", hostile],
            &["generate", "--prompt-file", &path],
            &["doctor", "--adapter", hostile],
            &["models", "path", hostile],
            &["models", "info", &path],
            &["models", "fetch", hostile],
            &["models", hostile],
            &[hostile],
            &["generate", "hi", "-v", "--backend", hostile],
        ];
        for line in lines {
            for json in [false, true] {
                let line = if json { [line, &["--json"]].concat() } else { line.to_vec() };
                let (command, _folder) = bare(&line);
                let said = run(command);
                harmless(&said, &format!("{line:?}"));
                // Something was refused, and said so.
                let code = said.code.expect("a code") as usize;
                assert!((1..=3).contains(&code), "{line:?}: {code}");
                assert!(!said.out.is_empty() || !said.err.is_empty(), "{line:?}");
                codes[code] += 1;
                count += 1;
            }
        }
    }
    assert!(count == 88 && codes[1] > 0 && codes[2] > 0, "{codes:?}");
}

#[test]
fn no_text_of_a_model_file_steers() {
    let folder = tempfile::tempdir().expect("a folder");
    let tensor = format!("blk.0.{HOSTILE}");
    let files = [
        tiny_llama(3).set("general.name", HOSTILE).key("general.license", HOSTILE).key(HOSTILE, HOSTILE),
        tiny_llama(3).key("a.list", V::Strs(vec![HOSTILE.into()])).key("tokenizer.chat_template", HOSTILE),
        tiny_llama(3).set("general.architecture", HOSTILE),
        tiny_llama(3).set("tokenizer.ggml.model", HOSTILE),
        tiny_llama(3).set("tokenizer.ggml.pre", HOSTILE),
        tiny_llama(3).key("llama.rope.scaling.type", HOSTILE),
        tiny_llama(3).tensor_f32(&tensor, &[16], &[0.0; 16]),
        tiny_llama(3).key(HOSTILE, V::Bool(true)).key(HOSTILE, V::Bool(true)),
        tiny_llama(3).key("tokenizer.chat_template", format!("{{{{ raise_exception('{HOSTILE}') }}}}").as_str()),
        tiny_llama(3).key("tokenizer.chat_template", format!("{{% {HOSTILE} %}}").as_str()),
    ];
    for (at, file) in files.into_iter().enumerate() {
        let path = folder.path().join(format!("{at}.gguf"));
        std::fs::write(&path, file.build()).expect("written");
        let path = path.to_str().expect("UTF-8");
        for line in [
            &["models", "info", path][..],
            &["models", "info", "--json", path],
            &["generate", "ab", "--model", path, "--backend", "cpu", "--max-tokens", "0"],
            &["generate", "ab", "--model", path, "--backend", "cpu", "--max-tokens", "0", "--json", "-v"],
            &["generate", "ab", "--model", path, "--backend", "cpu", "--max-tokens", "0", "--chat"],
        ] {
            let (command, _folder) = bare(line);
            harmless(&run(command), &format!("file {at}: {line:?}"));
        }
    }
}

//! `generate` in words: what it answers, and the flags that change it.

use super::{generate, golden_prompt, kvarto, run, said, support};
use std::io::Write;
use std::process::Stdio;

#[test]
fn greedy_text_is_the_golden_text() {
    if support::model::path().is_none() {
        return;
    }
    let (prompt, answer) = golden_prompt("plain");
    let greedy = ["--temperature", "0", "--max-tokens", "64"];
    let whole = generate(&[&[prompt.as_str()], &greedy[..]].concat());
    assert_eq!(whole.out, format!("{answer}\n"));
    for word in ["backend   ", "kernels   ", "pages     64 tokens; K f16 (none), V f16 (none)", "prefill ", "decode "] {
        assert!(whole.err.contains(word), "{word:?} is not in {}", whole.err);
    }

    // The same from a file and from standard input, whose last line break is not meant.
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("prompt.txt");
    std::fs::write(&file, format!("{prompt}\r\n")).expect("written");
    let from_file = generate(&[&["--prompt-file", file.to_str().expect("UTF-8")], &greedy[..]].concat());
    assert_eq!(from_file.out, whole.out);
    let mut child = kvarto(&[&["generate", "--backend", "cpu", "--prompt-file", "-"], &greedy[..]].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    child.stdin.take().expect("piped").write_all(format!("{prompt}\n").as_bytes()).expect("written");
    assert_eq!(said(child.wait_with_output().expect("ends")).out, whole.out);

    // A stop text ends the answer before itself, wherever tokens end.
    let at = answer.find("twinkling in").expect("in the golden text");
    let stopped = generate(&[&[prompt.as_str(), "--stop", "nowhere", "--stop", "winkling i"], &greedy[..]].concat());
    assert_eq!(stopped.out, format!("{}\n", &answer[..at + 1]));

    // One thread, other pages and kernel times change nothing that is said.
    let more: [&[&str]; 3] = [&["--threads", "1"], &["--page-tokens", "32", "-v"], &["--timing", "kernels"]];
    for more in more {
        let other = generate(&[&[prompt.as_str()], &greedy[..], more].concat());
        assert_eq!(other.out, whole.out, "{more:?}");
        if more.contains(&"-v") {
            assert!(other.err.contains("model     llama (30 layers, 9 query and 3 KV heads of 64)"), "{}", other.err);
            assert!(other.err.contains("pages     32 tokens"), "{}", other.err);
        }
        if more.contains(&"kernels") {
            for kernel in ["linear", "decode", "merge", "append"] {
                let line = other.err.lines().find(|l| l.trim_start().starts_with(kernel));
                let line = line.unwrap_or_else(|| panic!("{kernel} is not in {}", other.err));
                assert!(line.contains(" dispatches ") && line.contains(" ms "), "{line}");
            }
        }
    }
}

#[test]
fn a_chat_is_put_into_the_template() {
    if support::model::path().is_none() {
        return;
    }
    let (_, answer) = golden_prompt("chat");
    let arguments = ["--chat", "Explain what a KV cache is.", "--temperature", "0", "--max-tokens", "64"];
    assert_eq!(generate(&arguments).out, format!("{answer}\n"));
}

#[test]
fn a_seed_gives_the_same_text_again() {
    if support::model::path().is_none() {
        return;
    }
    let draw = |seed: &str, more: &[&str]| {
        generate(&[&["Once upon a time", "--max-tokens", "24", "--temperature", "1", "--seed", seed], more].concat())
            .out
    };
    let first = draw("7", &[]);
    assert_eq!(draw("7", &["--threads", "1"]), first);
    assert_ne!(draw("8", &[]), first);
    assert_ne!(draw("7", &["--repeat-penalty", "1.8", "--top-k", "0", "--top-p", "1", "--min-p", "0"]), first);
    // One candidate leaves nothing to draw.
    assert_eq!(draw("7", &["--top-k", "1"]), draw("8", &["--top-k", "1"]));
}

#[test]
fn runs_on_vulkan() {
    if support::model::path().is_none() {
        return;
    }
    let said = run(kvarto(&[
        "generate",
        "The capital of France is",
        "--backend",
        "vulkan",
        "--temperature",
        "0",
        "--max-tokens",
        "4",
    ]));
    match said.code {
        Some(0) => {
            let cpu = generate(&["The capital of France is", "--temperature", "0", "--max-tokens", "4"]);
            assert_eq!(said.out, cpu.out);
            assert!(said.err.contains("vulkan"), "{}", said.err);
        }
        Some(3) => support::require_or_skip("vulkan", &said.err),
        code => panic!("exit code {code:?}: {}", said.err),
    }
}

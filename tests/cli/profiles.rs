//! `kvarto profiles`, and profiles by flag.

use super::{bare, run};
use serde_json::Value;

fn said(arguments: &[&str], code: i32) -> (String, String) {
    let (command, _folder) = bare(arguments);
    let said = run(command);
    assert_eq!(said.code, Some(code), "{arguments:?}: {}{}", said.out, said.err);
    (said.out, said.err)
}

fn json(arguments: &[&str], code: i32) -> Value {
    let (out, _) = said(arguments, code);
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"))
}

#[test]
fn lists_a_line_each_and_shows_one_that_reads_back() {
    let (out, _) = said(&["profiles"], 0);
    assert!(out.lines().count() >= 13, "{out}");
    assert!(out.lines().any(|l| l.starts_with("minima-kv ") && l.contains("arXiv 2608.23834")), "{out}");
    assert_eq!(out, said(&["profiles", "list"], 0).0);
    let list = json(&["profiles", "--json"], 0);
    assert_eq!(list["profiles"].as_array().map(Vec::len), Some(out.lines().count()));
    let (shown, _) = said(&["profiles", "show", "minima-kv", "--set", "policy.recent_tokens=640"], 0);
    assert!(shown.contains("\nrecent_tokens = 640\n") && shown.contains("\nanchor_stride = 0\n"), "{shown}");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("mine.toml");
    std::fs::write(&path, &shown).expect("written");
    assert_eq!(said(&["profiles", "show", path.to_str().expect("UTF-8")], 0).0, shown);
    assert_eq!(json(&["profiles", "show", "tq3", "--json"], 0)["name"], "tq3");
}

#[test]
fn faults_are_usage_errors_that_say_where() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("mine.toml");
    std::fs::write(&path, "schema = 1\nname = \"x\"\n[kv]\nk = \"fp8\"\nv = \"tq5\"\n").expect("written");
    let path = path.to_str().expect("UTF-8");
    for command in [&["plan"][..], &["generate", "hi"], &["chat"], &["bench", "decode"], &["bench", "generate"]] {
        let (_, err) = said(&[command, &["--profile", path]].concat(), 2);
        assert!(err.contains("mine.toml:5:5: ") && err.contains("did you mean `tq"), "{command:?}: {err}");
        let (_, err) = said(&[command, &["--profile", "tq3", "--kv", "f16"]].concat(), 2);
        assert!(err.contains("--profile") && err.contains("--kv"), "{command:?}: {err}");
        let (_, err) = said(&[command, &["--page-tokens", "32", "--set", "kv.page_tokens=64"]].concat(), 2);
        assert!(err.contains("--page-tokens 32") && err.contains("contradicts"), "{command:?}: {err}");
        let (_, err) = said(&[command, &["--set", "policy.name=keap"]].concat(), 2);
        assert!(err.contains("did you mean `keep`"), "{command:?}: {err}");
    }
    assert_eq!(json(&["plan", "--json", "--profile", "tq33"], 2)["error"]["kind"], "usage");
    assert_eq!(json(&["profiles", "show", "nowhere.toml", "--json"], 1)["error"]["kind"], "file");
}

#[test]
fn plan_counts_under_a_profile() {
    let flags = ["plan", "--shape", "qwen3.6-27b", "--batch", "2", "--context", "59008", "--json", "--profile"];
    let plan = json(&[&flags[..], &["minima-kv-paper"]].concat(), 0);
    let of = |plan: &Value| plan["contexts"][0]["slot_bytes_per_token"].as_f64().expect("a number") / 1024.0;
    let dense = plan["bytes_per_token"]["f16_slots"].as_f64().expect("a number") / 1024.0;
    let eight = plan["bytes_per_token"]["fp8_slots"].as_f64().expect("a number") / 1024.0;
    let kib = of(&plan);
    assert_eq!(format!("{kib:.2} {:.2} {:.2}", dense / kib, eight / kib), "18.29 3.50 1.75");
    let exact = of(&json(&[&flags[..], &["minima-kv-paper", "--exact-sink", "64", "--exact-tail", "128"]].concat(), 0));
    assert!(exact > kib && exact <= 18.5 && dense / exact >= 3.46, "{exact}");
    let (text, _) = said(&flags[..7].iter().copied().chain(["--profile", "minima-kv-paper"]).collect::<Vec<_>>(), 0);
    assert!(text.contains("18.29          3.50      1.75"), "{text}");
}

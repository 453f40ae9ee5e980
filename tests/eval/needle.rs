//! Needle tasks and the error of attention: what cases hold, and the commands.

use crate::command::{in_folder, kvarto, text, well};
use crate::support;
use kvarto::eval::needle::{Grid, Task};
use kvarto::model::tokenizer::Tokenizer;
use serde_json::Value;
use std::path::Path;

fn grid(lengths: &[usize]) -> Grid {
    Grid { tasks: Task::ALL.to_vec(), lengths: lengths.to_vec(), depths: vec![0, 50, 100], cases: 2, seed: 7 }
}

#[test]
fn cases_hold_what_they_ask_for_where_they_say() {
    let Some(gguf) = support::model::open() else { return };
    let tokenizer = Tokenizer::from_gguf(&gguf).expect("a tokenizer");
    let grid = grid(&[256, 700]);
    let cases = grid.make(&tokenizer).expect("cases");
    assert_eq!((cases.len(), grid.len()), (72, 72));
    for case in &cases {
        let what = format!("{case:?}");
        for question in &case.questions {
            let all = case.context.len() + question.ids.len() + question.answer_tokens;
            assert!(all <= case.length && all + 64 > case.length, "{all} tokens: {what}");
            let context = tokenizer.decode(&case.context).expect("text");
            for wanted in &question.wanted {
                assert!(context.contains(wanted.as_str()), "{wanted}: {what}");
            }
            if case.task == Task::Variables {
                let numbers = context.matches("The secret code of the").count();
                assert_eq!(numbers, 2, "a second chain with a code of its own: {what}");
            }
            if matches!(case.task, Task::Single | Task::MultiKey) {
                let at = context.find(question.wanted[0].as_str()).expect("found") as f64 / context.len() as f64;
                let [low, high] = [case.depth as f64 / 100.0 - 0.3, case.depth as f64 / 100.0 + 0.3];
                assert!(at > low && at < high, "at {at}: {what}");
            }
        }
        assert_eq!(case.questions.len(), if case.task == Task::MultiQuery { 4 } else { 1 });
    }
    // The same again, and a case does not depend on what else is asked for.
    assert_eq!(grid.make(&tokenizer).expect("cases"), cases);
    let alone = Grid { tasks: vec![Task::MultiValue], lengths: vec![700], ..grid.clone() };
    for case in alone.make(&tokenizer).expect("cases") {
        assert!(cases.contains(&case));
    }
    let other = Grid { seed: 8, ..grid };
    assert_ne!(other.make(&tokenizer).expect("cases")[0], cases[0]);
}

#[test]
fn needles_are_found_beside_dense() {
    if support::model::path().is_none() {
        return;
    }
    let (_folder, _, out) = in_folder();
    let run = |profiles: &[&str]| {
        let mut all = vec!["eval", "needle", "--lengths", "256", "--depths", "50", "--cases", "2", "--json"];
        all.extend(["--tasks", "single,multi-value", "--backend", "cpu", "-o", &out]);
        all.extend(profiles);
        let said: Value = serde_json::from_str(&well(&kvarto(&all))).expect("JSON");
        said
    };
    let said = run(&["dense"]);
    let summaries = said["summaries"].as_array().expect("summaries");
    assert_eq!(summaries.len(), 3, "all, and two tasks");
    assert_eq!((&summaries[0]["difference"], &summaries[0]["lost"]), (&0.0.into(), &0.into()), "dense is dense");
    assert!(summaries[0]["accuracy"].as_f64() > Some(0.4), "the model finds little: {said}");
    // A cache that kept nothing but the newest tokens finds less.
    let lossy = "streaming+policy.recent_tokens=16+policy.sink_tokens=0+kv.exact_tail_tokens=16+kv.exact_sink_tokens=0+kv.page_tokens=16";
    let said = run(&["dense", lossy]);
    let all = said["summaries"].as_array().expect("summaries").iter().find(|s| s["label"] == lossy).expect("its line");
    assert!(all["accuracy"].as_f64() < all["dense"].as_f64(), "{all}");
    assert_eq!(said["lost"].as_array().map(Vec::len), all["lost"].as_u64().map(|n| n as usize));
    for name in ["needle.png", "needle.svg", "needle.md", "needle.json"] {
        let bytes = std::fs::read(Path::new(&out).join(name)).expect(name);
        assert!(!name.ends_with("png") || bytes.starts_with(b"\x89PNG"), "{name}");
    }
    let refused = kvarto(&["eval", "needle", "tq3", "--tasks", "haystack"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("multi-key"));
}

#[test]
fn attention_errs_more_with_fewer_bits() {
    if support::model::path().is_none() {
        return;
    }
    let (_folder, file, _) = in_folder();
    let output = kvarto(&[
        "eval",
        "attention",
        "dense",
        "fp8",
        "tq3",
        "--text",
        &file,
        "--window",
        "320",
        "--windows",
        "1",
        "--rows",
        "2",
        "--backend",
        "cpu",
        "--json",
    ]);
    let said: Value = serde_json::from_str(&well(&output)).expect("JSON");
    let runs = said["runs"].as_array().expect("runs");
    let mean: Vec<f64> = runs.iter().map(|r| r["mean"].as_f64().expect("a number")).collect();
    assert!(mean[0] < 1e-5 && mean[0] < mean[1] / 10.0 && mean[1] < mean[2] / 3.0 && mean[2] < 0.2, "{mean:?}");
    assert_eq!(runs[0]["heads"].as_array().map(Vec::len), Some(270), "30 layers of 9 heads");
}

//! Ctrl-C and a closed pipe.
#![cfg(unix)]

use super::{golden_prompt, kvarto, said, support};
use std::io::Read;
use std::process::{Child, Command, Stdio};

/// Starts an answer of up to 600 tokens and reads its first bytes.
fn begun(more: &[&str]) -> Child {
    let (prompt, _) = golden_prompt("plain");
    let arguments = ["generate", &prompt, "--backend", "cpu", "--temperature", "0", "--max-tokens", "600"];
    kvarto(&[&arguments[..], more].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts")
}

fn interrupt(child: &Child) {
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(status.success());
}

#[test]
fn an_interrupt_keeps_what_was_said() {
    if support::model::path().is_none() {
        return;
    }
    let mut child = begun(&[]);
    let mut first = [0u8; 16];
    child.stdout.as_mut().expect("piped").read_exact(&mut first).expect("the answer begins");
    interrupt(&child);
    let said = said(child.wait_with_output().expect("ends"));
    assert_eq!(said.code, Some(130), "{}", said.err);
    assert!(said.out.ends_with('\n'), "{:?}", said.out);
    assert!(said.err.contains("prefill ") && said.err.contains("bits a value: resident "), "{}", said.err);
    let (_, answer) = golden_prompt("plain");
    assert!(answer.as_bytes().starts_with(&first));
}

#[test]
fn an_interrupt_gives_whole_json() {
    if support::model::path().is_none() {
        return;
    }
    let mut child = begun(&["--json"]);
    // The lines about the backend come once the model is loaded; the answer follows.
    let mut first = [0u8; 16];
    child.stderr.as_mut().expect("piped").read_exact(&mut first).expect("the program speaks");
    interrupt(&child);
    let said = said(child.wait_with_output().expect("ends"));
    assert_eq!(said.code, Some(130), "{}", said.err);
    let value: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!(value["finish_reason"], "cancelled");
    assert!(value["new_tokens"].as_u64().expect("a number") < 600);
}

#[test]
fn a_reader_that_has_had_enough_ends_the_answer() {
    if support::model::path().is_none() {
        return;
    }
    let mut child = begun(&[]);
    let mut first = [0u8; 16];
    let mut out = child.stdout.take().expect("piped");
    out.read_exact(&mut first).expect("the answer begins");
    drop(out);
    let said = said(child.wait_with_output().expect("ends"));
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.err.contains("decode "), "{}", said.err);
}

//! The program as a user runs it.
#![cfg(feature = "cli")]

#[path = "cli/chat.rs"]
mod chat;
#[path = "cli/errors.rs"]
mod errors;
#[path = "support/gguf_writer.rs"]
mod gguf_writer;
#[path = "cli/interrupted.rs"]
mod interrupted;
#[path = "cli/json.rs"]
mod json;
#[path = "cli/limits.rs"]
mod limits;
#[path = "cli/models.rs"]
mod models;
#[path = "cli/profiles.rs"]
mod profiles;
#[path = "cli/suite.rs"]
mod suite;
mod support;
#[path = "cli/terminal.rs"]
mod terminal;
#[path = "cli/text.rs"]
mod text;
#[path = "cli/trace.rs"]
mod trace;
#[path = "cli/trace_files.rs"]
mod trace_files;
#[path = "cli/unwritable.rs"]
mod unwritable;

use std::process::{Command, Output, Stdio};

/// The program, with nothing of the caller's settings that would change what it says.
fn kvarto(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvarto"));
    command.args(arguments).env_remove("RUST_LOG").env_remove("RUST_BACKTRACE").stdin(Stdio::null());
    command
}

/// A program that finds no model and no `pip`: what goes wrong before a model is wanted goes wrong here too.
fn bare(arguments: &[&str]) -> (Command, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = kvarto(arguments);
    command.env("KVARTO_CACHE", folder.path().join("cache")).env("PATH", folder.path());
    (command, folder)
}

struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

fn said(output: Output) -> Said {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the program writes UTF-8");
    let said = Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) };
    assert!(!said.err.contains("panicked"), "{}", said.err);
    said
}

fn run(mut command: Command) -> Said {
    said(command.output().expect("the program starts"))
}

/// Runs `generate` on the CPU with the fetched model, and expects it to end well.
#[track_caller]
fn generate(arguments: &[&str]) -> Said {
    let mut all = vec!["generate", "--backend", "cpu"];
    all.extend(arguments);
    let said = run(kvarto(&all));
    assert_eq!(said.code, Some(0), "{arguments:?}: {}{}", said.out, said.err);
    said
}

/// One prompt of the golden file: its text and its greedy continuation of 64 tokens.
fn golden_prompt(name: &str) -> (String, String) {
    let file = support::model::golden("smollm2-135m.json");
    let prompt = file["prompts"].as_array().expect("prompts").iter().find(|p| p["name"] == name).expect("the prompt");
    let text = |key: &str| prompt[key].as_str().expect("text").to_string();
    (text("text"), text("new_text"))
}

//! Standard output that cannot be written to: an error, never a success; a closed pipe ends quietly.
#![cfg(unix)]

use super::gguf_writer::tiny_llama;
use super::{Said, bare, kvarto, said, support};
use std::fs::{File, OpenOptions};
use std::process::{Command, Stdio};

/// What to write to: a full disk, and a file that is open for reading only.
fn unwritable() -> Vec<(&'static str, File)> {
    let full = OpenOptions::new().write(true).open("/dev/full").map(|file| ("a full disk", file));
    let read_only = File::open("/dev/null").map(|file| ("a file open for reading", file));
    full.into_iter().chain(read_only).collect()
}

fn closed_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

fn run_into(mut command: Command, out: impl Into<Stdio>) -> Said {
    said(command.stdout(out).stderr(Stdio::piped()).spawn().expect("starts").wait_with_output().expect("ends"))
}

/// Every way to make the program say something, with the code it ends with where all is well.
fn commands(model: &str) -> Vec<(Vec<String>, i32)> {
    let lines = [
        ("models list", 0),
        ("models list --json", 0),
        ("models path MODEL", 0),
        ("models path MODEL --json", 0),
        ("models info MODEL", 0),
        ("models info MODEL --json", 0),
        ("doctor --adapter cpu", 0),
        ("doctor --adapter cpu --json", 0),
        ("--help", 0),
        ("--version", 0),
        ("generate --help", 0),
        ("help models", 0),
        ("generate ab --model MODEL --backend cpu --max-tokens 4", 0),
        ("generate ab --model MODEL --backend cpu --max-tokens 4 --json", 0),
        // Errors that were to be written as JSON.
        ("generate ab --model x --json", 2),
        ("generate ab --json --wrong", 2),
        ("models fetch nothing --json", 2),
    ];
    lines.map(|(line, code)| (line.split(' ').map(|w| w.replace("MODEL", model)).collect(), code)).into()
}

#[test]
fn a_failed_write_is_an_error_and_a_closed_pipe_is_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tiny.gguf");
    std::fs::write(&path, tiny_llama(3).build()).expect("written");
    for (words, well) in commands(path.to_str().expect("UTF-8")) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        for (what, file) in unwritable() {
            let (command, _folder) = bare(&words);
            let said = run_into(command, file);
            let code = if well == 0 { 1 } else { well };
            assert_eq!(said.code, Some(code), "{words:?} to {what}: {}", said.err);
            assert!(
                said.err.contains("error: ") && said.err.contains("\n  help: "),
                "{words:?} to {what}: {}",
                said.err
            );
            assert_eq!(said.err.contains("standard output: "), well == 0, "{words:?} to {what}: {}", said.err);
        }
        let (command, _folder) = bare(&words);
        let said = run_into(command, closed_pipe());
        assert_eq!(said.code, Some(well), "{words:?}: {}", said.err);
        assert!(!said.err.contains("error: "), "{words:?}: {}", said.err);
    }
}

#[test]
fn standard_error_that_is_full_stops_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tiny.gguf");
    std::fs::write(&path, tiny_llama(3).build()).expect("written");
    let Ok(full) = OpenOptions::new().write(true).open("/dev/full") else { return };
    let model = path.to_str().expect("UTF-8");
    let mut command =
        kvarto(&["generate", "ab", "--model", model, "--backend", "cpu", "--max-tokens", "4", "--timing", "kernels"]);
    let output = command.stderr(full).output().expect("ends");
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stdout.ends_with(b"\n"));
}

#[test]
fn an_answer_that_cannot_be_written_is_not_made_to_its_end() {
    if support::model::path().is_none() {
        return;
    }
    for (what, file) in unwritable() {
        let words = ["generate", "Once upon a time", "--backend", "cpu", "--max-tokens", "4000", "--temperature", "0"];
        let said = run_into(kvarto(&words), file);
        assert_eq!(said.code, Some(1), "{what}: {}", said.err);
        assert!(said.err.contains("standard output: "), "{what}: {}", said.err);
        assert!(said.err.contains(", context 4 tokens") || said.err.contains(", context 5 tokens"), "{}", said.err);
    }
}

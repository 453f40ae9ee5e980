//! `--trace`, `--events` and `kvarto trace`, as a user runs them: on a tiny model, whose tokens are bytes.

use super::gguf_writer::{V, tiny_llama};
use super::{Said, kvarto, run, said};
use kvarto::engine::Event;
use kvarto::trace::{State, Stream, Trace, verify};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A folder with the model in it.
pub fn folder() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let model = folder.path().join("tiny.gguf");
    let bytes = tiny_llama(3).set("llama.context_length", V::U32(4096)).build();
    std::fs::write(&model, bytes).expect("it can be written");
    let model = model.to_str().expect("UTF-8").to_string();
    (folder, model)
}

pub const PROMPT: &str = "A cache holds a key and a value for every token, layer and head; \
    pages of it are sealed once they are full and old enough, and converted later on.";

/// Generates with a trace to `file`; pages convert while it runs.
pub fn traced(model: &str, file: &Path, more: &[&str]) -> Said {
    let file = file.to_str().expect("UTF-8");
    let arguments = [
        "generate",
        PROMPT,
        "--backend",
        "cpu",
        "--threads",
        "1",
        "--model",
        model,
        "--max-tokens",
        "60",
        "--temperature",
        "0",
        "--profile",
        "minima-kv",
        "--page-tokens",
        "16",
        "--exact-sink",
        "16",
        "--exact-tail",
        "16",
        "--set",
        "policy.recent_tokens=48",
        "--set",
        "policy.young_share=1",
        "--trace",
        file,
    ];
    run(kvarto(&[&arguments[..], more].concat()))
}

pub fn trace(words: &[&str], file: &Path) -> Said {
    let mut all = vec!["trace"];
    all.extend(words);
    all.push(file.to_str().expect("UTF-8"));
    run(kvarto(&all))
}

#[test]
fn a_run_is_recorded_verified_listed_and_exported() {
    let (folder, model) = folder();
    let file = folder.path().join("run.kvtr");
    let run = traced(
        &model,
        &file,
        &["--timing", "kernels", "--trace-mass", "every=8", "--trace-pages", "sample=2", "--json"],
    );
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert!(run.err.contains("trace     ") && run.err.contains(" events, "), "{}", run.err);
    let stats: Value = serde_json::from_str(&run.out).expect("JSON");
    let verdict = trace(&["verify", "--json"], &file);
    assert_eq!(verdict.code, Some(0), "{}", verdict.out);
    let verdict: Value = serde_json::from_str(&verdict.out).expect("JSON");
    // The trace ends with what the run's own figures say.
    assert_eq!(verdict["page_bytes"], stats["kv_bytes"]["device"]);
    let traced = &stats["trace"];
    assert_eq!((&traced["file"], &traced["fault"]), (&file.to_str().into(), &Value::Null), "{traced}");
    assert_eq!((&traced["events"], &traced["dropped"]), (&verdict["events"], &0.into()), "{traced}");
    let pages = stats["pages"].as_array().expect("pages").iter().map(|p| p["pages"].as_u64().expect("a number"));
    assert_eq!(verdict["pages"].as_u64(), Some(pages.sum()));
    assert_eq!((&verdict["finished"], &verdict["dropped"]), (&Value::Bool(true), &Value::from(0)));
    let info: Value = serde_json::from_str(&trace(&["info", "--json"], &file).out).expect("JSON");
    assert_eq!(info["header"]["model"]["sha256"], stats["model"]["sha256"]);
    assert_eq!(info["header"]["profile"], "minima-kv");
    assert!(info["header"]["copy_bytes_per_s"].as_f64().expect("measured") > 0.0);
    for kind in ["step_done", "tokens", "page_converted", "kernel_times", "attention_mass", "page_data", "page_error"] {
        assert!(info["kinds"][kind].as_u64().is_some_and(|n| n > 0), "{kind}: {info}");
    }
    let tokens = stats["prompt_tokens"].as_u64().expect("a number") + stats["new_tokens"].as_u64().expect("a number");
    // The last token was drawn and not read.
    assert_eq!(info["tokens"].as_u64(), Some(tokens - 1));
    // The timing table at the end has all times, those told in the trace among them.
    assert!(run.err.contains("dispatches"), "{}", run.err);
    let lines = trace(&["events", "--json", "--kind", "page_converted", "--layer", "0"], &file).out;
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len() as u64, stats["moves"]["conversions"].as_u64().expect("a number"));
    assert!(lines.iter().any(|line| line["page"]["formats"][0] == "tq4"), "{lines:?}");
    assert_eq!(trace(&["events", "--kind", "step_done", "--limit", "2"], &file).out.lines().count(), 2);
    assert_eq!(trace(&["events", "--sequence", "99"], &file).out, "");
    let said = trace(&["events", "--kind", "nothing"], &file);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("page_converted"), "{}", said.err);
    let text: String = trace(&["events", "--json", "--kind", "tokens"], &file)
        .out
        .lines()
        .flat_map(|line| {
            let line: Value = serde_json::from_str(line).expect("JSON");
            line["tokens"]
                .as_array()
                .expect("tokens")
                .iter()
                .map(|t| t["text"].as_str().expect("text").to_string())
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(text.starts_with(PROMPT), "{text}");
    for (to, begins) in [("json", "{\"header\""), ("csv", "n,ns,event"), ("perfetto", "{\"displayTimeUnit\"")] {
        let said = trace(&["export", "--to", to], &file);
        assert!(said.code == Some(0) && said.out.starts_with(begins), "{to}: {}", said.err);
        let copy = folder.path().join(to);
        trace(&["export", "--to", to, "--out", copy.to_str().expect("UTF-8")], &file);
        assert_eq!(std::fs::read_to_string(copy).expect("written"), said.out, "{to}");
    }
}

#[test]
fn tracing_changes_no_answer() {
    let (folder, model) = folder();
    let file = folder.path().join("run.kvtr");
    let with = traced(&model, &file, &[]);
    let without = traced(&model, &folder.path().join("other"), &["--trace-pages", "none"]);
    let arguments = ["generate", PROMPT, "--backend", "cpu", "--threads", "1", "--model", &model, "--max-tokens", "60"];
    let flags = ["--temperature", "0", "--profile", "minima-kv", "--page-tokens", "16", "--exact-sink", "16"];
    let rest = ["--exact-tail", "16", "--set", "policy.recent_tokens=48", "--set", "policy.young_share=1"];
    let plain = run(kvarto(&[&arguments[..], &flags[..], &rest[..]].concat()));
    assert_eq!((&with.out, &without.out), (&plain.out, &plain.out));
    assert!(!plain.out.is_empty() && !plain.err.contains("trace "), "{}", plain.err);
}

#[test]
fn damage_is_told_with_its_place_and_the_rest_is_read() {
    let (folder, model) = folder();
    let file = folder.path().join("run.kvtr");
    traced(&model, &file, &[]);
    let bytes = std::fs::read(&file).expect("written");
    let chunks = Trace::open(&file).expect("a trace").chunks().to_vec();
    let write = |name: &str, bytes: &[u8]| -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("it can be written");
        path
    };
    let last = chunks.last().expect("chunks");
    let cut = write("cut", &bytes[..last.offset as usize + 50]);
    let said = trace(&["verify"], &cut);
    let place = format!("chunk {} at offset {} is cut short", chunks.len() - 1, last.offset);
    assert!(said.code == Some(1) && said.out.contains(&place), "{}", said.out);
    let said = trace(&["events"], &cut);
    assert!(said.code == Some(0) && said.err.contains(&place), "{}", said.err);
    let mut flipped = bytes.clone();
    flipped[last.offset as usize + 60] ^= 4;
    let flipped = write("flipped", &flipped);
    let said = trace(&["verify"], &flipped);
    assert!(
        said.code == Some(1) && said.out.contains(&format!("at offset {} is damaged", last.offset)),
        "{}",
        said.out
    );
    for (name, body, wanted) in [("foreign", &b"GGUF0000000000"[..], "no trace"), ("empty", b"", "cut short")] {
        let said = trace(&["info"], &write(name, body));
        assert!(said.code == Some(1) && said.err.contains(wanted) && said.err.contains(name), "{}", said.err);
    }
    assert!(trace(&["info"], Path::new("/nowhere/at/all")).err.contains("/nowhere/at/all"));
}

/// The objects of `events --json`.
fn objects(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn a_damaged_chunk_is_told_once_and_all_behind_it_is_read() {
    let (folder, model) = folder();
    let file = folder.path().join("run.kvtr");
    traced(&model, &file, &[]);
    let bytes = std::fs::read(&file).expect("written");
    let chunks = Trace::open(&file).expect("a trace").chunks().to_vec();
    assert!(chunks.len() > 1, "{chunks:?}");
    let whole = objects(&trace(&["events", "--json"], &file).out);
    let damaged = folder.path().join("damaged");
    for (number, chunk) in chunks.iter().enumerate() {
        for byte in [5, 40] {
            let mut flipped = bytes.clone();
            flipped[chunk.offset as usize + byte] ^= 4;
            std::fs::write(&damaged, flipped).expect("it can be written");
            let next = chunks.get(number + 1).map_or(whole.len() as u64, |next| next.first_event);
            let gone = chunk.first_event..next;
            let left: Vec<&Value> =
                whole.iter().filter(|event| !gone.contains(&event["n"].as_u64().expect("a number"))).collect();
            let place = format!("chunk {number} at offset {} ", chunk.offset);
            let told = |said: &Said| {
                assert_eq!(said.code, Some(1), "{}", said.err);
                assert_eq!(said.err.matches("warning: ").count(), 1, "{}", said.err);
                assert!(said.err.contains(&place) && said.err.contains("missing"), "{}", said.err);
            };
            let said = trace(&["events", "--json"], &damaged);
            told(&said);
            assert_eq!(objects(&said.out).iter().collect::<Vec<_>>(), left);
            let said = trace(&["events"], &damaged);
            told(&said);
            assert_eq!(said.out.lines().count(), left.len());
            let out = folder.path().join("out");
            for to in ["json", "csv", "perfetto"] {
                let said = trace(&["export", "--to", to], &damaged);
                told(&said);
                let filed = trace(&["export", "--to", to, "--out", out.to_str().expect("UTF-8")], &damaged);
                told(&filed);
                assert_eq!(std::fs::read_to_string(&out).expect("written"), said.out);
                if to == "json" {
                    let export: Value = serde_json::from_str(&said.out).expect("JSON");
                    assert_eq!(export["events"].as_array().expect("events").iter().collect::<Vec<_>>(), left);
                    let missing = &export["missing"][0];
                    assert_eq!((&missing["from"], &missing["to"]), (&gone.start.into(), &gone.end.into()));
                }
            }
            let info: Value = serde_json::from_str(&trace(&["info", "--json"], &damaged).out).expect("JSON");
            assert_eq!((&info["complete"], &info["events"]), (&false.into(), &left.len().into()), "{info}");
            assert_eq!(info["missing"][0]["from"], gone.start);
            let info = trace(&["info"], &damaged).out;
            assert!(info.contains("figures below are of what could be read") && info.contains(&place), "{info}");
            assert_eq!(trace(&["verify"], &damaged).code, Some(1));
        }
    }
    // So with the index, without which all events are found; and nothing of it where nothing is wrong.
    let mut flipped = bytes.clone();
    let index = bytes.len() - 20;
    flipped[index] ^= 4;
    std::fs::write(&damaged, flipped).expect("it can be written");
    let said = trace(&["events", "--json"], &damaged);
    assert!(said.code == Some(1) && said.err.matches("warning: ").count() == 1, "{}", said.err);
    assert_eq!(objects(&said.out), whole);
    let info = trace(&["info"], &file).out;
    assert!(!info.contains("DAMAGED") && info.contains("finished"), "{info}");
    // And with the header, which tells what all of it is about.
    let mut flipped = bytes.clone();
    let at = flipped.windows(9).position(|w| w == b"minima-kv").expect("the profile's name");
    flipped[at] = b'M';
    std::fs::write(&damaged, flipped).expect("it can be written");
    for words in [&["verify"][..], &["info"], &["events"], &["export", "--to", "json"]] {
        let said = trace(words, &damaged);
        assert!(said.code == Some(1) && said.err.contains("header at offset 0 is damaged"), "{words:?}: {}", said.err);
    }
}

#[test]
fn words_that_cannot_be_meant_are_refused_before_anything_runs() {
    let (folder, model) = folder();
    let said = traced(&model, Path::new("/nowhere/at/all/run.kvtr"), &[]);
    assert!(said.code == Some(1) && said.err.contains("cannot be made"), "{}", said.err);
    let file = folder.path().join("run.kvtr");
    for (words, code, wanted) in [
        (["--trace-mass", "8"], 2, "every=N"),
        (["--trace-mass", "every=0"], 2, "every=N"),
        (["--trace-pages", "some"], 2, "sample=N"),
        (["--events", "99999"], 2, "65535"),
        (["--events", "203.0.113.1:1"], 1, "another port"),
    ] {
        let said = traced(&model, &file, &words);
        assert!(said.code == Some(code) && said.err.contains(wanted), "{words:?}: {}", said.err);
    }
    let said = run(kvarto(&["generate", "ab", "--model", &model, "--backend", "cpu", "--trace-mass", "every=2"]));
    assert!(said.code == Some(2) && said.err.contains("--trace FILE"), "{}", said.err);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_ends_the_trace_with_one_warning_and_not_the_run() {
    let (folder, model) = folder();
    let said = traced(&model, Path::new("/dev/full"), &[]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(said.err.matches("warning: ").count(), 1, "{}", said.err);
    assert!(said.err.contains("the trace cannot be written") && said.err.contains("prefill "), "{}", said.err);
    assert!(!said.out.trim().is_empty());
    // Programs hear of it as well, and the exit status is the run's.
    let said = traced(&model, Path::new("/dev/full"), &["--json"]);
    let report: Value = serde_json::from_str(&said.out).expect("JSON");
    let trace = &report["trace"];
    assert_eq!((said.code, &trace["file"], &trace["events"]), (Some(0), &"/dev/full".into(), &0.into()), "{trace}");
    assert!(trace["fault"].as_str().is_some_and(|why| why.contains("cannot be written")), "{trace}");
    assert_eq!(said.err.matches("the rest is lost").count(), 1, "{}", said.err);
    // So with a trace that goes wrong midway: here its reader leaves.
    let (file, out) = (folder.path().join("pipe"), folder.path().join("begin"));
    let made = std::process::Command::new("mkfifo").arg(&file).status().expect("mkfifo");
    assert!(made.success());
    let reader = {
        let (file, out) = (file.clone(), out.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 64];
            let read = std::fs::File::open(file).and_then(|mut pipe| std::io::Read::read_exact(&mut pipe, &mut bytes));
            read.and_then(|()| std::fs::write(out, bytes)).expect("it can be read");
        })
    };
    let said = loop {
        let said = traced(&model, &file, &["--json"]);
        if !said.err.contains("has no reader") {
            break said;
        }
    };
    reader.join().expect("it reads");
    let report: Value = serde_json::from_str(&said.out).expect("JSON");
    assert!(said.code == Some(0) && report["trace"]["fault"].is_string(), "{}", report["trace"]);
    assert!(report["new_tokens"].as_u64().is_some_and(|n| n > 0), "{report}");
}

#[test]
fn bench_records_its_engine() {
    let (folder, model) = folder();
    let (file, other) = (folder.path().join("generate.kvtr"), folder.path().join("decode.kvtr"));
    let flags =
        ["bench", "generate", "--backend", "cpu", "--depth", "64", "--tokens", "8", "--model", &model, "--trace"];
    let said = run(kvarto(&[&flags[..], &[file.to_str().expect("UTF-8")]].concat()));
    assert_eq!(said.code, Some(0), "{}", said.err);
    let flags =
        ["bench", "decode", "--backend", "cpu", "--context", "256", "--repetitions", "2", "--cold", "0", "--trace"];
    let said = run(kvarto(&[&flags[..], &[other.to_str().expect("UTF-8")]].concat()));
    assert_eq!(said.code, Some(0), "{}", said.err);
    for file in [file, other] {
        let verdict = verify(&mut Trace::open(&file).expect("a trace")).expect("read");
        assert!(verdict.sound() && verdict.finished && verdict.steps > 8, "{}: {verdict:?}", file.display());
    }
}

#[test]
fn a_client_of_chat_hears_it_all() {
    let Some(_) = super::support::model::path() else { return };
    let mut child = kvarto(&["chat", "--backend", "cpu", "--temperature", "0", "--max-tokens", "6", "--events", "0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut err = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    while !line.starts_with("events ") {
        line.clear();
        assert!(err.read_line(&mut line).expect("it speaks") > 0, "it ended early");
    }
    let address = line.trim().rsplit(' ').next().expect("an address");
    assert!(address.starts_with("127.0.0.1:"), "{line}");
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(std::time::Duration::from_secs(120))).expect("a timeout");
    let mut stream = Stream::new(stream).expect("a header");
    assert_eq!((stream.header().command.as_str(), stream.header().groups[0].kv_heads), ("chat", 3));
    let mut input = child.stdin.take().expect("piped");
    input.write_all(b"Name a colour.\n/fork\nAnother one.\n/quit\n").expect("it reads");
    drop(input);
    let (mut state, mut text, mut forks) = (State::default(), String::new(), 0);
    while let Some((_, records)) = stream.next_chunk().expect("whole chunks") {
        for event in records.into_iter().filter_map(|record| record.event) {
            state.apply(&event).expect("it fits");
            match event {
                Event::Tokens { tokens, .. } => tokens.iter().for_each(|t| text += &String::from_utf8_lossy(&t.text)),
                Event::SequenceForked { .. } => forks += 1,
                _ => {}
            }
        }
    }
    assert_eq!((forks, state.sequences.len()), (1, 2));
    assert!(text.contains("Name a colour.") && text.contains("Another one."), "{text}");
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut err, &mut rest).expect("it ends");
    let mut output = child.wait_with_output().expect("it ends");
    output.stderr = rest;
    let said = said(output);
    assert!(said.code == Some(0) && said.err.contains("served to 1"), "{}", said.err);
}

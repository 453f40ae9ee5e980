//! Numbers at and beyond the ends of what can be asked, and results that must not be lost.

use super::{kvarto, run, support};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[track_caller]
fn refused(arguments: &[&str], code: i32, words: &[&str]) {
    let said = run(kvarto(arguments));
    assert_eq!(said.code, Some(code), "{arguments:?}: {}{}", said.out, said.err);
    for word in words {
        assert!(said.err.contains(word), "{arguments:?}: no {word:?} in {}", said.err);
    }
}

fn json(arguments: &[&str]) -> Value {
    let said = run(kvarto(arguments));
    assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.err);
    serde_json::from_str(&said.out).expect("JSON and nothing else")
}

#[test]
fn products_that_overflow_are_usage_errors() {
    let huge = ["plan", "--context", "1073741824", "--batch", "1048576", "--shape"];
    for shape in ["q16384k16384d512l4096", "q128k128d512l128"] {
        refused(&[&huge[..], &[shape]].concat(), 2, &["can be counted", "smaller"]);
        refused(&[&huge[..], &[shape, "--json"]].concat(), 2, &[]);
    }
    let most = "4294967295";
    refused(&["bench", "decode", "--batch", most, "--context", most], 2, &["--batch", "4096"]);
    for flag in ["--batch", "--context", "--repetitions"] {
        refused(&["bench", "decode", flag, "0"], 2, &[flag]);
    }
    if support::model::path().is_some() {
        let most = usize::MAX.to_string();
        for (depth, tokens) in [(most.as_str(), most.as_str()), ("0", "4"), ("8192", "1"), ("5", "0")] {
            refused(&["bench", "generate", "--backend", "cpu", "--depth", depth, "--tokens", tokens], 2, &["8192"]);
        }
    }
}

#[test]
fn a_shape_is_measured_without_its_file() {
    let bench = ["bench", "generate", "--backend", "cpu", "--shape", "tiny", "--tokens", "3", "--json"];
    for (weights, fill, depth) in [("q4_0", "rows", "0"), ("f16", "rows", "100"), ("q8_0", "prefill", "70")] {
        let flag = if fill == "rows" { &["--fill-rows"][..] } else { &[] };
        let said = json(&[&bench[..], &["--weights", weights, "--depth", depth], flag].concat());
        assert_eq!((&said["filled_by"], said["depth_tokens"].to_string()), (&Value::from(fill), depth.to_string()));
        assert_eq!(said["prefill_tokens_per_s"].is_null(), fill == "rows", "{said:#}");
        assert!(said["decode_tokens_per_s"]["median"].as_f64().unwrap() > 0.0, "{said:#}");
        let kernels = said["by_kernel"].as_array().unwrap();
        let count = |name: &str| kernels.iter().find(|k| k["kernel"] == name).and_then(|k| k["dispatches"].as_f64());
        // Two layers of four products, and the logits'.
        assert_eq!((count("linear"), count("append"), count("argmax")), (Some(9.0), Some(2.0), Some(1.0)), "{said:#}");
        assert!(said["model"].as_str().unwrap().contains(weights), "{said:#}");
    }
    refused(&["bench", "generate", "--shape", "small"], 2, &["small", "llama-3.1-8b"]);
    refused(&["bench", "generate", "--shape", "tiny", "--weights", "q9"], 2, &["q9", "q4_0"]);
    refused(&["bench", "generate", "--shape", "tiny", "--depth", "0"], 2, &["depth 0", "1024"]);
    refused(&["bench", "generate", "--shape", "tiny", "--trace", "x"], 2, &["--trace"]);
}

#[test]
fn a_place_for_results_is_looked_for_before_they_are_measured() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let folder = file.path().join("within");
    let bench = ["bench", "decode", "--backend", "cpu", "--shape", "q2k1d16", "--context", "40", "--cold", "0"];
    refused(&[&bench[..], &["--out", folder.to_str().unwrap()]].concat(), 1, &["--out"]);
    let folder = tempfile::tempdir().unwrap();
    let out = ["--repetitions", "1", "--json", "--out", folder.path().to_str().unwrap()];
    let said = json(&[&bench[..], &out].concat());
    let kept = std::fs::read(folder.path().join("decode-1.json")).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&kept).unwrap(), said);
    assert!(said["read_bytes"].as_u64().unwrap() > 0 && said["bytes_per_s"].as_f64().unwrap() > 0.0);
    // A bench that fails leaves no empty file behind.
    refused(&[&bench[..], &["--kv", "q8_0", "--out", folder.path().to_str().unwrap()]].concat(), 3, &["q8_0"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn what_is_not_counted_is_null_and_means_are() {
    let prefill = ["bench", "prefill", "--backend", "cpu", "--shape", "q2k1d16", "--context", "40", "--cold", "0"];
    let said = json(&[&prefill[..], &["--rows", "20", "--repetitions", "1", "--json"]].concat());
    assert!(said["read_bytes"].is_null() && said["bytes_per_s"].is_null(), "{said}");
    assert!(said["flops_per_s"].as_f64().unwrap() > 0.0);
    let plan = |basis| {
        let said = json(&["plan", "--shape", "q2k1d16l3", "--basis", basis, "--context", "300", "--json"]);
        said["contexts"][0]["metadata_bytes"].as_u64().unwrap()
    };
    assert_eq!(plan("mean") - plan("hadamard"), 3 * 32 * 4);
}

#[cfg(unix)]
#[test]
fn a_signal_ends_a_chat_that_waits() {
    if support::model::path().is_none() {
        return;
    }
    for signal in ["-INT", "-TERM", "-HUP"] {
        let mut child = kvarto(&["chat", "--backend", "cpu"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        // It waits for a line once it has said what its pages are.
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        assert!(lines.by_ref().any(|line| line.expect("text").starts_with("pages")));
        std::thread::sleep(Duration::from_millis(300));
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill runs").success());
        let start = Instant::now();
        let status = loop {
            match child.try_wait().expect("a child") {
                Some(status) => break status,
                None if start.elapsed() > Duration::from_secs(30) => {
                    child.kill().expect("a child");
                    panic!("{signal} did not end it");
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        assert_eq!(status.code(), Some(130), "{signal}");
    }
}

//! `kvarto doctor` on the CPU: exit codes, the table and the JSON.
#![cfg(feature = "cli")]

use std::process::{Command, Output};

fn doctor(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kvarto")).arg("doctor").args(args).output().expect("the program starts")
}

#[test]
fn json_says_what_passed() {
    let output = doctor(&["--json", "--adapter", "cpu"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(output.status.success(), "{report:#}");
    assert_eq!(report["passed"], true);
    let adapters = report["adapters"].as_array().expect("a list");
    assert_eq!(adapters.len(), 1);
    let tests = adapters[0]["self_tests"].as_array().expect("a list");
    let names: Vec<_> = tests.iter().filter_map(|t| t["k"].as_str()).collect();
    assert_eq!(names, ["f32", "f16", "bf16", "fp8", "tq3", "tq2", "tq4", "q8_0", "q4_0", "q3_affine", "tq3n"]);
    for test in tests {
        let (worst, allowed) = (test["worst_error"].as_f64(), test["allowed"].as_f64());
        // Within the limit, and near enough to it that a wrong result would not pass.
        assert!(worst <= allowed && worst >= allowed.map(|a| a / 50.0), "{test}");
        // Whatever the format: only arithmetic is in it.
        assert!(allowed <= Some(1e-5), "{test}");
        let (nmse, known) = (test["nmse"].as_f64(), test["known_nmse"].as_f64());
        assert!(nmse <= known.map(|k| 1.15 * k) && nmse >= known.map(|k| k / 1.15), "{test}");
    }
    // Eleven formats, two sides, five head sizes.
    assert_eq!(adapters[0]["formats"].as_array().map(Vec::len), Some(110));
    assert!(adapters[0]["kernels"].as_array().is_some_and(|k| k.len() >= 16));
}

#[test]
fn the_table_is_aligned() {
    let output = doctor(&["--adapter", "cpu"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0].find("type"), lines[1].find("cpu  ").and(lines[1].rfind("  cpu")).map(|at| at + 2), "{text}");
    assert!(lines[1].contains("pass"), "{text}");
    assert!(lines.iter().all(|line| !line.ends_with(' ')), "{text}");
}

#[test]
fn unknown_adapters_are_named() {
    let output = doctor(&["--adapter", "abacus"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("abacus") && said.contains("cpu"), "{said}");
    assert_eq!(doctor(&["--adapter", "cuda"]).status.code(), Some(3));
}

//! `kvarto conformance`: exit codes, the table, the JSON.

use std::process::{Command, Output};

fn conformance(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kvarto")).arg("conformance").args(args).output().expect("the program starts")
}

#[test]
fn json_goes_to_standard_output_and_to_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("report.json");
    let output = conformance(&["--backend", "cpu", "--quick", "--json", "--out", file.to_str().expect("UTF-8")]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    assert_eq!(std::fs::read(&file).expect("the file"), output.stdout);
    assert_eq!((&report["schema"], &report["passed"], &report["quick"]), (&1.into(), &true.into(), &true.into()));
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    let backends = report["backends"].as_array().expect("a list");
    let [cpu] = &backends[..] else { panic!("{} backends", backends.len()) };
    assert!(cpu["limits"]["binding_bytes"].is_u64() && cpu["features"].is_array() && cpu["driver"].is_string());
    let results = cpu["results"].as_array().expect("a list");
    let passed = results.iter().filter(|r| r["verdict"] == "pass").count();
    assert_eq!(cpu["summary"]["passed"], passed);
    assert_eq!((&report["summary"]["refused"], &report["summary"]["failed"]), (&4.into(), &0.into()));
    for result in results {
        let refused = result["verdict"] == "refused";
        assert_eq!((result["worst_error"].is_null(), result["reason"].is_string()), (refused, refused), "{result}");
        assert!(result["shape"].as_str().is_some_and(|shape| shape.contains("head ")), "{result}");
        assert!(refused || result["worst_error"].as_f64() <= result["tolerance"].as_f64(), "{result}");
    }
}

#[test]
fn the_table_is_aligned() {
    let output = conformance(&["--backend", "cpu", "--quick"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("cpu"), "{text}");
    let column = lines[1].find("passed").expect("the head of the table");
    let rows: Vec<&&str> = lines[2..].iter().take_while(|line| !line.starts_with("  refused")).collect();
    assert!(rows.len() > 50, "{text}");
    for row in rows {
        assert!(row[column..].starts_with(|c: char| c.is_ascii_digit()) && row[..column].ends_with("  "), "{row}");
    }
    assert!(text.contains("refused codec-q4_0-v-head-80") && lines[lines.len() - 1].starts_with("  pass: "), "{text}");
    assert!(lines.iter().all(|line| !line.ends_with(' ')), "{text}");
}

#[test]
fn what_cannot_be_meant_or_served_is_told_before_any_work() {
    let folder = tempfile::tempdir().expect("a folder");
    let nowhere = folder.path().join("not there").join("report.json");
    let nowhere = nowhere.to_str().expect("UTF-8");
    for (args, code, kind) in [
        (&["--backend", "abacus"][..], 2, "usage"),
        (&["--backend", "cuda"], 3, "unsupported"),
        (&["--backend", "vulkan:99"], 3, "unsupported"),
        (&["--backend", "cpu", "--out", nowhere], 1, "file"),
    ] {
        let output = conformance(&[args, &["--quick", "--json"]].concat());
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(said["error"]["kind"], kind, "{said}");
        assert!(said["error"]["remedy"].as_str().is_some_and(|r| !r.is_empty()), "{said}");
    }
}

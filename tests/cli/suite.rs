//! `kvarto bench suite` on the CPU, where it is a trial of the program and no measurement.

use super::{kvarto, run};
use serde_json::Value;

#[test]
fn names_are_listed_and_a_dry_run_runs_nothing() {
    let said = run(kvarto(&["bench", "suite", "hopper"]));
    assert!(
        said.code == Some(2) && said.err.contains("hopper") && said.err.contains("blackwell, decode"),
        "{}",
        said.err
    );
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = kvarto(&["bench", "suite", "blackwell", "--backend", "cpu", "--dry-run"]);
    command.current_dir(folder.path());
    let said = run(command);
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!((said.code, lines.len()), (Some(0), 2 + 3 * 8), "{}{}", said.out, said.err);
    assert!(lines[0].starts_with("conformance --quick"), "{}", said.out);
    for word in ["f16 8x32768 q32k8d128", "fp8-native 1x32768 q32k8d128", "tq4 2x59008 q24k4d256"] {
        assert!(said.out.contains(&format!("decode {word}")), "{word}: {}", said.out);
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("a list").count(), 0);
}

#[test]
fn a_suite_is_one_file_with_the_machine_and_every_row() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("results.json");
    let out = path.to_str().expect("UTF-8");
    let small = ["--backend", "cpu", "--context", "260", "--repetitions", "1", "--out", out];
    let said = run(kvarto(&[&["bench", "suite", "blackwell"], &small[..]].concat()));
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
    let text = std::fs::read_to_string(&path).expect("the file");
    let all: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        (&all["suite"], &all["passed"], &all["context_tokens"]),
        (&"blackwell".into(), &true.into(), &260.into())
    );
    assert!(
        all["started"].as_str().is_some_and(|date| date.starts_with("20") && date.ends_with('Z')),
        "{}",
        all["started"]
    );
    assert!(all["finished"].as_str() >= all["started"].as_str());
    assert!(all["machine"]["adapter"].is_string() && all["machine"]["cores"].as_u64() > Some(0), "{}", all["machine"]);
    let rows = all["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 24);
    for row in rows {
        // The CPU has no products of e4m3 to choose.
        let native = row["id"].as_str().is_some_and(|id| id.contains("-native"));
        assert_eq!(row["outcome"], if native { "skipped" } else { "done" }, "{row:#}");
        let right = &row["result"]["error_of_exact"]["rms"];
        assert!(native || right.as_f64().is_some_and(|rms| rms > 0.0 && rms < 0.5), "{row:#}");
        assert_eq!(native, row["error"]["message"].is_string(), "{row:#}");
    }
    let conformance = all["conformance"].as_array().expect("a list");
    assert_eq!(conformance[0]["result"]["passed"], true);
    // A file that is there is nobody's to write over.
    let said = run(kvarto(&[&["bench", "suite", "decode"], &small[..]].concat()));
    assert!(said.code == Some(1) && said.err.contains("--out"), "{}", said.err);
    assert_eq!(std::fs::read_to_string(&path).ok(), Some(text));
}

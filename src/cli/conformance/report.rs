//! The report for people and for programs.

use super::super::doctor::aligned;
use super::{Outcome, Tested};
use kvarto::conformance::grid::NAMES;
use kvarto::conformance::{CheckResult, Report, Summary, Verdict};
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;

/// Of the JSON; another number when a field changes its meaning or goes.
const SCHEMA: u32 = 1;

/// The whole report for programs.
pub fn json(tested: &[Tested], quick: bool, time: Duration) -> Value {
    let mut all = Summary::default();
    for report in tested.iter().filter_map(Tested::report) {
        let one = report.summary();
        all.passed += one.passed;
        all.failed += one.failed;
        all.expected_failures += one.expected_failures;
        all.refused += one.refused;
        all.skipped += one.skipped;
    }
    json!({
        "schema": SCHEMA,
        "version": env!("CARGO_PKG_VERSION"),
        "quick": quick,
        "passed": tested.iter().all(Tested::passed),
        "backends": tested.iter().map(backend).collect::<Vec<_>>(),
        "summary": summary(&all),
        "seconds": time.as_secs_f64(),
    })
}

impl Tested {
    fn report(&self) -> Option<&Report> {
        match &self.outcome {
            Outcome::Ran(report) => Some(report),
            _ => None,
        }
    }
}

fn backend(tested: &Tested) -> Value {
    let report = match &tested.outcome {
        Outcome::Ran(report) => report,
        Outcome::Refused(reason) => return json!({"backend": tested.word, "passed": true, "refusal": reason}),
        Outcome::Fault(e) => {
            let fault = json!({"kind": e.kind().as_str(), "message": e.message(), "remedy": e.remedy()});
            return json!({"backend": tested.word, "passed": false, "fault": fault});
        }
    };
    let caps = &report.caps;
    json!({
        "backend": tested.word,
        "adapter": caps.adapter,
        "driver": caps.driver,
        "device_type": caps.device_type,
        "software": caps.software,
        "tier": caps.tier,
        "limits": {
            "binding_bytes": caps.max_binding_bytes,
            "buffer_bytes": caps.max_buffer_bytes,
            "workgroup_bytes": caps.max_workgroup_bytes,
            "invocations": caps.max_invocations,
            "storage_buffers": caps.max_storage_buffers,
            "workgroups_per_dimension": caps.max_workgroups_per_dimension,
            "offset_alignment": caps.offset_alignment,
        },
        "features": caps.features,
        "f16": caps.f16,
        "subgroups": caps.subgroups.map(|(least, most)| [least, most]),
        "masked": caps.masked,
        "results": report.results.iter().map(result).collect::<Vec<_>>(),
        "passed": report.passed(),
        "summary": summary(&report.summary()),
        "seconds": report.time.as_secs_f64(),
    })
}

fn summary(s: &Summary) -> Value {
    json!({
        "passed": s.passed,
        "failed": s.failed,
        "expected_failures": s.expected_failures,
        "refused": s.refused,
        "skipped": s.skipped,
    })
}

fn result(r: &CheckResult) -> Value {
    let reason = r.verdict.reason();
    json!({
        "id": r.id,
        "kernel": r.kernel,
        "k": r.k_format,
        "v": r.v_format,
        "shape": r.shape,
        "verdict": r.verdict.as_str(),
        "reason": if reason.is_empty() { Value::Null } else { reason.into() },
        // JSON has no NaN: null, and the verdict says it.
        "worst_error": r.worst.and_then(serde_json::Number::from_f64),
        "tolerance": r.tolerance,
        "seconds": r.time.as_secs_f64(),
    })
}

/// The whole report for people.
pub fn text(tested: &[Tested]) -> String {
    let parts = tested.iter().map(|t| match &t.outcome {
        Outcome::Ran(report) => {
            let caps = &report.caps;
            let driver = if caps.driver.is_empty() { "driver not stated" } else { &caps.driver };
            let masked = caps.masked.iter().map(|word| format!(", {word}")).collect::<String>();
            format!("{}  {}  {driver}{masked}\n{}", t.word, caps.adapter, of(report))
        }
        Outcome::Refused(reason) => format!("{}  refused: {reason}\n", t.word),
        Outcome::Fault(error) => format!("{}  FAIL: {error}\n", t.word),
    });
    parts.collect::<Vec<_>>().join("\n")
}

/// A kernel with a pair of formats.
struct Line<'a> {
    key: (&'static str, &'a str, &'a str),
    cases: usize,
    passed: usize,
    worst: f64,
    tolerance: f64,
    time: Duration,
}

/// The kernels in the order of the table.
const KERNELS: [&str; 4] = ["decode", "prefill", "pack", "unpack"];

/// One line for each kernel and pair of formats.
fn lines(report: &Report) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    // A refusal runs nothing: it is told by itself.
    for r in report.results.iter().filter(|r| !matches!(r.verdict, Verdict::Refused(_))) {
        let key = (r.kernel, r.k_format.as_str(), r.v_format.as_str());
        let at = lines.iter().position(|l| l.key == key).unwrap_or_else(|| {
            let line = Line { key, cases: 0, passed: 0, worst: 0.0, tolerance: r.tolerance, time: Duration::ZERO };
            lines.push(line);
            lines.len() - 1
        });
        let line = &mut lines[at];
        line.cases += 1;
        line.passed += usize::from(r.verdict == Verdict::Pass);
        // A NaN stays.
        line.worst = if r.worst.is_none_or(|w| w <= line.worst) { line.worst } else { r.worst.unwrap_or(f64::NAN) };
        line.time += r.time;
    }
    let place = |names: &[&str], name: &str| names.iter().position(|n| *n == name).unwrap_or(names.len());
    lines.sort_by_key(|Line { key: (kernel, k, v), .. }| (place(&KERNELS, kernel), place(&NAMES, k), place(&NAMES, v)));
    lines
}

fn of(report: &Report) -> String {
    let mut rows = vec![["kernel", "K", "V", "cases", "passed", "worst error", "allowed", "time"].map(String::from)];
    for line in lines(report) {
        let format = |name: &str| if name.is_empty() { "-".to_string() } else { name.into() };
        // Codes are counted, and none may differ.
        let number = |x: f64| if line.tolerance == 0.0 { format!("{x:.0}") } else { format!("{x:.1e}") };
        rows.push([
            line.key.0.into(),
            format(line.key.1),
            format(line.key.2),
            line.cases.to_string(),
            line.passed.to_string(),
            number(line.worst),
            number(line.tolerance),
            format!("{:.2} s", line.time.as_secs_f64()),
        ]);
    }
    let mut out = aligned(&rows, "  ");
    for r in report.results.iter().filter(|r| r.verdict != Verdict::Pass) {
        let word = match r.verdict {
            Verdict::Fail(_) => "FAIL",
            _ => r.verdict.as_str(),
        };
        let formats = [&r.k_format, &r.v_format].map(|f| if f.is_empty() { "-" } else { f }).join("/");
        let reason = r.verdict.reason().replace('\n', "\n    ");
        let _ = writeln!(out, "  {word} {}: {} {formats}, {}: {reason}", r.id, r.kernel, r.shape);
    }
    let s = report.summary();
    let mut counts = vec![format!("{} passed", s.passed), format!("{} failed", s.failed)];
    for (count, what) in
        [(s.expected_failures, "failed as expected"), (s.refused, "refused by the format"), (s.skipped, "skipped")]
    {
        if count > 0 {
            counts.push(format!("{count} {what}"));
        }
    }
    let word = if report.passed() { "pass" } else { "FAIL" };
    let _ = writeln!(out, "  {word}: {} in {:.1} s", counts.join(", "), report.time.as_secs_f64());
    out
}

//! A backend that does one thing wrong once: the suite must say in which check.

use crate::hooked::{Hooked, Hooks};
use crate::{cpu, quick, sound};
use kvarto::backend::{Backend, BufferId, Command, Recording, SubmissionId, read_blocking};
use kvarto::conformance::{CheckResult, ExpectedFailure, Options, POISON, Report, Verdict, run};
use kvarto::{Error, ErrorKind, Result};
use std::collections::BTreeMap;

/// Formats with the top bit of an exponent at bit 30 of a word.
const FLOATS: [&str; 4] = ["f32", "f16", "bf16", "fp8"];

/// What goes wrong in one submission.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// A bit of the first word in use of a buffer, before the kernels run.
    BitBefore(&'static str, u32),
    /// The same after they ran.
    BitAfter(&'static str, u32),
    /// A NaN into the first output.
    Nan,
    /// A dispatch that does not happen.
    Skipped(usize),
    /// The device is gone.
    Lost,
}

/// Does `fault` in the `at`th submission, from 1 on.
struct Planted {
    fault: Fault,
    at: usize,
    submissions: usize,
    /// Label and bytes of live buffers.
    buffers: BTreeMap<BufferId, (String, u64)>,
}

/// The CPU with a fault in the `at`th submission.
fn planted(fault: Fault, at: usize) -> Hooked<Planted> {
    Hooked::new(cpu(), Planted { fault, at, submissions: 0, buffers: BTreeMap::new() })
}

impl Planted {
    fn flip(&self, inner: &mut dyn Backend, label: &str, bit: u32) -> Result<()> {
        let found = self.buffers.iter().find(|(_, (of, _))| of == label);
        let (&id, &(_, bytes)) = found.expect("a buffer of this label");
        let bytes = read_blocking(inner, id, 0, bytes)?;
        let words: Vec<u32> = bytemuck::pod_collect_to_vec(&bytes);
        let at = words.iter().position(|w| *w != POISON).expect("a word in use");
        inner.write(id, at as u64 * 4, &(words[at] ^ 1 << bit).to_le_bytes())
    }
}

impl Hooks for Planted {
    fn submit(&mut self, inner: &mut dyn Backend, recording: Recording) -> Result<SubmissionId> {
        self.submissions += 1;
        if self.submissions != self.at {
            return inner.submit(recording);
        }
        match self.fault {
            Fault::Lost => Err(Error::new(ErrorKind::DeviceLost, "the device is gone", "")),
            Fault::BitBefore(label, bit) => {
                self.flip(inner, label, bit)?;
                inner.submit(recording)
            }
            Fault::BitAfter(label, bit) => {
                let id = inner.submit(recording)?;
                self.flip(inner, label, bit)?;
                Ok(id)
            }
            Fault::Nan => {
                let id = inner.submit(recording)?;
                let (&out, _) = self.buffers.iter().find(|(_, (label, _))| label == "out").expect("outputs");
                // Eight elements stand ahead of the first row.
                inner.write(out, 8 * 4, &f32::NAN.to_bits().to_le_bytes())?;
                Ok(id)
            }
            Fault::Skipped(number) => {
                let mut left = Recording::new();
                for (at, command) in recording.commands().iter().enumerate().filter(|(at, _)| *at != number) {
                    match command {
                        Command::Dispatch(dispatch) => left.dispatch(dispatch.clone()),
                        other => panic!("command {at} is {other:?}"),
                    }
                }
                assert!(left.commands().len() < recording.commands().len());
                inner.submit(left)
            }
        }
    }

    fn alloc(&mut self, inner: &mut dyn Backend, label: &str, bytes: u64) -> Result<BufferId> {
        let id = inner.alloc(label, bytes)?;
        self.buffers.insert(id, (label.into(), bytes));
        Ok(id)
    }

    fn free(&mut self, inner: &mut dyn Backend, buffer: BufferId) {
        self.buffers.remove(&buffer);
        inner.free(buffer);
    }
}

/// The first check of a kernel over one of the formats in which every row sees the first token, and the number of its
/// first submission: a case of attention takes two, and they come first.
fn target(kernel: &str, k_formats: &[&str]) -> (&'static CheckResult, usize) {
    let results = &sound().results;
    let wanted =
        |r: &CheckResult| r.kernel == kernel && k_formats.contains(&r.k_format.as_str()) && !r.shape.contains("window");
    let at = results.iter().position(wanted).expect("such a check");
    let attention = results.iter().filter(|r| ["decode", "prefill"].contains(&r.kernel)).count();
    (&results[at], if at < attention { 2 * at + 1 } else { 2 * attention + 1 + (at - attention) })
}

/// The one failure is of this check, and is in the words.
#[track_caller]
fn caught(report: &Report, of: &CheckResult, word: &str) {
    let failures: Vec<_> = report.failures().collect();
    let [failure] = failures[..] else { panic!("{} failures: {failures:#?}", failures.len()) };
    assert!(!report.passed());
    assert_eq!((&failure.id, &failure.shape), (&of.id, &of.shape));
    assert!(failure.verdict.reason().contains(word), "{failure:?}");
    assert_eq!(report.summary().passed, sound().summary().passed - 1);
}

#[test]
fn a_flipped_bit_of_a_key_is_seen() {
    for kernel in ["decode", "prefill"] {
        let (of, at) = target(kernel, &FLOATS);
        caught(&quick(&mut planted(Fault::BitBefore("k", 30), at)), of, "expected");
        // In the second run it is the first that differs.
        caught(&quick(&mut planted(Fault::BitBefore("k", 30), at + 1)), of, "two runs");
    }
}

#[test]
fn a_nan_in_the_output_is_seen() {
    let (of, at) = target("prefill", &FLOATS);
    let report = quick(&mut planted(Fault::Nan, at));
    caught(&report, of, "NaN");
    let found = report.failures().next().and_then(|r| r.worst);
    assert!(found.is_some_and(f64::is_nan), "{found:?}");
}

#[test]
fn a_write_that_does_not_happen_is_seen() {
    let (of, at) = target("decode", &FLOATS);
    // The query's preparation, attention, the merge.
    for number in 0..3 {
        caught(&quick(&mut planted(Fault::Skipped(number), at)), of, "NaN");
    }
}

#[test]
fn a_flipped_bit_of_a_code_is_seen() {
    for kernel in ["pack", "unpack"] {
        let (of, at) = target(kernel, &["tq3"]);
        caught(&quick(&mut planted(Fault::BitAfter("dst", 9), at)), of, "1 of");
    }
}

#[test]
fn after_a_lost_device_nothing_more_is_run() {
    let (of, at) = target("pack", &["f32"]);
    let report = quick(&mut planted(Fault::Lost, at));
    let failures: Vec<_> = report.failures().collect();
    assert!(matches!(failures[..], [failure] if failure.id == of.id), "{failures:?}");
    let after = report.results.iter().skip_while(|r| r.id != of.id).skip(1);
    let skipped = after.clone().filter(|r| matches!(&r.verdict, Verdict::Skipped(why) if why.contains(&of.id)));
    assert_eq!((skipped.count(), report.summary().skipped), (after.count(), report.summary().skipped));
    assert!(report.summary().skipped > 0);
}

#[test]
fn a_listed_failure_of_no_check_is_a_failure() {
    let known = ExpectedFailure { adapter: "", driver: "", case: "grid-9999", reason: "of old" };
    let report = run(&mut cpu(), &Options { expected: vec![known], ..Options::default() }, &mut |_| ());
    let ids: Vec<_> = report.failures().map(|r| r.id.as_str()).collect();
    assert_eq!(ids, ["grid-9999"]);
    // The whole suite, but for that.
    let summary = report.summary();
    assert!(summary.passed > 250 && summary.skipped == 0, "{summary:?}");
}

/// The suite's one check of `of`, with a list of known failures.
fn listed(backend: &mut dyn Backend, of: &CheckResult, adapter: &'static str) -> Report {
    // Lists are written in source: their words live as long as the program.
    let case: &'static str = Box::leak(of.id.clone().into_boxed_str());
    let known = ExpectedFailure { adapter, driver: "", case, reason: "planted here" };
    run(backend, &Options { quick: true, only: Some(of.id.clone()), expected: vec![known] }, &mut |_| ())
}

#[test]
fn a_listed_failure_is_expected_and_a_listed_pass_is_a_failure() {
    let (of, _) = target("decode", &FLOATS);
    let report = listed(&mut cpu(), of, "");
    assert!(!report.passed());
    let reason = report.results[0].verdict.reason();
    assert!(reason.contains("planted here") && reason.contains("off the list"), "{reason}");
    let report = listed(&mut planted(Fault::Skipped(1), 1), of, "");
    assert_eq!((report.summary().expected_failures, report.summary().failed), (1, 0));
    assert!(report.results[0].verdict.reason().contains("NaN"));
    // Of another adapter the list says nothing.
    assert!(listed(&mut cpu(), of, "another adapter").passed());
    let report = listed(&mut planted(Fault::Skipped(1), 1), of, "another adapter");
    assert_eq!((report.summary().expected_failures, report.summary().failed), (0, 1));
}

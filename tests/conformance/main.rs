//! The numeric suite of attention: what it covers, that it sees planted errors, and how the program tells of it.

#[path = "../support/hooked.rs"]
mod hooked;
mod planted;
#[cfg(feature = "cli")]
mod program;

use kvarto::backend::{Backend, CpuBackend};
use kvarto::conformance::grid::{FormatFactors, NAMES, cases, covering};
use kvarto::conformance::{Case, Kernel, Options, Report, Verdict, run};
use kvarto::format::FormatRegistry;
use std::collections::BTreeSet;
use std::sync::OnceLock;

fn cpu() -> CpuBackend {
    CpuBackend::new(0).expect("threads")
}

fn quick(backend: &mut dyn Backend) -> Report {
    run(backend, &Options { quick: true, ..Options::default() }, &mut |_| ())
}

/// The quick suite on the CPU, with nothing wrong.
fn sound() -> &'static Report {
    static SOUND: OnceLock<Report> = OnceLock::new();
    SOUND.get_or_init(|| quick(&mut cpu()))
}

#[test]
fn the_cpu_passes() {
    let report = sound();
    let summary = report.summary();
    assert!(report.passed(), "{:#?}", report.failures().collect::<Vec<_>>());
    assert_eq!((summary.failed, summary.skipped, summary.expected_failures), (0, 0, 0));
    // Blocks of 32 channels do not fit a head of 80.
    let refused: Vec<_> = report.results.iter().filter(|r| matches!(r.verdict, Verdict::Refused(_))).collect();
    let ids: Vec<_> = refused.iter().map(|r| r.id.as_str()).collect();
    let head_80 = ["q8_0-k", "q8_0-v", "q4_0-k", "q4_0-v"].map(|of| format!("codec-{of}-head-80"));
    assert_eq!(ids, head_80);
    assert!(refused.iter().all(|r| r.verdict.reason().contains("32")), "{refused:?}");
    // Every format's codes, both ways on both sides.
    assert_eq!(report.results.iter().filter(|r| ["pack", "unpack"].contains(&r.kernel)).count(), 44);
    for result in report.results.iter().filter(|r| r.verdict == Verdict::Pass) {
        assert!(result.worst.is_some_and(|worst| worst <= result.tolerance), "{result:?}");
    }
    let ids: BTreeSet<_> = report.results.iter().map(|r| &r.id).collect();
    assert_eq!(ids.len(), report.results.len(), "names are one check's own");
}

/// What a case has of each factor.
fn factors(case: &Case) -> [String; 14] {
    let (k, v) = (case.formats)(0, 0);
    let tokens = case.sequences[0].0;
    [
        k.into(),
        v.into(),
        // Blocks of 32 channels make 96 of 80.
        format!("{}", case.k_dim.max(case.v_dim)),
        case.group.to_string(),
        case.page_tokens.to_string(),
        tokens.to_string(),
        format!("{:?}", case.window),
        format!("{:?}", case.softcap),
        format!("{:?}", case.sink),
        format!("{:?}", case.basis),
        case.pages_per_item.to_string(),
        case.kv_heads.to_string(),
        case.first_position.to_string(),
        case.workgroup.to_string(),
    ]
}

#[test]
fn the_quick_cases_meet_every_value_of_every_factor() {
    assert!(FormatRegistry::builtin().iter().map(|(_, format)| format.name()).eq(NAMES));
    let (all, some) = (cases(FormatFactors::Sides), covering());
    assert!(some.len() * 3 < all.len(), "{} of {}", some.len(), all.len());
    let values = |case: &Case| -> Vec<(usize, String)> { factors(case).into_iter().enumerate().collect() };
    let met: BTreeSet<_> = some.iter().flat_map(|(_, case)| values(case)).collect();
    for case in &all {
        assert!(values(case).iter().all(|value| met.contains(value)), "{:?} of {case:?}", values(case));
    }
    // Formats with either kernel.
    let sides = |case: &Case| [0, 1].map(|side| (case.kernel.as_str(), side, factors(case)[side].clone()));
    let met: BTreeSet<_> = some.iter().flat_map(|(_, case)| sides(case)).collect();
    for case in &all {
        assert!(sides(case).iter().all(|side| met.contains(side)), "{:?}", sides(case));
    }
    assert!(Kernel::BOTH.iter().all(|kernel| some.iter().any(|(_, case)| case.kernel == *kernel)));
    for (number, case) in some {
        assert_eq!(format!("{case:?}"), format!("{:?}", all[number]), "case {number}");
    }
}

#[test]
fn progress_and_one_check_by_its_name() {
    let id = &sound().results[3].id;
    let options = Options { quick: true, only: Some(id.clone()), ..Options::default() };
    let mut seen = Vec::new();
    let report = run(&mut cpu(), &options, &mut |p| seen.push((p.done, p.total, p.last.id.clone())));
    assert_eq!(seen, [(1, 1, id.clone())]);
    assert!(report.passed());
    // Of nothing nothing is proven.
    let options = Options { only: Some("nothing".into()), ..options };
    assert!(!run(&mut cpu(), &options, &mut |_| ()).passed());
}

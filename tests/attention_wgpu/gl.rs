//! The suite's covering part on GL, the floor tier of another driver than Vulkan's.

use crate::support;
use kvarto::backend::Backend;
use kvarto::backend::wgpu::{OpenOptions, Without};
use kvarto::conformance::{Options, run};

#[test]
fn the_covering_suite_passes_on_gl() {
    // Drivers with either feature are held to the floor as well.
    let without = Without { f16: true, subgroups: true, timestamps: false };
    let mut backend = match support::gpu::open("gl", &OpenOptions { without, ..OpenOptions::default() }) {
        Ok(backend) => backend,
        Err(error) => return support::require_or_skip("gl", &error.to_string()),
    };
    assert_eq!(backend.caps().tier, "floor");
    let report = run(&mut backend, &Options { quick: true, ..Options::default() }, &mut |_| ());
    let summary = report.summary();
    println!("{}: {summary:?} in {:.1?}", backend.caps().title(), report.time);
    assert!(report.passed(), "{:#?}", report.failures().collect::<Vec<_>>());
    assert_eq!((summary.skipped, summary.expected_failures), (0, 0));
    let of = |kernel: &str| report.results.iter().filter(|r| r.kernel == kernel).count();
    assert!(of("decode") >= 10 && of("prefill") >= 8 && of("pack") == 22 && of("unpack") == 22, "{summary:?}");
    assert_eq!(backend.allocated_bytes(), 0);
}

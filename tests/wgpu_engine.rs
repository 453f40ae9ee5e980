//! The engine over Vulkan: the same work as on the CPU, no pipeline after warm-up, small bindings, a lost device.
#![cfg(feature = "wgpu")]

mod support;
#[path = "wgpu_engine/workload.rs"]
mod workload;

use kvarto::ErrorKind;
use kvarto::backend::wgpu::{Limit, LimitMask, OpenOptions, Without};
use kvarto::backend::{Backend, CpuBackend};
use kvarto::conformance::HALF_TOLERANCE;
use kvarto::engine::{Engine, EngineOptions, Input, Output, Registry, SeqRows};
use kvarto::profile::Profile;
use kvarto::shape::CacheShape;
use support::gpu;
use support::require_or_skip;
use workload::{Workload, worst};

/// A Vulkan backend of the test's own, or none with the reason said.
fn vulkan(options: &OpenOptions) -> Option<Box<dyn Backend>> {
    match gpu::open("vulkan", options) {
        Ok(backend) => Some(Box::new(backend)),
        Err(error) => {
            require_or_skip("vulkan", &error.to_string());
            None
        }
    }
}

fn cpu() -> Box<dyn Backend> {
    Box::new(CpuBackend::new(2).expect("threads"))
}

struct Case {
    kv: &'static str,
    basis: &'static str,
    page_tokens: usize,
    head_dim: usize,
    /// The most that a head's output may differ between backends, as a fraction of its length. Where a rotation
    /// precedes the codes, sums in another order move a few codes to their neighbours.
    tolerance: f64,
}

fn engine(backend: Box<dyn Backend>, case: &Case) -> Engine {
    engine_with(backend, case, EngineOptions::default())
}

fn engine_with(backend: Box<dyn Backend>, case: &Case, options: EngineOptions) -> Engine {
    let registry = Registry::builtin();
    let profile = Profile {
        exact_sink_tokens: 16,
        exact_tail_tokens: 24,
        k_basis: Some(case.basis.into()),
        v_basis: Some(case.basis.into()),
        ..Profile::parse_kv(case.kv, &registry.formats).expect("formats")
    };
    let shape = CacheShape::uniform(2, 6, 2, case.head_dim, case.page_tokens);
    let registry = support::calibrations::with(registry, &shape);
    Engine::with_options(backend, shape, profile, registry, options).expect("an engine")
}

#[test]
fn the_same_work_gives_the_same_results_and_makes_no_pipeline() {
    let case = |kv, basis, page_tokens, head_dim, tolerance| Case { kv, basis, page_tokens, head_dim, tolerance };
    let cases = [
        case("f16", "none", 16, 64, 1e-4),
        case("fp8", "hadamard", 32, 64, 1e-2),
        case("tq3", "hadamard", 64, 64, 2e-2),
        case("k=fp8,v=tq3", "mean", 16, 64, 2e-2),
        case("tq3", "mean", 128, 80, 2e-2),
        case("k=tq4,v=tq2", "hadamard", 32, 64, 4e-2),
        case("k=q8_0,v=q4_0", "none", 16, 64, 1e-4),
        case("q3_affine", "none", 64, 80, 1e-4),
        case("k=f16,v=fp8", "map", 32, 80, 1e-2),
        case("tq3", "map", 64, 64, 2e-2),
        case("k=tq3,v=f16", "mean:x.kvcal", 16, 64, 2e-2),
    ];
    for (seed, case) in cases.iter().enumerate() {
        let Some(backend) = vulkan(&OpenOptions::default()) else { return };
        let work = Workload::draw(seed as u64, 24);
        let (mut gpu, mut host) = (engine(backend, case), engine(cpu(), case));
        for engine in [&mut gpu, &mut host] {
            engine.warm_up(&[1, 2, 3], true).expect("kernels compile");
            engine.backend().forbid_new_pipelines(true);
        }
        let made = gpu.backend().pipelines_made();
        let (got, expected) = (work.run(&mut gpu), work.run(&mut host));
        assert_eq!(gpu.backend().pipelines_made(), made);
        let off = worst(&got, &expected, case.head_dim);
        println!("{} {} {}: {off:.1e}", case.kv, case.basis, case.page_tokens);
        assert!(off <= case.tolerance, "{} {} {}: off by {off}", case.kv, case.basis, case.page_tokens);
        // Bookkeeping is the same, whatever runs the kernels.
        let (a, b) = (gpu.stats(), host.stats());
        assert_eq!((&a.pages, a.conversions, a.reopened), (&b.pages, b.conversions, b.reopened));
        assert!(a.conversions > 0 && a.reopened > 0, "{a:?}");
    }
}

#[test]
fn small_bindings_give_the_same_results() {
    // 32 slots of K in f16 fill 1 MiB: the cache lies in several segments.
    let case = Case { kv: "k=f16,v=fp8", basis: "none", page_tokens: 128, head_dim: 128, tolerance: 1e-5 };
    // Sums in f32 first. Products in f16, summed in other pieces, differ by what conformance allows them.
    for (f16, tolerance) in [(true, case.tolerance), (false, 5e-3)] {
        let without = Without { f16, ..Without::default() };
        let Some(whole) = vulkan(&OpenOptions { without, ..OpenOptions::default() }) else { return };
        let limits = LimitMask::default().with(Limit::BindingBytes, 1 << 20);
        let small = vulkan(&OpenOptions { limits, without, ..OpenOptions::default() }).expect("a second device");
        let work = Workload::long(9);
        let (mut whole, mut small) = (engine(whole, &case), engine(small, &case));
        let (expected, got) = (work.run(&mut whole), work.run(&mut small));
        assert!(small.stats().memory.used_slot_bytes > 2 << 20, "{:?}", small.stats().memory);
        let off = worst(&got, &expected, case.head_dim);
        println!("1 MiB bindings, without f16 {f16}: off by {off:.1e}, the same bits: {}", got == expected);
        assert!(off <= tolerance, "without f16 {f16}: off by {off}");
    }
}

#[test]
fn page_items_give_the_same_bits_with_small_bindings() {
    for f16 in [true, false] {
        let without = Without { f16, ..Without::default() };
        let case = Case { kv: "k=f16,v=tq3", basis: "none", page_tokens: 64, head_dim: 128, tolerance: 0.0 };
        let by_pages = |backend| {
            let options = EngineOptions { page_items: true, ..EngineOptions::default() };
            engine_with(backend, &case, options)
        };
        let Some(whole) = vulkan(&OpenOptions { without, ..OpenOptions::default() }) else { return };
        let limits = LimitMask::default().with(Limit::BindingBytes, 1 << 20);
        let small = vulkan(&OpenOptions { limits, without, ..OpenOptions::default() }).expect("a second device");
        let work = Workload::long(9);
        let (mut whole, mut small) = (by_pages(whole), by_pages(small));
        let (expected, got) = (work.run(&mut whole), work.run(&mut small));
        assert!(small.stats().memory.used_slot_bytes > 2 << 20, "{:?}", small.stats().memory);
        assert!(got.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()), "without f16 {f16}");
        assert!(expected.iter().any(|x| *x != 0.0));
    }
}

#[test]
fn attention_larger_than_a_binding_goes_in_rounds() {
    // 256 rows of 16 heads of 64 channels fill 1 MiB: the prepared queries exceed it, the partial states twice.
    let run = |backend: Box<dyn Backend>| {
        let profile = Profile { exact_sink_tokens: 0, exact_tail_tokens: 0, ..Profile::formats("f16", "fp8") };
        let shape = CacheShape::uniform(1, 16, 2, 64, 32);
        let mut engine = Engine::new(backend, shape, profile, Registry::builtin()).expect("an engine");
        engine.warm_up(&[2], true).expect("kernels compile");
        engine.backend().forbid_new_pipelines(true);
        let seq = engine.create().expect("a sequence");
        let mut all = Vec::new();
        for rows in [256usize, 256, 2] {
            let number = |i: usize, salt: usize| ((i * 7919 + salt * 104_729) % 2003) as f32 / 1001.0 - 1.0;
            let draw = |n: usize, salt: usize| (0..n).map(|i| number(i, salt + rows)).collect::<Vec<f32>>();
            let (k, v, q) = (draw(rows * 128, 1), draw(rows * 128, 2), draw(rows * 1024, 3));
            let mut out = vec![f32::NAN; rows * 1024];
            let mut step = engine.begin_step(&[SeqRows { seq, rows: rows as u32, committed: true }]).expect("begin");
            step.append(0, Input::Host(&k), Input::Host(&v)).expect("append");
            step.attend(0, Input::Host(&q), Output::Host(&mut out)).expect("attend");
            step.finish().expect("finish");
            all.extend(out);
        }
        (all, engine.memory().scratch_bytes)
    };
    let Some(whole) = vulkan(&OpenOptions::default()) else { return };
    let small = vulkan(&OpenOptions {
        limits: LimitMask::default().with(Limit::BindingBytes, 1 << 20),
        ..OpenOptions::default()
    })
    .expect("a second device");
    let ((expected, whole_bytes), (got, bytes)) = (run(whole), run(small));
    assert!(whole_bytes > 6 << 20 && bytes <= 6 << 20, "{whole_bytes} and {bytes} bytes of scratch");
    let off = worst(&got, &expected, 64);
    println!("rounds: off by {off:.1e}, the same bits: {}", got == expected);
    assert!(off <= 1e-5, "off by {off}");
}

#[test]
fn a_device_lost_in_a_step_is_an_error_from_then_on() {
    let case = Case { kv: "fp8", basis: "none", page_tokens: 32, head_dim: 64, tolerance: 0.0 };
    let Some(backend) = vulkan(&OpenOptions::default()) else { return };
    let mut lost = engine(backend, &case);
    let seq = lost.create().unwrap();
    let rows = SeqRows { seq, rows: 40, committed: true };
    let (kv, q) = (vec![0.5; 40 * 2 * 64], vec![0.25; 40 * 6 * 64]);
    let mut out = vec![f32::NAN; q.len()];
    let mut step = lost.begin_step(&[rows]).unwrap();
    step.append(0, Input::Host(&kv), Input::Host(&kv)).unwrap();
    step.attend(0, Input::Host(&q), Output::Host(&mut out)).unwrap();
    assert!(out.iter().all(|x| (x - 0.5).abs() < 1e-3));
    step.backend().as_wgpu().expect("wgpu").lose_for_test();
    out.fill(f32::NAN);
    let outcome = step
        .append(1, Input::Host(&kv), Input::Host(&kv))
        .and_then(|()| step.attend(1, Input::Host(&q), Output::Host(&mut out)));
    let error = outcome.expect_err("the device is gone");
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    assert!(out.iter().all(|x| x.is_nan()), "nothing was written");
    assert_eq!(step.finish().expect_err("no step can finish").kind(), ErrorKind::DeviceLost);
    // Steps are refused, bookkeeping goes on.
    for _ in 0..2 {
        let error = lost.begin_step(&[rows]).err().expect("a refusal");
        assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    }
    let other = lost.fork(seq).unwrap();
    lost.release(seq).unwrap();
    lost.release(other).unwrap();
    drop(lost);

    // Lost between steps: the next one does not begin.
    let mut lost = engine(vulkan(&OpenOptions::default()).expect("a second device"), &case);
    let seq = lost.create().unwrap();
    lost.backend().as_wgpu().expect("wgpu").lose_for_test();
    let error = lost.begin_step(&[SeqRows { seq, rows: 1, committed: true }]).err().expect("a refusal");
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    assert_eq!(lost.lengths(seq).unwrap().logical, 0);

    // A fresh engine on a fresh device serves.
    let mut fresh = engine(vulkan(&OpenOptions::default()).expect("a third device"), &case);
    let work = Workload::draw(3, 6);
    let (got, expected) = (work.run(&mut fresh), work.run(&mut engine(cpu(), &case)));
    let off = worst(&got, &expected, 64);
    // Some formats of the case multiply in f16 where the adapter has it.
    let limit = if fresh.backend().caps().f16 { HALF_TOLERANCE } else { 1e-3 };
    assert!(off <= limit, "off by {off}");
}

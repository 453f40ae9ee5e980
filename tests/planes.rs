//! Side planes: Quest's boxes of every page beside the exact minima and maxima of the keys that it got, over random lives
//! of sequences, on the CPU and on Vulkan.

#[path = "planes/rig.rs"]
mod rig;
mod support;

use kvarto::ErrorKind;
use kvarto::backend::{Backend, CpuBackend};
use kvarto::engine::{Engine, EngineOptions, Input, Registry, SeqRows};
use kvarto::profile::Profile;
use kvarto::shape::CacheShape;
use rig::{Boxed, Rig, profile, registry, shape};

/// Runs `test` on the CPU, Vulkan and GL, or says why not there.
fn on_backends(test: impl Fn(Box<dyn Backend>, &str)) {
    test(Box::new(CpuBackend::new(2).expect("threads")), "cpu");
    #[cfg(feature = "wgpu")]
    for api in support::gpu::APIS {
        match support::gpu::open(api, &Default::default()) {
            Ok(backend) => test(Box::new(backend), api),
            Err(error) => support::require_or_skip(api, &error.to_string()),
        }
    }
}

#[test]
fn boxes_hold_over_random_lives() {
    on_backends(|backend, on| {
        let mut rig = Rig::new(backend, profile("fp8/tq3"), 1);
        let actions = if on == "cpu" { 250 } else { 60 };
        rig.live(actions);
        assert!(rig.checked > 1000, "{on}: {} boxes compared", rig.checked);
        // Copies within a segment and between segments, conversions and cuts of sealed pages were among it.
        let stats = rig.engine.stats();
        println!("{on}: {} boxes compared, {} conversions", rig.checked, stats.conversions);
        assert!(stats.conversions > 20 && stats.reopened > 0, "{on}: {stats:?}");
    });
}

#[test]
fn other_seeds_and_formats() {
    for (seed, kv) in [(2, "f16"), (3, "f32/fp8"), (4, "tq4/f16"), (5, "fp8")] {
        let mut rig = Rig::new(Box::new(CpuBackend::new(1).expect("a thread")), profile(kv), seed);
        rig.live(120);
        let mean = Profile { k_basis: Some("mean".into()), v_basis: Some("mean".into()), ..profile(kv) };
        let mut rig = Rig::new(Box::new(CpuBackend::new(1).expect("a thread")), mean, seed);
        rig.live(60);
    }
}

#[test]
fn unusual_numbers_stay_inside() {
    on_backends(|backend, _| {
        let mut rig = Rig::new(backend, profile("f16"), 9);
        let a = rig.create();
        let tiny = f32::from_bits(1);
        let odd = [0.0, -0.0, tiny, -tiny, 5.9e-8, -6.2e-5, 65504.0, -65505.0, 1e30, f32::INFINITY, f32::NEG_INFINITY];
        for &x in &odd {
            rig.step_of(&[(a, 1)], &mut |_, _, _| x);
            rig.check();
        }
        // A NaN in one channel only; it stays for as long as the page does.
        rig.step_of(&[(a, 1)], &mut |_, _, channel| if channel == 3 { f32::NAN } else { 1.0 });
        rig.step_of(&[(a, 2)], &mut |_, _, _| 2.0);
        rig.check();
        let boxes = rig.engine.plane_records(a, 0, 0, "box").unwrap();
        assert_eq!(boxes[0][3], 0x7e00_7e00);
        assert!(boxes[0].iter().enumerate().all(|(c, word)| c == 3 || *word != 0x7e00_7e00));
    });
}

#[test]
fn a_step_that_ran_and_was_dropped_leaves_boxes_that_hold() {
    on_backends(|backend, _| {
        let mut rig = Rig::new(backend, profile("f16"), 5);
        let a = rig.create();
        rig.step(&[(a, 21)]);
        let before = rig.engine.plane_records(a, 0, 1, "box").unwrap();
        // Recorded only: nothing ran.
        rig.recorded(a, 3, 2, false);
        assert_eq!(rig.engine.plane_records(a, 0, 1, "box").unwrap(), before);
        // The first layer ran, and its rows reach into a page that goes again.
        rig.recorded(a, 20, 1, true);
        rig.check_contained();
        rig.step(&[(a, 30)]);
        rig.check_contained();
        rig.recorded(a, 20, 3, true);
        rig.check_contained();
    });
}

/// Where a submission has room for two workgroups by prediction, the pages of one step go in many dispatches.
#[cfg(feature = "wgpu")]
#[test]
fn split_steps_write_the_same_boxes() {
    let ns = Some(400_000);
    let options =
        kvarto::backend::wgpu::OpenOptions { max_submission_ms: Some(1), assumed_group_ns: ns, ..Default::default() };
    let backend = match support::gpu::open("vulkan", &options) {
        Ok(backend) => backend,
        Err(error) => return support::require_or_skip("vulkan", &error.to_string()),
    };
    let mut rig = Rig::new(Box::new(backend), profile("fp8"), 3);
    let (a, b) = (rig.create(), rig.create());
    for rows in [[(a, 130), (b, 70)], [(a, 1), (b, 9)], [(a, 40), (b, 40)]] {
        let before = rig.engine.backend().splits();
        rig.step(&rows);
        assert!(rig.engine.backend().splits() > before);
        rig.check();
    }
}

#[test]
fn pages_without_planes_have_no_records() {
    let backend = Box::new(CpuBackend::new(1).expect("a thread"));
    let mut engine = Engine::new(backend, shape(), profile("f16"), Registry::builtin());
    assert_eq!(engine.as_ref().err().map(|e| e.kind()), Some(ErrorKind::Usage), "`boxed` is not built in");
    let plain = Profile { selector: "dense".into(), policy: "keep".into(), ..profile("f16") };
    let backend = Box::new(CpuBackend::new(1).expect("a thread"));
    engine = Engine::new(backend, shape(), plain, registry());
    let mut engine = engine.expect("an engine");
    let seq = engine.create().unwrap();
    let error = engine.plane_records(seq, 0, 0, "box").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert_eq!(engine.memory().side_bytes, 0);
    for (layer, head) in [(9, 0), (0, 2)] {
        assert_eq!(engine.plane_records(seq, layer, head, "box").unwrap_err().kind(), ErrorKind::Shape);
    }
}

#[test]
fn want_of_room_for_records_is_a_refusal() {
    // A limit within which slots fit and records, at some page, do not.
    let run = |limit: u64| {
        let backend = Box::new(CpuBackend::new(1).expect("a thread").with_memory_limit(limit));
        let one = CacheShape::uniform(1, 1, 1, 256, 16);
        let options = EngineOptions { context_tokens: 64, ..EngineOptions::default() };
        let registry = Registry::builtin().with_selector(std::sync::Arc::new(Boxed)).unwrap();
        let profile = Profile { selector: "boxed".into(), ..Profile::formats("f16", "f16") };
        let mut engine = Engine::with_options(backend, one, profile, registry, options)?;
        let seq = engine.create()?;
        let (k, mut steps) = (vec![0.5; 256 * 16], 0);
        while steps < 80 {
            let tokens = engine.lengths(seq)?.logical;
            let used = engine.memory().used_slot_bytes;
            let step = engine.begin_step(&[SeqRows { seq, rows: 16, committed: true }]).and_then(|mut step| {
                step.append(0, Input::Host(&k), Input::Host(&k))?;
                step.finish()
            });
            match step {
                Ok(_) => steps += 1,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
                    assert_eq!(engine.lengths(seq)?.logical, tokens);
                    assert_eq!(engine.memory().used_slot_bytes, used);
                    let memory = engine.memory();
                    assert_eq!(engine.backend().allocated_bytes(), memory.allocated());
                    return Ok::<_, kvarto::Error>((steps, engine.backend().peak_bytes()));
                }
            }
        }
        Ok((steps, engine.backend().peak_bytes()))
    };
    let (steps, peak) = run(u64::MAX).unwrap();
    assert_eq!(steps, 80);
    let (mut refused, mut limit) = (0, peak / 4);
    while limit < peak {
        refused += usize::from(run(limit).map_or(true, |(steps, _)| steps < 80));
        limit += peak / 61;
    }
    assert!(refused > 20, "{refused}");
}

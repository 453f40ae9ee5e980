//! Work that is predicted to keep the device for too long goes in several submissions, with the same bits.

use crate::hooked::{Hooked, Hooks};
use crate::script::{self, Said, Way};
use crate::support::{gpu, require_or_skip};
use kvarto::backend::wgpu::{OpenOptions, WgpuBackend};
use kvarto::backend::{Backend, Command, Recording, SubmissionId};
use kvarto::engine::{Engine, Registry, SeqRows};
use kvarto::profile::Profile;
use kvarto::shape::CacheShape;
use kvarto::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts dispatches.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicU64>);

impl Hooks for Counting {
    fn submit(&mut self, inner: &mut dyn Backend, recording: Recording) -> Result<SubmissionId> {
        let dispatches = recording.commands().iter().filter(|c| matches!(c, Command::Dispatch(_))).count();
        self.0.fetch_add(dispatches as u64, Ordering::Relaxed);
        inner.submit(recording)
    }
}

fn open(max_submission_ms: u32, assumed_group_ns: Option<u32>) -> Option<WgpuBackend> {
    let options =
        OpenOptions { max_submission_ms: Some(max_submission_ms), assumed_group_ns, ..OpenOptions::default() };
    let skip = |error: Error| require_or_skip("vulkan", &error.to_string());
    gpu::open("vulkan", &options).map_err(skip).ok()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// A prefill of many rows, one that seals its pages, and decoding over them.
fn steps(backend: WgpuBackend) -> (Vec<Said>, u64) {
    let counting = Counting::default();
    let backend = Box::new(Hooked::new(backend, counting.clone()));
    let profile = Profile { exact_sink_tokens: 0, exact_tail_tokens: 0, ..Profile::formats("fp8", "tq3") };
    let shape = CacheShape::uniform(2, 4, 2, 32, 16);
    let mut engine = Engine::new(backend, shape, profile, Registry::builtin()).expect("an engine");
    let seq = engine.create().expect("a sequence");
    let rows = [300, 300, 1, 1, 3];
    let mut step = |(name, rows)| {
        script::step(&mut engine, &[SeqRows { seq, rows, committed: true }], Way::AtOnce, name).expect("a step")
    };
    let said = rows.into_iter().enumerate().map(&mut step).collect();
    (said, counting.0.load(Ordering::Relaxed))
}

#[test]
fn long_steps_of_an_engine_are_split_and_say_so() {
    let Some(unlimited) = open(0, None) else { return };
    let (want, dispatches) = steps(unlimited);
    assert!(want.iter().all(|said| said.splits == 0 && !said.out.is_empty()));
    // Whatever the adapter, a workgroup counts 0.4 ms here, so that a submission of 1 ms has room for two of them.
    let mut before = (0, 0);
    for (ms, ns) in [(8, 400_000), (1, 400_000)] {
        let (said, parts) = steps(open(ms, Some(ns)).expect("a second device"));
        for (at, (said, want)) in said.iter().zip(&want).enumerate() {
            assert!(bits(&said.out) == bits(&want.out), "{ms} ms: step {at} says something else");
            // A decode over 600 tokens, too, does not fit.
            assert!(said.splits > 2, "{ms} ms: step {at} is split {} times", said.splits);
        }
        let splits: u64 = said.iter().map(|said| said.splits).sum();
        println!("{ms} ms: {splits} splits, {parts} dispatches instead of {dispatches}");
        assert!(splits > before.0 && parts > before.1.max(dispatches), "a lower limit splits more");
        before = (splits, parts);
    }
}

#[test]
fn predictions_from_measurements_split_with_the_same_bits() {
    let Some(unlimited) = open(0, None) else { return };
    let (want, _) = steps(unlimited);
    // By the first guess, which is no measurement yet, the first prefill takes longer than a millisecond.
    let (said, _) = steps(open(1, None).expect("a second device"));
    assert!(said[0].splits > 0, "{} splits", said[0].splits);
    for (said, want) in said.iter().zip(&want) {
        assert!(bits(&said.out) == bits(&want.out));
    }
    println!("splits by measurement: {:?}", said.iter().map(|said| said.splits).collect::<Vec<_>>());
}

#[cfg(feature = "model")]
#[test]
fn long_steps_of_a_model_are_split() {
    use crate::model::{gguf, load, prompt, step};
    let gguf = gguf("qwen3");
    let prompt = prompt(201);
    let run = |backend: WgpuBackend| {
        let counting = Counting::default();
        let mut model = load(&gguf, Box::new(Hooked::new(backend, counting.clone()))).expect("the model loads");
        let seq = model.engine().create().expect("a sequence");
        let mut run = |tokens: &[u32]| {
            let before = (model.engine().backend().splits(), counting.0.load(Ordering::Relaxed));
            let logits = step(&mut model, seq, tokens).expect("a step");
            assert!(logits.iter().all(|x| x.is_finite()));
            let after = (model.engine().backend().splits(), counting.0.load(Ordering::Relaxed));
            (bits(&logits), after.0 - before.0, after.1 - before.1)
        };
        [run(&prompt[..200]), run(&prompt[200..])]
    };
    let Some(unlimited) = open(0, None) else { return };
    let want = run(unlimited);
    let got = run(open(1, Some(400_000)).expect("a second device"));
    for (got, want) in got.iter().zip(&want) {
        assert!(got.0 == want.0, "a split step says something else");
        assert_eq!(want.1, 0);
        println!("{} splits, {} dispatches instead of {}", got.1, got.2, want.2);
    }
    // The products of 200 rows go in four parts each; a row's are not to be cut.
    assert!(got[0].1 > 40 && got[0].2 > 2 * want[0].2, "prefill: {} splits, {} dispatches", got[0].1, got[0].2);
    assert!(got[1].1 > 10, "decode: {} splits", got[1].1);
}

//! Hundreds of decode steps on a GPU: nothing that it holds grows.

use crate::script::{self, Way};
use crate::support::{gpu, require_or_skip};
use kvarto::backend::Backend;
use kvarto::backend::wgpu::OpenOptions;
use kvarto::engine::{Engine, Registry, SeqRows};
use kvarto::profile::Profile;
use kvarto::shape::CacheShape;

/// Device bytes, pipelines, cached bind groups and staging bytes.
fn held(engine: &mut Engine) -> [u64; 4] {
    let backend = engine.backend().as_wgpu().expect("wgpu");
    let groups = backend.cached_bind_groups() as u64;
    [backend.allocated_bytes(), backend.pipelines_made(), groups, backend.staging_bytes()]
}

#[test]
fn three_hundred_decode_steps_stay_flat() {
    let backend = match gpu::open("vulkan", &OpenOptions::default()) {
        Ok(backend) => Box::new(backend),
        Err(error) => return require_or_skip("vulkan", &error.to_string()),
    };
    let profile = Profile { exact_sink_tokens: 16, exact_tail_tokens: 32, ..Profile::formats("fp8", "fp8") };
    let shape = CacheShape::uniform(1, 2, 1, 32, 16);
    let mut engine = Engine::new(backend, shape, profile, Registry::builtin()).expect("an engine");
    engine.warm_up(&[1], true).expect("kernels compile");
    engine.backend().forbid_new_pipelines(true);
    let seq = engine.create().expect("a sequence");
    let decode = |engine: &mut Engine, rows: u32, name: usize| {
        let said = script::step(engine, &[SeqRows { seq, rows, committed: true }], Way::LayerByLayer, name);
        assert!(said.expect("a step").out.iter().all(|x| x.is_finite()));
    };
    decode(&mut engine, 200, 0);
    // 16 tokens and back: a page is filled, sealed, reopened and filled again.
    let round = |engine: &mut Engine, steps: usize| {
        for at in 0..steps {
            if at % 20 == 19 {
                engine.truncate(seq, 200).expect("a truncation");
            }
            decode(engine, 1, at);
        }
        engine.truncate(seq, 200).expect("a truncation");
    };
    round(&mut engine, 60);
    let before = held(&mut engine);
    round(&mut engine, 300);
    let after = held(&mut engine);
    println!("device bytes, pipelines, bind groups, staging bytes: {before:?}, then {after:?}");
    assert_eq!((after[0], after[1], after[3]), (before[0], before[1], before[3]));
    assert_eq!(engine.memory().allocated(), after[0]);
    // The cache of bind groups is bounded, not constant: reopened pages bind segments in other pairs.
    assert!(after[2] <= before[2] + 16, "{} bind groups after {}", after[2], before[2]);
}

//! Calibrated bases: results as without but for rounding, through whole lives; keys that know the calibration.

use crate::calibrations::{FILE, synthetic, with};
use crate::model::{Rig, profile, shape};
use crate::random::{live, mixed};
use kvarto::backend::CpuBackend;
use kvarto::basis::CalibrationSource;
use kvarto::engine::{AttentionOptions, Engine, EngineOptions, Input, Registry, SeqRows};
use kvarto::error::ErrorKind;
use kvarto::page::ContentKey;
use kvarto::profile::Profile;
use kvarto::shape::CacheShape;

fn based(kv: &str, k: &str, v: &str, tail: usize) -> Profile {
    Profile { k_basis: Some(k.into()), v_basis: Some(v.into()), ..profile(kv, tail, 16) }
}

fn run(profile: &Profile, attention: &[AttentionOptions], tolerance: f64) {
    for seed in 0..2 {
        let options = EngineOptions { attention: attention.to_vec(), rewind_tokens: 20, ..EngineOptions::default() };
        let registry = with(Registry::builtin(), &mixed());
        let backend = CpuBackend::new(1).unwrap();
        live(Rig::on(backend, mixed(), profile.clone(), registry, options, tolerance, seed), 100, 300);
    }
}

#[test]
fn exact_formats_give_the_same_results_in_calibrated_bases() {
    let means = format!("mean:{FILE}");
    for (k, v) in [("map", "map"), (FILE, "none"), (&means, "map"), ("mean", means.as_str()), ("hadamard", FILE)] {
        run(&based("f32", k, v, 16), &[], 4e-5);
    }
    run(&based("f16", "map", "map", 16), &[], 1e-2);
}

#[test]
fn softcaps_sinks_and_codes_meet_maps() {
    let sinks = Some((0..2).map(|l| (0..4).map(|h| (l + h) as f32 * 0.4 - 0.5).collect()).collect());
    let options = [AttentionOptions { scale: Some(0.7), softcap: Some(2.0), sinks }];
    run(&based("f32", "map", "map", 0), &options, 4e-5);
    run(&based("fp8/tq3", "map", "map", 0), &[], 0.8);
}

/// Content keys of the first page of 16 tokens under a profile and a registry.
fn key(profile: Profile, registry: Registry) -> ContentKey {
    let options = EngineOptions { model_hash: Some("m".into()), ..EngineOptions::default() };
    let backend = Box::new(CpuBackend::new(1).unwrap());
    let shape = CacheShape::uniform(1, 1, 1, 8, 16);
    let mut engine = Engine::with_options(backend, shape, profile, registry, options).unwrap();
    let seq = engine.create().unwrap();
    let ids: Vec<u32> = (0..16).collect();
    let row = SeqRows { seq, rows: 16, committed: true };
    let mut step = engine.begin_step_with_tokens(&[row], &[Some(&ids)]).unwrap();
    step.append(0, Input::Host(&[0.5; 128]), Input::Host(&[0.5; 128])).unwrap();
    step.finish().unwrap();
    engine.content_keys(seq, 0).unwrap()[0].unwrap()
}

#[test]
fn keys_know_the_calibration() {
    let shape = CacheShape::uniform(1, 1, 1, 8, 16);
    let registry = |id: &str| {
        Registry::builtin()
            .with_calibration(CalibrationSource::OfModel, synthetic(&shape, id, 1))
            .with_calibration(CalibrationSource::File(FILE.into()), synthetic(&shape, id, 1))
    };
    let of = |word: &str, kv: &str, id: &str| key(based(kv, word, word, 16), registry(id));
    assert_eq!(of("map", "f16", "a"), of("map", "fp8", "a"));
    // The same calibration, called otherwise.
    assert_eq!(of("map", "f16", "a"), of(FILE, "f16", "a"));
    let means = format!("mean:{FILE}");
    let all = [of("map", "f16", "a"), of("map", "f16", "b"), of(&means, "f16", "a"), of("hadamard", "f16", "a")];
    let distinct: std::collections::BTreeSet<String> = all.iter().map(ContentKey::to_string).collect();
    assert_eq!(distinct.len(), all.len());
}

#[test]
fn a_calibration_that_is_missing_or_of_another_shape_is_refused() {
    let make = |registry: Registry, cache: CacheShape| {
        let profile = based("f16", "none", "map", 16);
        Engine::new(Box::new(CpuBackend::new(1).unwrap()), cache, profile, registry).err().expect("refused")
    };
    let error = make(Registry::builtin(), mixed());
    assert!(error.kind() == ErrorKind::Usage && error.message().contains("calibration"), "{error}");
    let other = CacheShape::uniform(3, 4, 2, 8, 16);
    let error = make(with(Registry::builtin(), &other), mixed());
    assert!(error.kind() == ErrorKind::Shape && error.message().contains("layer 0, the cache 2 of 24"), "{error}");
    let few = shape(vec![mixed().groups[1].clone()]);
    assert_eq!(make(with(Registry::builtin(), &few), mixed()).kind(), ErrorKind::Shape);
}

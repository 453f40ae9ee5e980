//! Attention whose partial states exceed one binding goes in rounds, with the same results.

use crate::model::{Rig, Rng, group, profile, shape};
use kvarto::backend::CpuBackend;
use kvarto::engine::{Engine, EngineOptions, Input, Output, Registry, SeqRows};
use kvarto::error::ErrorKind;
use kvarto::shape::{CacheShape, GroupKind};

/// Bytes of a binding: what Q and the output of 60 rows fill.
const LIMIT: u64 = 60 * 16 * 16 * 4;

fn many_heads() -> CacheShape {
    shape(vec![
        group(vec![0], GroupKind::Full, 16, (16, 4), 16, 16),
        group(vec![1], GroupKind::Window(70), 16, (16, 2), 16, 16),
    ])
}

fn rig(backend: CpuBackend, kv: &str) -> Rig {
    let tolerance = if kv == "f16" { 2e-6 } else { 0.05 };
    let options = EngineOptions { rewind_tokens: 100, ..EngineOptions::default() };
    Rig::on(backend, many_heads(), profile(kv, 16, 16), Registry::builtin(), options, tolerance, 11)
}

#[test]
fn small_bindings_split_the_attention_and_not_its_results() {
    for kv in ["f16", "fp8", "f16/fp8"] {
        let mut rig = rig(CpuBackend::new(2).unwrap().with_binding_limit(LIMIT), kv);
        let (a, b) = (rig.create(), rig.create());
        for rows in [(60, 0), (1, 59), (16, 16), (1, 1), (30, 30), (2, 40), (1, 1), (0, 60), (5, 9)] {
            rig.step(&[(a, rows.0, true), (b, rows.1, true)]).unwrap();
            rig.check();
        }
        let c = rig.fork(b, Some(160)).unwrap();
        rig.step(&[(a, 3, false), (b, 16, false), (c, 40, true)]).unwrap();
        // Queries and states of two groups, K, V, Q and output of two layers: none above the limit.
        assert!(rig.engine.memory().scratch_bytes <= (2 * 2 + 2 * 4) * LIMIT, "{:?}", rig.engine.memory());
    }
}

/// Outputs of two prefills and a few decoding steps, and bytes of scratch.
fn outputs(backend: CpuBackend) -> (Vec<f32>, u64) {
    let one = shape(vec![group(vec![0], GroupKind::Full, 16, (16, 2), 16, 16)]);
    let mut engine = Engine::new(Box::new(backend), one, profile("f32", 16, 0), Registry::builtin()).unwrap();
    let seq = engine.create().unwrap();
    let (mut rng, mut all) = (Rng(4), Vec::new());
    for rows in [60u32, 60, 1, 1, 16] {
        let n = rows as usize * 16;
        let (k, v, q) = (rng.row(2 * n), rng.row(2 * n), rng.row(16 * n));
        let mut out = vec![f32::NAN; 16 * n];
        let mut step = engine.begin_step(&[SeqRows { seq, rows, committed: true }]).unwrap();
        step.append(0, Input::Host(&k), Input::Host(&v)).unwrap();
        step.attend(0, Input::Host(&q), Output::Host(&mut out)).unwrap();
        step.finish().unwrap();
        all.extend(out);
    }
    (all, engine.memory().scratch_bytes)
}

#[test]
fn rounds_differ_from_one_round_by_rounding_alone() {
    let (whole, most) = outputs(CpuBackend::new(1).unwrap());
    let (split, less) = outputs(CpuBackend::new(1).unwrap().with_binding_limit(LIMIT));
    assert_eq!(whole.len(), split.len());
    // Queries and states of 60 rows are above the limit.
    assert!(most >= less + 2 * LIMIT, "{most} and {less}");
    for (a, b) in whole.iter().zip(&split) {
        let off = (a - b).abs();
        assert!(off <= 2e-6, "{a} and {b}");
    }
}

#[test]
fn what_no_round_can_hold_is_refused_with_the_limit() {
    // Q of one row fits, its prepared form and its state do not.
    let one = shape(vec![group(vec![0], GroupKind::Full, 16, (256, 1), 8, 8)]);
    let limit = 256 * 8 * 4;
    let mut rig = Rig::on(
        CpuBackend::new(1).unwrap().with_binding_limit(limit),
        one,
        profile("f16", 16, 0),
        Registry::builtin(),
        EngineOptions::default(),
        2e-6,
        1,
    );
    let a = rig.create();
    let error = rig.step(&[(a, 1, true)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.message().contains(&format!("limit is {limit}")), "{error}");
    rig.check();
}

//! Pages in two parts: `tq3n` says what `tq3` says, and once its further parts are freed what `tq2` makes of the first.

#[path = "parts/rig.rs"]
mod rig;
mod support;

use kvarto::backend::{Backend, BackendKind, CpuBackend};
use kvarto::engine::{Engine, EngineOptions, Event, Formats, Input, Output, Registry, SeqId, SeqRows};
use kvarto::footprint::Estimator;
use kvarto::profile::Profile;
use kvarto::shape::{CacheShape, PageGeometry, Side};
use kvarto::{ErrorKind, Result};
use rig::{
    DIM, Dropper, KV_HEADS, LAYERS, Mover, P, Q_HEADS, Regretful, compare, draw, dropped, moved, remember, stored,
};

fn shape() -> CacheShape {
    CacheShape::uniform(LAYERS, Q_HEADS, KV_HEADS, DIM, P)
}

/// No exact tokens, rows as they come: what a page holds follows from its format alone.
fn profile(kv: &str, policy: &str) -> Profile {
    let (k, v) = kv.split_once('/').unwrap_or((kv, kv));
    Profile {
        exact_sink_tokens: 0,
        exact_tail_tokens: 0,
        k_basis: Some("none".into()),
        v_basis: Some("none".into()),
        policy: policy.into(),
        ..Profile::formats(k, v)
    }
}

fn registry() -> Registry {
    let registry = Registry::builtin().with_policy("dropper", Dropper::default).expect("a new name");
    let registry = registry.with_policy("mover", || Mover).expect("a new name");
    registry.with_policy("regretful", || Regretful).expect("a new name")
}

/// Runs `test` on the CPU, Vulkan and GL, or says why not there.
fn on_backends(test: impl Fn(&mut dyn FnMut() -> Option<Box<dyn Backend>>, &str)) {
    test(&mut || Some(Box::new(CpuBackend::new(2).expect("threads"))), "cpu");
    #[cfg(feature = "wgpu")]
    for api in support::gpu::APIS {
        let mut open = || match support::gpu::open(api, &Default::default()) {
            Ok(backend) => Some(Box::new(backend) as Box<dyn Backend>),
            Err(error) => {
                support::require_or_skip(api, &error.to_string());
                None
            }
        };
        test(&mut open, api);
    }
}

fn engine(backend: Box<dyn Backend>, kv: &str, policy: &str, options: EngineOptions) -> Result<Engine> {
    engine_of(backend, shape(), kv, policy, options)
}

fn engine_of(
    backend: Box<dyn Backend>,
    shape: CacheShape,
    kv: &str,
    policy: &str,
    options: EngineOptions,
) -> Result<Engine> {
    let mut engine = Engine::with_options(backend, shape, profile(kv, policy), registry(), options)?;
    // Software adapters take long to compile what these few steps do not use; that warm-up makes all, the CPU shows.
    if engine.backend().caps().kind == BackendKind::Cpu {
        engine.warm_up(&[1, 4, 8, 16], true)?;
        engine.backend().forbid_new_pipelines(true);
    }
    Ok(engine)
}

/// A step of rows that are drawn by `seed`; its outputs by layer.
fn step(engine: &mut Engine, seq: SeqId, rows: usize, seed: u64) -> Result<Vec<Vec<f32>>> {
    let (k_dim, v_dim) = (engine.shape().groups[0].k_dim, engine.shape().groups[0].v_dim);
    let mut step = engine.begin_step(&[SeqRows { seq, rows: rows as u32, committed: true }])?;
    let mut said = Vec::new();
    for layer in 0..LAYERS as u64 {
        let (k, v) = (draw(seed + layer, rows * KV_HEADS * k_dim), draw(seed + layer + 10, rows * KV_HEADS * v_dim));
        let mut out = vec![f32::NAN; rows * Q_HEADS * v_dim];
        step.append(layer as usize, Input::Host(&k), Input::Host(&v))?;
        let q = draw(seed + layer + 20, rows * Q_HEADS * k_dim);
        step.attend(layer as usize, Input::Host(&q), Output::Host(&mut out))?;
        said.push(out);
    }
    step.finish()?;
    Ok(said)
}

fn allocator_agrees(engine: &mut Engine) {
    let memory = engine.memory();
    assert_eq!(engine.backend().allocated_bytes(), memory.allocated(), "{memory:?}");
}

#[test]
fn two_parts_say_what_one_piece_says() {
    on_backends(|open, on| {
        let pairs = [("tq3n", "tq3"), ("tq3n/fp8", "tq3/fp8"), ("f16/tq3n", "f16/tq3")];
        for (split, whole) in pairs.into_iter().take(if on == "cpu" { 3 } else { 1 }) {
            let (Some(a), Some(b)) = (open(), open()) else { return };
            let mut engines = [(a, split), (b, whole)]
                .map(|(backend, kv)| engine(backend, kv, "keep", EngineOptions::default()).expect("an engine"));
            let seqs = engines.each_mut().map(|e| e.create().expect("a sequence"));
            let mut forks = Vec::new();
            for (n, rows) in [70, 1, 40, 3, 1, 90, 1, 1].into_iter().enumerate() {
                let said = [0, 1].map(|i| step(&mut engines[i], seqs[i], rows, n as u64 * 100).expect("a step"));
                assert_eq!(said[0], said[1], "{on}, {split}: step {n}");
                if n == 2 {
                    forks = (0..2).map(|i| engines[i].fork_at(seqs[i], 50).expect("a fork in a sealed page")).collect();
                }
                if n == 5 {
                    (0..2).for_each(|i| engines[i].truncate(seqs[i], 130).expect("a cut in a sealed page"));
                }
                if n >= 2 {
                    let said = [0, 1].map(|i| step(&mut engines[i], forks[i], 4, n as u64 * 100 + 50).expect("a step"));
                    assert_eq!(said[0], said[1], "{on}, {split}: the fork at step {n}");
                }
                engines.iter_mut().for_each(allocator_agrees);
                let [a, b] = engines.each_ref().map(Engine::stats);
                assert_eq!(a.memory.used_slot_bytes, b.memory.used_slot_bytes, "{on}, {split}: step {n}");
                assert_eq!(a.resident_bits_per_value, b.resident_bits_per_value);
                assert_eq!(a.read_bits_per_value, b.read_bits_per_value);
                assert!(a.reopened == b.reopened && (n < 3 || a.reopened > 0));
            }
            let name = |kv: &str| -> (String, String) {
                let (k, v) = kv.split_once('/').unwrap_or((kv, kv));
                (k.into(), v.into())
            };
            let pages = engines[0].stats().pages[&name(split)];
            assert!(pages > 8 && pages == engines[1].stats().pages[&name(whole)]);
            for (engine, seqs) in engines.iter_mut().zip([[seqs[0], forks[0]], [seqs[1], forks[1]]]) {
                seqs.into_iter().for_each(|seq| engine.release(seq).expect("alive"));
                assert_eq!(engine.memory().used_slot_bytes, 0, "{on}, {split}");
            }
        }
    });
}

/// Head sizes whose 16-byte units differ are read value by value: several pages are under way at a time there.
#[test]
fn two_parts_of_any_head_size() {
    on_backends(|open, on| {
        for (k_dim, v_dim, page_tokens) in [(192, 160, 16), (80, 256, 64)] {
            let mut shape = CacheShape::uniform(LAYERS, Q_HEADS, KV_HEADS, k_dim, page_tokens);
            shape.groups[0].v_dim = v_dim;
            let (Some(a), Some(b)) = (open(), open()) else { return };
            let mut said = [(a, "tq3n"), (b, "tq3")].map(|(backend, kv)| {
                let made = engine_of(backend, shape.clone(), kv, "keep", EngineOptions::default());
                let mut engine = made.expect("an engine");
                let seq = engine.create().expect("a sequence");
                let steps = [(150, 1u64), (1, 100), (20, 200), (1, 300)];
                steps.map(|(rows, seed)| step(&mut engine, seq, rows, seed).expect("a step"))
            });
            assert!(said[0].iter().flatten().flatten().all(|x| x.is_finite()));
            let [a, b] = &mut said;
            assert!(a == b, "{on}: {k_dim} and {v_dim} channels");
        }
    });
}

#[test]
fn further_parts_are_freed_alone_and_the_first_ones_read() {
    on_backends(|open, on| {
        let Some(backend) = open() else { return };
        let mut engine = engine(backend, "tq3n", "dropper", EngineOptions::default()).expect("an engine");
        let events = engine.subscribe(4096);
        let seq = engine.create().expect("a sequence");
        let steps = [(P * 6 + 5, 1000u64), (1, 2000), (1, 3000), (4, 4000)];
        let mut keys: Vec<[Vec<f32>; 2]> = vec![Default::default(); LAYERS];
        let mut used = Vec::new();
        for (n, (rows, seed)) in steps.into_iter().enumerate() {
            let said = step(&mut engine, seq, rows, seed).expect("a step");
            allocator_agrees(&mut engine);
            used.push(engine.memory().used_slot_bytes);
            remember(&mut keys, rows, seed);
            // Sealed in the second step, cut down in the third.
            if n >= 2 {
                let held = |side: Side, rows: &[f32], page: usize| {
                    let gone = dropped(page)[usize::from(side == Side::V)];
                    stored(side, rows, page, if gone { "tq2" } else { "tq3n" })
                };
                compare(&said, &keys, (rows, seed), 6, &held, &format!("{on}: step {n}"));
            }
        }
        // What was freed are further parts, and the moves moved nothing.
        let slot = |name: &str, side| {
            let (_, format) = registry().formats.by_name(name).map(|(id, f)| (id, f.clone())).expect("built in");
            format.codec(side, PageGeometry { tokens: P, head_dim: DIM }).expect("a codec").layout().page_bytes() as u64
        };
        let further = |side| slot("tq3n", side) - slot("tq2", side);
        let gone: [u64; 2] = std::array::from_fn(|i| (0..6).filter(|&p| dropped(p)[i]).count() as u64);
        let heads = (LAYERS * KV_HEADS) as u64;
        assert_eq!(used[1] - used[2], heads * (gone[0] * further(Side::K) + gone[1] * further(Side::V)), "{on}");
        let mut reasons = std::collections::BTreeMap::new();
        while let Some(event) = events.try_next() {
            if let Event::PageConverted { page, reason, from, .. } = event {
                let of = |(k, v): Formats| (k.to_string(), v.to_string());
                *reasons.entry((reason.into_owned(), of(from), of(page.formats))).or_insert(0u64) += 1;
            }
        }
        let pair = |k: &str, v: &str| (k.to_string(), v.to_string());
        assert_eq!(reasons[&("sealed".to_string(), pair("f16", "f16"), pair("tq3n", "tq3n"))], 6 * heads, "{on}");
        assert_eq!(
            reasons[&("further parts".to_string(), pair("tq3n", "tq3n"), pair("tq2", "tq3n"))],
            2 * heads,
            "{on}"
        );
        let stats = engine.stats();
        assert_eq!(stats.pages[&pair("tq3n", "tq2")], heads, "{on}: {stats:?}");
        engine.truncate(seq, P as u32 + 7).expect("a cut in a page of one part and two");
        step(&mut engine, seq, 1, 5000).expect("a step");
        allocator_agrees(&mut engine);
        engine.release(seq).expect("alive");
        assert_eq!(engine.memory().used_slot_bytes, 0, "{on}");
    });
}

#[test]
fn pages_move_to_other_segments_part_by_part() {
    on_backends(|open, on| {
        let Some(backend) = open() else { return };
        // Segments of tq3n hold all of this; those of fp8, which no profile names, 64 pages of 96.
        let options = EngineOptions { context_tokens: 2048, ..EngineOptions::default() };
        let mut engine = engine(backend, "tq3n", "mover", options).expect("an engine");
        let seq = engine.create().expect("a sequence");
        let mut keys: Vec<[Vec<f32>; 2]> = vec![Default::default(); LAYERS];
        let steps = [(P * 12, 100u64), (1, 200), (1, 300), (P * 12 - 2, 400), (1, 500), (1, 600), (1, 700)];
        for (n, (rows, seed)) in steps.into_iter().enumerate() {
            let said = step(&mut engine, seq, rows, seed).expect("a step");
            allocator_agrees(&mut engine);
            remember(&mut keys, rows, seed);
            if n + 1 == steps.len() {
                let held = |side: Side, rows: &[f32], page: usize| {
                    stored(side, rows, page, moved(page)[usize::from(side == Side::V)])
                };
                compare(&said, &keys, (rows, seed), 24, &held, on);
            }
        }
        let stats = engine.stats();
        for page in 0..2 {
            let [k, v] = moved(page);
            let pages = stats.pages[&(k.to_string(), v.to_string())];
            assert_eq!(pages, 12 * (LAYERS * KV_HEADS) as u64, "{on}: {stats:?}");
        }
    });
}

#[test]
fn bits_that_are_gone_do_not_come_back() {
    let backend = Box::new(CpuBackend::new(1).expect("a thread"));
    let mut engine = engine(backend, "tq2", "regretful", EngineOptions::default()).expect("an engine");
    let seq = engine.create().expect("a sequence");
    step(&mut engine, seq, 40, 1).expect("a step");
    step(&mut engine, seq, 1, 2).expect("pages are sealed");
    let used = engine.memory().used_slot_bytes;
    let error = step(&mut engine, seq, 1, 3).unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.message().contains("no further part"), "{error}");
    assert_eq!((engine.memory().used_slot_bytes, engine.lengths(seq).unwrap().logical), (used, 41));
}

#[test]
fn budgets_and_estimates_count_both_parts() {
    let backend = || Box::new(CpuBackend::new(1).expect("a thread"));
    for kv in ["tq3n", "tq3n/f16", "fp8/tq3n"] {
        let mut engine = engine(backend(), kv, "keep", EngineOptions::default()).expect("an engine");
        let estimator = Estimator::new(&shape(), &profile(kv, "keep"), &registry()).expect("an estimate");
        let seq = engine.create().expect("a sequence");
        for (n, rows) in [1, 31, 1, 200, 7].into_iter().enumerate() {
            step(&mut engine, seq, rows, n as u64 * 100).expect("a step");
            for _ in 0..2 {
                let empty = engine.begin_step(&[SeqRows { seq, rows: 0, committed: true }]).expect("room");
                empty.finish().expect("nothing to do");
            }
            let (stats, said) = (engine.stats(), estimator.at(engine.lengths(seq).unwrap().logical.into()));
            assert_eq!(stats.memory.used_slot_bytes, said.slot_bytes(), "{kv}");
            assert_eq!(stats.metadata_bits_per_value, said.metadata_bits_per_value(), "{kv}");
        }
        // Within a budget nothing is ever above it, and a refusal changes nothing.
        let (budget, mut refused) = (60_000, 0);
        let options = EngineOptions { kv_budget_bytes: Some(budget), ..EngineOptions::default() };
        let mut engine = self::engine(backend(), kv, "keep", options).expect("an engine");
        let seq = engine.create().expect("a sequence");
        for n in 0..60 {
            let (before, length) = (engine.memory().used_slot_bytes, engine.lengths(seq).unwrap().logical);
            assert!(before <= budget);
            if let Err(error) = step(&mut engine, seq, 9, n * 100) {
                assert_eq!(error.kind(), ErrorKind::OutOfPages, "{error}");
                refused += 1;
                assert_eq!(engine.lengths(seq).unwrap().logical, length);
                if refused % 3 == 0 {
                    engine.truncate(seq, length / 2).ok();
                }
            }
            allocator_agrees(&mut engine);
        }
        assert!(refused > 0, "{kv}");
    }
}

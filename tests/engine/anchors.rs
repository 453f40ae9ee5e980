//! `age-anchor` in an engine: what `plan` counts is what is allocated, moves are bounded and counted, marks and forks
//! are heeded, and a decode under the published settings never holds more than its pages.

use crate::hooked::{Hooked, Hooks};
use crate::model::{Rig, Rng, group, profile, shape};
use kvarto::backend::{Backend, BufferId, CpuBackend};
use kvarto::engine::{Engine, EngineOptions, Input, Output, Registry, SeqId, SeqRows};
use kvarto::footprint::{Estimator, NamedShape};
use kvarto::parameters::{Parameters, Value};
use kvarto::profile::{Override, Profile, Ranges};
use kvarto::shape::{CacheShape, GroupKind};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

fn named(name: &str) -> Profile {
    Profile::load(name, &Registry::builtin().names()).unwrap()
}

/// Two layers of two KV heads, pages of 16, `age-anchor` with small settings.
fn small(share: f64, recent: i64, exact: usize) -> (CacheShape, Profile) {
    let parameters = Parameters::default()
        .with("recent_tokens", Value::Integer(recent))
        .with("anchor_sink_tokens", Value::Integer(16))
        .with("young_share", Value::Number(share));
    let profile =
        Profile { policy: "age-anchor".into(), policy_parameters: parameters, ..profile("fp8", exact, exact) };
    (shape(vec![group(vec![0, 1], GroupKind::Full, 16, (2, 2), 32, 32)]), profile)
}

/// Runs empty steps until the policy has nothing left to do.
fn settle(rig: &mut Rig, sequences: &[SeqId]) {
    let rows: Vec<_> = sequences.iter().map(|&s| (s, 0, true)).collect();
    for _ in 0..200 {
        let before = rig.engine.stats().conversions;
        rig.step(&rows).unwrap();
        if rig.engine.stats().conversions == before {
            // Old slots are free one step later.
            return rig.step(&rows).unwrap();
        }
    }
    panic!("the policy never rests");
}

#[test]
fn what_plan_counts_is_allocated_at_every_length() {
    for (share, recent, exact) in [(0.3056, 1 << 20, 0), (0.3056, 100, 0), (1.0, 100, 16), (0.25, 0, 32)] {
        let (shape, mut profile) = small(share, recent, exact);
        profile.overrides = vec![Override {
            layers: Ranges::parse("-1").unwrap(),
            heads: Ranges::parse("0").unwrap(),
            k: Some("f16".into()),
            v: None,
        }];
        let estimator = Estimator::new(&shape, &profile, &Registry::builtin()).unwrap();
        let mut rig = Rig::new(shape, profile, EngineOptions::default(), 0.3, 9);
        let (a, mut rng) = (rig.create(), Rng(5));
        let mut length = 0;
        while length < 1200 {
            let n = 1 + rng.below(90) as u32;
            length += n;
            rig.step(&[(a, n, true)]).unwrap();
            settle(&mut rig, &[a]);
            let (stats, said) = (rig.engine.stats(), estimator.at(length.into()));
            let pages: Vec<_> = said.pages.iter().map(|(pair, count)| (pair.clone(), count.pages)).collect();
            assert_eq!(stats.pages.clone().into_iter().collect::<Vec<_>>(), pages, "{length} tokens, {share}");
            assert_eq!(stats.memory.used_slot_bytes, said.slot_bytes(), "{length} tokens, {share}");
            assert_eq!(stats.metadata_bits_per_value, said.metadata_bits_per_value(), "{length} tokens, {share}");
        }
        rig.check();
        // The overridden row kept its formats.
        assert!(rig.pages("f16", "fp8") > 0 && rig.pages("f16", "tq3") == 0);
    }
}

#[test]
fn moves_are_bounded_and_counted() {
    let (shape, profile) = small(0.3056, 0, 0);
    // Every move of a page of 16 tokens and 32 channels: both sides from fp8 (and its scale) to tq3.
    let page = 2 * (16 * 32 + 16) + 2 * (16 * 32 * 3 / 8 + 16 * 2);
    let options = EngineOptions { move_bytes: Some(3 * page), ..EngineOptions::default() };
    let mut rig = Rig::new(shape, profile, options, 0.3, 2);
    let a = rig.create();
    rig.step(&[(a, 160, true)]).unwrap();
    // Seals all ten pages of four rows; a step of one row then moves three pages.
    rig.step(&[(a, 1, true)]).unwrap();
    let before = rig.engine.stats();
    assert_eq!((before.conversions, before.policy_pages, before.put_off), (40, 0, 0));
    let mut moved = 0;
    for step in 1.. {
        rig.step(&[(a, 0, true)]).unwrap();
        let stats = rig.engine.stats();
        let due = 40 - 3 * 4 - moved;
        moved += due.min(3);
        assert_eq!((stats.policy_pages, stats.policy_bytes), (moved, moved * page), "step {step}");
        assert_eq!(stats.put_off, due - due.min(3), "step {step}");
        assert_eq!(stats.moved_bytes - before.moved_bytes, moved * page, "step {step}");
        assert_eq!(stats.conversions - before.conversions, moved);
        if stats.put_off == 0 {
            assert!(stats.policy_time > before.policy_time);
            break;
        }
    }
    assert_eq!((rig.pages("fp8", "fp8"), rig.pages("tq3", "tq3")), (12, 28));
    rig.step(&[(a, 1, true)]).unwrap();
    rig.check();
}

#[test]
fn marked_tokens_stay_as_sealed_and_marks_end_with_their_tokens() {
    let (shape, profile) = small(1.0, 0, 0);
    let mut rig = Rig::new(shape, profile, EngineOptions::default(), 0.3, 3);
    let a = rig.create();
    rig.engine.anchor(a, 20..40).unwrap();
    assert!(rig.engine.anchor(a, 5..5).is_err());
    rig.step(&[(a, 100, true)]).unwrap();
    settle(&mut rig, &[a]);
    // Six full pages: 0 and 4 by the stride, 1 and 2 by the mark.
    assert_eq!((rig.pages("fp8", "fp8"), rig.pages("tq3", "tq3")), (4 * 4, 2 * 4));
    rig.truncate(a, 0).unwrap();
    rig.step(&[(a, 100, true)]).unwrap();
    settle(&mut rig, &[a]);
    assert_eq!((rig.pages("fp8", "fp8"), rig.pages("tq3", "tq3")), (2 * 4, 4 * 4));
}

/// Every device allocation that lives, and the most bytes at once.
#[derive(Default)]
struct Counts {
    live: HashMap<BufferId, u64>,
    peak: u64,
}

impl Counts {
    fn bytes(&self) -> u64 {
        self.live.values().sum()
    }
}

#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<Counts>>);

impl Hooks for Ledger {
    fn alloc(&mut self, inner: &mut dyn Backend, label: &str, bytes: u64) -> kvarto::Result<BufferId> {
        let id = inner.alloc(label, bytes)?;
        let mut counts = self.0.lock().unwrap();
        counts.live.insert(id, bytes);
        counts.peak = counts.peak.max(counts.bytes());
        Ok(id)
    }

    fn free(&mut self, inner: &mut dyn Backend, buffer: BufferId) {
        self.0.lock().unwrap().live.remove(&buffer);
        inner.free(buffer);
    }
}

/// One step of random rows of every sequence, all layers.
fn feed(engine: &mut Engine, sequences: &[SeqId], rows: u32, rng: &mut Rng) {
    let asked: Vec<_> = sequences.iter().map(|&seq| SeqRows { seq, rows, committed: true }).collect();
    let group = engine.shape().groups[0].clone();
    let mut step = engine.begin_step(&asked).unwrap();
    let total = step.rows() as usize;
    for &layer in &group.layers {
        let (k, v) = (rng.row(total * group.kv_heads * group.k_dim), rng.row(total * group.kv_heads * group.v_dim));
        step.append(layer, Input::Host(&k), Input::Host(&v)).unwrap();
        let q = rng.row(total * group.q_heads * group.k_dim);
        let mut out = vec![f32::NAN; total * group.q_heads * group.v_dim];
        step.attend(layer, Input::Host(&q), Output::Host(&mut out)).unwrap();
        assert!(out.iter().all(|x| x.is_finite()));
    }
    step.finish().unwrap();
}

/// Two sequences decode up to 8,192 tokens each under the published settings. At every step the device holds no more
/// than the pages of `plan`, the chunk that waits to be moved, and scratch of a stated size: there is no second copy of
/// the cache in a wider format.
#[test]
fn a_decode_of_two_times_8192_tokens_holds_its_pages_and_bounded_scratch() {
    const TOKENS: u32 = 8192;
    const CHUNK: u32 = 256;
    const ROWS: u64 = 4;
    let shape = shape(vec![group(vec![0, 1], GroupKind::Full, 64, (2, 2), 64, 64)]);
    let (profile, registry) = (named("minima-kv-paper"), Registry::builtin());
    let estimator = Estimator::new(&shape, &profile, &registry).unwrap();
    let said = estimator.at(TOKENS.into());
    let ledger = Ledger::default();
    let backend = Hooked::new(CpuBackend::new(1).unwrap(), ledger.clone());
    let options = EngineOptions {
        context_tokens: 2 * TOKENS as usize,
        chunk_tokens: 2 * CHUNK as usize,
        ..EngineOptions::default()
    };
    let mut engine = Engine::with_options(Box::new(backend), shape.clone(), profile, registry, options).unwrap();
    let sequences = [engine.create().unwrap(), engine.create().unwrap()];
    let mut rng = Rng(1);
    let mut length = 0;
    while length < TOKENS - 192 {
        feed(&mut engine, &sequences, CHUNK.min(TOKENS - 192 - length), &mut rng);
        length += CHUNK.min(TOKENS - 192 - length);
    }
    let before = engine.stats();
    while length < TOKENS {
        feed(&mut engine, &sequences, 1, &mut rng);
        length += 1;
        let memory = engine.memory();
        let live = ledger.0.lock().unwrap().bytes();
        assert_eq!(live, memory.allocated(), "every device allocation is accounted for");
    }
    for _ in 0..3 {
        engine.begin_step(&sequences.map(|seq| SeqRows { seq, rows: 0, committed: true })).unwrap().finish().unwrap();
    }
    let stats = engine.stats();
    let memory = stats.memory;
    // The pages are those of `plan`, to the byte.
    assert_eq!(memory.used_slot_bytes, 2 * said.slot_bytes());
    let fp8 = stats.pages[&("fp8".to_string(), "fp8".to_string())];
    assert!(fp8 as f64 <= 0.3056 * 256.0 * ROWS as f64, "{fp8} of {:?}", stats.pages);
    // Beside what they end with: the first segment of open pages at 16 bits, two steps' rows; three chunks at 8 bits,
    // which are sealed, wait to be moved, or are not free yet; as many at 3 bits.
    let passing = u64::from(2 * CHUNK / 64 + 1) * ROWS * 3;
    let (wide, eight, three) = (64 * 64 * 2 * 2, 64 * 64 * 2 + 2 * 16, 2 * (64 * 64 * 3 / 8 + 64 * 2));
    let open = (2 * u64::from(2 * CHUNK) / 64 + 1) * ROWS;
    let pages = 2 * said.slot_bytes() + open * wide + passing * (eight + three) + ROWS * eight;
    // Descriptors and tables; queries, partial states and staged rows of a chunk, each grown by doubling.
    let scratch = 4 << 20;
    let peak = ledger.0.lock().unwrap().peak;
    let dense = u64::from(2 * TOKENS) * ROWS * 64 * 2 * 2;
    println!("peak {peak}, segments {}, pages {pages}, at 16 bits {dense}, {memory:?}", memory.segment_bytes);
    assert!(memory.segment_bytes <= pages, "{} bytes of segments, {pages} of pages", memory.segment_bytes);
    assert!(peak <= pages + scratch, "{peak} bytes at once, {pages} of pages and {scratch} of scratch");
    assert!(pages + scratch < dense, "a second copy at 16 bits, {dense} bytes, would not fit");
    // Each class of pages is read by its own kernel, and all conversions are seals and moves: no page on the way to a
    // row.
    let routes: Vec<_> = stats.routes.iter().map(|((k, v), r)| (k.as_str(), v.as_str(), r.decode > 0)).collect();
    assert_eq!(routes, [("f16", "f16", true), ("fp8", "fp8", true), ("tq3", "tq3", true)]);
    let sealed = stats.pages.values().sum::<u64>();
    assert_eq!(stats.conversions, sealed + stats.policy_pages);
    assert_eq!(stats.policy_pages, stats.pages[&("tq3".to_string(), "tq3".to_string())]);
    let passed = stats.conversions - before.conversions;
    assert!(passed <= ROWS * 2 * (2 * 192 / 64 + 2 * u64::from(CHUNK) / 64), "{passed} conversions in 192 steps");
    assert_eq!((stats.put_off, stats.deferred, stats.evicted), (0, 0, 0));
}

/// The pages behind `plan`'s figures are what an engine allocates for the same shape: two sequences of 1,024 tokens.
#[test]
fn the_published_shape_is_allocated_as_planned() {
    const TOKENS: u32 = 1024;
    let shape = NamedShape::parse("qwen3.6-27b", 64).unwrap().shape;
    for name in ["minima-kv-paper", "minima-kv"] {
        let profile = named(name);
        let said = Estimator::new(&shape, &profile, &Registry::builtin()).unwrap().at(TOKENS.into());
        let backend = Box::new(CpuBackend::new(2).unwrap());
        let mut engine = Engine::new(backend, shape.clone(), profile, Registry::builtin()).unwrap();
        let sequences = [engine.create().unwrap(), engine.create().unwrap()];
        let group = shape.groups[0].clone();
        let width = group.kv_heads * group.k_dim;
        let rows = Rng(3).row(2 * 128 * width);
        let asked = |rows| sequences.map(|seq| SeqRows { seq, rows, committed: true });
        for _ in 0..TOKENS / 128 {
            let mut step = engine.begin_step(&asked(128)).unwrap();
            for &layer in &group.layers {
                step.append(layer, Input::Host(&rows), Input::Host(&rows)).unwrap();
            }
            step.finish().unwrap();
        }
        for _ in 0..4 {
            engine.begin_step(&asked(0)).unwrap().finish().unwrap();
        }
        let stats = engine.stats();
        let pages: Vec<_> = said.pages.iter().map(|(pair, count)| (pair.clone(), 2 * count.pages)).collect();
        assert_eq!(stats.pages.into_iter().collect::<Vec<_>>(), pages, "{name}");
        assert_eq!(stats.memory.used_slot_bytes, 2 * said.slot_bytes(), "{name}");
        assert_eq!(stats.resident_bits_per_value, said.resident_bits_per_value(), "{name}");
    }
}

//! Pages that a policy evicts: no later row sees them, their bytes come back, and nobody else loses anything.

use crate::model::{Rig, group, profile, shape};
use kvarto::engine::{EngineOptions, Event, Registry, SeqId};
use kvarto::error::ErrorKind;
use kvarto::parameters::{Parameters, Value};
use kvarto::policy::{Move, PageView, Policy, Streaming};
use kvarto::profile::Profile;
use kvarto::shape::{CacheShape, GroupKind};
use std::sync::{Arc, Mutex};

const SIZE: usize = 16;

fn two_layers() -> CacheShape {
    shape(vec![group(vec![0, 1], GroupKind::Full, SIZE, (2, 2), 16, 8)])
}

/// Evicts, in every layer and head, the pages of a sequence that the test puts here.
#[derive(Clone, Default)]
struct Ordered(Arc<Mutex<Vec<(SeqId, usize)>>>);

impl Policy for Ordered {
    fn name(&self) -> &str {
        "ordered"
    }

    fn decide(&mut self, _: &[PageView]) -> Vec<Move> {
        let orders = std::mem::take(&mut *self.0.lock().unwrap());
        let rows = [(0, 0), (0, 1), (1, 0), (1, 1)];
        let all = orders.into_iter().flat_map(|order| rows.map(|row| (order, row)));
        all.map(|((sequence, page), (layer, kv_head))| Move::Evict { sequence, layer, kv_head, page, reason: "test" })
            .collect()
    }
}

/// A rig with 16 exact tokens at either end, whose orders the test gives.
fn rig(kv: &str) -> (Rig, Ordered) {
    let orders = Ordered::default();
    let policy = orders.clone();
    let registry = Registry::builtin().with_policy("ordered", move || policy.clone()).unwrap();
    let profile = Profile { policy: "ordered".into(), ..profile(kv, 16, 16) };
    let tolerance = if kv == "f16" { 2e-6 } else { 0.05 };
    let backend = kvarto::backend::CpuBackend::new(1).unwrap();
    (Rig::on(backend, two_layers(), profile, registry, EngineOptions::default(), tolerance, 8), orders)
}

/// Orders a page to go and tells the model of it.
fn evict(rig: &mut Rig, orders: &Ordered, seq: SeqId, page: usize) {
    orders.0.lock().unwrap().push((seq, page));
    rig.held.get_mut(&seq).unwrap().evicted.extend(page * SIZE..(page + 1) * SIZE);
}

#[test]
fn an_evicted_page_is_seen_by_no_later_row_and_its_bytes_are_free() {
    for kv in ["f16", "fp8", "f16/fp8"] {
        let (mut rig, orders) = rig(kv);
        let events = rig.engine.subscribe(1000);
        let a = rig.create();
        rig.step(&[(a, 100, true)]).unwrap();
        // Pages 1 to 4 are sealed with this step.
        rig.step(&[(a, 1, true)]).unwrap();
        let before = rig.engine.stats();
        evict(&mut rig, &orders, a, 1);
        evict(&mut rig, &orders, a, 3);
        // Rows of the same step do not see them either: every output is compared in f64.
        rig.step(&[(a, 3, true)]).unwrap();
        rig.check();
        let after = rig.engine.stats();
        assert_eq!((before.evicted, after.evicted), (0, 2 * 4), "{kv}");
        let each = before.memory.used_slot_bytes;
        assert!(after.memory.used_slot_bytes < each, "{kv}");
        // 24 values a token, in two layers and two heads.
        assert_eq!(after.cached_values, before.cached_values + 3 * 4 * 24 - 32 * 4 * 24, "{kv}");
        let gone = std::iter::from_fn(|| events.try_next()).filter(|e| matches!(e, Event::PageEvicted { .. })).count();
        assert_eq!(gone, 8, "{kv}");
        for n in [1, 40, 1, 1] {
            rig.step(&[(a, n, true)]).unwrap();
            rig.check();
        }
        // Evicted bits are not read: pages 1 and 3 of ten.
        let read = rig.engine.stats().read_bits_per_value.unwrap();
        assert!(read < 30.0, "{kv}: {read}");
        rig.release(a);
        rig.engine.begin_step(&[]).unwrap().finish().unwrap();
        assert_eq!(rig.engine.memory().used_slot_bytes, 0, "{kv}");
    }
}

#[test]
fn a_fork_keeps_what_its_origin_lets_go_of() {
    let (mut rig, orders) = rig("fp8");
    let a = rig.create();
    rig.step(&[(a, 100, true)]).unwrap();
    rig.step(&[(a, 1, true)]).unwrap();
    let b = rig.fork(a, None).unwrap();
    let used = rig.engine.memory().used_slot_bytes;
    evict(&mut rig, &orders, a, 2);
    // Only sequences in the step were shown, but both are served: A without page 2, B with it.
    rig.step(&[(a, 0, true)]).unwrap();
    assert_eq!(rig.engine.memory().used_slot_bytes, used);
    rig.step(&[(a, 1, true), (b, 1, true)]).unwrap();
    rig.check();
    // A fork of A lacks it too, and B's letting go frees it.
    let c = rig.fork(a, None).unwrap();
    rig.step(&[(c, 5, true)]).unwrap();
    let used = rig.engine.memory().used_slot_bytes;
    evict(&mut rig, &orders, b, 2);
    rig.step(&[(b, 0, true)]).unwrap();
    rig.step(&[(b, 0, true)]).unwrap();
    assert!(rig.engine.memory().used_slot_bytes < used);
    rig.step(&[(a, 2, true), (b, 2, true), (c, 1, true)]).unwrap();
    [a, b, c].into_iter().for_each(|s| rig.release(s));
    rig.engine.begin_step(&[]).unwrap().finish().unwrap();
    assert_eq!(rig.engine.memory().used_slot_bytes, 0);
}

#[test]
fn pinned_open_and_missing_pages_are_refused_and_nothing_changes() {
    let (mut rig, orders) = rig("fp8");
    let a = rig.create();
    rig.step(&[(a, 100, true)]).unwrap();
    rig.step(&[(a, 1, true)]).unwrap();
    rig.engine.pin(a, 40..41, "mine").unwrap();
    let before = rig.engine.stats();
    // Page 2 is pinned, 0 in the sink, 6 open; 9 never was, and with page 1 a good one comes before the bad.
    for pages in [&[2][..], &[0], &[6], &[9], &[1, 2]] {
        orders.0.lock().unwrap().extend(pages.iter().map(|&page| (a, page)));
        let error = rig.engine.begin_step(&[kvarto::engine::SeqRows { seq: a, rows: 1, committed: true }]).err();
        assert_eq!(error.map(|e| e.kind()), Some(ErrorKind::Shape), "{pages:?}");
        assert_eq!(rig.engine.stats().pages, before.pages, "{pages:?}");
    }
    // A dropped step takes an eviction back.
    orders.0.lock().unwrap().push((a, 1));
    drop(rig.engine.begin_step(&[kvarto::engine::SeqRows { seq: a, rows: 1, committed: true }]).unwrap());
    rig.step(&[(a, 2, true)]).unwrap();
    assert_eq!(rig.engine.stats().evicted, 0);
    // Twice the same is refused, since the second finds nothing.
    orders.0.lock().unwrap().extend([(a, 1), (a, 1)]);
    assert!(rig.engine.begin_step(&[kvarto::engine::SeqRows { seq: a, rows: 1, committed: true }]).is_err());
    rig.step(&[(a, 2, true)]).unwrap();
    rig.check();
}

#[test]
fn a_cut_into_an_evicted_page_is_refused_and_others_are_served() {
    let (mut rig, orders) = rig("fp8");
    let a = rig.create();
    rig.step(&[(a, 100, true)]).unwrap();
    rig.step(&[(a, 1, true)]).unwrap();
    evict(&mut rig, &orders, a, 2);
    rig.step(&[(a, 1, true)]).unwrap();
    for n in [33, 40, 47] {
        for error in [rig.engine.truncate(a, n).err(), rig.engine.fork_at(a, n).map(|_| ()).err()] {
            let error = error.unwrap_or_else(|| panic!("a cut to {n}"));
            assert_eq!(error.kind(), ErrorKind::Shape);
            assert!(error.message().contains("page 2 of layer 0, head 0 was evicted"), "{error}");
        }
    }
    rig.check();
    for n in [90, 50, 48] {
        rig.truncate(a, n).unwrap();
        rig.step(&[(a, 2, true)]).unwrap();
        rig.check();
    }
    // Page 2 begins anew, and rows see its new tokens.
    rig.truncate(a, 32).unwrap();
    rig.step(&[(a, 40, true)]).unwrap();
    rig.step(&[(a, 1, true)]).unwrap();
    rig.check();
    rig.truncate(a, 40).unwrap();
    rig.step(&[(a, 1, true)]).unwrap();
}

#[test]
fn streaming_keeps_sink_and_recent_tokens_and_stays_flat() {
    let parameters =
        Parameters::default().with("recent_tokens", Value::Integer(64)).with("sink_tokens", Value::Integer(16));
    let profile = Profile { policy: "streaming".into(), policy_parameters: parameters, ..profile("f16", 16, 16) };
    let estimator = kvarto::footprint::Estimator::new(&two_layers(), &profile, &Registry::builtin()).unwrap();
    let mut rig = Rig::new(two_layers(), profile, EngineOptions::default(), 2e-6, 4);
    let a = rig.create();
    let mut sealed = 0;
    for turn in 0..120 {
        let n = if turn % 30 == 7 { 50 } else { 2 };
        // The rule in words: what was sealed before this step, behind the first 16 tokens and 64 or more old.
        let held = rig.held.get_mut(&a).unwrap();
        let gone = (1..sealed).filter(|page| (page + 1) * SIZE + 64 <= held.committed);
        held.evicted.extend(gone.flat_map(|page| page * SIZE..(page + 1) * SIZE));
        sealed = sealed.max(held.committed.saturating_sub(16) / SIZE);
        rig.step(&[(a, n, true)]).unwrap();
        rig.check();
    }
    rig.step(&[(a, 0, true)]).unwrap();
    rig.step(&[(a, 0, true)]).unwrap();
    let (stats, length) = (rig.engine.stats(), rig.held[&a].tokens.len());
    let said = estimator.at(length as u64);
    assert!(length > 400 && stats.pages.values().sum::<u64>() <= (1 + 4 + 2) * 4, "{:?}", stats.pages);
    assert_eq!(stats.memory.used_slot_bytes, said.slot_bytes());
    assert_eq!(stats.cached_values, said.values);
    assert_eq!(stats.metadata_bits_per_value, said.metadata_bits_per_value());
    // Between two whole pages of tokens nothing grows.
    assert_eq!(estimator.at(1 << 20).total_bytes(), estimator.at(1 << 12).total_bytes());
}

/// `streaming`, and how often it was asked; lazy ones rest as it says, others are asked at every step.
struct Counted(Streaming, Arc<Mutex<u32>>, bool);

impl Policy for Counted {
    fn name(&self) -> &str {
        "counted"
    }

    fn rests(&self) -> Option<u32> {
        self.0.rests().filter(|_| self.2)
    }

    fn decide(&mut self, pages: &[PageView]) -> Vec<Move> {
        *self.1.lock().unwrap() += 1;
        self.0.decide(pages)
    }
}

#[test]
fn a_policy_that_rests_is_asked_in_time_and_seldom() {
    let asked = [Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0))];
    let mut rigs = [false, true].map(|lazy| {
        let count = asked[usize::from(lazy)].clone();
        let make = move || Counted(Streaming::new(16, 70), count.clone(), lazy);
        let registry = Registry::builtin().with_policy("counted", make).unwrap();
        let profile = Profile { policy: "counted".into(), ..profile("fp8", 16, 16) };
        let backend = kvarto::backend::CpuBackend::new(1).unwrap();
        // Outputs are compared elsewhere: the model does not know what goes.
        Rig::on(backend, two_layers(), profile, registry, EngineOptions::default(), f64::INFINITY, 6)
    });
    let seqs = rigs.each_mut().map(|rig| [rig.create(), rig.create()]);
    for turn in 0..300u32 {
        for (rig, [a, b]) in rigs.iter_mut().zip(seqs) {
            let rows = [(a, 1 + turn % 90 / 89 * 40, true), (b, u32::from(turn > 20), true)];
            // Sequences come and go, tokens are taken back, steps are dropped.
            rig.step(if turn % 50 == 3 { &rows[..1] } else { &rows }).unwrap();
            if turn % 70 == 69 {
                let half = rig.engine.lengths(a).unwrap().logical / 16 * 16 - 16;
                rig.truncate(a, half).unwrap();
                let asked = rows.map(|(seq, rows, committed)| kvarto::engine::SeqRows { seq, rows, committed });
                drop(rig.engine.begin_step(&asked).unwrap());
            }
        }
        let [plain, lazy] = rigs.each_mut().map(|rig| rig.engine.stats());
        assert_eq!((plain.pages, plain.evicted), (lazy.pages, lazy.evicted), "turn {turn}");
    }
    let [plain, lazy] = asked.map(|count| *count.lock().unwrap());
    assert!(plain >= 300 && lazy * 2 < plain, "{lazy} of {plain}");
}

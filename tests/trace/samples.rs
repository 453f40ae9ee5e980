//! What is sampled: attention by page, and what pages hold.

use super::rig::{DIM, KV_HEADS, LAYERS, PAGE, Q_HEADS, Rng, Rows, engine_on, moving, rows, step_of};
use super::support;
use kvarto::backend::{Backend, CpuBackend};
use kvarto::engine::{Engine, Event, MassFacts, PageSampling, Registry};
use kvarto::policy::{Move, PageView, Policy};
use kvarto::profile::Profile;
use kvarto::shape::CacheShape;
use std::sync::{Arc, Mutex};

/// Attention by page of the queries of the newest step in f64, mean over its rows, `[layer][KV head][page]`.
fn exact(history: &[Rows]) -> Vec<Vec<Vec<f64>>> {
    let last = history.last().expect("a step");
    let count = last[0][0].len() / (KV_HEADS * DIM);
    let all_tokens: Vec<(usize, usize, &Rows)> = history
        .iter()
        .flat_map(|rows| (0..rows[0][0].len() / (KV_HEADS * DIM)).map(move |t| (0, t, rows)))
        .enumerate()
        .map(|(at, (_, t, rows))| (at, t, rows))
        .collect();
    let end = all_tokens.len();
    let mut mass = vec![vec![vec![0.0; end.div_ceil(PAGE)]; KV_HEADS]; LAYERS];
    for (layer, head, row) in
        (0..LAYERS * Q_HEADS * count).map(|n| (n % LAYERS, n / LAYERS % Q_HEADS, n / LAYERS / Q_HEADS))
    {
        let kv_head = head / (Q_HEADS / KV_HEADS);
        let q = &last[layer][2][(row * Q_HEADS + head) * DIM..][..DIM];
        let tokens = &all_tokens[..end - count + row + 1];
        let logit = |(_, t, rows): &(usize, usize, &Rows)| {
            let k = &rows[layer][0][(t * KV_HEADS + kv_head) * DIM..][..DIM];
            k.iter().zip(q).map(|(&k, &q)| f64::from(k) * f64::from(q)).sum::<f64>() / (DIM as f64).sqrt()
        };
        let logits: Vec<f64> = tokens.iter().map(logit).collect();
        let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let all: f64 = logits.iter().map(|l| (l - most).exp()).sum();
        for (at, logit) in logits.iter().enumerate() {
            let share = (logit - most).exp() / all / ((Q_HEADS / KV_HEADS) * count) as f64;
            mass[layer][kv_head][at / PAGE] += share;
        }
    }
    mass
}

/// Pages in `kv` between an exact one at either end: of f16 only rounding lies between what is told and `exact`.
fn masses(backend: Box<dyn Backend>, on: &str, kv: &str, tolerance: f64) {
    let profile = Profile { exact_sink_tokens: PAGE, exact_tail_tokens: PAGE, ..Profile::formats(kv, kv) };
    let mut engine = engine_on(backend, profile);
    engine.sample_mass(3);
    let events = engine.subscribe(1 << 16);
    let (mut rng, seq) = (Rng(9), engine.create().expect("a sequence"));
    let mut history = vec![rows(&mut rng, 77)];
    step_of(&mut engine, seq, &history[0]).expect("room");
    let mut sampled = 0;
    for n in 1..=7 {
        history.push(rows(&mut rng, if n == 6 { 5 } else { 1 }));
        step_of(&mut engine, seq, &history[n]).expect("room");
        let told: Vec<MassFacts> = std::iter::from_fn(|| events.try_next())
            .filter_map(|event| if let Event::AttentionMass(mass) = event { Some(mass) } else { None })
            .collect();
        if n % 3 != 0 {
            assert!(told.is_empty(), "{on}: step {n}");
            continue;
        }
        sampled += 1;
        let want = exact(&history);
        assert_eq!(told.len(), LAYERS, "{on}");
        for facts in told {
            assert_eq!((facts.sequence, facts.first_page), (seq, 0));
            for (shares, want) in facts.shares.iter().zip(&want[facts.layer as usize]) {
                assert_eq!(shares.len(), want.len(), "{on}");
                for (&share, want) in shares.iter().zip(want) {
                    assert!((f64::from(share) - want).abs() <= tolerance, "{on}: {share} and {want}");
                }
                assert!((shares.iter().sum::<f32>() - 1.0).abs() <= 1e-4, "{on}: {shares:?}");
            }
        }
    }
    assert_eq!(sampled, 2);
}

#[test]
fn attention_by_page_is_that_of_an_exact_softmax() {
    for (kv, tolerance) in [("f16", 2e-3), ("fp8", 0.04)] {
        masses(Box::new(CpuBackend::new(1).expect("threads")), "cpu", kv, tolerance);
        #[cfg(feature = "wgpu")]
        support::gpu::on_each_new(&Default::default(), |backend| masses(Box::new(backend), "wgpu", kv, tolerance));
    }
}

#[test]
fn pages_tell_what_they_hold_and_how_far_it_is_from_the_exact_rows() {
    for (kv, least, most) in [("f16", 0.0, 0.0), ("fp8", 0.005, 0.06), ("tq3", 0.05, 0.5)] {
        for (which, share) in [(PageSampling::Every(1), 1), (PageSampling::Every(3), 3), (PageSampling::None, 0)] {
            let profile = Profile { exact_sink_tokens: 0, exact_tail_tokens: 0, ..Profile::formats(kv, kv) };
            let mut engine = engine_on(Box::new(CpuBackend::new(1).expect("threads")), profile);
            engine.sample_pages(which);
            let events = engine.subscribe(1 << 16);
            let (mut rng, seq) = (Rng(4), engine.create().expect("a sequence"));
            step_of(&mut engine, seq, &rows(&mut rng, 6 * PAGE)).expect("room");
            step_of(&mut engine, seq, &rows(&mut rng, 1)).expect("room");
            let (mut data, mut errors) = (0, 0);
            while let Some(event) = events.try_next() {
                match event {
                    Event::PageData { page, sides } => {
                        data += 1;
                        assert_eq!(sides.iter().map(|side| side.len() as u64).sum::<u64>(), page.bytes);
                        assert!(sides.iter().all(|side| side.iter().any(|byte| *byte != 0)));
                    }
                    Event::PageError { relative_rms, largest, .. } => {
                        errors += 1;
                        for error in relative_rms {
                            assert!(error >= least && error <= most, "{kv}: {error}");
                        }
                        assert!(largest.iter().all(|l| (*l > 0.0) == (most > 0.0) && *l < 4.0), "{kv}: {largest:?}");
                    }
                    _ => {}
                }
            }
            let pages = 6 * LAYERS * KV_HEADS;
            let want = pages.checked_div(share).unwrap_or(0);
            assert_eq!((data, errors), (want, want), "{kv}, {which:?}");
        }
    }
}

#[test]
fn pages_that_were_converted_twice_have_data_and_no_exact_rows() {
    let mut engine = engine_on(Box::new(CpuBackend::new(1).expect("threads")), moving());
    engine.sample_pages(PageSampling::Every(1));
    let events = engine.subscribe(1 << 16);
    let (mut rng, seq) = (Rng(4), engine.create().expect("a sequence"));
    for _ in 0..12 {
        step_of(&mut engine, seq, &rows(&mut rng, PAGE)).expect("room");
    }
    let heard: Vec<Event> = std::iter::from_fn(|| events.try_next()).collect();
    let count = |wanted: fn(&Event) -> bool| heard.iter().filter(|e| wanted(e)).count();
    let sealed = count(|e| matches!(e, Event::PageConverted { reason, .. } if reason == "sealed"));
    let all = count(|e| matches!(e, Event::PageConverted { .. }));
    assert!(all > sealed && sealed > 0);
    assert_eq!(count(|e| matches!(e, Event::PageData { .. })), all);
    assert_eq!(count(|e| matches!(e, Event::PageError { .. })), sealed);
}

/// A policy that only remembers what it is told.
struct Listening(Arc<Mutex<Vec<MassFacts>>>);

impl Policy for Listening {
    fn name(&self) -> &str {
        "listening"
    }

    fn sampled(&mut self, mass: &MassFacts) {
        self.0.lock().expect("not poisoned").push(mass.clone());
    }

    fn decide(&mut self, _: &[PageView]) -> Vec<Move> {
        Vec::new()
    }
}

#[test]
fn a_policy_is_told_the_same_and_nobody_need_listen() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let registry = Registry::builtin().with_policy("listening", move || Listening(tell.clone())).expect("a new name");
    let profile = Profile { policy: "listening".into(), ..Profile::formats("f16", "f16") };
    let shape = CacheShape::uniform(LAYERS, Q_HEADS, KV_HEADS, DIM, PAGE);
    let backend = Box::new(CpuBackend::new(1).expect("threads"));
    let mut engine = Engine::new(backend, shape, profile, registry).expect("an engine");
    engine.sample_mass(2);
    let (mut rng, seq) = (Rng(9), engine.create().expect("a sequence"));
    for count in [50, 1, 1, 1, 1] {
        step_of(&mut engine, seq, &rows(&mut rng, count)).expect("room");
    }
    let told = told.lock().expect("not poisoned");
    assert_eq!(told.iter().map(|mass| (mass.step, mass.layer)).collect::<Vec<_>>(), [(3, 0), (3, 1), (5, 0), (5, 1)]);
    assert!(told.iter().flat_map(|mass| &mass.shares).all(|shares| (shares.iter().sum::<f32>() - 1.0).abs() < 1e-4));
}

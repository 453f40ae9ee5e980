//! Steps of as many rows as the cache stays steady for: the same pages and the same attention as row by row.

use crate::model::{Rng, group, profile, shape};
use kvarto::backend::CpuBackend;
use kvarto::engine::{Engine, EngineOptions, Input, Output, Registry, SeqId, SeqRows};
use kvarto::parameters::{Parameters, Value};
use kvarto::policy::{Move, PageView, Policy};
use kvarto::profile::Profile;
use kvarto::select::{Question, Selector};
use kvarto::shape::{CacheShape, GroupKind};
use std::sync::Arc;

const HEADS: (usize, usize) = (4, 2);
const DIM: usize = 32;

fn one_shape(kind: GroupKind) -> CacheShape {
    shape(vec![group(vec![0], GroupKind::Full, 16, HEADS, DIM, DIM), group(vec![1], kind, 16, HEADS, DIM, DIM)])
}

fn engine(shape: &CacheShape, profile: &Profile, registry: &Registry, move_bytes: Option<u64>) -> Engine {
    let options = EngineOptions { move_bytes, chunk_tokens: 128, ..EngineOptions::default() };
    let backend = Box::new(CpuBackend::new(1).unwrap());
    Engine::with_options(backend, shape.clone(), profile.clone(), registry.clone(), options).unwrap()
}

/// What a run saw: outputs by row, the rows of each step, and the pages at the end.
struct Seen {
    outputs: Vec<Vec<f32>>,
    steps: Vec<usize>,
    pages: std::collections::BTreeMap<(String, String), u64>,
    evicted: u64,
}

/// Feeds two sequences 70 rows at once, then `tokens` more in steps that `rows` chooses.
fn run(engine: &mut Engine, tokens: usize, mut rows: impl FnMut(&Engine, &[SeqId]) -> u32) -> Seen {
    let seqs = [engine.create().unwrap(), engine.create().unwrap()];
    let mut rngs = [Rng(3), Rng(11)];
    let (mut outputs, mut steps, mut done) = (Vec::new(), Vec::new(), 0);
    let kv = HEADS.1 * DIM;
    // The same numbers for a token however rows are cut: each token draws its own, all layers' together.
    let mut draw = |rows: usize| {
        let mut layers = vec![[Vec::new(), Vec::new(), Vec::new()]; 2];
        for rng in &mut rngs {
            for _ in 0..rows {
                for [k, v, q] in &mut layers {
                    k.extend(rng.row(kv));
                    v.extend(rng.row(kv));
                    q.extend(rng.row(HEADS.0 * DIM));
                }
            }
        }
        layers
    };
    let mut feed = |engine: &mut Engine, n: usize| {
        let said: Vec<SeqRows> = seqs.iter().map(|&seq| SeqRows { seq, rows: n as u32, committed: true }).collect();
        let layers = draw(n);
        let mut step = engine.begin_step(&said).unwrap();
        let width = HEADS.0 * DIM;
        let mut rows = vec![Vec::new(); 2 * n];
        for (layer, [k, v, q]) in layers.iter().enumerate() {
            let mut out = vec![f32::NAN; 2 * n * width];
            step.append(layer, Input::Host(k), Input::Host(v)).unwrap();
            step.attend(layer, Input::Host(q), Output::Host(&mut out)).unwrap();
            rows.iter_mut().zip(out.chunks(width)).for_each(|(row, out)| row.extend_from_slice(out));
        }
        step.finish().unwrap();
        rows
    };
    feed(engine, 70);
    let mut by_seq = [Vec::new(), Vec::new()];
    while done < tokens {
        let n = (rows(engine, &seqs) as usize).min(tokens - done);
        assert!(n > 0);
        let rows = feed(engine, n);
        by_seq[0].extend_from_slice(&rows[..n]);
        by_seq[1].extend_from_slice(&rows[n..]);
        steps.push(n);
        done += n;
    }
    by_seq.into_iter().for_each(|rows| outputs.extend(rows));
    let stats = engine.stats();
    Seen { outputs, steps, pages: stats.pages, evicted: stats.evicted }
}

fn same(what: &str, a: &Seen, b: &Seen) {
    assert_eq!((&a.pages, a.evicted), (&b.pages, b.evicted), "{what}");
    assert_eq!(a.outputs.len(), b.outputs.len());
    for (row, (a, b)) in a.outputs.iter().zip(&b.outputs).enumerate() {
        for (x, y) in a.iter().zip(b) {
            let off = (x - y).abs();
            // Another cut sums in another order, in f32.
            assert!(off <= 2e-6, "{what}: row {row}: {x} for {y}");
        }
    }
}

fn aged(exact: usize, recent: i64, share: f64) -> Profile {
    let parameters = Parameters::default()
        .with("recent_tokens", Value::Integer(recent))
        .with("anchor_sink_tokens", Value::Integer(16))
        .with("young_share", Value::Number(share));
    Profile { policy: "age-anchor".into(), policy_parameters: parameters, ..profile("fp8", exact, exact) }
}

fn streaming(exact: usize, recent: i64) -> Profile {
    let parameters =
        Parameters::default().with("sink_tokens", Value::Integer(16)).with("recent_tokens", Value::Integer(recent));
    Profile { policy: "streaming".into(), policy_parameters: parameters, ..profile("fp8", exact, exact) }
}

#[test]
fn steady_steps_see_what_single_rows_see() {
    let mut cases = vec![
        ("f16", profile("f16", 16, 32)),
        ("tq3", profile("tq3", 16, 32)),
        ("tq3 with odd tails", profile("tq3", 5, 37)),
        ("everything sealed", profile("tq3", 0, 0)),
        ("ages", aged(32, 70, 0.5)),
        ("ages without a tail", aged(0, 33, 0.4)),
        ("streams", streaming(32, 50)),
        ("streams all", streaming(0, 1)),
    ];
    let mean = Profile { k_basis: Some("mean".into()), v_basis: Some("mean".into()), ..profile("tq4", 16, 32) };
    cases.push(("means", mean));
    let registry = Registry::builtin();
    for kind in [GroupKind::Full, GroupKind::Window(40)] {
        let shape = one_shape(kind);
        for (what, profile) in &cases {
            let unbounded = Some(u64::MAX);
            let single = run(&mut engine(&shape, profile, &registry, unbounded), 200, |_, _| 1);
            let long = run(&mut engine(&shape, profile, &registry, unbounded), 200, |e, s| e.steady_rows(s).unwrap());
            same(&format!("{what}, {kind:?}"), &single, &long);
            assert!(long.steps.len() * 2 <= single.steps.len(), "{what}, {kind:?}: steps of {:?}", long.steps);
        }
    }
}

#[test]
fn longer_steps_than_steady_ones_see_something_else() {
    let shape = one_shape(GroupKind::Full);
    let registry = Registry::builtin();
    for profile in [profile("tq3", 16, 32), aged(0, 33, 0.4), streaming(0, 33)] {
        let single = run(&mut engine(&shape, &profile, &registry, Some(u64::MAX)), 200, |_, _| 1);
        let long =
            run(&mut engine(&shape, &profile, &registry, Some(u64::MAX)), 200, |e, s| e.steady_rows(s).unwrap() + 1);
        let off = single.outputs.iter().flatten().zip(long.outputs.iter().flatten());
        let worst = off.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst > 1e-3, "{profile:?}: one row too many a step changes {worst}: this test sees nothing");
    }
}

/// Chooses by position.
struct Odd;

impl Selector for Odd {
    fn name(&self) -> &str {
        "odd"
    }

    fn summary(&self) -> &str {
        "pages of odd numbers"
    }

    fn reads(&self, _: &Question, page: usize) -> bool {
        page % 2 == 1
    }
}

/// Does not say how long it rests.
struct Restless;

impl Policy for Restless {
    fn name(&self) -> &str {
        "restless"
    }

    fn decide(&mut self, _: &[PageView]) -> Vec<Move> {
        Vec::new()
    }
}

#[test]
fn where_nothing_can_be_said_one_row_is() {
    let shape = one_shape(GroupKind::Full);
    let registry =
        Registry::builtin().with_selector(Arc::new(Odd)).unwrap().with_policy("restless", || Restless).unwrap();
    for profile in [
        Profile { selector: "odd".into(), ..profile("tq3", 16, 32) },
        Profile { policy: "restless".into(), ..profile("tq3", 16, 32) },
    ] {
        let seen = run(&mut engine(&shape, &profile, &registry, None), 40, |e, s| e.steady_rows(s).unwrap());
        assert_eq!(seen.steps, vec![1; 40]);
    }
    let mut engine = engine(&shape, &profile("tq3", 16, 32), &registry, None);
    let seq = engine.create().unwrap();
    assert!(engine.steady_rows(&[seq]).unwrap() > 1);
    let fork = engine.fork(seq).unwrap();
    assert!(engine.steady_rows(&[fork]).unwrap() > 1, "no page is shared yet");
    engine.release(seq).unwrap();
    assert!(engine.steady_rows(&[seq]).is_err());
}

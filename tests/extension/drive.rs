//! Steps of an engine beside dense attention in f64 over what its pages hold.

use crate::lin8::Lin8;
use crate::tapped::Log;
use half::f16;
use kvarto::backend::{Backend, CpuBackend};
use kvarto::conformance::reference::{Query, Token, attend};
use kvarto::engine::{Engine, EngineOptions, Event, Input, Output, Registry, SeqId, SeqRows, Step};
use kvarto::format::Format as _;
use kvarto::needs::{TapKind, TapOffer};
use kvarto::profile::Profile;
use kvarto::shape::{CacheShape, PageGeometry, Side};
use std::collections::BTreeMap;

const LAYERS: usize = 2;
const Q_HEADS: usize = 4;
const KV_HEADS: usize = 2;
const DIM: usize = 64;
const P: usize = 32;
/// Rows of the steps: 6 full pages of 32 and a part of the seventh at the end.
const STEPS: [usize; 6] = [64, 64, 70, 1, 1, 1];

/// Tokens committed when the step before the one that begins with `committed` tokens began.
pub fn before(committed: usize) -> usize {
    let mut at = 0;
    for rows in STEPS {
        if at + rows == committed {
            return at;
        }
        at += rows;
    }
    0
}

/// What a page holds.
#[derive(Clone, Copy, PartialEq)]
pub enum Page {
    F16,
    Lin8,
}

/// A profile, and what is expected of it.
pub struct Plan<'a> {
    pub registry: Registry,
    pub profile: Profile,
    /// Format of a page in a step that begins with so many tokens committed.
    pub format: &'a dyn Fn(usize, usize) -> Page,
    /// Whether a page is read by a row on the page `own`, in decoding steps.
    pub reads: &'a dyn Fn(usize, usize) -> bool,
}

/// What came of it.
pub struct Run {
    pub engine: Engine,
    pub seq: SeqId,
    /// Of the last step.
    pub read_bytes: u64,
    /// Conversions by reason.
    pub reasons: BTreeMap<String, usize>,
}

/// Runs `test` on the CPU and on Vulkan, or says why not there.
pub fn on_backends(test: impl Fn(Box<dyn Backend>, &str)) {
    test(Box::new(CpuBackend::new(2).expect("threads")), "cpu");
    #[cfg(feature = "wgpu")]
    match crate::support::gpu::open("vulkan", &Default::default()) {
        Ok(backend) => test(Box::new(backend), "vulkan"),
        Err(error) => crate::support::require_or_skip("vulkan", &error.to_string()),
    }
}

/// Deterministic numbers of about unit size, exact in f16.
fn draw(seed: u64, count: usize) -> Vec<f32> {
    let number = |i: usize| {
        let mut z =
            seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add((i as u64).wrapping_mul(0xd134_2543_de82_ef95));
        z = (z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z ^= z >> 32;
        f16::from_f32((z & 0xffff) as f32 / 16384.0 - 2.0).to_f32()
    };
    (0..count).map(number).collect()
}

/// Rows of one head as pages of `lin8` give them back.
fn through_lin8(side: Side, rows: &[f32]) -> Vec<f32> {
    let codec = Lin8.codec(side, PageGeometry { tokens: P, head_dim: DIM }).expect("lin8 of 64");
    let mut out = Vec::new();
    for values in rows.chunks(P * DIM) {
        let mut page = vec![0; codec.layout().page_words];
        let mut whole = values.to_vec();
        whole.resize(P * DIM, 0.0);
        codec.encode(&whole, &mut page);
        codec.decode(&page, 0..P, &mut whole);
        out.extend_from_slice(&whole[..values.len()]);
    }
    out
}

/// Rows of one head: exact, and through `lin8`.
struct Head([Vec<f32>; 2]);

/// Values of a row of the residual stream.
const HIDDEN: usize = 24;

/// The residual stream after layer 1, over all steps.
fn residual(tokens: usize) -> Vec<f32> {
    draw(77, tokens * HIDDEN)
}

/// Runs all steps and compares every output.
pub fn check(backend: Box<dyn Backend>, plan: &Plan<'_>, on: &str) -> Run {
    let tokens: usize = STEPS.iter().sum();
    let shape = CacheShape::uniform(LAYERS, Q_HEADS, KV_HEADS, DIM, P);
    let taps = vec![TapOffer { kind: TapKind::Residual, layers: vec![0, 1], width: HIDDEN }];
    let options = EngineOptions { taps, ..EngineOptions::default() };
    let (profile, registry) = (plan.profile.clone(), plan.registry.clone());
    let mut engine = Engine::with_options(backend, shape, profile, registry, options).expect("an engine");
    engine.warm_up(&[1], true).expect("kernels compile");
    engine.backend().forbid_new_pipelines(true);
    let events = engine.subscribe(4096);
    let seq = engine.create().expect("a sequence");
    let inputs: Vec<[Vec<f32>; 3]> = (0..LAYERS as u64)
        .map(|l| {
            let kv = tokens * KV_HEADS * DIM;
            [draw(3 * l + 1, tokens * Q_HEADS * DIM), draw(3 * l + 2, kv), draw(3 * l + 3, kv)]
        })
        .collect();
    let heads: Vec<Vec<[Head; 2]>> = inputs
        .iter()
        .map(|[_, k, v]| {
            (0..KV_HEADS)
                .map(|h| {
                    let of = |x: &[f32], side| {
                        let rows: Vec<f32> =
                            x.chunks(KV_HEADS * DIM).flat_map(|r| r[h * DIM..(h + 1) * DIM].to_vec()).collect();
                        let coded = through_lin8(side, &rows);
                        Head([rows, coded])
                    };
                    [of(k, Side::K), of(v, Side::V)]
                })
                .collect()
        })
        .collect();
    let (mut at, mut read_bytes) = (0, 0);
    for rows in STEPS {
        let mut step = engine.begin_step(&[SeqRows { seq, rows: rows as u32, committed: true }]).expect("room");
        for (layer, [q, k, v]) in inputs.iter().enumerate() {
            let of = |x: &'_ [f32], width: usize| x[at * width..(at + rows) * width].to_vec();
            let (q, kv) = (of(q, Q_HEADS * DIM), KV_HEADS * DIM);
            step.append(layer, Input::Host(&of(k, kv)), Input::Host(&of(v, kv))).expect("append");
            let mut out = vec![f32::NAN; rows * Q_HEADS * DIM];
            step.attend(layer, Input::Host(&q), Output::Host(&mut out)).expect("attend");
            // Prefill rows share tiles, whose pages are chosen together: only single rows are compared there by choice.
            for row in 0..rows {
                let own = (at + row) / P;
                if rows > 1 && (0..=own).any(|p| !(plan.reads)(p, own)) {
                    continue;
                }
                for head in 0..Q_HEADS {
                    let expected = exact(plan, &heads[layer][head / 2], &q[(row * Q_HEADS + head) * DIM..], at, row);
                    let got = &out[(row * Q_HEADS + head) * DIM..][..DIM];
                    let length = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
                    let off = length(&mut got.iter().zip(&expected).map(|(&g, e)| f64::from(g) - e))
                        / length(&mut expected.iter().copied());
                    assert!(off <= 2e-3, "{on}: layer {layer}, token {}, head {head} is off by {off}", at + row);
                }
            }
        }
        let stream = &residual(tokens)[at * HIDDEN..(at + rows) * HIDDEN];
        step.tap(1, TapKind::Residual, Input::Host(stream)).expect("an offered tap");
        read_bytes = step.finish().expect("finish").read_bytes;
        at += rows;
    }
    // Whoever reads what the last step left reads it now.
    engine.begin_step(&[SeqRows { seq, rows: 0, committed: true }]).and_then(Step::finish).expect("nothing to do");
    if [&plan.profile.selector, &plan.profile.policy].iter().any(|name| name.starts_with("every")) {
        peaks(&mut engine, seq, &inputs, on);
    }
    let mut reasons = BTreeMap::new();
    while let Some(event) = events.try_next() {
        if let Event::PageConverted { reason, .. } = event {
            *reasons.entry(reason.into_owned()).or_default() += 1;
        }
    }
    assert_eq!(events.dropped(), 0);
    engine.backend().forbid_new_pipelines(false);
    Run { engine, seq, read_bytes, reasons }
}

/// The side plane of every page holds the largest value of V in it.
fn peaks(engine: &mut Engine, seq: SeqId, inputs: &[[Vec<f32>; 3]], on: &str) {
    for (layer, [_, _, v]) in inputs.iter().enumerate() {
        for head in 0..KV_HEADS {
            let records = engine.plane_records(seq, layer, head, "peak").expect("the plane was declared");
            let of_head: Vec<&[f32]> = v.chunks(KV_HEADS * DIM).map(|r| &r[head * DIM..(head + 1) * DIM]).collect();
            let want: Vec<Vec<u32>> = of_head
                .chunks(P)
                .map(|page| vec![page.iter().copied().flatten().fold(0.0f32, |peak, x| peak.max(x.abs())).to_bits()])
                .collect();
            assert_eq!(records, want, "{on}: layer {layer}, head {head}");
        }
    }
}

/// What was handed over is what the steps had: queries of every layer in every step (for a selector), or the residual
/// stream after layer 1 in every second one (for a policy).
pub fn check_taps(log: &Log, queries: bool, on: &str) {
    let tokens: usize = STEPS.iter().sum();
    let mut log = log.lock().expect("not poisoned");
    let mut seen = log.drain(..);
    let mut at = 0;
    for (step, rows) in STEPS.into_iter().enumerate() {
        let layers = if queries { 0..LAYERS } else { 1..2 };
        for layer in layers.filter(|_| queries || step % 2 == 0) {
            let seen = seen.next().expect("as many as there should be");
            let (kind, width, all) = match queries {
                true => (TapKind::Queries, Q_HEADS * DIM, draw(3 * layer as u64 + 1, tokens * Q_HEADS * DIM)),
                false => (TapKind::Residual, HIDDEN, residual(tokens)),
            };
            assert_eq!((seen.kind, seen.layer, seen.step, seen.width), (kind, layer, step as u64, width), "{on}");
            assert_eq!(seen.positions, (at as u32..(at + rows) as u32).collect::<Vec<_>>(), "{on}");
            assert_eq!(
                seen.values,
                all[at * width..(at + rows) * width],
                "{on}: {kind:?} of layer {layer}, step {step}"
            );
            assert_eq!(seen.host.as_ref(), Some(&seen.values), "{on}");
        }
        at += rows;
    }
    assert!(seen.next().is_none(), "{on}: handed over once too often");
}

fn exact(plan: &Plan<'_>, [k, v]: &[Head; 2], q: &[f32], at: usize, row: usize) -> Vec<f64> {
    let q: Vec<f64> = q[..DIM].iter().map(|&x| f64::from(x)).collect();
    let position = at + row;
    let seen = (0..=position).filter(|t| (plan.reads)(t / P, position / P));
    let tokens: Vec<Token> = seen
        .map(|t| {
            let which = usize::from((plan.format)(t / P, at) == Page::Lin8);
            let of = |head: &Head| head.0[which][t * DIM..(t + 1) * DIM].iter().map(|&x| f64::from(x)).collect();
            Token { position: t as u64, key: of(k), value: of(v) }
        })
        .collect();
    let query = Query {
        q: &q,
        position: position as u64,
        scale: 1.0 / (DIM as f64).sqrt(),
        window: None,
        softcap: None,
        sink: None,
    };
    attend(&tokens, &query, DIM)
}

impl Run {
    /// Truncating into a sealed page opens it again, from this format as from any other.
    pub fn truncated_pages_reopen(mut self) {
        self.engine.truncate(self.seq, 40).expect("truncate");
        let mut step = self.engine.begin_step(&[SeqRows { seq: self.seq, rows: 1, committed: true }]).expect("room");
        for layer in 0..LAYERS {
            let kv = vec![0.5; KV_HEADS * DIM];
            let mut out = vec![f32::NAN; Q_HEADS * DIM];
            step.append(layer, Input::Host(&kv), Input::Host(&kv)).expect("append");
            step.attend(layer, Input::Host(&[0.0; Q_HEADS * DIM]), Output::Host(&mut out)).expect("attend");
            // A query of zeros gives the mean of 41 values that lie within ±2.
            assert!(out.iter().all(|x| x.abs() < 1.0), "{out:?}");
        }
        step.finish().expect("finish");
        assert_eq!(self.engine.stats().reopened, 4);
    }
}

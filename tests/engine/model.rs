//! An engine, and what it should hold: every sequence's exact rows on the host, attention over them in f64.

use super::mirror::Mirror;
use kvarto::backend::CpuBackend;
use kvarto::conformance::reference;
use kvarto::engine::{AttentionOptions, Engine, EngineOptions, Input, Output, Registry, SeqId, SeqRows, Step};
use kvarto::error::{ErrorKind, Result};
use kvarto::profile::Profile;
use kvarto::shape::{CacheGroup, CacheShape, GroupKind, KeySpace, VSource};
use std::collections::{BTreeMap, BTreeSet};

pub use crate::rng::Rng;

impl Rng {
    /// In (-1, 1), exact in 16 bits.
    pub fn number(&mut self) -> f32 {
        (self.below(509) as f32 - 254.0) / 256.0
    }

    pub fn row(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.number()).collect()
    }
}

pub fn group(
    layers: Vec<usize>,
    kind: GroupKind,
    page_tokens: usize,
    heads: (usize, usize),
    k: usize,
    v: usize,
) -> CacheGroup {
    CacheGroup {
        layers,
        kind,
        page_tokens,
        q_heads: heads.0,
        kv_heads: heads.1,
        k_dim: k,
        v_dim: v,
        v: VSource::Own,
        key_space: KeySpace::PostRope,
    }
}

pub fn shape(groups: Vec<CacheGroup>) -> CacheShape {
    CacheShape { groups }
}

/// K and V of one token, by layer in the order of the shape's groups.
type Token = Vec<(Vec<f32>, Vec<f32>)>;

#[derive(Clone, Default)]
pub struct Held {
    pub tokens: Vec<Token>,
    pub committed: usize,
    /// Pages that are gone, by cache group.
    pub gone: BTreeMap<usize, usize>,
    /// Tokens that were evicted, in every layer and head.
    pub evicted: BTreeSet<usize>,
}

impl Held {
    /// Lets go of the pages that no row to come can see.
    fn pass(&mut self, groups: &[CacheGroup], rewind: usize) {
        for (index, group) in groups.iter().enumerate() {
            if let GroupKind::Window(w) = group.kind {
                let gone = self.gone.entry(index).or_default();
                *gone = (*gone).max(self.committed.saturating_sub(w + rewind) / group.page_tokens);
            }
        }
    }

    /// The first position that a cache group holds.
    fn start(&self, index: usize, group: &CacheGroup) -> usize {
        self.gone.get(&index).map_or(0, |gone| gone * group.page_tokens)
    }

    fn cut(&mut self, n: usize) {
        self.tokens.truncate(n);
        self.evicted.retain(|&position| position < n);
        self.committed = self.committed.min(n);
        if n == 0 {
            self.gone.clear();
        }
    }
}

pub struct Rig {
    pub engine: Engine,
    pub held: BTreeMap<SeqId, Held>,
    pub rng: Rng,
    pub options: Vec<AttentionOptions>,
    pub rewind: usize,
    /// Largest error allowed of an output, in units of the values' size.
    pub tolerance: f64,
    pub worst: f64,
    pub mirror: Mirror,
}

pub fn profile(kv: &str, tail: usize, sink: usize) -> Profile {
    let (k, v) = kv.split_once('/').unwrap_or((kv, kv));
    Profile { exact_sink_tokens: sink, exact_tail_tokens: tail, ..Profile::formats(k, v) }
}

impl Rig {
    pub fn new(shape: CacheShape, profile: Profile, options: EngineOptions, tolerance: f64, seed: u64) -> Rig {
        Rig::on(CpuBackend::new(1).unwrap(), shape, profile, Registry::builtin(), options, tolerance, seed)
    }

    pub fn on(
        backend: CpuBackend,
        shape: CacheShape,
        profile: Profile,
        registry: Registry,
        options: EngineOptions,
        tolerance: f64,
        seed: u64,
    ) -> Rig {
        let (attention, rewind) = (options.attention.clone(), options.rewind_tokens);
        let mut engine = Engine::with_options(Box::new(backend), shape, profile, registry, options).unwrap();
        let mirror = Mirror::of(&mut engine);
        let held = BTreeMap::new();
        Rig { engine, held, rng: Rng(seed), options: attention, rewind, tolerance, worst: 0.0, mirror }
    }

    pub fn create(&mut self) -> SeqId {
        let id = self.engine.create().unwrap();
        self.held.insert(id, Held::default());
        id
    }

    fn token(&mut self) -> Token {
        let dims: Vec<(usize, usize)> = self
            .engine
            .shape()
            .groups
            .iter()
            .flat_map(|g| g.layers.iter().map(|_| (g.kv_heads * g.k_dim, g.kv_heads * g.v_dim)))
            .collect();
        dims.into_iter().map(|(k, v)| (self.rng.row(k), self.rng.row(v))).collect()
    }

    /// A step of random rows, every output compared. On an error nothing of the model changes.
    pub fn step(&mut self, rows: &[(SeqId, u32, bool)]) -> Result<()> {
        let fresh: Vec<Vec<Token>> = rows.iter().map(|r| (0..r.1).map(|_| self.token()).collect()).collect();
        self.step_with(rows, fresh)
    }

    pub fn step_with(&mut self, rows: &[(SeqId, u32, bool)], fresh: Vec<Vec<Token>>) -> Result<()> {
        let asked: Vec<SeqRows> = rows.iter().map(|&(seq, rows, committed)| SeqRows { seq, rows, committed }).collect();
        let mut next: Vec<Held> = rows.iter().map(|r| self.held[&r.0].clone()).collect();
        for ((held, fresh), r) in next.iter_mut().zip(fresh).zip(rows) {
            held.tokens.extend(fresh);
            if r.2 && r.1 > 0 {
                held.committed = held.tokens.len();
            }
        }
        let groups = self.engine.shape().groups.clone();
        let mut step = self.engine.begin_step(&asked)?;
        let mut flat = 0;
        for (index, group) in groups.iter().enumerate() {
            for (at, &layer) in group.layers.iter().enumerate() {
                let (mut k, mut v) = (Vec::new(), Vec::new());
                for (held, r) in next.iter().zip(rows) {
                    for token in &held.tokens[held.tokens.len() - r.1 as usize..] {
                        k.extend_from_slice(&token[flat].0);
                        v.extend_from_slice(&token[flat].1);
                    }
                }
                let total = step.rows() as usize;
                let q = self.rng.row(total * group.q_heads * group.k_dim);
                let mut out = vec![f32::NAN; total * group.q_heads * group.v_dim];
                attend(&mut step, layer, (&k, &v, &q), &mut out)?;
                let options = self.options.get(index).cloned().unwrap_or_default();
                let error = compare(group, &options, at, flat, &next, rows, &q, &out);
                assert!(error <= self.tolerance, "layer {layer}: error {error:e} above {:e}", self.tolerance);
                self.worst = self.worst.max(error);
                flat += 1;
            }
        }
        step.finish()?;
        for (mut held, r) in next.into_iter().zip(rows) {
            held.pass(&groups, self.rewind);
            self.held.insert(r.0, held);
        }
        Ok(())
    }

    /// What must hold at every moment.
    pub fn check(&mut self) {
        self.mirror.check(&self.engine);
        let memory = self.engine.memory();
        assert_eq!(self.engine.backend().allocated_bytes(), memory.allocated(), "{memory:?}");
        let known: Vec<SeqId> = self.engine.sequences().collect();
        assert_eq!(known, self.held.keys().copied().collect::<Vec<_>>());
        for (&id, held) in &self.held {
            let lengths = self.engine.lengths(id).unwrap();
            let groups = &self.engine.shape().groups;
            let starts: Vec<usize> = groups.iter().enumerate().map(|(i, g)| held.start(i, g)).collect();
            let most = held.tokens.len() - starts.iter().min().unwrap();
            assert_eq!(
                (lengths.logical as usize, lengths.cached as usize, lengths.committed as usize),
                (held.tokens.len(), most, held.committed)
            );
            for (start, range) in starts.into_iter().zip(self.engine.held(id).unwrap()) {
                assert_eq!((start, held.tokens.len()), (range.start as usize, range.end as usize));
            }
        }
    }

    pub fn fork(&mut self, seq: SeqId, at: Option<u32>) -> Result<SeqId> {
        let result = match at {
            Some(at) => self.engine.fork_at(seq, at),
            None => self.engine.fork(seq),
        };
        let id = self.expect(seq, at, result)?;
        let mut held = self.held[&seq].clone();
        held.cut(at.map_or(usize::MAX, |at| at as usize));
        self.held.insert(id, held);
        Ok(id)
    }

    pub fn truncate(&mut self, seq: SeqId, n: u32) -> Result<()> {
        let result = self.engine.truncate(seq, n);
        self.expect(seq, Some(n), result)?;
        self.held.get_mut(&seq).unwrap().cut(n as usize);
        Ok(())
    }

    /// Whether the window of the row at `n` is wholly held in every group.
    pub fn allows(&self, seq: SeqId, n: u32) -> bool {
        let held = &self.held[&seq];
        let misses = |(index, group): (usize, &CacheGroup)| match group.kind {
            GroupKind::Window(w) => held.start(index, group) > (n as usize + 1).saturating_sub(w),
            _ => false,
        };
        n == 0 || !self.engine.shape().groups.iter().enumerate().any(misses)
    }

    /// A cut within the windows may only fail for room, one beyond them must be refused.
    fn expect<T>(&self, seq: SeqId, at: Option<u32>, result: Result<T>) -> Result<T> {
        let allowed = at.is_none_or(|at| self.allows(seq, at));
        match &result {
            Ok(_) => assert!(allowed, "cut to {at:?}"),
            Err(error) => {
                assert_eq!(error.kind() == ErrorKind::Shape, !allowed, "cut to {at:?}: {error}");
                assert!(allowed || error.message().contains("window"), "{error}");
            }
        }
        result
    }

    pub fn commit(&mut self, seq: SeqId) {
        let held = self.held.get_mut(&seq).unwrap();
        held.committed = held.tokens.len();
        self.engine.commit(seq, held.committed as u32).unwrap();
        held.pass(&self.engine.shape().groups, self.rewind);
    }

    pub fn release(&mut self, seq: SeqId) {
        self.engine.release(seq).unwrap();
        self.held.remove(&seq);
    }

    /// Pages by formats.
    pub fn pages(&self, k: &str, v: &str) -> u64 {
        self.engine.stats().pages.get(&(k.into(), v.into())).copied().unwrap_or(0)
    }
}

pub fn attend(step: &mut Step<'_>, layer: usize, kvq: (&[f32], &[f32], &[f32]), out: &mut [f32]) -> Result<()> {
    step.append(layer, Input::Host(kvq.0), Input::Host(kvq.1))?;
    step.attend(layer, Input::Host(kvq.2), Output::Host(out))
}

/// The largest error of a layer's outputs against dense attention in f64 over the exact rows.
#[allow(clippy::too_many_arguments)] // a test's own helper
fn compare(
    group: &CacheGroup,
    options: &AttentionOptions,
    at: usize,
    flat: usize,
    held: &[Held],
    rows: &[(SeqId, u32, bool)],
    q: &[f32],
    out: &[f32],
) -> f64 {
    let (mut worst, mut row) = (0.0f64, 0);
    let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
    for (held, r) in held.iter().zip(rows) {
        for kv_head in 0..if r.1 == 0 { 0 } else { group.kv_heads } {
            let tokens: Vec<reference::Token> = held
                .tokens
                .iter()
                .enumerate()
                .filter(|(position, _)| !held.evicted.contains(position))
                .map(|(position, t)| reference::Token {
                    position: position as u64,
                    key: wide(&t[flat].0[kv_head * group.k_dim..][..group.k_dim]),
                    value: wide(&t[flat].1[kv_head * group.v_dim..][..group.v_dim]),
                })
                .collect();
            for i in 0..r.1 as usize {
                // Long prefills are sampled: their first and last rows, and some between.
                if r.1 > 40 && i % 7 != 0 && i + 3 < r.1 as usize {
                    continue;
                }
                for head in kv_head * group.group_size()..(kv_head + 1) * group.group_size() {
                    let place = (row + i) * group.q_heads + head;
                    let query = reference::Query {
                        q: &wide(&q[place * group.k_dim..][..group.k_dim]),
                        position: (held.tokens.len() - r.1 as usize + i) as u64,
                        scale: options.scale.map_or(1.0 / (group.k_dim as f64).sqrt(), f64::from),
                        window: match group.kind {
                            GroupKind::Window(w) => Some(w as u64),
                            _ => None,
                        },
                        softcap: options.softcap.map(f64::from),
                        sink: options.sinks.as_ref().map(|s| f64::from(s[at][head])),
                    };
                    let want = reference::attend(&tokens, &query, group.v_dim);
                    for (got, want) in out[place * group.v_dim..][..group.v_dim].iter().zip(want) {
                        let error = (f64::from(*got) - want).abs();
                        // A NaN stands as the worst.
                        worst = if error <= worst { worst } else { error };
                    }
                }
            }
        }
        row += r.1 as usize;
    }
    worst
}

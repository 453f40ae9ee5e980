//! A life of an engine, written down: what happens, and what is fed, is the same in every run.

use kvarto::backend::{Backend, BufferSlice, CpuBackend, read_blocking};
use kvarto::engine::{Engine, EngineOptions, Input, Output, Registry, SeqId, SeqRows};
use kvarto::kernel::RowView;
use kvarto::profile::Profile;
use kvarto::shape::{CacheGroup, CacheShape, GroupKind, KeySpace, VSource};
use kvarto::{Error, ErrorKind, Result};

/// One thing that happens; sequences are numbered in the order they were made.
#[derive(Clone, Copy, Debug)]
pub enum Do {
    Create,
    /// (sequence, rows).
    Step(&'static [(usize, u32)]),
    Fork(usize),
    ForkAt(usize, u32),
    Truncate(usize, u32),
    Release(usize),
}

/// Prefill, decode, pages sealed and shared and copied and reopened, segments and tables and scratch that grow.
const LIFE: &[Do] = &[
    Do::Create,
    Do::Create,
    Do::Step(&[(0, 40), (1, 7)]),
    Do::Step(&[(0, 1), (1, 1)]),
    // More open pages than the first segments hold.
    Do::Step(&[(0, 350)]),
    Do::Step(&[(0, 1)]),
    Do::Fork(0),
    Do::Step(&[(0, 1), (2, 1), (1, 1)]),
    Do::Step(&[(0, 0), (1, 0), (2, 0)]),
    Do::Truncate(2, 270),
    Do::Step(&[(2, 20)]),
    Do::ForkAt(0, 245),
    Do::Step(&[(3, 3), (0, 17)]),
    Do::Release(1),
    Do::Create,
    Do::Step(&[(4, 300)]),
    Do::Step(&[(0, 1), (2, 1), (3, 1), (4, 2)]),
    Do::Step(&[(4, 0)]),
    Do::Truncate(4, 0),
    Do::Step(&[(4, 2)]),
    Do::Step(&[(0, 1), (2, 1), (3, 1), (4, 1)]),
];

/// Forks at the end of a life, each of which reopens pages, until those need a segment of their own.
const FORKS: usize = 60;
const AFTER_FORKS: [Do; 2] = [Do::Step(&[(5, 1), (40, 3), (64, 2)]), Do::Step(&[(0, 1), (52, 1), (53, 1), (54, 1)])];

fn life() -> Vec<Do> {
    let forks = (0..FORKS).map(|i| Do::ForkAt(0, 290 + i as u32 % 7));
    LIFE.iter().copied().chain(forks).chain(AFTER_FORKS).collect()
}

/// Three layers that see all tokens, whose one head each makes pages come in threes, and one with a window.
pub fn shape() -> CacheShape {
    let group = |layers: Vec<usize>, kind, heads: (usize, usize), dims: (usize, usize)| CacheGroup {
        layers,
        kind,
        page_tokens: 16,
        q_heads: heads.0,
        kv_heads: heads.1,
        k_dim: dims.0,
        v_dim: dims.1,
        v: VSource::Own,
        key_space: KeySpace::PostRope,
    };
    let full = group(vec![0, 2, 3], GroupKind::Full, (2, 1), (32, 16));
    CacheShape { groups: vec![full, group(vec![1], GroupKind::Window(24), (2, 1), (16, 32))] }
}

/// Coded pages from the first token on, in the basis `basis`.
pub fn profile(basis: &str) -> Profile {
    Profile {
        exact_sink_tokens: 0,
        exact_tail_tokens: 0,
        k_basis: Some(basis.into()),
        v_basis: Some(basis.into()),
        ..Profile::formats("fp8", "tq3")
    }
}

pub fn cpu() -> CpuBackend {
    CpuBackend::new(1).expect("a thread")
}

/// An engine for such a life.
pub fn engine(backend: Box<dyn Backend>, basis: &str) -> Result<Engine> {
    let options = EngineOptions { rewind_tokens: 170, ..EngineOptions::default() };
    Engine::with_options(backend, shape(), profile(basis), Registry::builtin(), options)
}

/// Where a step's outputs go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    /// To the host, a layer at a time: a step is submitted in parts.
    LayerByLayer,
    /// To the device: a step is one recording.
    AtOnce,
}

/// What a step said.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// Outputs of all layers.
    pub out: Vec<f32>,
    /// Pages that had no room to be sealed in it.
    pub deferred: u64,
    /// See [`kvarto::engine::StepReport::splits`].
    pub splits: u64,
}

/// In (-1, 1), and the same for the same place.
fn numbers(count: usize, place: [usize; 3]) -> Vec<f32> {
    let seed = place.iter().fold(17usize, |sum, part| sum.wrapping_mul(1_000_003).wrapping_add(*part));
    let mixed = |i: usize| (i.wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(40_503)) >> 5) % 2003;
    (0..count).map(|i| mixed(i) as f32 / 1001.5 - 1.0).collect()
}

/// A step whose inputs are named by `name`. After an error nothing is held on the device but the engine's own.
pub fn step(engine: &mut Engine, rows: &[SeqRows], way: Way, name: usize) -> Result<Said> {
    let total: usize = rows.iter().map(|r| r.rows as usize).sum();
    let groups = engine.shape().groups.clone();
    let layers = groups.iter().flat_map(|g| g.layers.iter().map(move |&layer| (layer, g)));
    let layers: Vec<(usize, &CacheGroup)> = layers.collect();
    let floats = |g: &CacheGroup| total * g.q_heads * g.v_dim;
    let mut buffers = Vec::new();
    if way == Way::AtOnce && total > 0 {
        for (_, group) in &layers {
            match engine.backend().alloc("outputs", floats(group) as u64 * 4) {
                Ok(buffer) => buffers.push(buffer),
                Err(error) => {
                    buffers.into_iter().for_each(|buffer| engine.backend().free(buffer));
                    return Err(error);
                }
            }
        }
    }
    let mut record = || -> Result<Said> {
        let mut step = engine.begin_step(rows)?;
        let mut out = Vec::new();
        for (at, (layer, group)) in layers.iter().enumerate() {
            let k = numbers(total * group.kv_heads * group.k_dim, [name, *layer, 0]);
            let v = numbers(total * group.kv_heads * group.v_dim, [name, *layer, 1]);
            let q = numbers(total * group.q_heads * group.k_dim, [name, *layer, 2]);
            step.append(*layer, Input::Host(&k), Input::Host(&v))?;
            let start = out.len();
            match buffers.get(at) {
                Some(&buffer) => {
                    let slice = BufferSlice::whole(buffer, floats(group) as u64 * 4);
                    let stride = (group.q_heads * group.v_dim) as u32;
                    step.attend(*layer, Input::Host(&q), Output::Device(RowView { slice, offset: 0, stride }))?;
                }
                None => {
                    out.resize(start + floats(group), f32::NAN);
                    step.attend(*layer, Input::Host(&q), Output::Host(&mut out[start..]))?;
                }
            }
        }
        let report = step.finish()?;
        for ((_, group), &buffer) in layers.iter().zip(&buffers) {
            let bytes = read_blocking(engine.backend(), buffer, 0, floats(group) as u64 * 4)?;
            out.extend(bytemuck::pod_collect_to_vec::<u8, f32>(&bytes));
        }
        Ok(Said { out, deferred: engine.stats().deferred, splits: report.splits })
    };
    let said = record();
    buffers.into_iter().for_each(|buffer| engine.backend().free(buffer));
    said
}

/// Lengths and positions held of every sequence.
pub fn state(engine: &Engine) -> Vec<(SeqId, [u32; 3], Vec<std::ops::Range<u32>>)> {
    let of = |seq: SeqId| {
        let lengths = engine.lengths(seq).expect("alive");
        (seq, [lengths.logical, lengths.cached, lengths.committed], engine.held(seq).expect("alive"))
    };
    engine.sequences().map(of).collect()
}

/// Lives. What is refused is tried again, `tries` times at most, after every sequence was found as it was, and,
/// with `use_them`, was used; other errors end the test. What the steps said, and the refusals.
pub fn live(engine: &mut Engine, way: Way, tries: usize, use_them: bool) -> (Vec<Said>, Vec<Error>) {
    let (mut ids, mut all, mut refusals): (Vec<SeqId>, Vec<Said>, Vec<Error>) = Default::default();
    for (name, what) in life().iter().enumerate() {
        for attempt in 0.. {
            let before = state(engine);
            let rows = |list: &[(usize, u32)]| -> Vec<SeqRows> {
                list.iter().map(|&(s, rows)| SeqRows { seq: ids[s], rows, committed: true }).collect()
            };
            let result = match *what {
                Do::Create => engine.create().map(|id| ids.push(id)),
                Do::Step(list) => step(engine, &rows(list), way, name).map(|said| all.push(said)),
                Do::Fork(s) => engine.fork(ids[s]).map(|id| ids.push(id)),
                Do::ForkAt(s, at) => engine.fork_at(ids[s], at).map(|id| ids.push(id)),
                Do::Truncate(s, keep) => engine.truncate(ids[s], keep),
                Do::Release(s) => engine.release(ids[s]),
            };
            let counted = engine.backend().allocated_bytes();
            assert_eq!(counted, engine.memory().allocated(), "{what:?}: bytes are lost");
            let Err(error) = result else { break };
            assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{what:?}: {error}");
            assert!(!error.message().is_empty() && !error.remedy().is_empty(), "{error}");
            assert_eq!(state(engine), before, "{what:?}, refused: {error}");
            assert!(attempt < tries, "{what:?} is refused {attempt} times over: {error}");
            refusals.push(error);
            if let Do::Step(list) = what
                && use_them
            {
                list.iter().for_each(|&(s, _)| use_briefly(engine, ids[s], way));
                assert_eq!(state(engine), before, "{what:?}, after its sequences were used");
            }
        }
    }
    (all, refusals)
}

/// A fork of `seq` takes a row: its pages are there to be read. Refusals may go on meanwhile.
fn use_briefly(engine: &mut Engine, seq: SeqId, way: Way) {
    let fork = engine.fork(seq).expect("a fork");
    match step(engine, &[SeqRows { seq: fork, rows: 1, committed: true }], way, 999) {
        Ok(said) => assert!(said.out.iter().all(|x| x.is_finite() && x.abs() < 2.0), "{said:?}"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}"),
    }
    engine.release(fork).expect("a release");
}

//! A small engine that is fed numbers, and a place that a recorder writes to.

use kvarto::Result;
use kvarto::backend::{Backend, CpuBackend};
use kvarto::engine::{Engine, EngineOptions, Input, Output, Registry, SeqId, SeqRows};
use kvarto::profile::Profile;
use kvarto::shape::CacheShape;
use kvarto::trace::{Header, Recorder, RecorderOptions, Summary, Target};
use std::io::Write;
use std::sync::{Arc, Mutex};

pub const LAYERS: usize = 2;
pub const Q_HEADS: usize = 4;
pub const KV_HEADS: usize = 2;
pub const DIM: usize = 16;
pub const PAGE: usize = 16;

pub use crate::rng::Rng;

impl Rng {
    pub fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| (self.below(509) as f32 - 254.0) / 128.0).collect()
    }

    /// A generator whose seed is told, above any panic's message. `KVARTO_FUZZ_SEED=N` repeats a run.
    pub fn told() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let given = std::env::var("KVARTO_FUZZ_SEED").ok().and_then(|v| v.parse().ok());
        let seed = given.unwrap_or(now.as_nanos() as u64);
        println!("KVARTO_FUZZ_SEED={seed}");
        Rng(seed)
    }
}

/// A profile that converts pages soon.
pub fn moving() -> Profile {
    let profile = Profile { exact_sink_tokens: PAGE, exact_tail_tokens: PAGE, ..Profile::formats("fp8", "fp8") };
    let mut draft = kvarto::profile::Draft::of(&profile, "test").expect("a profile");
    for setting in ["policy.name=\"age-anchor\"", "policy.recent_tokens=32", "policy.anchor_stride=0"] {
        draft.set(&kvarto::profile::Setting::parse(setting).expect("a setting")).expect("it fits");
    }
    draft.read(&Registry::builtin().names()).expect("a profile")
}

pub fn engine_on(backend: Box<dyn Backend>, profile: Profile) -> Engine {
    let shape = CacheShape::uniform(LAYERS, Q_HEADS, KV_HEADS, DIM, PAGE);
    let options = EngineOptions { context_tokens: 256, ..EngineOptions::default() };
    let mut engine = Engine::with_options(backend, shape, profile, Registry::builtin(), options).expect("an engine");
    engine.warm_up(&[1, 2, 4, 8, 16], true).expect("kernels");
    engine
}

pub fn engine(profile: Profile) -> Engine {
    engine_on(Box::new(CpuBackend::new(1).expect("threads")), profile)
}

/// Rows of a step: K, V and Q of every layer.
pub type Rows = Vec<[Vec<f32>; 3]>;

pub fn rows(rng: &mut Rng, count: usize) -> Rows {
    let mut of = |heads: usize| rng.floats(count * heads * DIM);
    (0..LAYERS).map(|_| [of(KV_HEADS), of(KV_HEADS), of(Q_HEADS)]).collect()
}

/// A step of one sequence.
pub fn step_of(engine: &mut Engine, seq: SeqId, rows: &Rows) -> Result<()> {
    let count = rows[0][0].len() / (KV_HEADS * DIM);
    let mut step = engine.begin_step(&[SeqRows { seq, rows: count as u32, committed: true }])?;
    for (layer, [k, v, q]) in rows.iter().enumerate() {
        let mut out = vec![f32::NAN; count * Q_HEADS * DIM];
        step.append(layer, Input::Host(k), Input::Host(v))?;
        step.attend(layer, Input::Host(q), Output::Host(&mut out))?;
        assert!(out.iter().all(|x| x.is_finite()));
    }
    step.finish().map(drop)
}

pub fn step(engine: &mut Engine, seq: SeqId, rng: &mut Rng, count: usize) {
    step_of(engine, seq, &rows(rng, count)).expect("room");
}

/// Everything that makes events: prefill, decoding with conversions, forks, cuts, copies, pins, releases.
pub fn busy(engine: &mut Engine, seed: u64) {
    let mut rng = Rng(seed);
    let a = engine.create().expect("a sequence");
    engine.anchor(a, 0..9).expect("a range");
    step(engine, a, &mut rng, 90);
    engine.pin(a, 20..30, "quoted").expect("a range");
    (0..40).for_each(|_| step(engine, a, &mut rng, 1));
    let b = engine.fork(a).expect("a fork");
    let c = engine.fork_at(a, 70).expect("a fork");
    (0..20).for_each(|n| step(engine, [a, b, c][n % 3], &mut rng, 1 + n % 4));
    engine.truncate(b, 37).expect("a cut");
    step(engine, b, &mut rng, 50);
    engine.release(a).expect("alive");
    (0..9).for_each(|_| step(engine, c, &mut rng, 1));
    assert!(engine.fork_at(c, 10_000).is_err());
    engine.truncate(c, 0).expect("a cut");
    step(engine, c, &mut rng, 17);
}

/// Bytes that were written, up to a bound.
#[derive(Clone)]
pub struct Sink {
    pub bytes: Arc<Mutex<Vec<u8>>>,
    pub room: usize,
}

impl Sink {
    pub fn new(room: usize) -> Self {
        Sink { bytes: Arc::default(), room }
    }

    pub fn taken(&self) -> Vec<u8> {
        self.bytes.lock().expect("not poisoned").clone()
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut held = self.bytes.lock().expect("not poisoned");
        let fits = bytes.len().min(self.room.saturating_sub(held.len()));
        held.extend(&bytes[..fits]);
        if fits == 0 && !bytes.is_empty() { Err(std::io::ErrorKind::StorageFull.into()) } else { Ok(fits) }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The trace of what `act` does with an engine.
pub fn recorded(profile: Profile, act: impl FnOnce(&mut Engine)) -> (Engine, Vec<u8>, Summary) {
    let mut engine = engine(profile);
    let sink = Sink::new(usize::MAX);
    let header = Header { command: "test".into(), ..Header::of(&mut engine) };
    let target = Some(Target::Writer(Box::new(sink.clone())));
    let options = RecorderOptions { target, ..RecorderOptions::default() };
    let recorder = Recorder::start(&mut engine, &header, options).expect("a thread");
    act(&mut engine);
    let summary = recorder.finish();
    (engine, sink.taken(), summary)
}

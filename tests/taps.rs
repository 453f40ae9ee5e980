//! Taps: what is needed and not given is refused when an engine is built; what is given reaches who needs it.

mod support;
#[path = "extension/tapped.rs"]
mod tapped;

use kvarto::backend::{Backend, CpuBackend};
use kvarto::engine::{Engine, EngineOptions, Input, Output, Registry, SeqId, SeqRows, TapCall, TapMemory};
use kvarto::kernel::RowView;
use kvarto::needs::{Needs, TapKind, TapNeed, TapOffer};
use kvarto::profile::Profile;
use kvarto::select::{Question, Selector};
use kvarto::shape::CacheShape;
use kvarto::{ErrorKind, Result};
use std::sync::Arc;
use tapped::{Log, Tapper};

/// Reads everything and takes the taps that it is told to need.
struct Curious {
    needs: Vec<TapNeed>,
    /// `None` forgets to take them.
    tapper: Option<Tapper>,
}

impl Selector for Curious {
    fn name(&self) -> &str {
        "curious"
    }

    fn summary(&self) -> &str {
        "every page"
    }

    fn reads(&self, _: &Question, _: usize) -> bool {
        true
    }

    fn needs(&self, _: &CacheShape) -> Needs {
        Needs { taps: self.needs.clone(), ..Needs::default() }
    }

    fn prepare(&self, backend: &mut dyn Backend, _: &CacheShape) -> Result<()> {
        self.tapper.as_ref().map_or(Ok(()), |tapper| tapper.prepare(backend))
    }

    fn tap(&self, call: &mut TapCall<'_>) -> Result<()> {
        match &self.tapper {
            Some(tapper) => tapper.take(call),
            None => kvarto::select::Dense.tap(call),
        }
    }

    fn before_step(&self, memory: &mut TapMemory<'_>) -> Result<()> {
        self.tapper.as_ref().map_or(Ok(()), |tapper| tapper.read(memory))
    }
}

fn need(kind: TapKind, layers: &[usize], period_steps: u64) -> TapNeed {
    TapNeed { kind, layers: layers.to_vec(), period_steps }
}

fn offer(kind: TapKind, layers: &[usize], width: usize) -> TapOffer {
    TapOffer { kind, layers: layers.to_vec(), width }
}

fn registry(needs: Vec<TapNeed>, tapper: Option<Tapper>) -> Registry {
    Registry::builtin().with_selector(Arc::new(Curious { needs, tapper })).expect("a new name")
}

fn profile() -> Profile {
    Profile { selector: "curious".into(), ..Profile::formats("f16", "f16") }
}

fn engine(backend: Box<dyn Backend>, needs: Vec<TapNeed>, offers: Vec<TapOffer>, log: &Log) -> Result<Engine> {
    let options = EngineOptions { taps: offers, ..EngineOptions::default() };
    let registry = registry(needs, Some(Tapper::new(log.clone())));
    Engine::with_options(backend, CacheShape::uniform(2, 2, 1, 8, 16), profile(), registry, options)
}

fn cpu() -> Box<dyn Backend> {
    Box::new(CpuBackend::new(1).expect("a thread"))
}

/// Runs `test` on the CPU and on Vulkan, or says why not there.
fn on_backends(test: impl Fn(Box<dyn Backend>, &str)) {
    test(cpu(), "cpu");
    #[cfg(feature = "wgpu")]
    match support::gpu::open("vulkan", &Default::default()) {
        Ok(backend) => test(Box::new(backend), "vulkan"),
        Err(error) => support::require_or_skip("vulkan", &error.to_string()),
    }
}

#[test]
fn a_missing_tap_is_an_error_at_load() {
    let log = Log::default();
    let refused = |needs: Vec<TapNeed>, offers: Vec<TapOffer>, kind: ErrorKind, words: &[&str]| {
        let error = engine(cpu(), needs, offers, &log).err().expect("a refusal");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(words.iter().all(|word| error.message().contains(word)), "{error}");
        assert!(!error.remedy().is_empty(), "{error}");
    };
    let wanted = || vec![need(TapKind::Residual, &[0, 1, 7], 1)];
    let words = ["\"curious\"", "residual", "[0, 1, 7]"];
    refused(wanted(), vec![], ErrorKind::Unsupported, &words);
    refused(wanted(), vec![offer(TapKind::Hidden, &[0, 1, 7], 4)], ErrorKind::Unsupported, &words);
    let some = vec![offer(TapKind::Residual, &[0, 1], 4)];
    refused(wanted(), some.clone(), ErrorKind::Unsupported, &["residual", "[7]"]);
    // Queries are the engine's own, of the layers that it has.
    refused(vec![need(TapKind::Queries, &[0, 2], 1)], vec![], ErrorKind::Unsupported, &["queries", "[2]"]);
    refused(vec![], vec![offer(TapKind::Queries, &[0], 16)], ErrorKind::Usage, &["queries"]);
    refused(vec![], vec![offer(TapKind::Hidden, &[0], 0)], ErrorKind::Usage, &["hidden"]);
    refused(vec![], [some.clone(), some].concat(), ErrorKind::Usage, &["residual", "layer 0", "twice"]);
    refused(vec![need(TapKind::Queries, &[0], 0)], vec![], ErrorKind::Usage, &["\"curious\"", "every 0 steps"]);
    // A layer without a KV cache may have a residual stream.
    let all = vec![offer(TapKind::Residual, &[0, 1, 7], 4)];
    assert!(engine(cpu(), wanted(), all, &log).is_ok());
}

/// Appends to both layers and attends in both, with the taps that `tap` gives in between.
fn step(
    engine: &mut Engine,
    seq: SeqId,
    rows: u32,
    tap: impl FnOnce(&mut kvarto::engine::Step<'_>) -> Result<()>,
) -> Result<()> {
    let mut step = engine.begin_step(&[SeqRows { seq, rows, committed: true }])?;
    let kv = vec![0.5; rows as usize * 8];
    let q: Vec<f32> = (0..rows as usize * 16).map(|i| i as f32 + 0.25).collect();
    for layer in 0..2 {
        step.append(layer, Input::Host(&kv), Input::Host(&kv))?;
        step.attend(layer, Input::Host(&q), Output::Host(&mut vec![0.0; rows as usize * 16]))?;
    }
    tap(&mut step)?;
    step.finish().map(|_| ())
}

#[test]
fn views_and_periods() {
    on_backends(|mut backend, on| {
        let buffer = backend.alloc("stream", 4096).unwrap();
        let floats: Vec<f32> = (0..1024).map(|i| i as f32 * 0.5).collect();
        backend.write(buffer, 0, bytemuck::cast_slice(&floats)).unwrap();
        let needs = vec![
            need(TapKind::Hidden, &[5], 3),
            need(TapKind::Residual, &[0], 2),
            need(TapKind::Queries, &[1], 4),
            need(TapKind::Queries, &[1], 3),
        ];
        let offers = vec![offer(TapKind::Hidden, &[4, 5], 7), offer(TapKind::Residual, &[0, 1], 5)];
        let log = Log::default();
        let mut engine = engine(backend, needs, offers, &log).unwrap();
        engine.warm_up(&[1, 2, 4], true).unwrap();
        engine.backend().forbid_new_pipelines(true);
        let seq = engine.create().unwrap();
        let view = RowView { offset: 3, stride: 11, ..RowView::dense(buffer, 1, 1024) };
        for n in 0..8u64 {
            let rows = 1 + n as u32 % 3;
            let host: Vec<f32> = (0..rows * 5).map(|i| (i * 10) as f32 + n as f32).collect();
            step(&mut engine, seq, rows, |step| {
                assert_eq!(step.wants(5, TapKind::Hidden), n % 3 == 0);
                assert_eq!(step.wants(1, TapKind::Queries), n % 3 == 0 || n % 4 == 0);
                assert!(!step.wants(4, TapKind::Hidden) && !step.wants(9, TapKind::Hidden));
                step.tap(5, TapKind::Hidden, Input::Device(view))?;
                // Offered, and nobody's need.
                step.tap(4, TapKind::Hidden, Input::Device(view))?;
                step.tap(0, TapKind::Residual, Input::Host(&host))
            })
            .unwrap();
            // Steps without rows come between and count for nothing.
            let empty = engine.begin_step(&[SeqRows { seq, rows: 0, committed: true }]).unwrap();
            empty.finish().unwrap();
            let memory = engine.memory();
            assert_eq!(engine.backend().allocated_bytes(), memory.allocated() + 4096, "{on}: {memory:?}");
        }
        let log = log.lock().unwrap();
        let of = |kind: TapKind| log.iter().filter(|s| s.kind == kind).collect::<Vec<_>>();
        let steps = |kind: TapKind| of(kind).iter().map(|s| s.step).collect::<Vec<_>>();
        assert_eq!(steps(TapKind::Hidden), [0, 3, 6], "{on}");
        assert_eq!(steps(TapKind::Residual), [0, 2, 4, 6], "{on}");
        // Two needs of one tap are one handing over.
        assert_eq!(steps(TapKind::Queries), [0, 3, 4, 6], "{on}");
        for seen in of(TapKind::Hidden) {
            let row = |r: usize| (0..7).map(move |c| (3 + r * 11 + c) as f32 * 0.5);
            let want: Vec<f32> = (0..seen.positions.len()).flat_map(row).collect();
            assert_eq!((&seen.values, &seen.host), (&want, &None), "{on}");
        }
        for seen in of(TapKind::Residual) {
            let want: Vec<f32> = (0..seen.values.len()).map(|i| (i * 10) as f32 + seen.step as f32).collect();
            assert_eq!((&seen.values, seen.host.as_ref()), (&want, Some(&want)), "{on}");
        }
        for seen in of(TapKind::Queries) {
            let want: Vec<f32> = (0..seen.values.len()).map(|i| i as f32 + 0.25).collect();
            assert_eq!((seen.width, &seen.values), (16, &want), "{on}");
            assert_eq!(seen.positions.len() as u64, 1 + seen.step % 3);
        }
        drop(log);
        let mut backend = engine.into_backend();
        backend.free(buffer);
        assert_eq!(backend.allocated_bytes(), 0, "{on}");
    });
}

#[test]
fn wrong_taps_are_refused_by_name() {
    let log = Log::default();
    let needs = || vec![need(TapKind::Residual, &[0], 1), need(TapKind::Hidden, &[1], 2)];
    let offers = || vec![offer(TapKind::Residual, &[0], 5), offer(TapKind::Hidden, &[1], 3)];
    let mut engine = engine(cpu(), needs(), offers(), &log).unwrap();
    let seq = engine.create().unwrap();
    type Taps = fn(&mut kvarto::engine::Step<'_>) -> Result<()>;
    let cases: [(Taps, ErrorKind, &str); 6] = [
        (|step| step.tap(1, TapKind::Residual, Input::Host(&[0.0; 10])), ErrorKind::Usage, "residual of layer 1"),
        (|step| step.tap(0, TapKind::Queries, Input::Host(&[0.0; 32])), ErrorKind::Usage, "queries of layer 0"),
        (|step| step.tap(0, TapKind::Residual, Input::Host(&[0.0; 9])), ErrorKind::Shape, "9 floats"),
        (|_| Ok(()), ErrorKind::Shape, "hidden of layer 1, residual of layer 0"),
        (|step| step.tap(0, TapKind::Residual, Input::Host(&[0.0; 10])), ErrorKind::Shape, "hidden of layer 1"),
        (
            |step| {
                step.tap(0, TapKind::Residual, Input::Host(&[0.0; 10]))?;
                step.tap(0, TapKind::Residual, Input::Host(&[0.0; 10]))
            },
            ErrorKind::Shape,
            "twice",
        ),
    ];
    for (taps, kind, words) in cases {
        let error = step(&mut engine, seq, 2, taps).unwrap_err();
        // What was missed first shows as well where a tap was wrong.
        assert!(error.kind() == kind && error.message().contains(words), "{error}");
        assert_eq!(engine.lengths(seq).unwrap().logical, 0, "{words}");
    }
    // Who declares taps and forgets to take them is told so.
    let options = EngineOptions { taps: offers(), ..EngineOptions::default() };
    let shape = CacheShape::uniform(2, 2, 1, 8, 16);
    let mut engine = Engine::with_options(cpu(), shape, profile(), registry(needs(), None), options).unwrap();
    let seq = engine.create().unwrap();
    let error = step(&mut engine, seq, 2, |step| step.tap(0, TapKind::Residual, Input::Host(&[0.0; 10]))).unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.message().contains("takes none"), "{error}");
}

#[cfg(feature = "model")]
mod models {
    use super::*;
    use kvarto::model::gguf::Gguf;
    use kvarto::model::{Answer, LoadOptions, Model, ModelRows};
    use std::path::PathBuf;

    /// Root mean square of a row.
    fn rms(row: &[f32], eps: f64) -> f64 {
        let squares: f64 = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        (squares / row.len() as f64 + eps).sqrt()
    }

    /// The tensors of a forward pass hang together: the next layer's input is the residual stream, normalised and times
    /// weights that are the same in every row; queries are turned by their positions and by nothing else.
    fn check(name: &str, backend: Box<dyn Backend>, on: &str) {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/families").join(name);
        let gguf = Gguf::open(path).expect("the tiny model opens");
        let (log, layers) = (Log::default(), [0, 1]);
        let kinds = [TapKind::Hidden, TapKind::Residual, TapKind::QueriesPreRope, TapKind::Queries];
        let needs = kinds.map(|kind| need(kind, &layers, 1)).to_vec();
        let registry = registry(needs, Some(Tapper::new(log.clone())));
        let options = LoadOptions { page_tokens: 16, context_tokens: 96, chunk_tokens: 32, ..LoadOptions::default() };
        let mut model = Model::load(&gguf, backend, profile(), registry, &options).expect("the model loads");
        model.engine().backend().forbid_new_pipelines(true);
        let seq = model.engine().create().unwrap();
        let steps: [&[u32]; 3] =
            [&[5, 9, 2, 33, 17, 4, 8, 21, 3, 7, 30, 12, 6, 1, 19, 25, 2, 40, 11, 23], &[7], &[3, 9]];
        for tokens in steps {
            model.step(&[ModelRows { seq, tokens, committed: true, answer: Answer::Best }]).expect("a step");
        }
        model.step(&[ModelRows { seq, tokens: &[], committed: true, answer: Answer::Nothing }]).expect("no rows");
        let config = model.config().clone();
        let log = log.lock().unwrap();
        assert_eq!(log.len(), 3 * kinds.len() * layers.len(), "{name} on {on}");
        let all = |kind: TapKind, layer: usize| -> Vec<Vec<f32>> {
            let of = log.iter().filter(|s| s.kind == kind && s.layer == layer);
            of.flat_map(|s| s.values.chunks(s.width).map(<[f32]>::to_vec)).collect()
        };
        let (residual, hidden) = (all(TapKind::Residual, 0), all(TapKind::Hidden, 1));
        assert_eq!((residual.len(), hidden.len(), residual[0].len()), (23, 23, config.hidden));
        let eps = f64::from(config.rms_eps);
        // Weights from the rows that say most about each channel, then every row held against them.
        let ratio = |r: usize, c: usize| f64::from(hidden[r][c]) * rms(&residual[r], eps) / f64::from(residual[r][c]);
        let mut different = 0;
        for c in 0..config.hidden {
            let best = (0..23).max_by(|&a, &b| residual[a][c].abs().total_cmp(&residual[b][c].abs())).unwrap();
            let weight = ratio(best, c);
            for r in 0..23 {
                let want = weight * f64::from(residual[r][c]) / rms(&residual[r], eps);
                let off = (f64::from(hidden[r][c]) - want).abs();
                assert!(off <= 2e-4 * (1.0 + want.abs()), "{name} on {on}: row {r}, channel {c} is off by {off}");
                different += usize::from((want - f64::from(hidden[0][c])).abs() > 1e-2);
            }
        }
        assert!(different > 23 * config.hidden / 4, "{name} on {on}: rows are hardly different");
        for layer in layers {
            let (before, after) = (all(TapKind::QueriesPreRope, layer), all(TapKind::Queries, layer));
            assert_eq!((before.len(), before[0].len()), (23, config.q_heads * config.head_dim));
            let mut turned = 0;
            for (position, (before, after)) in before.iter().zip(&after).enumerate() {
                for (before, after) in before.chunks(config.head_dim).zip(after.chunks(config.head_dim)) {
                    let (a, b) = (rms(before, 0.0), rms(after, 0.0));
                    assert!((a - b).abs() <= 1e-4 * a && a > 0.0, "{name} on {on}: {a} and {b}");
                    let apart: Vec<f32> = before.iter().zip(after).map(|(x, y)| x - y).collect();
                    // At position 0 nothing turns.
                    assert!(position > 0 || rms(&apart, 0.0) <= 1e-6 * a, "{name} on {on}");
                    turned += usize::from(rms(&apart, 0.0) > 1e-2 * a);
                }
            }
            assert_eq!(turned, 22 * config.q_heads, "{name} on {on}: layer {layer}");
        }
    }

    #[test]
    fn the_forward_pass_hands_over_what_it_computes() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/families");
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .expect("the tiny models are there")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
            .filter(|name| name.ends_with(".gguf"))
            .collect();
        names.sort_unstable();
        assert!(names.len() >= 3, "{names:?}");
        for name in &names {
            // On software adapters a model's pipelines take long to compile: two models are enough there.
            if ["gemma3-sliding.gguf", "qwen3.gguf"].contains(&name.as_str()) {
                on_backends(|backend, on| check(name, backend, on));
            } else {
                check(name, cpu(), "cpu");
            }
        }
    }

    #[test]
    fn a_tap_that_no_model_gives_is_an_error_at_load() {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/families/qwen3.gguf");
        let gguf = Gguf::open(path).expect("the tiny model opens");
        let registry = registry(vec![need(TapKind::Residual, &[0, 99], 1)], None);
        let error = Model::load(&gguf, cpu(), profile(), registry, &LoadOptions::default()).err().expect("a refusal");
        assert!(error.kind() == ErrorKind::Unsupported && error.message().contains("[99]"), "{error}");
    }
}

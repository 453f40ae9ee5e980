//! The CUDA backend: what a machine without it is told, and on a machine with it the same suites as everywhere.

mod support;

use kvarto::ErrorKind;
use kvarto::backend::cuda::{CudaBackend, compiles, devices};
use kvarto::backend::{Backend, BufferSlice, CpuBackend, Recording, SPAN, SubmissionId, Timing, read_blocking};
use kvarto::conformance::{self, Options};
use kvarto::engine::{Engine, EngineOptions, Input, Output, Registry, SeqRows};
use kvarto::kernel::{RowView, copy_slots};
use kvarto::profile::Profile;
use kvarto::selftest::{FORMATS, SelfTest};
use kvarto::shape::CacheShape;
use support::require_or_skip;

/// The first device, or why there is none.
fn cuda() -> Option<CudaBackend> {
    match compiles().and_then(|()| CudaBackend::open(0)) {
        Ok(backend) => Some(backend),
        Err(error) => {
            require_or_skip("cuda", error.message());
            None
        }
    }
}

#[test]
fn a_machine_without_cuda_is_told_in_one_line() {
    let Err(error) = devices() else { return println!("skipped: there is a device") };
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().starts_with("no CUDA: ") && !error.message().contains('\n'), "{error}");
    assert!(!error.remedy().is_empty());
    // Asked again, and by another way: no panic, the same words.
    assert_eq!(CudaBackend::open(0).err().map(|e| e.to_string()), Some(error.to_string()));
}

#[test]
fn conformance_passes() {
    let Some(mut backend) = cuda() else { return };
    let report = conformance::run(&mut backend, &Options { quick: true, ..Options::default() }, &mut |_| {});
    let results = report.results.iter().map(|r| format!("{} {} {:?}", r.id, r.verdict.as_str(), r.worst));
    assert!(report.passed(), "{:#?}", results.collect::<Vec<_>>());
}

#[test]
fn every_format_serves_an_engine() {
    let test = SelfTest::new();
    for (format, known) in FORMATS {
        let Some(backend) = cuda() else { return };
        let (_, verdict) = test.run(Box::new(backend), format, known);
        assert!(verdict.passed(), "{format}: {verdict:?}");
    }
}

#[test]
fn buffers_are_cleared_written_copied_and_read() {
    let Some(mut backend) = cuda() else { return };
    let (a, b) = (backend.alloc("a", 64).expect("a buffer"), backend.alloc("b", 64).expect("a buffer"));
    assert_eq!(read_blocking(&mut backend, a, 0, 64).expect("a read"), [0; 64]);
    backend.write(a, 16, &[7; 16]).expect("a write");
    let mut recording = Recording::new();
    let slice = |buffer, offset| BufferSlice { buffer, offset, bytes: 16 };
    recording.copy(slice(a, 16), slice(b, 32)).expect("a copy");
    let id = backend.submit(recording).expect("a submission");
    let read = read_blocking(&mut backend, b, 32, 16).expect("a read");
    assert_eq!(read, [7; 16]);
    assert!(backend.poll().expect("a state") >= id && id > SubmissionId(0));
    for (offset, bytes) in [(0, 68), (64, 4), (2, 4), (u64::MAX, 4)] {
        assert_eq!(backend.write(a, offset, &vec![0; bytes]).err().map(|e| e.kind()), Some(ErrorKind::Shape));
        assert_eq!(backend.read(a, offset, bytes as u64).err().map(|e| e.kind()), Some(ErrorKind::Shape));
    }
    backend.free(a);
    assert_eq!(backend.read(a, 0, 4).err().map(|e| e.kind()), Some(ErrorKind::Shape));
    assert_eq!((backend.allocated_bytes(), backend.peak_bytes()), (64, 128));
}

#[test]
fn kernels_are_timed_and_none_is_made_after_warm_up() {
    let Some(mut backend) = cuda() else { return };
    let spec = copy_slots::specialise(4096, 64).expect("a kernel");
    backend.prepare(&spec).expect("a pipeline");
    assert_eq!(backend.pipelines_made(), 1);
    backend.forbid_new_pipelines(true);
    backend.prepare(&spec).expect("it is there");
    let other = copy_slots::specialise(8192, 64).expect("a kernel");
    assert_eq!(backend.prepare(&other).err().map(|e| e.kind()), Some(ErrorKind::Unsupported));
    let mut engine = engine(Box::new(cuda().expect("a second context")));
    for (timing, entry) in [(Timing::Kernels, "query"), (Timing::Spans(&["query", "decode", "merge"]), SPAN)] {
        engine.backend().set_timing(timing).expect("timestamps");
        step(&mut engine).expect("a step");
        let times = engine.backend().take_times().expect("times");
        assert!(times.iter().any(|t| t.kernel == entry && t.dispatches > 0 && t.nanoseconds > 0), "{times:?}");
        assert_eq!(times.iter().any(|t| t.kernel == SPAN), entry == SPAN, "{times:?}");
    }
}

#[test]
fn a_refused_allocation_leaves_the_sequences() {
    let Some(backend) = cuda() else { return };
    let mut engine = engine(Box::new(backend));
    step(&mut engine).expect("a step");
    let error = engine.backend().alloc("too much", 1 << 60).expect_err("no card holds that");
    assert!(matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::OutOfMemory), "{error}");
    step(&mut engine).expect("a step after it");
    let limited = cuda().expect("a second context").with_memory_limit(1 << 20);
    let refused = Engine::with_options(
        Box::new(limited),
        shape(),
        Profile::formats("f16", "f16"),
        Registry::builtin(),
        options(),
    );
    assert_eq!(refused.err().map(|e| e.kind()), Some(ErrorKind::OutOfMemory));
}

/// From token to token a step is the same launches: a graph from the third on, with other lengths, and beside each other
/// what reads pages of several formats. All of it gives what the CPU gives.
#[test]
fn steps_that_come_again_are_the_cpus() {
    let Some(backend) = cuda() else { return };
    let (ours, theirs) = (tokens(Box::new(backend)), tokens(Box::new(CpuBackend::new(2).expect("threads"))));
    for (token, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        let most = theirs.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        let worst = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        // Written so that NaN fails.
        assert!(worst <= 5e-3 * most && ours.iter().all(|x| x.is_finite()), "token {token}: {worst} of {most}");
    }
}

/// Outputs of all layers for each of some tokens, over pages that are sealed as they fill.
fn tokens(backend: Box<dyn Backend>) -> Vec<Vec<f32>> {
    const LAYERS: usize = 4;
    let (shape, profile) = (CacheShape::uniform(LAYERS, 8, 2, 64, 64), Profile::formats("fp8", "tq3"));
    let profile = Profile { exact_sink_tokens: 64, exact_tail_tokens: 64, ..profile };
    let mut engine = Engine::with_options(backend, shape, profile, Registry::builtin(), options()).expect("an engine");
    let seq = engine.create().expect("a sequence");
    let out_bytes = (8 * 64 * 4) as u64;
    let buffers: Vec<_> = (0..LAYERS).map(|_| engine.backend().alloc("out", out_bytes).expect("a buffer")).collect();
    let mut state = 1u32;
    let mut numbers = |count: usize| -> Vec<f32> {
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..count).map(|_| next()).collect()
    };
    let mut all = Vec::new();
    for token in 0..340u32 {
        let mut step = engine.begin_step(&[SeqRows { seq, rows: 1, committed: true }]).expect("a step");
        for (layer, &buffer) in buffers.iter().enumerate() {
            let (q, k, v) = (numbers(8 * 64), numbers(2 * 64), numbers(2 * 64));
            step.append(layer, Input::Host(&k), Input::Host(&v)).expect("rows");
            let to = RowView::dense(buffer, 1, 8 * 64);
            step.attend(layer, Input::Host(&q), Output::Device(to)).expect("attention");
        }
        step.finish().expect("a step");
        if token % 9 == 0 || token % 64 < 2 {
            let read = |&buffer: &_| read_blocking(engine.backend(), buffer, 0, out_bytes).expect("a read");
            let bytes: Vec<u8> = buffers.iter().flat_map(read).collect();
            all.push(bytemuck::pod_collect_to_vec(&bytes));
        }
    }
    all
}

fn shape() -> CacheShape {
    CacheShape::uniform(2, 8, 2, 64, 64)
}

fn options() -> EngineOptions {
    EngineOptions { context_tokens: 4096, ..EngineOptions::default() }
}

fn engine(backend: Box<dyn Backend>) -> Engine {
    let profile = Profile { exact_sink_tokens: 0, exact_tail_tokens: 64, ..Profile::formats("fp8", "fp8") };
    Engine::with_options(backend, shape(), profile, Registry::builtin(), options()).expect("an engine")
}

/// One step of one row, of zeros, in every layer.
fn step(engine: &mut Engine) -> kvarto::Result<()> {
    let seq = engine.create()?;
    let (q, kv) = (vec![0.0; 8 * 64], vec![0.0; 2 * 64]);
    let mut out = vec![f32::NAN; 8 * 64];
    let mut step = engine.begin_step(&[SeqRows { seq, rows: 1, committed: true }])?;
    for layer in 0..2 {
        step.append(layer, Input::Host(&kv), Input::Host(&kv))?;
        step.attend(layer, Input::Host(&q), Output::Host(&mut out))?;
    }
    step.submit()?;
    assert!(out.iter().all(|x| *x == 0.0), "{out:?}");
    Ok(())
}

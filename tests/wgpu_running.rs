//! The wgpu backend at length: order, splitting, times, memory over many submissions.
#![cfg(feature = "wgpu")]

mod support;

use kvarto::backend::wgpu::{OpenOptions, Without};
use kvarto::backend::{Backend, BufferSlice, CpuBackend, Recording, SPAN, SubmissionId, Timing, read_blocking};
use support::affine::{dispatch, filled, floats, sequence, spec};
use support::gpu::{on_each, on_each_new};

#[test]
fn submissions_complete_in_order_and_long_ones_are_split() {
    let options = OpenOptions { max_submission_ms: Some(1), ..OpenOptions::default() };
    on_each_new(&options, |mut backend| {
        let pipeline = backend.prepare(&spec(1)).unwrap();
        let count = 20_000u32;
        let bytes = u64::from(count) * 4;
        let a = filled(&mut backend, "a", &vec![1.0; count as usize]);
        let result = filled(&mut backend, "result", &vec![0.0; count as usize]);
        let mut recording = Recording::new();
        for _ in 0..8 {
            let (a, result) = (BufferSlice::whole(a, bytes), BufferSlice::whole(result, bytes));
            recording.dispatch(dispatch(pipeline, count, 0, 1.0, a, result));
            recording.boundary();
        }
        // By the first guess each dispatch takes longer than the limit.
        let id = backend.submit(recording).unwrap();
        assert_eq!(backend.splits(), 7);
        assert_eq!(id, SubmissionId(8));
        let got = floats(&read_blocking(&mut backend, result, 0, bytes).unwrap());
        assert!(got.iter().all(|&v| v == 8.0));
        while backend.poll().unwrap() < id {
            std::thread::yield_now();
        }
    });
}

#[test]
fn timing_counts_every_dispatch() {
    on_each(|backend| {
        let pipeline = backend.prepare(&spec(1)).unwrap();
        let a = filled(backend, "a", &[1.0; 4096]);
        let result = filled(backend, "result", &[0.0; 4096]);
        let bytes = 4096 * 4;
        let many = |count| {
            let (a, result) = (BufferSlice::whole(a, bytes), BufferSlice::whole(result, bytes));
            let mut recording = Recording::new();
            for _ in 0..count {
                recording.dispatch(dispatch(pipeline, 4096, 0, 1.0, a, result));
            }
            recording
        };
        backend.set_timing(Timing::Kernels).unwrap();
        // More than one query set holds.
        backend.submit(many(2100)).unwrap();
        backend.submit(many(5)).unwrap();
        let times = backend.take_times().unwrap();
        assert_eq!((times.len(), times[0].kernel, times[0].dispatches), (1, "affine", 2105));
        assert!(times[0].nanoseconds > 0);
        assert!(backend.take_times().unwrap().is_empty());
        backend.set_timing(Timing::Steps).unwrap();
        backend.submit(many(3)).unwrap();
        backend.submit(many(4)).unwrap();
        let times = backend.take_times().unwrap();
        assert_eq!((times.len(), times[0].kernel, times[0].dispatches), (1, "step", 2));
        assert!(times[0].nanoseconds > 0);
        // A run of named kernels is one entry; others are not timed.
        backend.set_timing(Timing::Spans(&["affine"])).unwrap();
        backend.submit(many(40)).unwrap();
        let times = backend.take_times().unwrap();
        assert_eq!((times.len(), times[0].kernel, times[0].dispatches), (1, SPAN, 40));
        assert!(times[0].nanoseconds > 0);
        backend.set_timing(Timing::Spans(&["another"])).unwrap();
        backend.submit(many(1)).unwrap();
        assert!(backend.take_times().unwrap().is_empty());
        backend.set_timing(Timing::None).unwrap();
        backend.submit(many(1)).unwrap();
        assert!(backend.take_times().unwrap().is_empty());
        assert_eq!(floats(&read_blocking(backend, result, 0, 4).unwrap()), [2154.0]);
        backend.free(a);
        backend.free(result);
    });
}

#[test]
fn timing_without_timestamps_counts_every_dispatch() {
    let without = Without { timestamps: true, ..Without::default() };
    let options = OpenOptions { without, ..OpenOptions::default() };
    on_each_new(&options, |mut backend| {
        assert!(!backend.caps().timestamps && !backend.caps().features.contains(&"timestamp_query".into()));
        backend.set_timing(Timing::Kernels).unwrap();
        let expected = sequence(&mut CpuBackend::new(1).unwrap());
        assert_eq!(sequence(&mut backend), expected);
        let times = backend.take_times().unwrap();
        assert_eq!((times.len(), times[0].kernel, times[0].dispatches), (1, "affine", 41));
        assert!(times[0].nanoseconds > 0);
    });
}

#[test]
fn trusted_shaders_give_the_same_results() {
    let options = OpenOptions { trusted: true, ..OpenOptions::default() };
    on_each_new(&options, |mut backend| {
        assert_eq!(sequence(&mut backend), sequence(&mut CpuBackend::new(1).unwrap()));
    });
}

#[test]
fn bind_groups_of_freed_buffers_are_forgotten() {
    on_each(|backend| {
        let pipeline = backend.prepare(&spec(1)).unwrap();
        let before = backend.cached_bind_groups();
        for _ in 0..3 {
            let (a, b) = (backend.alloc("a", 64).unwrap(), backend.alloc("b", 64).unwrap());
            for _ in 0..2 {
                let mut recording = Recording::new();
                let (a, b) = (BufferSlice::whole(a, 64), BufferSlice::whole(b, 64));
                recording.dispatch(dispatch(pipeline, 1, 0, 1.0, a, b));
                backend.submit(recording).unwrap();
            }
            assert_eq!(backend.cached_bind_groups(), before + 1);
            backend.free(a);
            assert_eq!(backend.cached_bind_groups(), before);
            backend.free(b);
        }
    });
}

#[test]
fn ten_thousand_submissions_keep_memory_flat() {
    on_each(|backend| {
        let pipeline = backend.prepare(&spec(1)).unwrap();
        let a = filled(backend, "a", &[1.0; 64]);
        let result = filled(backend, "result", &[0.0; 64]);
        let mut after_warm_up = None;
        for turn in 0..10_000u32 {
            let mut recording = Recording::new();
            for _ in 0..2 {
                let (a, result) = (BufferSlice::whole(a, 256), BufferSlice::whole(result, 256));
                recording.dispatch(dispatch(pipeline, 64, turn, 0.0, a, result));
            }
            backend.write(a, 0, bytemuck::cast_slice(&[turn; 8])).unwrap();
            backend.submit(recording).unwrap();
            if turn % 10 == 0 {
                read_blocking(backend, result, 0, 256).unwrap();
            }
            if turn == 1000 {
                after_warm_up = resident_bytes();
            }
        }
        assert!(backend.cached_bind_groups() < 100, "{}", backend.cached_bind_groups());
        assert!(backend.staging_bytes() < 1 << 20, "{}", backend.staging_bytes());
        if let (Some(before), Some(after)) = (after_warm_up, resident_bytes()) {
            assert!(after < before + (16 << 20), "{} grew from {before} to {after}", backend.caps().title());
        }
        backend.free(a);
        backend.free(result);
    });
}

#[test]
fn large_writes_and_reads_arrive_whole() {
    on_each(|backend| {
        let words: Vec<u32> = (0..24u32 << 20).map(|i| i.wrapping_mul(2_654_435_761)).collect();
        let bytes = words.len() as u64 * 4;
        let id = backend.alloc("large", bytes).unwrap();
        backend.write(id, 0, bytemuck::cast_slice(&words)).unwrap();
        let back = read_blocking(backend, id, 0, bytes).unwrap();
        assert!(back == bytemuck::cast_slice::<u32, u8>(&words), "{}", backend.caps().title());
        backend.free(id);
    });
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

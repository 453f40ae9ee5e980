//! The wgpu backend by itself: results, refusals, pipelines, and a caller's own device.
#![cfg(feature = "wgpu")]

mod support;

use kvarto::backend::wgpu::{AdapterChoice, Limit, LimitMask, OpenOptions, WgpuBackend};
use kvarto::backend::{
    Backend, BufferSlice, CpuBackend, Dispatch, KernelDecl, Recording, Specialisation, read_blocking,
};
use kvarto::{ErrorKind, wgpu};
use support::affine::{AFFINE, dispatch, filled, floats, sequence, spec};
use support::gpu::{on_each, on_each_new};

#[test]
fn same_results_as_the_cpu_and_everything_in_order() {
    let expected = sequence(&mut CpuBackend::new(1).unwrap());
    assert!(expected.iter().all(|v| v.is_finite()));
    on_each(|backend| {
        let before = backend.allocated_bytes();
        let got = sequence(backend);
        let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&got), bits(&expected), "{}", backend.caps().title());
        assert_eq!(backend.allocated_bytes(), before);
        assert!(backend.peak_bytes() >= before + 12_000);
    });
}

#[test]
fn fresh_buffers_are_zero_and_sizes_are_rounded() {
    on_each(|backend| {
        let before = backend.allocated_bytes();
        let id = backend.alloc("odd", 33).unwrap();
        assert_eq!(backend.allocated_bytes() - before, 48);
        assert_eq!(read_blocking(backend, id, 0, 48).unwrap(), vec![0; 48]);
        assert!(read_blocking(backend, id, 0, 0).unwrap().is_empty());
        backend.free(id);
        backend.free(id);
        assert_eq!(backend.allocated_bytes(), before);
    });
}

#[test]
fn seventy_thousand_groups_each_write_once() {
    on_each(|backend| {
        let count = 70_000u32;
        let bytes = u64::from(count) * 4;
        let a = filled(backend, "a", &vec![1.0; count as usize]);
        // 4 words more than there are groups, to see that excess groups write nothing.
        let result = filled(backend, "result", &vec![0.0; count as usize + 4]);
        let pipeline = backend.prepare(&spec(3)).unwrap();
        let mut recording = Recording::new();
        let whole = BufferSlice::whole(result, bytes + 16);
        recording.dispatch(dispatch(pipeline, count, 0, 1.0, BufferSlice::whole(a, bytes), whole));
        backend.submit(recording).unwrap();
        let got = floats(&read_blocking(backend, result, 0, bytes + 16).unwrap());
        assert!(got[..count as usize].iter().all(|&v| v == 1.0), "{}", backend.caps().title());
        assert_eq!(got[count as usize..], [0.0; 4]);
        backend.free(a);
        backend.free(result);
    });
}

#[test]
fn writes_between_submissions_take_their_turn() {
    on_each(|backend| {
        let pipeline = backend.prepare(&spec(3)).unwrap();
        let a = filled(backend, "a", &[1.0; 4]);
        let result = filled(backend, "result", &[0.0; 4]);
        let step = || {
            let mut recording = Recording::new();
            recording.dispatch(dispatch(
                pipeline,
                4,
                0,
                1.0,
                BufferSlice::whole(a, 16),
                BufferSlice::whole(result, 16),
            ));
            recording
        };
        backend.submit(step()).unwrap();
        backend.write(a, 4, bytemuck::cast_slice(&[10.0f32])).unwrap();
        backend.submit(step()).unwrap();
        let early = backend.read(result, 0, 16).unwrap();
        backend.write(result, 0, bytemuck::cast_slice(&[100.0f32])).unwrap();
        let late = backend.read(result, 0, 16).unwrap();
        // Reads may be awaited in any order.
        assert_eq!(floats(&kvarto::backend::block_on(late).unwrap()), [100.0, 11.0, 2.0, 2.0]);
        assert_eq!(floats(&kvarto::backend::block_on(early).unwrap()), [2.0, 11.0, 2.0, 2.0]);
        backend.free(a);
        backend.free(result);
    });
}

#[test]
fn pipelines_are_made_once_and_can_be_forbidden() {
    on_each(|backend| {
        let first = backend.prepare(&spec(3)).unwrap();
        let made = backend.pipelines_made();
        assert_eq!(backend.prepare(&spec(3)).unwrap(), first);
        assert_eq!(backend.pipelines_made(), made);
        backend.forbid_new_pipelines(true);
        assert_eq!(backend.prepare(&spec(3)).unwrap(), first);
        let error = backend.prepare(&spec(1234)).unwrap_err();
        backend.forbid_new_pipelines(false);
        assert!(error.message().contains("pipeline made after warm-up: affine N=1234"), "{error}");
    });
}

#[test]
fn a_kernel_that_does_not_compile_is_an_error_with_its_line() {
    static BROKEN: KernelDecl = KernelDecl {
        name: "broken",
        bindings: &[],
        params: &[],
        constants: &[],
        codecs: &[],
        cpu: AFFINE.cpu,
        wgsl: "@compute @workgroup_size(1)\nfn main() {\n    let x: u32 = 1.5;\n}\n",
        cuda: None,
    };
    on_each(|backend| {
        let error = backend.prepare(&Specialisation::new(&BROKEN, &[], vec![]).unwrap()).unwrap_err();
        assert!(error.message().contains("kernel broken does not compile at line"), "{error}");
        assert!(error.message().contains("let x: u32 = 1.5;"), "{error}");
        backend.poll().unwrap();
    });
}

#[test]
fn bad_slices_are_refused_and_leave_the_backend_usable() {
    on_each(|backend| {
        let pipeline = backend.prepare(&spec(3)).unwrap();
        let a = filled(backend, "a", &[1.0; 256]);
        let b = filled(backend, "b", &[1.0; 256]);
        let gone = backend.alloc("gone", 64).unwrap();
        backend.free(gone);
        let slice = |buffer, offset, bytes| BufferSlice { buffer, offset, bytes };
        let good = slice(b, 0, 1024);
        for (first, second, wants) in [
            (slice(a, 128, 64), good, "binds 64 bytes at 128"),
            (slice(a, 0, 0), good, "bytes 0..+0"),
            (slice(a, 0, 6), good, "bytes 0..+6"),
            (slice(a, 0, 1028), good, "a buffer of 1024"),
            (slice(a, 256, u64::MAX - 3), good, "binds"),
            (slice(gone, 0, 64), good, "not a live buffer"),
            (slice(b, 512, 256), slice(b, 0, 256), "bound twice"),
        ] {
            let mut recording = Recording::new();
            recording.dispatch(dispatch(pipeline, 1, 0, 1.0, first, second));
            let error = backend.submit(recording).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Shape);
            assert!(error.message().contains(wants) && error.message().contains("affine"), "{wants}: {error}");
        }
        let mut recording = Recording::new();
        recording.dispatch(Dispatch {
            pipeline,
            groups: u32::MAX,
            params: vec![0, 0],
            bindings: vec![slice(a, 0, 16), good],
        });
        assert!(backend.submit(recording).unwrap_err().message().contains("workgroups; at most "));
        let mut recording = Recording::new();
        recording.dispatch(Dispatch { pipeline, groups: 1, params: vec![0], bindings: vec![slice(a, 0, 16), good] });
        assert!(backend.submit(recording).unwrap_err().message().contains("got 2 and 1"));
        let mut recording = Recording::new();
        recording.copy(slice(a, 1000, 256), slice(b, 0, 256)).unwrap();
        assert!(backend.submit(recording).unwrap_err().message().contains("copy source"));
        assert!(backend.write(a, 2, &[0; 4]).is_err());
        assert!(backend.write(a, 1024, &[0; 4]).is_err());
        assert!(backend.read(a, 0, 2048).is_err());
        assert_eq!(floats(&read_blocking(backend, b, 0, 8).unwrap()), [1.0, 1.0]);
        backend.free(a);
        backend.free(b);
    });
}

#[test]
fn refused_allocations_are_errors_and_leave_the_backend_usable() {
    on_each(|backend| {
        let before = backend.allocated_bytes();
        let huge = backend.caps().max_buffer_bytes.saturating_mul(4);
        let error = backend.alloc("huge", huge).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains(&huge.to_string()), "{error}");
        assert!(backend.alloc("endless", u64::MAX).is_err());
        assert_eq!(backend.allocated_bytes(), before);
        backend.poll().unwrap();
    });
    let options = OpenOptions {
        memory_limit: Some(1 << 20),
        limits: LimitMask::default().with(Limit::BindingBytes, 1 << 20),
        ..OpenOptions::default()
    };
    on_each_new(&options, |mut backend| {
        assert_eq!(backend.caps().max_binding_bytes, 1 << 20);
        let id = backend.alloc("most", 1 << 20).unwrap();
        let error = backend.alloc("more", 16).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert!(error.message().contains("more: 16 bytes") && error.message().contains("1048576"), "{error}");
        backend.free(id);
        backend.alloc("again", 1 << 20).unwrap();
    });
}

#[test]
fn bindings_above_a_forced_limit_are_refused() {
    let options =
        OpenOptions { limits: LimitMask::default().with(Limit::BindingBytes, 1 << 20), ..OpenOptions::default() };
    on_each_new(&options, |mut backend| {
        let pipeline = backend.prepare(&spec(3)).unwrap();
        let (a, b) = (backend.alloc("a", 4 << 20).unwrap(), backend.alloc("b", 64).unwrap());
        let mut recording = Recording::new();
        let whole = BufferSlice::whole(a, 2 << 20);
        recording.dispatch(dispatch(pipeline, 1, 0, 1.0, whole, BufferSlice::whole(b, 64)));
        assert!(backend.submit(recording).unwrap_err().message().contains("allows 1048576 bytes"));
    });
}

#[test]
fn a_callers_device_buffers_and_encoder() {
    on_each(|shared| {
        let (device, queue) = (shared.device().clone(), shared.queue().clone());
        // The shared backend keeps the device's callbacks; this one is told by them.
        let options = OpenOptions { take_callbacks: false, ..OpenOptions::default() };
        let mut backend = WgpuBackend::from_device(device.clone(), queue.clone(), &options).unwrap();
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let make = |label, usage| {
            let size = 64;
            device.create_buffer(&wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation: false })
        };
        let (mine, other) = (make("mine", usage), make("other", usage));
        let result = backend.import(mine.clone(), 64).unwrap();
        assert_eq!(backend.import(mine.clone(), 64).unwrap(), result);
        assert_eq!(backend.buffer(result), Some(&mine));
        assert!(backend.import(mine.clone(), 65).is_err());
        assert!(backend.import(make("uniform", wgpu::BufferUsages::UNIFORM), 64).is_err());
        assert_eq!(backend.allocated_bytes(), 0);

        let a = filled(&mut backend, "a", &[1.0; 16]);
        queue.write_buffer(&mine, 0, bytemuck::cast_slice(&[0.0f32; 16]));
        let pipeline = backend.prepare(&spec(1)).unwrap();
        let step = |step, scale| {
            let (a, result) = (BufferSlice::whole(a, 64), BufferSlice::whole(result, 64));
            let mut recording = Recording::new();
            recording.dispatch(dispatch(pipeline, 16, step, scale, a, result));
            recording
        };
        // Ours, the caller's own commands, ours again with other parameters; and one encoder that is never submitted.
        let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut dropped = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        backend.record_into(&step(1, 2.0), &mut encoder).unwrap();
        backend.record_into(&step(99, 99.0), &mut dropped).unwrap();
        encoder.copy_buffer_to_buffer(&mine, 0, &other, 0, 64);
        encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        backend.record_into(&step(10, 4.0), &mut encoder).unwrap();
        drop(dropped);
        // A submission of the backend's own in between must not disturb what was recorded.
        backend.submit(step(100, 0.0)).unwrap();
        queue.submit([encoder.finish()]);
        assert_eq!(floats(&read_blocking(&mut backend, result, 0, 64).unwrap()), [117.0; 16]);
        let other = backend.import(other, 64).unwrap();
        assert_eq!(floats(&read_blocking(&mut backend, other, 0, 64).unwrap()), [103.0; 16]);
        backend.free(result);
        assert_eq!(mine.size(), 64);
    });
}

#[test]
fn adapters_are_reported_and_software_is_not_taken_unasked() {
    let reports = WgpuBackend::adapters();
    for report in &reports {
        assert!(!report.name.is_empty() && !report.api.is_empty());
        println!("{} {}: {} ({})", report.api, report.index, report.name, report.driver);
    }
    let usable = |r: &&kvarto::backend::wgpu::AdapterReport| r.refusal.is_none();
    if reports.iter().filter(usable).all(|r| r.software) {
        let error = WgpuBackend::open(&AdapterChoice::Auto { allow_software: false }).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        for report in &reports {
            assert!(error.message().contains(&report.name), "{error}");
        }
    }
    let choice = AdapterChoice::Api { api: "vulkan".into(), index: 999 };
    assert!(WgpuBackend::open(&choice).err().unwrap().message().contains("vulkan:999 is not there"));
}

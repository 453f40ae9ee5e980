//! The cache on the caller's own wgpu device: two layers of attention with a kernel of the caller's between them,
//! all in one command encoder and one submission a step. The result is checked against the CPU backend.
//!
//! `cargo run --example own_device`; exits with 3 where there is no adapter.

use kvarto::backend::wgpu::{OpenOptions, WgpuBackend};
use kvarto::backend::{CpuBackend, block_on};
use kvarto::engine::{Engine, Input, Output, Registry, SeqId, SeqRows};
use kvarto::kernel::RowView;
use kvarto::profile::Profile;
use kvarto::shape::CacheShape;
use kvarto::wgpu;
use std::process::ExitCode;

const Q_HEADS: usize = 4;
const KV_HEADS: usize = 2;
const DIM: usize = 64;
const Q_WIDTH: usize = Q_HEADS * DIM;
const KV_WIDTH: usize = KV_HEADS * DIM;
const MOST_ROWS: usize = 48;
const STEPS: [usize; 5] = [48, 40, 1, 1, 3];

type Fault = Box<dyn std::error::Error>;

/// From the first layer's output to the second layer's inputs; [`between`] is the same on the CPU.
const BETWEEN: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> q: array<f32>;
@group(0) @binding(2) var<storage, read_write> k: array<f32>;
@group(0) @binding(3) var<storage, read_write> v: array<f32>;
@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) row: vec3<u32>, @builtin(local_invocation_index) c: u32) {
    let start = row.x * 256u;
    let a = x[start + c];
    let b = x[start + 128u + c];
    q[start + c] = 4.0 * a;
    q[start + 128u + c] = 3.0 * b;
    k[row.x * 128u + c] = 5.0 * a - b;
    v[row.x * 128u + c] = a * b + 0.5;
}
";

fn between(x: &[f32]) -> [Vec<f32>; 3] {
    let (mut q, mut k, mut v) = (Vec::new(), Vec::new(), Vec::new());
    for row in x.chunks(Q_WIDTH) {
        let (a, b) = row.split_at(KV_WIDTH);
        q.extend(a.iter().map(|a| 4.0 * a));
        q.extend(b.iter().map(|b| 3.0 * b));
        k.extend(a.iter().zip(b).map(|(a, b)| 5.0 * a - b));
        v.extend(a.iter().zip(b).map(|(a, b)| a * b + 0.5));
    }
    [q, k, v]
}

/// Inputs of the first layer: q, k, v of `rows` tokens from `at` on.
fn inputs(at: usize, rows: usize) -> [Vec<f32>; 3] {
    let wave = |width: usize, step: f32| -> Vec<f32> {
        (at * width..(at + rows) * width).map(|i| 1.5 * (i as f32 * step).sin()).collect()
    };
    [wave(Q_WIDTH, 0.37), wave(KV_WIDTH, 0.71), wave(KV_WIDTH, 0.113)]
}

fn engine(backend: Box<dyn kvarto::backend::Backend>) -> kvarto::Result<Engine> {
    let shape = CacheShape::uniform(2, Q_HEADS, KV_HEADS, DIM, 16);
    let profile = Profile { exact_sink_tokens: 0, exact_tail_tokens: 16, ..Profile::formats("fp8", "fp8") };
    Engine::new(backend, shape, profile, Registry::builtin())
}

/// The caller's device, made as the caller likes.
fn device() -> Result<Option<(wgpu::Device, wgpu::Queue, String)>, Fault> {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::PRIMARY;
    let instance = wgpu::Instance::new(descriptor);
    let adapters = block_on(instance.enumerate_adapters(wgpu::Backends::PRIMARY));
    let Some(adapter) = adapters.into_iter().next() else { return Ok(None) };
    let (device, queue) = block_on(adapter.request_device(&wgpu::DeviceDescriptor {
        required_limits: wgpu::Limits::defaults().or_worse_values_from(&adapter.limits()),
        ..Default::default()
    }))?;
    Ok(Some((device, queue, adapter.get_info().name)))
}

/// Everything of the caller's.
struct Mine {
    device: wgpu::Device,
    queue: wgpu::Queue,
    pipeline: wgpu::ComputePipeline,
    bind_group: wgpu::BindGroup,
    /// q, k, v of the first layer; its output; q, k, v of the second; its output.
    buffers: Vec<wgpu::Buffer>,
    back: wgpu::Buffer,
}

impl Mine {
    fn new(device: wgpu::Device, queue: wgpu::Queue) -> Self {
        let buffer = |width: usize, usage| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("the caller's"),
                size: (MOST_ROWS * width * 4) as u64,
                usage,
                mapped_at_creation: false,
            })
        };
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let widths = [Q_WIDTH, KV_WIDTH, KV_WIDTH, Q_WIDTH, Q_WIDTH, KV_WIDTH, KV_WIDTH, Q_WIDTH];
        let buffers: Vec<_> = widths.into_iter().map(|width| buffer(width, usage)).collect();
        let back = buffer(Q_WIDTH, wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some("between"),
            source: wgpu::ShaderSource::Wgsl(BETWEEN.into()),
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some("between"),
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: Default::default(),
            cache: None,
        });
        let entries: Vec<_> = buffers[3..7]
            .iter()
            .zip(0..)
            .map(|(b, binding)| wgpu::BindGroupEntry { binding, resource: b.as_entire_binding() })
            .collect();
        let bind_group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("between"),
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        Mine { device, queue, pipeline, bind_group, buffers, back }
    }

    /// One step: one encoder, one submission.
    fn step(&self, engine: &mut Engine, seq: SeqId, at: usize, rows: usize) -> Result<Vec<f32>, Fault> {
        for (buffer, values) in self.buffers.iter().zip(inputs(at, rows)) {
            self.queue.write_buffer(buffer, 0, bytemuck::cast_slice(&values));
        }
        let mut views = Vec::new();
        let backend = engine.backend().as_wgpu().ok_or("not the wgpu backend")?;
        for buffer in &self.buffers {
            let width = buffer.size() / 4 / MOST_ROWS as u64;
            let id = backend.import(buffer.clone(), buffer.size())?;
            views.push(RowView::dense(id, rows as u32, width as u32));
        }
        let device = |at: usize| Input::Device(views[at]);
        let mut encoder = self.device.create_command_encoder(&Default::default());
        let mut step = engine.begin_step(&[SeqRows { seq, rows: rows as u32, committed: true }])?;
        step.append(0, device(1), device(2))?;
        step.attend(0, device(0), Output::Device(views[3]))?;
        step.record_into(&mut encoder)?;
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&self.pipeline);
            pass.set_bind_group(0, &self.bind_group, &[]);
            pass.dispatch_workgroups(rows as u32, 1, 1);
        }
        step.append(1, device(5), device(6))?;
        step.attend(1, device(4), Output::Device(views[7]))?;
        step.record_into(&mut encoder)?;
        let report = step.finish()?;
        assert!(report.submission.is_none(), "everything is in the caller's encoder");
        let bytes = (rows * Q_WIDTH * 4) as u64;
        encoder.copy_buffer_to_buffer(&self.buffers[7], 0, &self.back, 0, bytes);
        self.queue.submit([encoder.finish()]);

        let (send, receive) = std::sync::mpsc::channel();
        self.back.slice(..bytes).map_async(wgpu::MapMode::Read, move |done| drop(send.send(done)));
        self.device.poll(wgpu::PollType::wait_indefinitely())?;
        receive.recv()??;
        let values = bytemuck::pod_collect_to_vec(&self.back.slice(..bytes).get_mapped_range()?);
        self.back.unmap();
        Ok(values)
    }
}

/// The same on the CPU backend, with host slices.
fn on_cpu(engine: &mut Engine, seq: SeqId, at: usize, rows: usize) -> kvarto::Result<Vec<f32>> {
    let mut step = engine.begin_step(&[SeqRows { seq, rows: rows as u32, committed: true }])?;
    let [q, k, v] = inputs(at, rows);
    let mut out = vec![f32::NAN; rows * Q_WIDTH];
    step.append(0, Input::Host(&k), Input::Host(&v))?;
    step.attend(0, Input::Host(&q), Output::Host(&mut out))?;
    let [q, k, v] = between(&out);
    step.append(1, Input::Host(&k), Input::Host(&v))?;
    step.attend(1, Input::Host(&q), Output::Host(&mut out))?;
    step.finish()?;
    Ok(out)
}

fn main() -> Result<ExitCode, Fault> {
    let Some((device, queue, name)) = device()? else {
        eprintln!("no adapter of Vulkan, Metal or DX12");
        return Ok(ExitCode::from(3));
    };
    let backend = WgpuBackend::from_device(device.clone(), queue.clone(), &OpenOptions::default())?;
    let mine = Mine::new(device, queue);
    let (mut gpu, mut cpu) = (engine(Box::new(backend))?, engine(Box::new(CpuBackend::new(0)?))?);
    let (gpu_seq, cpu_seq) = (gpu.create()?, cpu.create()?);
    let (mut at, mut worst) = (0, 0.0f32);
    for rows in STEPS {
        let got = mine.step(&mut gpu, gpu_seq, at, rows)?;
        let expected = on_cpu(&mut cpu, cpu_seq, at, rows)?;
        for (got, expected) in got.iter().zip(&expected) {
            let off = (got - expected).abs();
            worst = if worst.is_nan() || off <= worst { worst } else { off };
        }
        at += rows;
    }
    println!("{name}: {at} tokens in {} submissions, off from the CPU backend by {worst:.1e}", STEPS.len());
    println!("pages by format: {:?}", gpu.stats().pages);
    // Values are of the order of 1; codes of fp8 pages may differ in their last bit.
    Ok(if worst <= 2e-2 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

//! Fragments run on every adapter of this machine: pages that the CPU packs are read there, and the reverse.

use kvarto::format::{Codec, FormatRegistry};
use kvarto::num::WGSL_NUMBERS;
use kvarto::shape::{PageGeometry, Side};
use wgpu::util::DeviceExt as _;

/// (tokens, head size): every page size, one and two sub-tiles, short blocks of both kinds.
const GEOMETRIES: [(usize, usize); 8] =
    [(16, 8), (32, 80), (64, 64), (64, 128), (128, 192), (16, 256), (128, 256), (64, 512)];

struct Gpu {
    name: String,
    gl: bool,
    device: wgpu::Device,
    queue: wgpu::Queue,
}

fn adapters() -> Vec<Gpu> {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.flags = wgpu::InstanceFlags::empty().with_env();
    let instance = wgpu::Instance::new(descriptor);
    let found = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all()));
    let open = |adapter: wgpu::Adapter| {
        let info = adapter.get_info();
        let limits = wgpu::Limits::downlevel_defaults().or_worse_values_from(&adapter.limits());
        let request = wgpu::DeviceDescriptor { required_limits: limits, ..Default::default() };
        let (device, queue) = pollster::block_on(adapter.request_device(&request)).ok()?;
        Some(Gpu {
            gl: info.backend == wgpu::Backend::Gl,
            name: format!("{} ({:?})", info.name, info.backend),
            device,
            queue,
        })
    };
    found.into_iter().filter_map(open).collect()
}

impl Gpu {
    fn pipeline(&self, module: &wgpu::ShaderModule, entry: &str) -> wgpu::ComputePipeline {
        self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module,
            entry_point: Some(entry),
            // Fragments do without zeros, which would take OpenGL's compilers minutes for large arrays.
            compilation_options: wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache: None,
        })
    }

    /// Runs one workgroup with `buffers` (binding, contents) and returns those contents after.
    fn run(&self, pipeline: &wgpu::ComputePipeline, buffers: &[(u32, &[u32])]) -> Vec<Vec<u32>> {
        let make = |contents: &[u32], usage| {
            let contents = contents.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>();
            self.device.create_buffer_init(&wgpu::util::BufferInitDescriptor {
                label: None,
                contents: &contents,
                usage,
            })
        };
        let on_device: Vec<_> = buffers
            .iter()
            .map(|(_, words)| make(words, wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC))
            .collect();
        let entries: Vec<_> = buffers
            .iter()
            .zip(&on_device)
            .map(|((binding, _), b)| wgpu::BindGroupEntry { binding: *binding, resource: b.as_entire_binding() })
            .collect();
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        let mut encoder = self.device.create_command_encoder(&Default::default());
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(pipeline);
            pass.set_bind_group(0, &group, &[]);
            pass.dispatch_workgroups(1, 1, 1);
        }
        let staging: Vec<_> = buffers
            .iter()
            .map(|(_, words)| make(words, wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST))
            .collect();
        for (from, to) in on_device.iter().zip(&staging) {
            encoder.copy_buffer_to_buffer(from, 0, to, 0, from.size());
        }
        self.queue.submit([encoder.finish()]);
        for buffer in &staging {
            buffer.slice(..).map_async(wgpu::MapMode::Read, |r| r.expect("the buffer can be mapped"));
        }
        self.device.poll(wgpu::PollType::Wait { submission_index: None, timeout: None }).expect("the device answers");
        let read = |buffer: &wgpu::Buffer| {
            let bytes = buffer.slice(..).get_mapped_range().expect("the buffer is mapped").to_vec();
            bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect()
        };
        staging.iter().map(read).collect()
    }
}

/// Entry points that encode a page and decode one, after a gap of 8 words in the slab.
fn kernel(codec: &dyn Codec, workgroup: usize) -> String {
    let PageGeometry { tokens, head_dim } = codec.layout().geometry;
    let (total, quads) = (tokens * head_dim / 4, head_dim / 4);
    format!(
        "{WGSL_NUMBERS}
const WORKGROUP: u32 = {workgroup}u;
@group(0) @binding(0) var<storage, read> source: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> a_slab: array<u32>;
fn a_word(i: u32) -> u32 {{ return a_slab[i]; }}
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;
fn source4(token: u32, c4: u32) -> vec4<f32> {{ return source[token * {quads}u + c4]; }}
{}{}{}
@compute @workgroup_size({workgroup})
fn encode(@builtin(local_invocation_index) lid: u32) {{ a_encode_page(8u, lid); }}
@compute @workgroup_size({workgroup})
fn decode(@builtin(local_invocation_index) lid: u32) {{
    for (var i = lid; i < {total}u; i += WORKGROUP) {{
        let token = i / {quads}u;
        out[i] = a_load4(8u, token, i % {quads}u) * a_scale(8u, token);
    }}
}}
",
        codec.wgsl("a"),
        codec.wgsl_store("a"),
        codec.wgsl_encode("a"),
    )
}

/// Uniform bits; the same sequence everywhere.
fn random(seed: u32) -> impl FnMut() -> u32 {
    let mut x = seed.wrapping_mul(0x9e37_79b9) | 1;
    move || {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        x
    }
}

/// Rows of bell-shaped values; with `faults`, also rows of zeros, extremes, infinities and NaN.
fn rows(tokens: usize, head_dim: usize, faults: bool) -> Vec<f32> {
    let mut next = random((tokens * head_dim) as u32);
    let mut unit = || next() as f32 / u32::MAX as f32 - 0.5;
    let mut values: Vec<f32> = (0..tokens * head_dim).map(|_| (0..6).map(|_| unit()).sum::<f32>() * 1.4).collect();
    if faults {
        let row = |t: usize| t * head_dim..(t + 1) * head_dim;
        values[row(1)].fill(0.0);
        values[row(2)].fill(-0.0);
        for (t, x) in [(3, f32::MAX), (4, 1e-12), (5, 1e6), (6, f32::INFINITY), (7, 1e-25)] {
            values[row(t)].iter_mut().for_each(|v| *v *= if x.is_finite() { x } else { 1.0 });
            values[row(t)][5] = x;
            values[row(t)][6] = -x;
        }
        values[row(9)][3] = f32::NAN;
    }
    values
}

fn assert_pages_agree(what: &str, format: &str, codec: &dyn Codec, got: &[u32], want: &[u32]) {
    if !format.starts_with("tq") {
        let first = got.iter().zip(want).position(|(a, b)| a != b);
        assert_eq!(first.map(|i| (i, got[i], want[i])), None, "{what}: word, GPU, CPU");
        return;
    }
    // A GPU may fuse the sums: codes at a threshold and the last bit of a scale may differ.
    let layout = codec.layout();
    let PageGeometry { tokens, head_dim } = layout.geometry;
    let code = |page: &[u32], t, c| match layout.planes.len() {
        1 => layout.read(page, 0, t, c),
        _ => 2 * layout.read(page, 0, t, c) + layout.read(page, 1, t, c),
    };
    let mut other = 0;
    for t in 0..tokens {
        let [a, b] = [got, want].map(|page| layout.read_scalar(page, 0, t, 0));
        assert!(a.abs_diff(b) <= 1, "{what}: scale of token {t}: {a:#x} on the GPU, {b:#x} on the CPU");
        for c in 0..head_dim {
            let [a, b] = [got, want].map(|page| code(page, t, c));
            assert!(a.abs_diff(b) <= 1, "{what}: code ({t}, {c}): {a} on the GPU, {b} on the CPU");
            other += usize::from(a != b);
        }
    }
    assert!(other * 1000 <= tokens * head_dim, "{what}: {other} codes differ");
    if other > 0 {
        println!("{what}: {other} of {} codes differ", tokens * head_dim);
    }
}

fn assert_values_agree(what: &str, format: &str, got: &[u32], want: &[f32]) {
    let most = if format == "q8_0" { 128.0 } else { 8.0 };
    for (i, (got, want)) in got.iter().map(|b| f32::from_bits(*b)).zip(want).enumerate() {
        // Subnormals may be flushed, those of f16 (below 2^-14, times the greatest code) included.
        let flushed = got == 0.0 && want.abs() <= 2f32.powi(-14) * most;
        let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
        assert!(same || flushed, "{what}: value {i}: {got:e} on the GPU, {want:e} on the CPU");
    }
}

#[test]
fn pages_agree_with_the_cpus() {
    let gpus = adapters();
    if gpus.is_empty() {
        super::support::require_or_skip("vulkan", "no adapter");
    }
    for gpu in &gpus {
        let mut pages = 0;
        for (number, (_, format)) in FormatRegistry::builtin().iter().enumerate() {
            for side in Side::BOTH {
                for (i, (tokens, head_dim)) in GEOMETRIES.into_iter().enumerate() {
                    // Mesa's GL takes a second for each: every third geometry, others with each format and side.
                    let left_out = gpu.gl && !(i + number + usize::from(side == Side::V)).is_multiple_of(3);
                    if left_out || !super::takes(format.name(), head_dim) {
                        continue;
                    }
                    let what = format!("{}: {} {side:?} P={tokens} D={head_dim}", gpu.name, format.name());
                    let codec = format.codec(side, PageGeometry { tokens, head_dim }).expect("a legal geometry");
                    let source = wgpu::ShaderSource::Wgsl(kernel(&*codec, [64, 128, 256][i % 3]).into());
                    let module = gpu.device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
                    let words = codec.layout().page_words;
                    let encode = gpu.pipeline(&module, "encode");
                    for faults in [false, true] {
                        let values = rows(tokens, head_dim, faults);
                        let mut want = vec![0; words];
                        codec.encode(&values, &mut want);
                        let bits: Vec<u32> = values.iter().map(|x| x.to_bits()).collect();
                        let slab = vec![0xdead_beefu32; words + 16];
                        let got = gpu.run(&encode, &[(0, &bits), (1, &slab)]).remove(1);
                        assert!(got[..8].iter().chain(&got[words + 8..]).all(|w| *w == 0xdead_beef), "{what}: overrun");
                        assert_pages_agree(&what, format.name(), &*codec, &got[8..words + 8], &want);
                        pages += 1;
                    }
                    // Any bits: every code, every scale.
                    let mut next = random(words as u32);
                    let mut slab: Vec<u32> = (0..words + 16).map(|_| next()).collect();
                    if format.name() == "fp8" {
                        slab[8 + codec.layout().scalars[0].offset_words] = 0.37f32.to_bits();
                    }
                    if format.name() == "q3_affine" {
                        // Flushed to 0, a scale would leave a zero point that is not.
                        let at = 8 + codec.layout().scalars[0].offset_words;
                        slab[at..at + tokens].iter_mut().for_each(|pair| *pair |= 0x0400_0400);
                    }
                    let out = vec![0u32; tokens * head_dim];
                    let got = gpu.run(&gpu.pipeline(&module, "decode"), &[(1, &slab), (2, &out)]).remove(1);
                    let mut want = vec![0.0; tokens * head_dim];
                    codec.decode(&slab[8..words + 8], 0..tokens, &mut want);
                    assert_values_agree(&what, format.name(), &got, &want);
                }
            }
        }
        println!("{}: {pages} pages encoded alike, {} decoded", gpu.name, pages / 2);
    }
}

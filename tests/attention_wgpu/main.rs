//! The WGSL kernels on Vulkan (software adapters included) against the dense f64 reference and the CPU's kernels.
#![cfg(feature = "wgpu")]

#[path = "../support/mod.rs"]
mod support;

mod attend;
mod codes;
mod faults;
mod gl;
mod grid;
mod poisoned;
mod rows;
mod subgroups;

use kvarto::backend::CpuBackend;
use kvarto::backend::wgpu::WgpuBackend;

/// Runs `test` with the program's one Vulkan device, or says why not.
fn on_vulkan(test: impl FnOnce(&mut WgpuBackend)) {
    support::gpu::on("vulkan", test);
}

/// Runs `test` with that device held to WebGPU's defaults, or says why not.
fn on_floor(test: impl FnOnce(&mut WgpuBackend)) {
    support::gpu::on("vulkan floor", test);
}

fn on_both_tiers(test: impl Fn(&mut WgpuBackend)) {
    on_vulkan(&test);
    on_floor(&test);
}

/// Runs `test` with the program's one device of each API, or says why not.
fn on_each(test: impl Fn(&mut WgpuBackend)) {
    support::gpu::on_each(test);
}

fn cpu() -> CpuBackend {
    CpuBackend::new(0).expect("threads")
}

//! Any GPU through WGSL: the backend over wgpu.
//!
//! Within WebGPU's default limits and without optional features, but for larger buffers and timestamps where
//! the adapter has them. A submission is one write of all parameter blocks, then one compute pass for the whole
//! recording unless copies or the watchdog limit split it. Errors and the loss of the device reach the caller as
//! `Err` from the next call on; reads that wait are woken with them.

mod adapters;
mod buffers;
mod device;
mod encode;
mod groups;
mod health;
mod pipelines;
mod poller;
mod read;
mod submit;
mod timing;
mod uniforms;
mod work;

pub use adapters::{AdapterChoice, AdapterReport, adapters};
pub use device::{OpenOptions, WgpuBackend};
pub use health::ErrorSink;

//! Any GPU through WGSL: the backend over wgpu.
//!
//! A device has its adapter's limits for compute, and timestamps, 16-bit floats and subgroups where the adapter has them;
//! masks ([`LimitMask`], [`Without`]) take any of it away. WebGPU's defaults suffice. A submission is one write of all parameter blocks, then one compute pass for the whole
//! recording unless copies or the watchdog limit split it. Errors and the loss of the device reach the caller as
//! `Err` from the next call on; reads that wait are woken with them.

mod adapters;
mod buffers;
mod device;
mod encode;
mod groups;
mod health;
mod mask;
mod options;
mod pipelines;
mod poller;
mod read;
mod submit;
mod timing;
mod uniforms;
mod work;

pub use adapters::{AdapterChoice, AdapterReport, adapters};
pub use device::WgpuBackend;
pub use health::ErrorSink;
pub use mask::{Limit, LimitBase, LimitMask, Without};
pub use options::OpenOptions;

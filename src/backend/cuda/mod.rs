//! NVIDIA's GPUs through CUDA's driver, which is loaded when the program runs.
//!
//! A kernel's text is its own where `cuda/` has one, and its WGSL's translation elsewhere ([`source()`]). Machine code comes
//! with the crate for what is usual ([`prebuilt`]), and is made by NVRTC elsewhere, where that is found, and kept on disk
//! ([`Compiler`]).

mod buffers;
mod compile;
mod device;
mod driver;
mod kept;
mod nvrtc;
pub mod prebuilt;
mod probe;
mod read;
mod source;
mod timing;
mod translate;

pub use compile::{Compiler, identity, serves};
pub use device::{CudaBackend, caps};
pub use nvrtc::{compiles, compiles_for};
pub use probe::{DeviceReport, best, device, devices};
pub use source::{ENTRY, Source, source};

//! NVIDIA's GPUs through CUDA's driver, which is loaded when the program runs.
//!
//! A kernel's text is its own where `cuda/` has one, and its WGSL's translation elsewhere ([`source()`]); machine code is
//! made by NVRTC, where that is found, and kept on disk ([`Compiler`]).

mod buffers;
mod capabilities;
mod compile;
mod device;
mod driver;
mod function;
mod graph;
mod launch;
mod probe;
mod read;
mod source;
mod standing;
mod timing;
mod translate;

pub use compile::{Compiler, compiles, compiles_for};
pub use device::CudaBackend;
pub use probe::{DeviceReport, best, device, devices};
pub use source::{ENTRY, Source, source};
pub use standing::Standing;

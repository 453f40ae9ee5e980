#[cfg(feature = "model")]
mod golden;
pub mod halves;
#[cfg(feature = "wgpu")]
mod portable;
pub mod rig;
mod speed;
#[cfg(feature = "cuda")]
mod tensors;

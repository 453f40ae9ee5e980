#[cfg(feature = "model")]
mod golden;
#[cfg(feature = "wgpu")]
mod portable;
pub mod rig;
mod speed;

//! The wgpu backend.

/// Being built.
pub struct WgpuBackend;

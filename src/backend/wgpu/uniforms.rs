//! Parameter blocks of all dispatches of a recording, gathered in one uniform buffer.

use crate::backend::reading::lock;
use std::sync::{Arc, Mutex};

/// Distance of two blocks: WebGPU's default alignment of dynamic offsets, which no adapter exceeds.
pub(super) const STRIDE_BYTES: u64 = 256;
/// Bytes of the smallest uniform buffer: 128 dispatches.
const SMALLEST_BYTES: u64 = 32 << 10;
/// Uniform buffers kept for recordings into callers' encoders.
const KEPT_BUFFERS: usize = 8;

/// A uniform buffer; `id` is never used twice.
#[derive(Clone)]
pub(super) struct Uniform {
    pub(super) id: u64,
    pub(super) buffer: wgpu::Buffer,
}

/// The uniform buffers of a backend.
///
/// Its own submissions all use one: a queue orders a write after the submissions before it, so blocks are never
/// overwritten while in use. A recording into a caller's encoder is submitted at a time unknown here, so it
/// borrows a buffer of its own until the caller's submission is complete or the encoder is dropped.
pub(super) struct Uniforms {
    own: Option<Uniform>,
    returned: Arc<Mutex<Vec<Uniform>>>,
    next_id: u64,
}

/// Gives a borrowed uniform buffer back when dropped.
pub(super) struct Loan {
    uniform: Option<Uniform>,
    returned: Arc<Mutex<Vec<Uniform>>>,
}

impl Drop for Loan {
    fn drop(&mut self) {
        let mut returned = lock(&self.returned);
        if let Some(uniform) = self.uniform.take().filter(|_| returned.len() < KEPT_BUFFERS) {
            returned.push(uniform);
        }
    }
}

impl Uniforms {
    pub(super) fn new() -> Self {
        Uniforms { own: None, returned: Arc::default(), next_id: 0 }
    }

    /// The backend's own buffer, with room for `bytes` bytes; the id of a smaller one that it replaces.
    pub(super) fn own(&mut self, device: &wgpu::Device, bytes: u64) -> (Uniform, Option<u64>) {
        match self.own.take() {
            Some(uniform) if uniform.buffer.size() >= bytes => {
                self.own = Some(uniform.clone());
                (uniform, None)
            }
            old => {
                let uniform = self.make(device, bytes);
                self.own = Some(uniform.clone());
                (uniform, old.map(|o| o.id))
            }
        }
    }

    /// Forgets the backend's own buffer, whatever became of it; its id.
    pub(super) fn forget_own(&mut self) -> Option<u64> {
        self.own.take().map(|uniform| uniform.id)
    }

    /// A buffer for one recording into a caller's encoder, to be held until that was executed.
    pub(super) fn borrow(&mut self, device: &wgpu::Device, bytes: u64) -> (Uniform, Loan) {
        let fitting = {
            let mut returned = lock(&self.returned);
            let at = returned.iter().position(|u| u.buffer.size() >= bytes);
            at.map(|at| returned.remove(at))
        };
        let uniform = fitting.unwrap_or_else(|| self.make(device, bytes));
        (uniform.clone(), Loan { uniform: Some(uniform), returned: self.returned.clone() })
    }

    fn make(&mut self, device: &wgpu::Device, bytes: u64) -> Uniform {
        self.next_id += 1;
        let buffer = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("params"),
            size: bytes.next_power_of_two().max(SMALLEST_BYTES),
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        Uniform { id: self.next_id, buffer }
    }
}

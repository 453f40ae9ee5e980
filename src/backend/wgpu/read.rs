//! Reading back by way of pooled staging buffers.

use super::health::{ErrorSink, scoped};
use crate::backend::reading::{Read, ReadState, lock};
use crate::error::{Error, ErrorKind};
use std::sync::{Arc, Mutex};

/// Staging buffers that are kept for the next reads: their number and their bytes together.
const KEPT_BUFFERS: usize = 16;
const KEPT_BYTES: u64 = 64 << 20;

/// Buffers that reads go through.
#[derive(Clone, Default)]
pub(super) struct Staging(Arc<Mutex<Vec<wgpu::Buffer>>>);

impl Staging {
    /// An unmapped buffer of at least `bytes` bytes.
    pub(super) fn take(&self, device: &wgpu::Device, bytes: u64, max_bytes: u64) -> wgpu::Buffer {
        // Not one much larger: a small read should not hold a large buffer from the next large read.
        let fits = |b: &wgpu::Buffer| b.size() >= bytes && b.size() <= bytes.saturating_mul(4).max(64 << 10);
        let mut kept = lock(&self.0);
        if let Some(at) = kept.iter().position(fits) {
            return kept.swap_remove(at);
        }
        drop(kept);
        let size = match bytes {
            0..=0xff_ffff => bytes.next_power_of_two().max(4096),
            _ => bytes.next_multiple_of(1 << 20),
        };
        device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("read"),
            size: size.min(max_bytes.max(bytes)),
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        })
    }

    fn give(&self, buffer: wgpu::Buffer) {
        let mut kept = lock(&self.0);
        let bytes: u64 = kept.iter().map(|b| b.size()).sum();
        if kept.len() < KEPT_BUFFERS && bytes + buffer.size() <= KEPT_BYTES {
            kept.push(buffer);
        }
    }

    /// Bytes of the buffers that wait for a next read.
    pub(super) fn kept_bytes(&self) -> u64 {
        lock(&self.0).iter().map(|b| b.size()).sum()
    }

    /// Maps `buffer`, into which a copy of `bytes` bytes was submitted, and finishes the read when it is there.
    pub(super) fn finish_when_mapped(
        &self,
        device: &wgpu::Device,
        buffer: wgpu::Buffer,
        bytes: u64,
        sink: &ErrorSink,
    ) -> Read {
        let state = Arc::new(ReadState::default());
        sink.watch(&state);
        // Finishes the read also when the device drops the callback without calling it.
        let guard = Guard { state: state.clone(), sink: sink.clone() };
        let pool = self.clone();
        let mapped = buffer.clone();
        let device = device.clone();
        buffer.slice(..bytes).map_async(wgpu::MapMode::Read, move |outcome| {
            let lost = || gone(&guard.sink);
            let result = guard.sink.check().and_then(|()| {
                outcome.map_err(|_| lost())?;
                // Only the loss of the device takes a mapping away.
                let copied = mapped.slice(..bytes).get_mapped_range().map(|view| view.to_vec());
                let copied = copied.map_err(|_| lost())?;
                // Fails where the device is lost meanwhile; the bytes are from before and stand.
                if scoped(&device, || mapped.unmap()).1.is_none() {
                    pool.give(mapped);
                }
                Ok(copied)
            });
            guard.state.finish(result);
        });
        Read(state)
    }
}

struct Guard {
    state: Arc<ReadState>,
    sink: ErrorSink,
}

impl Drop for Guard {
    fn drop(&mut self) {
        // A finished read drops its guard as well.
        if !self.state.is_done() {
            self.state.finish(Err(gone(&self.sink)));
        }
    }
}

/// Why a read came to nothing. Only a lost device drops one, and it may do so before it says that it is lost.
fn gone(sink: &ErrorSink) -> Error {
    if sink.check().is_ok() {
        sink.lost(wgpu::DeviceLostReason::Unknown, "it dropped a read");
    }
    let unsaid = || Error::new(ErrorKind::DeviceLost, "the device dropped a read", "build the engine anew");
    sink.check().err().unwrap_or_else(unsaid)
}

//! How fast the device copies: what reading pages is held against.

use crate::backend::{Backend, BufferSlice, Recording, read_blocking};
use crate::error::Result;
use std::time::Instant;

/// Copies of one recording.
const COPIES: u64 = 8;

/// Bytes read and written a second by buffer copies of up to `bytes` bytes each: the best of five recordings.
///
/// # Errors
/// What the device says.
pub fn copy_bytes_per_s(backend: &mut dyn Backend, bytes: u64) -> Result<f64> {
    let bytes = bytes.min(backend.caps().max_buffer_bytes).min(backend.caps().max_binding_bytes) / 256 * 256;
    let (from, to) = (backend.alloc("copy source", bytes)?, backend.alloc("copy target", bytes)?);
    let mut best = f64::INFINITY;
    let timed = (0..6).try_for_each(|turn| {
        let mut recording = Recording::new();
        for _ in 0..COPIES {
            recording.copy(BufferSlice::whole(from, bytes), BufferSlice::whole(to, bytes))?;
        }
        let start = Instant::now();
        backend.submit(recording)?;
        read_blocking(backend, to, 0, 16)?;
        // The first turn warms up.
        if turn > 0 {
            best = best.min(start.elapsed().as_secs_f64());
        }
        Ok(())
    });
    backend.free(from);
    backend.free(to);
    timed.map(|()| 2.0 * (COPIES * bytes) as f64 / best)
}

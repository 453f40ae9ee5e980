//! How fast the device copies: what reading pages is held against.

use crate::backend::{Backend, BufferId, BufferSlice, Recording, Timing, read_blocking};
use crate::error::Result;
use crate::kernel::{RowView, add};
use std::time::Instant;

/// Copies of one recording.
const COPIES: u64 = 8;

/// Bytes read and written a second, by copies of buffers of up to `bytes` bytes and by a kernel that streams over them:
/// the better of the two, each the best of several recordings.
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
    let streamed = timed.and_then(|()| streamed(backend, from, to, bytes));
    backend.free(from);
    backend.free(to);
    streamed.map(|stream| stream.unwrap_or(0.0).max(2.0 * (COPIES * bytes) as f64 / best))
}

/// The same by a kernel that reads two buffers and writes one, on the device's clock; `None` without timestamps. Some
/// drivers copy buffers far more slowly than kernels move memory.
fn streamed(backend: &mut dyn Backend, from: BufferId, to: BufferId, bytes: u64) -> Result<Option<f64>> {
    let width = (bytes / 4).min(1 << 16) as u32;
    let rows = (bytes / 4 / u64::from(width)) as u32;
    let pipeline = backend.prepare(&add::specialise()?)?;
    let (x, y) = (RowView::dense(to, rows, width), RowView::dense(from, rows, width));
    let mut best = None;
    backend.set_timing(Timing::Kernels)?;
    for _ in 0..6 {
        let mut recording = Recording::new();
        for _ in 0..COPIES {
            recording.dispatch(add::dispatch(pipeline, x, y, rows, width)?);
        }
        backend.submit(recording)?;
        read_blocking(backend, to, 0, 16)?;
        let nanoseconds: u64 = backend.take_times()?.iter().map(|t| t.nanoseconds).sum();
        if nanoseconds > 0 {
            let rate = 3.0 * (COPIES * bytes) as f64 / nanoseconds as f64 * 1e9;
            best = Some(rate.max(best.unwrap_or(0.0)));
        }
    }
    backend.set_timing(Timing::None)?;
    Ok(best)
}

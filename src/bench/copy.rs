//! How fast the device copies: what reading pages is held against.

use crate::backend::{Backend, BufferId, BufferSlice, Recording, Timing, read_blocking};
use crate::error::Result;
use crate::kernel::copy_slots;
use std::time::Instant;

/// Copies of one recording.
const COPIES: u64 = 8;
/// Bytes that a workgroup copies.
const SLOT_BYTES: u64 = 16384;

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
    let streamed = timed.and_then(|()| streamed(backend, to, bytes));
    backend.free(from);
    backend.free(to);
    streamed.map(|stream| stream.unwrap_or(0.0).max(2.0 * (COPIES * bytes) as f64 / best))
}

/// The same by the kernel that copies pages, 16 bytes a thread, on the device's clock, or the host's where a device has
/// none; `None` where nothing was timed. Some drivers copy buffers far more slowly than kernels move memory.
fn streamed(backend: &mut dyn Backend, slab: BufferId, bytes: u64) -> Result<Option<f64>> {
    let slots = (bytes / 2 / SLOT_BYTES) as u32;
    let items: Vec<u32> = (0..slots).flat_map(|i| [i, slots + i, 0, 0]).collect();
    let tables = backend.alloc("copy tables", items.len() as u64 * 4)?;
    let rate = streamed_by(backend, slab, bytes, tables, &items);
    backend.free(tables);
    rate
}

fn streamed_by(
    backend: &mut dyn Backend,
    slab: BufferId,
    bytes: u64,
    tables: BufferId,
    items: &[u32],
) -> Result<Option<f64>> {
    backend.write(tables, 0, bytemuck::cast_slice(items))?;
    let pipeline = backend.prepare(&copy_slots::specialise(SLOT_BYTES as usize / 4, 256)?)?;
    let tables = BufferSlice::whole(tables, items.len() as u64 * 4);
    let buffers = copy_slots::Buffers { slab: BufferSlice::whole(slab, bytes), tables };
    let args = copy_slots::Args { items: items.len() as u32 / 4, items_at: 0 };
    let mut best = None;
    backend.set_timing(Timing::Kernels)?;
    let (start, software) = (Instant::now(), backend.caps().software);
    let mut turn = 0;
    while turn < 6 || (!software && start.elapsed() < super::SPIN_UP) {
        let mut recording = Recording::new();
        for _ in 0..COPIES {
            recording.dispatch(copy_slots::dispatch(pipeline, &buffers, &args));
        }
        backend.submit(recording)?;
        read_blocking(backend, slab, 0, 16)?;
        let nanoseconds: u64 = backend.take_times()?.iter().map(|t| t.nanoseconds).sum();
        if nanoseconds > 0 {
            let moved = 2 * COPIES * u64::from(args.items) * SLOT_BYTES;
            let rate = moved as f64 / nanoseconds as f64 * 1e9;
            best = Some(rate.max(best.unwrap_or(0.0)));
        }
        turn += 1;
    }
    backend.set_timing(Timing::None)?;
    Ok(best)
}

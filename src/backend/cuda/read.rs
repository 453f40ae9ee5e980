//! Reading back by way of page-locked memory; a thread of its own waits for the device.

use super::driver::{Event, Pinned};
use crate::backend::reading::{Read, ReadState, lock};
use crate::error::{Error, ErrorKind, Result};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

/// Page-locked buffers that are kept for the next reads, and the longest that is kept.
const KEPT: usize = 8;
const KEPT_BYTES: usize = 16 << 20;

/// A read that is under way. Dropped without a result, it ends in an error: its future does not wait for ever.
struct Pending {
    event: Event,
    host: Option<Pinned>,
    bytes: usize,
    state: Arc<ReadState>,
}

impl Pending {
    /// Waits for the device and hands the bytes over; the buffer goes to `pool`.
    fn finish(mut self, pool: &Mutex<Vec<Pinned>>) {
        let host = self.host.take();
        let result = self.event.wait().map(|()| host.as_ref().map_or(Vec::new(), |h| h.bytes(self.bytes).to_vec()));
        if let Some(host) = host.filter(|h| h.len() <= KEPT_BYTES) {
            let mut kept = lock(pool);
            if kept.len() < KEPT {
                kept.push(host);
            }
        }
        self.state.finish(result);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.state.is_done() {
            // The device may still write to the buffer.
            let _ = self.event.wait();
            self.state.finish(Err(Error::new(ErrorKind::Device, "the reading thread has ended", "")));
        }
    }
}

/// Waits for events on a thread of its own.
pub(super) struct Reader {
    queue: Sender<Pending>,
    kept: Arc<Mutex<Vec<Pinned>>>,
}

impl Reader {
    pub(super) fn new() -> Result<Self> {
        let (queue, arrivals) = channel::<Pending>();
        let kept: Arc<Mutex<Vec<Pinned>>> = Arc::default();
        let pool = kept.clone();
        std::thread::Builder::new()
            .name("kvarto-cuda-read".into())
            .spawn(move || arrivals.into_iter().for_each(|pending| pending.finish(&pool)))
            .map_err(|e| Error::new(ErrorKind::Device, format!("no thread to read with: {e}"), ""))?;
        Ok(Reader { queue, kept })
    }

    /// A kept buffer of at least `bytes` bytes.
    pub(super) fn take(&self, bytes: usize) -> Option<Pinned> {
        let mut kept = lock(&self.kept);
        let at = kept.iter().position(|p| p.len() >= bytes)?;
        Some(kept.swap_remove(at))
    }

    /// The future of `bytes` bytes that the device writes to `host` before `event`.
    pub(super) fn expect(&self, event: Event, host: Pinned, bytes: usize) -> Read {
        let state = Arc::new(ReadState::default());
        // What cannot be sent is dropped, and says so.
        let _ = self.queue.send(Pending { event, host: Some(host), bytes, state: state.clone() });
        Read(state)
    }
}

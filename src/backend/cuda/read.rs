//! Reading back: page-locked memory, and futures that a thread of their own completes.

use super::driver::{Event, Pinned};
use crate::error::{Error, ErrorKind, Result};
use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Page-locked buffers that are kept for the next reads, and the longest that is kept.
const KEPT: usize = 8;
const KEPT_BYTES: usize = 16 << 20;

#[derive(Default)]
struct Slot {
    result: Option<Result<Vec<u8>>>,
    waker: Option<Waker>,
}

/// A read that is under way.
struct Pending {
    event: Event,
    host: Pinned,
    bytes: usize,
    slot: Arc<Mutex<Slot>>,
}

/// The future of a read.
struct Read(Arc<Mutex<Slot>>);

impl Future for Read {
    type Output = Result<Vec<u8>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = lock(&self.0);
        match slot.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for events on a thread of its own, and hands their bytes over.
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
            .spawn(move || {
                for Pending { event, host, bytes, slot } in arrivals {
                    let result = event.wait().map(|()| host.bytes(bytes).to_vec());
                    let mut kept = lock(&pool);
                    if kept.len() < KEPT && host.len() <= KEPT_BYTES {
                        kept.push(host);
                    }
                    drop(kept);
                    let waker = {
                        let mut slot = lock(&slot);
                        slot.result = Some(result);
                        slot.waker.take()
                    };
                    if let Some(waker) = waker {
                        waker.wake();
                    }
                }
            })
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
    pub(super) fn expect(
        &self,
        event: Event,
        host: Pinned,
        bytes: usize,
    ) -> impl Future<Output = Result<Vec<u8>>> + Send + use<> {
        let slot: Arc<Mutex<Slot>> = Arc::default();
        let pending = Pending { event, host, bytes, slot: slot.clone() };
        if self.queue.send(pending).is_err() {
            lock(&slot).result = Some(Err(Error::new(ErrorKind::Device, "the reading thread has ended", "")));
        }
        Read(slot)
    }
}

//! Reads that are under way: what a background thread completes and a future waits for.

use crate::error::{Error, ErrorKind, Result};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Locks, also after a panic elsewhere: what is behind these locks is whole between statements.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct Slot {
    result: Option<Result<Vec<u8>>>,
    waker: Option<Waker>,
    done: bool,
}

/// One read that is under way.
#[derive(Default)]
pub(super) struct ReadState(Mutex<Slot>);

impl ReadState {
    /// Completes the read; the first result stays.
    pub(super) fn finish(&self, result: Result<Vec<u8>>) {
        let waker = {
            let mut slot = lock(&self.0);
            if slot.done {
                return;
            }
            slot.done = true;
            slot.result = Some(result);
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether it has a result, also one that was taken.
    pub(super) fn is_done(&self) -> bool {
        lock(&self.0).done
    }
}

/// The future of a read.
pub(super) struct Read(pub(super) Arc<ReadState>);

impl Future for Read {
    type Output = Result<Vec<u8>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = lock(&self.0.0);
        if let Some(result) = slot.result.take() {
            return Poll::Ready(result);
        }
        if slot.done {
            return Poll::Ready(Err(Error::new(ErrorKind::Device, "a read was polled after it was done", "")));
        }
        slot.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

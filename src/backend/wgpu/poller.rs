//! A thread that waits for the device so that no caller has to.

use super::health::{ErrorSink, poll_device};
use crate::backend::reading::lock;
use crate::error::{Error, ErrorKind, Result};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

#[derive(Default)]
struct Queue {
    waits: VecDeque<wgpu::SubmissionIndex>,
    closing: bool,
}

/// Waits for submissions in order, which runs the callbacks of all that completed.
pub(super) struct Poller {
    shared: Arc<(Mutex<Queue>, Condvar)>,
    thread: Option<JoinHandle<()>>,
    slice: Duration,
}

impl Poller {
    /// Starts the thread.
    ///
    /// # Errors
    /// `Device` when the host gives no thread.
    pub(super) fn start(device: wgpu::Device, sink: ErrorSink, gl: bool) -> Result<Self> {
        let shared = Arc::new((Mutex::new(Queue::default()), Condvar::new()));
        let ours = shared.clone();
        let slice = wait_slice(gl);
        let thread = std::thread::Builder::new()
            .name("kvarto-wgpu".into())
            .spawn(move || run(&device, &sink, &ours, slice))
            .map_err(|e| Error::new(ErrorKind::Device, format!("no thread to wait for the device: {e}"), ""))?;
        Ok(Poller { shared, thread: Some(thread), slice })
    }

    /// Has the thread wait for `index`.
    pub(super) fn wait_for(&self, index: wgpu::SubmissionIndex) {
        lock(&self.shared.0).waits.push_back(index);
        self.shared.1.notify_one();
    }

    /// The longest single wait, for others that wait.
    pub(super) fn slice(&self) -> Duration {
        self.slice
    }
}

/// GL holds its context's lock while it waits, and whoever wants it meanwhile panics after seconds; elsewhere
/// a bound only serves to notice a lost device.
fn wait_slice(gl: bool) -> Duration {
    Duration::from_millis(if gl { 1 } else { 1000 })
}

fn run(device: &wgpu::Device, sink: &ErrorSink, shared: &(Mutex<Queue>, Condvar), slice: Duration) {
    loop {
        let index = {
            let mut queue = lock(&shared.0);
            loop {
                if let Some(index) = queue.waits.pop_front() {
                    break index;
                }
                if queue.closing {
                    return;
                }
                queue = shared.1.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
        };
        wait(device, sink, &index, slice);
    }
}

/// Blocks until `index` is complete or the device failed.
pub(super) fn wait(device: &wgpu::Device, sink: &ErrorSink, index: &wgpu::SubmissionIndex, slice: Duration) {
    loop {
        let how = wgpu::PollType::Wait { submission_index: Some(index.clone()), timeout: Some(slice) };
        match poll_device(device, sink, how) {
            Err(wgpu::PollError::Timeout) if sink.check().is_ok() => std::thread::yield_now(),
            // Done, or failed, or refused: a refused submission fails its read through the read's own callback.
            _ => return,
        }
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        lock(&self.shared.0).closing = true;
        self.shared.1.notify_one();
        if let Some(thread) = self.thread.take() {
            // A callback may own the last handle of the backend; the thread cannot join itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

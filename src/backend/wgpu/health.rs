//! What the device reported: the first error stays, and everything after it is refused.

use crate::backend::reading::{ReadState, lock};
use crate::error::{Error, ErrorKind, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

#[derive(Default)]
struct Health {
    failed: AtomicBool,
    first: Mutex<Option<Error>>,
    readers: Mutex<Vec<Weak<ReadState>>>,
}

/// Takes a device's reports of errors and loss. Cheap to clone; may be called from any thread.
///
/// A caller who opens the backend on a device of their own, and keeps its callbacks to themselves, hands on
/// what these report.
#[derive(Clone, Default)]
pub struct ErrorSink(Arc<Health>);

impl ErrorSink {
    /// Takes an error that no error scope caught. Results since the last completed step are void from here on.
    pub fn uncaptured(&self, error: &wgpu::Error) {
        let text = full_text(error);
        log::error!("the device reported an error: {text}");
        let error = match error {
            wgpu::Error::OutOfMemory { .. } => {
                Error::new(ErrorKind::Device, format!("the device ran out of memory: {text}"), "free memory and reload")
            }
            _ => Error::new(
                ErrorKind::Device,
                format!("the device reported an error: {text}"),
                "build the engine anew; please report this",
            ),
        };
        self.set(error);
    }

    /// Takes the loss of the device. Reads that wait are woken with the error.
    pub fn lost(&self, reason: wgpu::DeviceLostReason, message: &str) {
        let why = match (reason, message) {
            (wgpu::DeviceLostReason::Destroyed, "") => "it was destroyed",
            (_, "") => "the driver gave no reason",
            (_, message) => message,
        };
        self.set(Error::new(
            ErrorKind::DeviceLost,
            format!("the device is lost: {why}"),
            "build the engine anew, or run the program again; if this repeats, lower max_submission_ms \
             (--max-submission-ms) or update the driver",
        ));
        for reader in lock(&self.0.readers).drain(..).filter_map(|r| r.upgrade()) {
            if let Err(error) = self.check() {
                reader.finish(Err(error));
            }
        }
    }

    /// Installs the callbacks on `device`, replacing those that were there.
    pub(super) fn install(&self, device: &wgpu::Device) {
        let sink = self.clone();
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| sink.uncaptured(&error)));
        let sink = self.clone();
        device.set_device_lost_callback(move |reason, message| sink.lost(reason, &message));
    }

    /// `Err` from the first report on.
    pub(super) fn check(&self) -> Result<()> {
        if !self.0.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        match lock(&self.0.first).clone() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Remembers a read, to wake it should the device be lost.
    pub(super) fn watch(&self, reader: &Arc<ReadState>) {
        let mut readers = lock(&self.0.readers);
        if readers.len() >= 64 {
            readers.retain(|r| r.strong_count() > 0);
        }
        readers.push(Arc::downgrade(reader));
    }

    fn set(&self, error: Error) {
        let mut first = lock(&self.0.first);
        // A loss says more than the error before it; otherwise the first is the cause.
        let keep = match first.as_ref() {
            None => false,
            Some(old) => error.kind() != ErrorKind::DeviceLost || old.kind() == ErrorKind::DeviceLost,
        };
        if !keep {
            *first = Some(error);
        }
        self.0.failed.store(true, Ordering::Release);
    }
}

/// Polls; a driver's failure, which wgpu answers with a panic, becomes a lost device.
pub(super) fn poll_device(
    device: &wgpu::Device,
    sink: &ErrorSink,
    how: wgpu::PollType,
) -> std::result::Result<wgpu::PollStatus, wgpu::PollError> {
    caught(sink, || device.poll(how))
}

/// How the panic begins with which wgpu 30 answers a wait that ran out of time just before another thread's poll found
/// the queue empty: it looks at the fence before, at the queue after.
const RACED: &str = "If the queue is empty";

fn caught(
    sink: &ErrorSink,
    poll: impl FnOnce() -> std::result::Result<wgpu::PollStatus, wgpu::PollError>,
) -> std::result::Result<wgpu::PollStatus, wgpu::PollError> {
    match catch_unwind(AssertUnwindSafe(poll)) {
        Ok(result) => result,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("polling failed");
            if text.starts_with(RACED) {
                // The next wait finds it empty.
                return Err(wgpu::PollError::Timeout);
            }
            sink.lost(wgpu::DeviceLostReason::Unknown, text);
            Ok(wgpu::PollStatus::Poll)
        }
    }
}

/// Runs `body` and returns what the device objected to in it.
pub(super) fn scoped<T>(device: &wgpu::Device, body: impl FnOnce() -> T) -> (T, Option<wgpu::Error>) {
    let memory = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
    let internal = device.push_error_scope(wgpu::ErrorFilter::Internal);
    let validation = device.push_error_scope(wgpu::ErrorFilter::Validation);
    let value = body();
    let validation = pollster::block_on(validation.pop());
    let internal = pollster::block_on(internal.pop());
    let memory = pollster::block_on(memory.pop());
    (value, memory.or(internal).or(validation))
}

/// The error and its causes in one line each.
pub(super) fn full_text(error: &wgpu::Error) -> String {
    match error {
        wgpu::Error::OutOfMemory { source } => source.to_string(),
        wgpu::Error::Validation { description, .. } | wgpu::Error::Internal { description, .. } => {
            description.trim().to_string()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raced_wait_is_tried_again_and_another_panic_loses_the_device() {
        let sink = ErrorSink::default();
        let raced =
            caught(&sink, || panic!("{RACED}, the current submission index ({}) should be at least {}", 23, 25));
        assert!(matches!(raced, Err(wgpu::PollError::Timeout)), "{raced:?}");
        assert!(sink.check().is_ok());
        let failed = caught(&sink, || panic!("the driver gave up"));
        assert!(matches!(failed, Ok(wgpu::PollStatus::Poll)), "{failed:?}");
        let error = sink.check().expect_err("a lost device");
        assert!(error.kind() == ErrorKind::DeviceLost && error.to_string().contains("the driver gave up"), "{error}");
    }
}

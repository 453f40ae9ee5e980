//! Buffers of a cache group that hold nothing from step to step.

use crate::backend::{Backend, BufferId, BufferSlice};
use crate::error::{Error, ErrorKind, Result};

/// A buffer that grows by doubling. Its bytes are not kept when it grows.
#[derive(Debug)]
pub(super) struct Scratch {
    label: &'static str,
    buffer: Option<BufferId>,
    bytes: u64,
}

impl Scratch {
    pub fn new(label: &'static str) -> Self {
        Scratch { label, buffer: None, bytes: 0 }
    }

    /// Room for `bytes` bytes; true when the buffer is a new one.
    pub fn ensure(&mut self, backend: &mut dyn Backend, bytes: u64) -> Result<bool> {
        if self.buffer.is_some() && self.bytes >= bytes {
            return Ok(false);
        }
        let most = backend.caps().max_binding_bytes.min(backend.caps().max_buffer_bytes);
        if bytes > most {
            return Err(Error::new(
                ErrorKind::OutOfMemory,
                format!("{} needs {bytes} bytes in one binding, the adapter's limit is {most}", self.label),
                "use a smaller step: fewer rows, or a shorter prefill chunk",
            ));
        }
        let size = bytes.max(256).next_power_of_two().min(most);
        let fresh = backend.alloc(self.label, size)?;
        if let Some(old) = self.buffer.replace(fresh) {
            backend.free(old);
        }
        self.bytes = size;
        Ok(true)
    }

    pub fn slice(&self) -> Result<BufferSlice> {
        let buffer =
            self.buffer.ok_or_else(|| Error::new(ErrorKind::Shape, format!("{} is not there yet", self.label), ""))?;
        Ok(BufferSlice::whole(buffer, self.bytes))
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn release(&mut self, backend: &mut dyn Backend) {
        if let Some(buffer) = self.buffer.take() {
            backend.free(buffer);
        }
        self.bytes = 0;
    }
}

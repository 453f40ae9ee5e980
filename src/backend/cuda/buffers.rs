//! Buffers by their ids, and how many bytes they hold.

use super::driver::{Context, Memory};
use crate::backend::{BufferId, BufferSlice, checks};
use crate::error::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// All buffers of a backend.
#[derive(Default)]
pub(super) struct Buffers {
    live: HashMap<BufferId, Memory>,
    made: u64,
    bytes: u64,
    peak: u64,
    /// Refuses what would bring the live bytes above this.
    pub(super) limit: Option<u64>,
}

impl Buffers {
    /// A buffer of `bytes` bytes, not cleared yet.
    pub(super) fn add(&mut self, context: &Arc<Context>, label: &str, bytes: u64) -> Result<BufferId> {
        let total = self.bytes.saturating_add(bytes);
        if let Some(limit) = self.limit.filter(|&limit| total > limit) {
            return Err(Error::new(
                ErrorKind::OutOfMemory,
                format!("{label}: {bytes} bytes would bring the backend to {total}, above its limit of {limit}"),
                "free sequences or raise the limit",
            ));
        }
        let memory = Memory::new(context, label, bytes)?;
        self.made += 1;
        self.bytes = total;
        self.peak = self.peak.max(total);
        self.live.insert(BufferId(self.made), memory);
        Ok(BufferId(self.made))
    }

    pub(super) fn remove(&mut self, buffer: BufferId) {
        if let Some(memory) = self.live.remove(&buffer) {
            self.bytes -= memory.bytes();
        }
    }

    pub(super) fn get(&self, buffer: BufferId) -> Result<&Memory> {
        self.live
            .get(&buffer)
            .ok_or_else(|| Error::new(ErrorKind::Shape, format!("{buffer:?} is not a live buffer of this backend"), ""))
    }

    /// The memory of a slice that lies within its buffer.
    pub(super) fn slice(&self, slice: &BufferSlice, what: &dyn Fn() -> String) -> Result<&Memory> {
        let memory = self.get(slice.buffer)?;
        checks::within(slice, &slice.buffer, memory.bytes(), what)?;
        Ok(memory)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn peak(&self) -> u64 {
        self.peak
    }
}

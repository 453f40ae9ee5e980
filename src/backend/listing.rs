//! A backend that runs nothing and notes which kernels are asked of it.

use super::{
    Backend, BufferId, Caps, KernelTime, PipelineId, ReadFuture, Recording, Specialisation, SubmissionId, Timing,
};
use crate::error::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Kernels in the order in which they were first asked for. Clones share one list.
#[derive(Clone, Debug, Default)]
pub struct Listed(Arc<Mutex<Vec<Specialisation>>>);

impl Listed {
    /// The kernels so far, each key once.
    pub fn kernels(&self) -> Vec<Specialisation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes a kernel, unless it is there; its place in the list.
    fn note(&self, kernel: &Specialisation) -> usize {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.iter().position(|known| known.key() == kernel.key()).unwrap_or_else(|| {
            list.push(kernel.clone());
            list.len() - 1
        })
    }
}

/// Stands in for a device of which only the capabilities are known: to learn what a shape, profile or model will ask for
/// before there is a device, or without one. Buffers have sizes and no bytes: every read is of zeros.
pub struct ListingBackend {
    caps: Caps,
    listed: Listed,
    buffers: HashMap<BufferId, u64>,
    made: u64,
    peak: u64,
    last: SubmissionId,
}

impl ListingBackend {
    /// A device of these capabilities, which notes kernels in `listed`.
    pub fn new(caps: Caps, listed: &Listed) -> Self {
        ListingBackend {
            caps,
            listed: listed.clone(),
            buffers: HashMap::new(),
            made: 0,
            peak: 0,
            last: SubmissionId(0),
        }
    }

    /// Refuses a range that is not within a buffer.
    fn check(&self, what: &str, buffer: BufferId, offset: u64, bytes: u64) -> Result<()> {
        let held = self.buffers.get(&buffer).copied().unwrap_or(0);
        if offset.checked_add(bytes).is_some_and(|end| end <= held) {
            return Ok(());
        }
        let message = format!("{what}: bytes {offset} to {} of a buffer of {held}", offset.saturating_add(bytes));
        Err(Error::new(ErrorKind::Shape, message, "stay within the buffer"))
    }
}

impl Backend for ListingBackend {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn alloc(&mut self, _label: &str, bytes: u64) -> Result<BufferId> {
        self.made += 1;
        let id = BufferId(self.made);
        self.buffers.insert(id, bytes.max(16).next_multiple_of(4));
        self.peak = self.peak.max(self.allocated_bytes());
        Ok(id)
    }

    fn free(&mut self, buffer: BufferId) {
        self.buffers.remove(&buffer);
    }

    fn write(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check("write", buffer, offset, bytes.len() as u64)
    }

    fn prepare(&mut self, specialisation: &Specialisation) -> Result<PipelineId> {
        Ok(PipelineId(self.listed.note(specialisation) as u32))
    }

    fn submit(&mut self, _recording: Recording) -> Result<SubmissionId> {
        self.last.0 += 1;
        Ok(self.last)
    }

    fn poll(&mut self) -> Result<SubmissionId> {
        Ok(self.last)
    }

    fn read(&mut self, buffer: BufferId, offset: u64, bytes: u64) -> Result<ReadFuture> {
        self.check("read", buffer, offset, bytes)?;
        Ok(Box::pin(std::future::ready(Ok(vec![0; bytes as usize]))))
    }

    fn set_timing(&mut self, _timing: Timing) -> Result<()> {
        Ok(())
    }

    fn take_times(&mut self) -> Result<Vec<KernelTime>> {
        Ok(Vec::new())
    }

    fn allocated_bytes(&self) -> u64 {
        self.buffers.values().sum()
    }

    fn peak_bytes(&self) -> u64 {
        self.peak
    }

    fn pipelines_made(&self) -> u64 {
        self.listed.kernels().len() as u64
    }

    fn forbid_new_pipelines(&mut self, _forbid: bool) {}
}

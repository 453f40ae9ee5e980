//! The backend's buffers: allocation, import, and the checks that every use of a slice passes.

use super::health::{full_text, scoped};
use crate::backend::{BufferId, BufferSlice, Caps, checks};
use crate::error::{Error, ErrorKind, Result};
use std::collections::HashMap;

/// A live buffer.
pub(super) struct Entry {
    pub(super) buffer: wgpu::Buffer,
    /// Bytes that may be used.
    pub(super) bytes: u64,
    label: String,
    imported: bool,
}

/// All live buffers, and their bytes.
#[derive(Default)]
pub(super) struct Buffers {
    live: HashMap<BufferId, Entry>,
    next: u64,
    limit_bytes: Option<u64>,
    pub(super) allocated_bytes: u64,
    pub(super) peak_bytes: u64,
}

impl Buffers {
    /// No buffers; allocations that would bring the live bytes above `limit_bytes` are refused.
    pub(super) fn with_limit(limit_bytes: Option<u64>) -> Self {
        Buffers { limit_bytes, ..Buffers::default() }
    }

    pub(super) fn get(&self, id: BufferId) -> Result<&Entry> {
        self.live
            .get(&id)
            .ok_or_else(|| Error::new(ErrorKind::Shape, format!("{id:?} is not a live buffer of this backend"), ""))
    }

    pub(super) fn alloc(&mut self, device: &wgpu::Device, caps: &Caps, label: &str, bytes: u64) -> Result<BufferId> {
        let size = bytes.max(16).checked_next_multiple_of(16).unwrap_or(u64::MAX);
        if size > caps.max_buffer_bytes {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{label}: a buffer of {bytes} bytes; {} allows {}", caps.title(), caps.max_buffer_bytes),
                "use several smaller buffers",
            ));
        }
        let total = self.allocated_bytes.saturating_add(size);
        if let Some(limit) = self.limit_bytes.filter(|&l| total > l) {
            return Err(Error::new(
                ErrorKind::OutOfMemory,
                format!(
                    "{label}: {bytes} bytes would bring the backend to {total}, {} above its limit of {limit}",
                    total - limit
                ),
                "free sequences or raise the limit",
            ));
        }
        let (buffer, error) = scoped(device, || {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: Some(label),
                size,
                usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        });
        if let Some(error) = error {
            return Err(Error::new(
                ErrorKind::OutOfMemory,
                format!(
                    "{label}: the device refused {bytes} bytes with {} live: {}",
                    self.allocated_bytes,
                    full_text(&error)
                ),
                "free sequences, or lower the page budget",
            ));
        }
        self.allocated_bytes = total;
        self.peak_bytes = self.peak_bytes.max(total);
        Ok(self.insert(Entry { buffer, bytes: size, label: label.into(), imported: false }))
    }

    pub(super) fn import(&mut self, buffer: wgpu::Buffer, bytes: u64) -> Result<BufferId> {
        if !buffer.usage().contains(wgpu::BufferUsages::STORAGE) || bytes > buffer.size() || bytes == 0 {
            return Err(Error::new(
                ErrorKind::Shape,
                format!("importing {bytes} bytes of a buffer of {} with usage {:?}", buffer.size(), buffer.usage()),
                "it needs STORAGE usage, and between 1 byte and its size",
            ));
        }
        // One id a buffer: the check against reading and writing one buffer at once goes by ids.
        if let Some((id, entry)) = self.live.iter_mut().find(|(_, e)| e.buffer == buffer) {
            entry.bytes = entry.bytes.max(bytes);
            return Ok(*id);
        }
        Ok(self.insert(Entry { buffer, bytes, label: "imported".into(), imported: true }))
    }

    fn insert(&mut self, entry: Entry) -> BufferId {
        self.next += 1;
        let id = BufferId(self.next);
        self.live.insert(id, entry);
        id
    }

    /// Drops the handle; wgpu keeps the memory while submissions use it.
    pub(super) fn free(&mut self, id: BufferId) -> bool {
        let Some(entry) = self.live.remove(&id) else { return false };
        if !entry.imported {
            self.allocated_bytes -= entry.bytes;
        }
        true
    }

    /// Checks that a slice is in bounds and whole words, and that the buffer has `usage`.
    pub(super) fn check(
        &self,
        slice: &BufferSlice,
        usage: wgpu::BufferUsages,
        what: impl Fn() -> String,
    ) -> Result<&Entry> {
        let entry = self.get(slice.buffer).map_err(|e| e.context(what()))?;
        checks::within(slice, &entry.label, entry.bytes, &what)?;
        if !entry.buffer.usage().contains(usage) {
            return Err(Error::new(
                ErrorKind::Shape,
                format!("{}: {:?} was made with usage {:?}", what(), entry.label, entry.buffer.usage()),
                format!("make it with {usage:?} as well"),
            ));
        }
        Ok(entry)
    }
}

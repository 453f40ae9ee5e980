//! Bind groups, made once for each set of slices.

use super::buffers::Buffers;
use super::pipelines::Layout;
use super::uniforms::Uniform;
use crate::backend::declaration::MAX_BINDINGS;
use crate::backend::{BufferId, BufferSlice};
use crate::error::Result;
use std::collections::HashMap;

/// Bind groups kept; past it, those that the newest recordings did not use are dropped.
const MOST: usize = 8192;
const NONE: BufferSlice = BufferSlice { buffer: BufferId(0), offset: 0, bytes: 0 };

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    layout: usize,
    uniform: u64,
    slices: [BufferSlice; MAX_BINDINGS],
}

struct Entry {
    group: wgpu::BindGroup,
    last_use: u64,
}

/// The cache of bind groups.
#[derive(Default)]
pub(super) struct Groups {
    entries: HashMap<Key, Entry>,
    recording: u64,
}

impl Groups {
    /// Starts a recording: the cache is brought within its bound, oldest uses first.
    pub(super) fn begin(&mut self) {
        self.recording += 1;
        let mut age = 16;
        while self.entries.len() > MOST {
            let oldest = self.recording.saturating_sub(age);
            self.entries.retain(|_, e| e.last_use >= oldest && age > 0);
            age /= 2;
        }
    }

    pub(super) fn get(
        &mut self,
        device: &wgpu::Device,
        buffers: &Buffers,
        layout: (usize, &Layout),
        uniform: &Uniform,
        slices: &[BufferSlice],
    ) -> Result<wgpu::BindGroup> {
        let mut key = Key { layout: layout.0, uniform: uniform.id, slices: [NONE; MAX_BINDINGS] };
        key.slices[..slices.len()].copy_from_slice(slices);
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.last_use = self.recording;
            return Ok(entry.group.clone());
        }
        let binding = |buffer, offset, bytes| {
            wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset, size: wgpu::BufferSize::new(bytes) })
        };
        let mut entries =
            vec![wgpu::BindGroupEntry { binding: 0, resource: binding(&uniform.buffer, 0, layout.1.block_bytes) }];
        for (at, slice) in slices.iter().enumerate() {
            let buffer = &buffers.get(slice.buffer)?.buffer;
            let resource = binding(buffer, slice.offset, slice.bytes);
            entries.push(wgpu::BindGroupEntry { binding: at as u32 + 1, resource });
        }
        let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &layout.1.bind_group,
            entries: &entries,
        });
        self.entries.insert(key, Entry { group: group.clone(), last_use: self.recording });
        Ok(group)
    }

    /// Forgets the groups that hold `buffer`, so that its memory can go.
    pub(super) fn forget_buffer(&mut self, buffer: BufferId) {
        self.entries.retain(|key, _| !key.slices.iter().any(|s| s.buffer == buffer));
    }

    /// Forgets the groups of a uniform buffer.
    pub(super) fn forget_uniform(&mut self, id: u64) {
        self.entries.retain(|key, _| key.uniform != id);
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

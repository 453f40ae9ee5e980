//! What a cache holds and reads: bits by value, bytes by class, and the sums that must agree.

use super::{Engine, SeqId};
use crate::error::Result;
use crate::format::FormatId;
use crate::page::{NONE, PageDescriptor};
use std::collections::BTreeMap;
use std::time::Duration;

/// Sums over the steps so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    pub steps: u64,
    pub rows: u64,
    pub conversions: u64,
    pub reopened: u64,
    /// Conversions that the newest step had no room for.
    pub deferred: u64,
    /// Bytes that all transfers read and wrote.
    pub moved_bytes: u64,
    /// What policies did; the newest step's moves put off.
    pub policy: super::policies::Moved,
    /// Attention dispatches by the formats of the pages that they read.
    pub routes: BTreeMap<(FormatId, FormatId), Routes>,
    /// Decoding steps, and the sum of their bits read by cached value.
    pub decode_steps: u64,
    pub read_bits_sum: f64,
}

/// Dispatches of attention over pages of one pair of formats, which each read as they are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    /// By the kernel for decoding rows.
    pub decode: u64,
    /// By the kernel for tiles of rows.
    pub prefill: u64,
}

/// Bytes of an engine's buffers. `allocated()` equals what the backend counts for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Slots in use.
    pub used_slot_bytes: u64,
    /// Whole segments, the slots in use among them.
    pub segment_bytes: u64,
    /// Descriptor buffers.
    pub descriptor_bytes: u64,
    /// Step tables.
    pub table_bytes: u64,
    /// Means, calibrated means and maps, sink logits.
    pub basis_bytes: u64,
    /// Whole segments of side planes' records.
    pub side_bytes: u64,
    /// Prepared queries, partial states, staging, and what selector and policy hold.
    pub scratch_bytes: u64,
}

impl Memory {
    /// Everything reserved on the device by the engine.
    pub fn allocated(&self) -> u64 {
        self.segment_bytes + self.metadata() + self.scratch_bytes
    }

    /// Descriptors, tables, means, side planes.
    pub fn metadata(&self) -> u64 {
        self.descriptor_bytes + self.table_bytes + self.basis_bytes + self.side_bytes
    }

    /// Slots in use, metadata and scratch.
    pub fn allocator_bytes(&self) -> u64 {
        self.used_slot_bytes + self.metadata() + self.scratch_bytes
    }
}

/// A cache's state in figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Sequences alive.
    pub sequences: usize,
    /// Distinct pages by (K format, V format).
    pub pages: BTreeMap<(String, String), u64>,
    /// Steps so far.
    pub steps: u64,
    /// Pages converted so far, sealing included.
    pub conversions: u64,
    /// Sealed pages opened again by a truncation.
    pub reopened: u64,
    /// Conversions that were due in the newest step and had no room: they wait for a later one.
    pub deferred: u64,
    /// Bytes read and written so far to seal, convert, reopen and copy pages.
    pub moved_bytes: u64,
    /// Of the conversions, those that the policy asked for; their bytes; pages it evicted.
    pub policy_pages: u64,
    /// Bytes of the policy's conversions.
    pub policy_bytes: u64,
    /// Pages that the policy took from a sequence, a shared one's once for each.
    pub evicted: u64,
    /// The policy's moves that were beyond the newest step's bound ([`super::EngineOptions::move_bytes`]) and wait.
    pub put_off: u64,
    /// The host's time for asking the policy and preparing its moves. The device's is that of the kernels `convert` and
    /// `copy_slots` in [`crate::backend::Backend::take_times`].
    pub policy_time: Duration,
    /// Attention dispatches by (K format, V format): every page is read by a kernel of its own formats, none by way of
    /// another.
    pub routes: BTreeMap<(String, String), Routes>,
    /// Cached values, a shared page's once.
    pub cached_values: u64,
    /// Bits of slots in use a cached value.
    pub resident_bits_per_value: Option<f64>,
    /// Bits of pages read a cached value, mean over decoding steps.
    pub read_bits_per_value: Option<f64>,
    /// Bits of descriptors, table entries and side planes of live pages, of means in use and of calibrated means and
    /// maps, a cached value.
    pub metadata_bits_per_value: Option<f64>,
    /// Bytes.
    pub memory: Memory,
}

impl Stats {
    /// Resident and metadata bits together.
    pub fn total_bits_per_value(&self) -> Option<f64> {
        Some(self.resident_bits_per_value? + self.metadata_bits_per_value?)
    }
}

impl Engine {
    /// Bytes of the engine's buffers.
    pub fn memory(&self) -> Memory {
        let mut memory = Memory::default();
        for group in &self.groups {
            let bytes = group.pool.bytes();
            memory.used_slot_bytes += bytes.used;
            memory.segment_bytes += bytes.reserved;
            memory.side_bytes += bytes.records_reserved;
            memory.descriptor_bytes += group.descriptors.bytes();
            memory.table_bytes += group.tables.bytes();
            let layers = if group.has_sinks { group.sinks.len() as u64 } else { 1 };
            memory.basis_bytes += group.means.bytes + group.map_bytes();
            memory.basis_bytes += group.sinks.first().map_or(0, |s| s.bytes * layers);
            memory.scratch_bytes += group.queries.bytes() + group.partials.bytes();
        }
        let scratch = self.staging.iter().chain(self.user_buffers.values());
        memory.scratch_bytes += scratch.map(super::scratch::Scratch::bytes).sum::<u64>();
        memory
    }

    /// The cache in figures.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            sequences: self.sequences.len(),
            steps: self.counters.steps,
            conversions: self.counters.conversions,
            reopened: self.counters.reopened,
            deferred: self.counters.deferred,
            moved_bytes: self.counters.moved_bytes,
            policy_pages: self.counters.policy.pages,
            policy_bytes: self.counters.policy.bytes,
            evicted: self.counters.policy.evicted,
            put_off: self.counters.policy.put_off,
            policy_time: self.counters.policy.time,
            memory: self.memory(),
            ..Stats::default()
        };
        let name = |id| self.registry.formats.get(id).map_or_else(|| "?".to_string(), |f| f.name().to_string());
        stats.routes = self.counters.routes.iter().map(|(&(k, v), &routes)| ((name(k), name(v)), routes)).collect();
        let mut metadata_bytes = 0u64;
        for (index, group) in self.groups.iter().enumerate() {
            let per_token = (group.shape.k_dim + group.shape.v_dim) as u64;
            for (_, page) in group.pool.live() {
                let d = &page.descriptor;
                *stats.pages.entry((name(d.k_format), name(d.v_format))).or_default() += 1;
                metadata_bytes += PageDescriptor::BYTES as u64 + 4 * u64::from(page.references);
                metadata_bytes += group.pool.record_bytes();
                // The row of its further parts.
                metadata_bytes += u64::from(d.extra != NONE) * PageDescriptor::BYTES as u64;
            }
            stats.cached_values += self.cached_tokens(index, group) * per_token;
            metadata_bytes += group.map_bytes();
            if group.uses_means() {
                let used = u64::from(super::storage::MEAN_SLOTS) - group.mean_slots.len() as u64;
                metadata_bytes += used * group.means.bytes / u64::from(super::storage::MEAN_SLOTS);
            }
        }
        if stats.cached_values > 0 {
            let values = stats.cached_values as f64;
            stats.resident_bits_per_value = Some(stats.memory.used_slot_bytes as f64 * 8.0 / values);
            stats.metadata_bits_per_value = Some(metadata_bytes as f64 * 8.0 / values);
        }
        if self.counters.decode_steps > 0 {
            stats.read_bits_per_value = Some(self.counters.read_bits_sum / self.counters.decode_steps as f64);
        }
        stats
    }

    /// Tokens in the pages of a group: of a shared page as many as its longest owner has there. A descriptor's own
    /// count can be that of an owner who is gone.
    fn cached_tokens(&self, index: usize, group: &super::storage::Group) -> u64 {
        let size = group.shape.page_tokens;
        let mut tokens = vec![0u16; group.pool.descriptor_count()];
        for sequence in self.sequences.values() {
            let held = &sequence.groups[index];
            for row in 0..held.pages.len() {
                for (at, page) in held.numbered(row, 0..usize::MAX) {
                    let here = (sequence.logical as usize).saturating_sub(at * size).min(size) as u16;
                    let most = &mut tokens[page.0 as usize];
                    *most = here.max(*most);
                }
            }
        }
        tokens.into_iter().map(u64::from).sum()
    }

    /// Cached values of the sequences in a step: of each all that its cache groups hold.
    pub(super) fn values_of(&self, sequences: impl Iterator<Item = SeqId>) -> Result<u64> {
        let mut values = 0u64;
        for seq in sequences {
            for (group, held) in self.groups.iter().zip(self.held(seq)?) {
                values += u64::from(held.end - held.start) * group.shape.values_per_token() as u64;
            }
            for (group, rows) in self.groups.iter().zip(&self.sequence(seq)?.groups) {
                // Pages that were evicted were full.
                let values_of_page = group.shape.page_tokens * (group.shape.k_dim + group.shape.v_dim);
                values -= (rows.evicted() * values_of_page) as u64;
            }
        }
        Ok(values)
    }
}

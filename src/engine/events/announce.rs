//! From the engine's tables to events.

use super::{
    Event, Formats, KernelShare, MemoryClasses, PageFacts, SequenceRows, SideBytes, StepFacts, Subscription, Word,
};
use crate::backend::{KernelTime, Timing};
use crate::engine::{Engine, SeqRows};
use crate::error::Result;
use crate::format::FormatId;
use crate::page::{PageId, flags};
use std::sync::Arc;

impl Engine {
    /// Listens; at most `bound` events wait, further ones are dropped and counted.
    pub fn subscribe(&mut self, bound: usize) -> Subscription {
        self.listeners.subscribe(bound)
    }

    /// Listens from the state on: the first event is an [`Event::Resync`] with the cache's state as it is now.
    pub fn subscribe_with_snapshot(&mut self, bound: usize) -> Subscription {
        let snapshot = self.snapshot();
        self.told_memory = Some(snapshot.memory.clone());
        self.listeners.subscribe_from(bound, snapshot)
    }

    /// Tells an event of the caller's, such as [`Event::Tokens`], to all listeners.
    pub fn announce(&mut self, event: Event) {
        self.listeners.send(event);
    }

    /// Whether anybody listens: nobody need make events otherwise.
    pub fn listened(&self) -> bool {
        !self.listeners.is_empty()
    }

    /// How to time kernels from now on. Where somebody listens, times are taken after each step, which then waits for the
    /// device; [`Engine::take_times`] has the sums.
    ///
    /// # Errors
    /// As [`crate::backend::Backend::set_timing`].
    pub fn set_timing(&mut self, timing: Timing) -> Result<()> {
        self.backend.set_timing(timing)?;
        self.timing = timing;
        Ok(())
    }

    /// How kernels are timed.
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// Kernel times since the last call, those told to listeners among them.
    ///
    /// # Errors
    /// As [`crate::backend::Backend::take_times`].
    pub fn take_times(&mut self) -> Result<Vec<KernelTime>> {
        let rest = self.backend.take_times()?;
        self.add_times(&rest);
        Ok(std::mem::take(&mut self.times).into_values().collect())
    }

    fn add_times(&mut self, times: &[KernelTime]) {
        for time in times {
            let none = KernelTime { dispatches: 0, nanoseconds: 0, ..time.clone() };
            let sum = self.times.entry(time.kernel).or_insert(none);
            sum.dispatches += time.dispatches;
            sum.nanoseconds += time.nanoseconds;
        }
    }

    /// Names of a pair of formats.
    pub(in crate::engine) fn names(&self, k: FormatId, v: FormatId) -> Formats {
        let name = |id: FormatId| self.format_names.get(usize::from(id.0)).cloned().flatten();
        let unknown = || Arc::<str>::from("?");
        (name(k).unwrap_or_else(unknown), name(v).unwrap_or_else(unknown))
    }

    /// A live page's facts.
    pub(in crate::engine) fn facts(&self, index: usize, id: PageId) -> PageFacts {
        let group = &self.groups[index];
        let d = &group.pool.page(id).descriptor;
        let (row, heads) = (group.row_of(id), group.shape.kv_heads);
        PageFacts {
            group: index,
            page: id.0,
            layer: group.shape.layers.get(row / heads).map_or(0, |&layer| layer as u32),
            kv_head: (row % heads) as u32,
            number: d.first_position / group.shape.page_tokens as u32,
            formats: self.names(d.k_format, d.v_format),
            slots: [d.k_slot, d.v_slot],
            segment_group: d.segment_group,
            generation: d.generation,
            flags: d.flags & !flags::PINNED,
            bytes: group.page_bytes(id),
        }
    }

    /// Bytes by class.
    pub fn memory_classes(&self) -> MemoryClasses {
        let memory = self.memory();
        let mut pages: Vec<SideBytes> = Vec::new();
        for (side, format, bytes) in self.groups.iter().flat_map(|group| group.pool.used_by_format()) {
            let format = self.names(format, format).0;
            match pages.iter_mut().find(|p| p.side == side && p.format == format) {
                Some(found) => found.bytes += bytes,
                None => pages.push(SideBytes { side, format, bytes }),
            }
        }
        MemoryClasses {
            pages,
            segment_bytes: memory.segment_bytes,
            table_bytes: memory.table_bytes,
            descriptor_bytes: memory.descriptor_bytes,
            basis_bytes: memory.basis_bytes,
            side_bytes: memory.side_bytes,
            scratch_bytes: memory.scratch_bytes,
            other_bytes: self.backend.allocated_bytes().saturating_sub(memory.allocated()),
            budget_bytes: self.budget_bytes,
        }
    }

    /// Tells what became free since this was last called.
    pub(in crate::engine) fn announce_freed(&mut self, reason: &'static str) {
        for group in 0..self.groups.len() {
            let freed = self.groups[group].pool.take_freed();
            if freed.is_empty() || self.listeners.is_empty() {
                continue;
            }
            let bytes = freed.iter().map(|(_, bytes)| bytes).sum();
            let pages = freed.iter().map(|(id, _)| id.0).collect();
            self.listeners.send(Event::PagesFreed { group, pages, bytes, reason: Word::Borrowed(reason) });
        }
    }

    /// Tells a finished step: what it did, read and took.
    pub(in crate::engine) fn announce_step(&mut self, facts: StepFacts, reads: Vec<super::ReadFacts>) -> Result<()> {
        let step = facts.step;
        self.listeners.send(Event::StepDone(facts));
        for read in reads {
            self.listeners.send(Event::UnitsRead(read));
        }
        if self.timing != Timing::None {
            let times = self.backend.take_times()?;
            self.add_times(&times);
            if !times.is_empty() {
                let share = |t: &KernelTime| KernelShare {
                    kernel: Word::Borrowed(t.kernel),
                    dispatches: t.dispatches,
                    nanoseconds: t.nanoseconds,
                };
                self.listeners.send(Event::KernelTimes { step, kernels: times.iter().map(share).collect() });
            }
        }
        self.announce_memory();
        if self.listeners.behind() {
            let snapshot = self.snapshot();
            self.listeners.resync(&snapshot);
        }
        Ok(())
    }

    /// Tells the memory's classes where they changed.
    pub(in crate::engine) fn announce_memory(&mut self) {
        if self.listeners.is_empty() {
            return;
        }
        let memory = self.memory_classes();
        if self.told_memory.as_ref() != Some(&memory) {
            self.told_memory = Some(memory.clone());
            self.listeners.send(Event::MemoryUsed(memory));
        }
    }
}

/// Rows of a step for its event, from the lengths after it.
pub(in crate::engine) fn sequence_rows(engine: &Engine, rows: &[SeqRows]) -> Vec<SequenceRows> {
    let of = |r: &SeqRows| {
        let end = engine.sequences.get(&r.seq)?.logical;
        let first_position = end.saturating_sub(r.rows);
        Some(SequenceRows { sequence: r.seq, first_position, rows: r.rows, committed: r.committed })
    };
    rows.iter().filter(|r| r.rows > 0).filter_map(of).collect()
}

//! How sequences share pages, shrink and end: forks, truncation, pins, release.

use super::journal::{Done, Journal};
use super::moves::{Reopened, copies};
use super::sequence::{Pin, Rows};
use super::{Engine, Event, SeqId, beyond, unknown};
use crate::error::{Error, ErrorKind, Result};
use crate::page::flags;

impl Engine {
    /// A sequence with the same tokens, sharing every page until one of the two writes.
    ///
    /// # Errors
    /// `Shape` for an unknown sequence.
    pub fn fork(&mut self, seq: SeqId) -> Result<SeqId> {
        let at_tokens = self.sequence(seq)?.logical;
        let id = self.share(seq)?;
        self.announce_fork(id, seq, at_tokens);
        Ok(id)
    }

    fn share(&mut self, seq: SeqId) -> Result<SeqId> {
        let copy = self.sequence(seq)?.clone();
        for (group, rows) in self.groups.iter_mut().zip(&copy.groups) {
            rows.all().for_each(|page| group.pool.retain(page));
        }
        Ok(self.insert(copy))
    }

    /// A sequence with the first `logical` tokens of `seq`.
    ///
    /// # Errors
    /// As [`Engine::truncate`]; no sequence is made then.
    pub fn fork_at(&mut self, seq: SeqId, logical: u32) -> Result<SeqId> {
        let length = self.sequence(seq)?.logical;
        if logical > length {
            return Err(beyond("fork_at", logical, length));
        }
        self.check_window("fork_at", seq, logical)?;
        let id = self.share(seq)?;
        // Before what the cut does to it; a fork that is refused was made and ended.
        self.announce_fork(id, seq, logical);
        match self.truncate(id, logical) {
            Ok(()) => Ok(id),
            Err(error) => {
                self.release(id)?;
                Err(error)
            }
        }
    }

    /// Ends a sequence; pages that no other holds are free for the next step.
    ///
    /// # Errors
    /// `Shape` for an unknown sequence.
    pub fn release(&mut self, seq: SeqId) -> Result<()> {
        self.forget(seq)?;
        self.listeners.send(Event::SequenceReleased { sequence: seq });
        self.announce_freed("released");
        self.announce_memory();
        Ok(())
    }

    fn forget(&mut self, seq: SeqId) -> Result<()> {
        self.asked = None;
        let Some(sequence) = self.sequences.remove(&seq) else { return Err(unknown(seq)) };
        self.note_freed();
        for (index, rows) in sequence.groups.iter().enumerate() {
            rows.all().for_each(|page| self.groups[index].pool.release(page));
            self.drop_stale(index);
            if !sequence.pins.is_empty() {
                self.mark_pins(index, rows, 0);
            }
            self.give_mean_slot(index, rows.mean_slot);
        }
        Ok(())
    }

    /// Forgets waiting pages that no sequence holds any more, and frees what nothing can read. Called right after
    /// pages were released, before an id is given to another page.
    pub(super) fn drop_stale(&mut self, index: usize) {
        let pool = &mut self.groups[index].pool;
        let (kept, stale): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.pending[index]).into_iter().partition(|w| pool.is_live(w.page));
        self.pending[index] = kept;
        stale.iter().for_each(|w| pool.release(w.source));
        pool.reclaim();
    }

    /// Sets the `PINNED` flag of those of `rows`' pages, from the sequence's page `from` on, that are still held: an
    /// owner's pin covers them, or none does.
    pub(super) fn mark_pins(&mut self, index: usize, rows: &Rows, from: usize) {
        let size = self.groups[index].shape.page_tokens;
        for row in 0..rows.pages.len() {
            for (at, id) in rows.numbered(row, from..usize::MAX) {
                if !self.groups[index].pool.is_live(id) {
                    continue;
                }
                let (start, end) = ((at * size) as u32, ((at + 1) * size) as u32);
                let pinned =
                    self.sequences.values().any(|s| s.groups[index].page(row, at) == Some(id) && s.pinned(start, end));
                let held = self.groups[index].pool.page(id).descriptor.flags & flags::PINNED != 0;
                if held != pinned {
                    self.groups[index].pool.edit(id, |d| d.flags ^= flags::PINNED);
                }
            }
        }
    }

    /// Frees a place for means unless another sequence uses it.
    fn give_mean_slot(&mut self, index: usize, slot: Option<u32>) {
        let shared = self.sequences.values().any(|s| s.groups[index].mean_slot == slot);
        self.groups[index].mean_slots.extend(slot.filter(|_| !shared));
    }

    /// Declares that the first `n` tokens stand: pages below may be sealed, and pages behind a window go.
    ///
    /// # Errors
    /// `Shape` when `n` is above the tokens held or below what was committed.
    pub fn commit(&mut self, seq: SeqId, n: u32) -> Result<()> {
        let sequence = self.sequence_mut(seq)?;
        if n > sequence.logical {
            return Err(beyond("commit", n, sequence.logical));
        }
        if n < sequence.committed {
            return Err(Error::new(
                ErrorKind::Shape,
                format!("commit({n}): {} tokens are committed already", sequence.committed),
                "use truncate to take tokens back",
            ));
        }
        let grown = std::mem::replace(&mut sequence.committed, n) < n;
        if grown && !self.listeners.is_empty() {
            self.listeners.send(Event::SequenceCommitted { sequence: seq, tokens: n });
        }
        self.note_freed();
        self.free_behind(seq)?;
        self.announce_memory();
        Ok(())
    }

    /// Keeps the first `logical` tokens. Within a sealed page, a new open page is made of its decoded tokens; the
    /// sealed one stays until the next step has read it. Pins end where the tokens do.
    ///
    /// # Errors
    /// `Shape` beyond the tokens held, within an evicted page, or when the next row's window is no longer wholly held
    /// (see [`Engine::held`]; 0 is always allowed); `OutOfPages` or `OutOfMemory` when a page cannot be reopened.
    /// Nothing has changed then.
    pub fn truncate(&mut self, seq: SeqId, logical: u32) -> Result<()> {
        self.asked = None;
        let length = self.sequence(seq)?.logical;
        if logical > length {
            return Err(beyond("truncate", logical, length));
        }
        self.check_window("truncate", seq, logical)?;
        let mut journal = Journal::default();
        if let Err(error) = self.reopen(seq, logical, &mut journal) {
            self.roll_back(journal);
            return Err(error);
        }
        self.note_freed();
        self.announce_reopened(&journal);
        if !self.listeners.is_empty() {
            self.listeners.send(Event::SequenceTruncated { sequence: seq, tokens: logical });
        }
        journal.accept(&mut self.groups);
        let sequence = self.sequence_mut(seq)?;
        sequence.logical = logical;
        sequence.committed = sequence.committed.min(logical);
        sequence.forget_ids();
        let pins = sequence.pins.len();
        sequence.pins.iter_mut().for_each(|p| p.range.end = p.range.end.min(logical));
        sequence.pins.retain(|p| p.range.start < p.range.end);
        sequence.anchors.iter_mut().for_each(|r| r.end = r.end.min(logical));
        sequence.anchors.retain(|r| r.start < r.end);
        for index in 0..self.groups.len() {
            let Some(sequence) = self.sequences.get_mut(&seq) else { return Err(unknown(seq)) };
            let (group, held) = (&mut self.groups[index], &mut sequence.groups[index]);
            let size = group.shape.page_tokens;
            let (whole, keep) = (logical as usize / size, (logical as usize).div_ceil(size));
            held.sealed_to = held.sealed_to.min(whole);
            let before = (pins > 0).then(|| held.clone());
            for row in &mut held.pages {
                let kept = keep.saturating_sub(held.first).min(row.len());
                row.drain(kept..).flatten().for_each(|page| group.pool.release(page));
                let open = whole.checked_sub(held.first).and_then(|at| row.get(at).copied().flatten());
                if let Some(page) = open.filter(|&p| group.pool.page(p).references == 1) {
                    group.pool.edit(page, |d| d.valid_tokens = (logical as usize % size) as u16);
                }
            }
            if logical == 0 {
                held.first = 0;
            }
            // New first rows measure new means; the old ones could be those of rows taken back.
            let slot = if logical == 0 { held.mean_slot.take() } else { None };
            self.drop_stale(index);
            self.give_mean_slot(index, slot);
            if let Some(rows) = before {
                self.mark_pins(index, &rows, whole);
            }
        }
        self.announce_freed("truncated");
        self.announce_memory();
        Ok(())
    }

    /// Keeps the pages that hold `range` in the formats they have, whatever the policy says. Pages behind a window go
    /// all the same: no row reads them.
    ///
    /// # Errors
    /// `Shape` for an unknown sequence or an empty or reversed range.
    pub fn pin(&mut self, seq: SeqId, range: std::ops::Range<u32>, reason: &str) -> Result<()> {
        if range.start >= range.end {
            return Err(Error::new(ErrorKind::Shape, format!("pin {range:?} holds no token"), "give start < end"));
        }
        let sequence = self.sequences.get_mut(&seq).ok_or_else(|| unknown(seq))?;
        for (group, rows) in self.groups.iter_mut().zip(&sequence.groups) {
            let size = group.shape.page_tokens;
            let pages = range.start as usize / size..(range.end as usize).div_ceil(size);
            for row in 0..rows.pages.len() {
                for (_, page) in rows.numbered(row, pages.clone()) {
                    group.pool.edit(page, |d| d.flags |= flags::PINNED);
                }
            }
        }
        sequence.pins.push(Pin { range: range.clone(), reason: reason.into() });
        self.asked = None;
        if !self.listeners.is_empty() {
            let reason = reason.to_string().into();
            self.listeners.send(Event::TokensPinned { sequence: seq, tokens: range, reason });
        }
        Ok(())
    }

    /// Marks the tokens of `range` as an anchor, such as a system message: policies that know anchors keep their pages
    /// in the formats of sealing. Unlike a pin it keeps no page from being sealed, and a policy may do otherwise. The
    /// tokens may come later; the mark ends where a truncation cuts them off.
    ///
    /// # Errors
    /// `Shape` for an unknown sequence or an empty or reversed range.
    pub fn anchor(&mut self, seq: SeqId, range: std::ops::Range<u32>) -> Result<()> {
        if range.start >= range.end {
            return Err(Error::new(ErrorKind::Shape, format!("anchor {range:?} holds no token"), "give start < end"));
        }
        self.sequence_mut(seq)?.anchors.push(range.clone());
        self.asked = None;
        if !self.listeners.is_empty() {
            self.listeners.send(Event::TokensAnchored { sequence: seq, tokens: range });
        }
        Ok(())
    }

    /// Ranges pinned, with the reasons given.
    ///
    /// # Errors
    /// `Shape` for an unknown sequence.
    pub fn pins(&self, seq: SeqId) -> Result<Vec<(std::ops::Range<u32>, String)>> {
        Ok(self.sequence(seq)?.pins.iter().map(|p| (p.range.clone(), p.reason.clone())).collect())
    }

    /// Replaces sealed pages that a truncation cuts by open pages; their bytes come over with the next step.
    fn reopen(&mut self, seq: SeqId, logical: u32, journal: &mut Journal) -> Result<()> {
        for index in 0..self.groups.len() {
            let size = self.groups[index].shape.page_tokens;
            let (page, keep) = (logical as usize / size, logical as usize % size);
            if keep == 0 {
                continue;
            }
            journal.0.push(Done::Waiting { group: index, length: self.pending[index].len() });
            for row in 0..self.sequence(seq)?.groups[index].pages.len() {
                let Some(old) = self.sequence(seq)?.groups[index].page(row, page) else { continue };
                if !self.groups[index].pool.page(old).descriptor.sealed() {
                    continue;
                }
                let (k, v) = self.groups[index].open[row];
                let group = &mut self.groups[index];
                let fresh = group.with_pool(self.backend.as_mut(), |pool, backing| {
                    pool.allocate(k, v, (page * size) as u32, backing)
                })?;
                group.note_row(fresh, row);
                group.pool.edit(fresh, |d| {
                    d.valid_tokens = keep as u16;
                    d.flags |= flags::REOPENED;
                });
                if let Some(held) = self.sequence_mut(seq)?.groups[index].page_mut(row, page) {
                    *held = fresh;
                }
                journal.0.push(Done::Reopened { seq, group: index, row, at: page, old });
                let pool = &self.groups[index].pool;
                let transfers = copies(pool, old, fresh, keep as u32);
                self.pending[index].push(Reopened { page: fresh, source: old, transfers });
            }
        }
        Ok(())
    }

    /// Counts the pages that a truncation reopened, and tells listeners.
    fn announce_reopened(&mut self, journal: &Journal) {
        for done in &journal.0 {
            let Done::Reopened { seq, group, row, at, old } = done else { continue };
            self.counters.reopened += 1;
            let Some(page) = self.sequences.get(seq).and_then(|s| s.groups[*group].page(*row, *at)) else { continue };
            if self.listeners.is_empty() {
                continue;
            }
            let (page, copy_of) = (self.facts(*group, page), Some(old.0));
            self.listeners.send(Event::PageAllocated { sequence: *seq, page, copy_of, reason: "reopened".into() });
        }
    }

    /// Tells a fork, and the pages that it shares.
    fn announce_fork(&mut self, id: SeqId, from: SeqId, at_tokens: u32) {
        if self.listeners.is_empty() {
            return;
        }
        self.listeners.send(Event::SequenceForked { sequence: id, from, at_tokens });
        for group in 0..self.groups.len() {
            let of = &self.groups[group];
            let end = (at_tokens as usize).div_ceil(of.shape.page_tokens);
            let Some(held) = self.sequences.get(&id).map(|sequence| &sequence.groups[group]) else { continue };
            let rows = (0..held.pages.len()).flat_map(|row| held.numbered(row, 0..end));
            let (pages, bytes) =
                rows.fold((0, 0), |(pages, bytes), (_, page)| (pages + 1, bytes + of.page_bytes(page)));
            self.listeners.send(Event::PagesShared { sequence: id, from, group, pages, bytes });
        }
    }

    /// From here on pools remember what is freed, if anybody wants to hear of it.
    fn note_freed(&mut self) {
        let listened = self.listened();
        self.groups.iter_mut().for_each(|group| group.pool.note_freed(listened));
    }
}

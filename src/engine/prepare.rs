//! Before a step: sealing, the policy's moves, pages for the new rows, and the plan of the work.

use super::journal::{Done, Journal};
use super::moves::{Transfer, copies, transfers};
use super::samples::Mass;
use super::sequence::Sequence;
use super::source::Source;
use super::storage::Group;
use super::{Engine, Event, SeqId, SeqRows, beyond, unknown};
use crate::error::{Error, ErrorKind, Result};
use crate::format::FormatId;
use crate::kernel::tier::Tier;
use crate::page::{PageId, flags};
use crate::plan::{self, Kept, Limits, PlanSequence, StepPlan};
use std::collections::BTreeSet;

/// What a step needs, worked out before anything is recorded.
pub(super) struct Prepared {
    /// Rows of each sequence, in the step's order.
    pub rows: Vec<SeqRows>,
    /// Token ids of the rows where they were given, by sequence; empty when none were.
    pub tokens: Vec<Option<Vec<u32>>>,
    /// Query rows in all.
    pub total_rows: u32,
    /// Work by cache group.
    pub plans: Vec<StepPlan>,
    /// Bytes to move first, by cache group: pages that waited, then this step's own.
    pub transfers: Vec<[Vec<Transfer>; 2]>,
    /// What listeners will hear when the step is done.
    pub events: Vec<Event>,
    /// When it began, in nanoseconds since the engine was made.
    pub began_ns: u64,
    /// Attention by page, where it is gathered in this step: every page is a work item of its own then.
    pub sampled: bool,
    pub mass: Mass,
    /// What the policy moved.
    pub policy: super::policies::Moved,
}

impl Engine {
    pub(super) fn prepare_step(&mut self, rows: &[SeqRows], journal: &mut Journal) -> Result<Prepared> {
        let mut seen = BTreeSet::new();
        let mut total = 0u64;
        for r in rows {
            let sequence = self.sequence(r.seq)?;
            if !seen.insert(r.seq) {
                return Err(Error::new(ErrorKind::Shape, format!("sequence {} stands twice in a step", r.seq.0), ""));
            }
            total += u64::from(r.rows);
            // Positions and page counts stay far below what u32 words can address.
            if (u64::from(sequence.logical) + u64::from(r.rows)).max(total) > 1 << 30 {
                return Err(beyond("begin_step", r.rows, sequence.logical));
            }
            if r.committed && sequence.committed != sequence.logical && r.rows > 0 {
                return Err(Error::new(
                    ErrorKind::Shape,
                    format!(
                        "committed rows after drafts: sequence {} holds {} tokens, {} committed",
                        r.seq.0, sequence.logical, sequence.committed
                    ),
                    "commit or truncate the drafts first",
                ));
            }
        }
        if self.page_items
            && let Some((states, most)) = rows.iter().find_map(|r| self.unfit_for_page_items(r))
        {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{states} partial states, one a page and query head; a binding holds {most}"),
                "leave out page_items, or take larger pages",
            ));
        }
        let sampled = self.samples_mass(rows);
        let mut events = Vec::new();
        let mut moved: Vec<[Vec<Transfer>; 2]> = Vec::with_capacity(self.groups.len());
        for group in 0..self.groups.len() {
            let waiting = std::mem::take(&mut self.pending[group]);
            moved.push([waiting.iter().flat_map(|w| w.transfers.iter().copied()).collect(), Vec::new()]);
            journal.0.push(Done::Pending { group, waiting });
        }
        // What the rows need comes first: conversions make do with the room that is left, or wait.
        for r in rows {
            for (group, moves) in moved.iter_mut().enumerate() {
                self.reserve(r, group, journal, &mut moves[1], &mut events)?;
            }
        }
        self.counters.deferred = 0;
        let policy = self.apply_policy(rows, journal, &mut moved, &mut events)?;
        let mut plan_sequences: Vec<Vec<PlanSequence>> = vec![Vec::new(); self.groups.len()];
        let mut row_start = 0;
        for r in rows {
            for group in 0..self.groups.len() {
                self.seal_due(r.seq, group, journal, &mut moved[group][1], &mut events)?;
                let (mean_slot, measure_mean) = self.mean_slot(r, group, journal)?;
                let first_position = self.sequence(r.seq)?.logical;
                plan_sequences[group].push(PlanSequence {
                    row_start,
                    rows: r.rows,
                    first_position,
                    mean_slot,
                    measure_mean,
                });
            }
            row_start += r.rows;
        }
        // Only now: every owner's tail is that of the tokens before this step.
        for r in rows {
            let sequence = self.sequence_mut(r.seq)?;
            journal.0.push(Done::Lengths { seq: r.seq, logical: sequence.logical, committed: sequence.committed });
            sequence.logical += r.rows;
            if r.committed && r.rows > 0 {
                sequence.committed = sequence.logical;
            }
        }
        let mut plans = Vec::with_capacity(self.groups.len());
        for (group, sequences) in plan_sequences.iter().enumerate() {
            let mut kept = std::mem::take(&mut self.groups[group].kept);
            let plan = self.plan_group(group, rows, sequences, sampled || self.page_items, &mut kept);
            self.groups[group].kept = kept;
            plans.push(plan?);
        }
        let rows = rows.to_vec();
        Ok(Prepared {
            rows,
            tokens: Vec::new(),
            total_rows: row_start,
            plans,
            transfers: moved,
            events,
            began_ns: 0,
            sampled,
            mass: Mass::default(),
            policy,
        })
    }

    fn plan_group(
        &self,
        index: usize,
        rows: &[SeqRows],
        sequences: &[PlanSequence],
        page_items: bool,
        kept: &mut Kept,
    ) -> Result<StepPlan> {
        let group = &self.groups[index];
        let held = rows.iter().map(|r| self.sequence(r.seq)).collect::<Result<Vec<_>>>()?;
        let caps = self.backend.caps();
        let limits = Limits {
            layers: group.shape.layers.len(),
            kv_heads: group.shape.kv_heads,
            group: group.shape.group_size(),
            page_tokens: group.shape.page_tokens,
            window: group.window,
            target_items: caps.target_workgroups as usize,
            wave_items: caps.multiprocessors.unwrap_or(0) as usize,
            tile_rows: super::pipelines::tile_rows(caps, &group.attention),
            max_partials: self.most_partials(group),
            max_rows: self.most_in_binding(group.attention.q_heads() * group.attention.query_floats()),
            page_items,
        };
        let source = Source {
            group,
            index,
            sequences: &held,
            selector: self.selector.as_ref(),
            profile: &self.profile,
            tier: Tier::of(caps),
        };
        Ok(plan::build(&limits, sequences, &source, kept))
    }

    /// Records of `floats` numbers that one binding holds.
    fn most_in_binding(&self, floats: usize) -> usize {
        let caps = self.backend.caps();
        let binding = caps.max_binding_bytes.min(caps.max_buffer_bytes);
        usize::try_from(binding / (floats as u64 * 4)).unwrap_or(usize::MAX)
    }

    /// Partial states that a group's workspace holds at once.
    pub(super) fn most_partials(&self, group: &Group) -> usize {
        self.most_in_binding(group.attention.partial_floats()).min(1 << 20)
    }

    /// Seals the pages of `seq` that are full, older than every owner's exact tail and outside the sink.
    fn seal_due(
        &mut self,
        seq: SeqId,
        index: usize,
        journal: &mut Journal,
        moves: &mut Vec<Transfer>,
        events: &mut Vec<Event>,
    ) -> Result<()> {
        let size = self.groups[index].shape.page_tokens;
        let limit = |s: &Sequence| (s.committed as usize).saturating_sub(self.profile.exact_tail_tokens) / size;
        let sequence = self.sequence(seq)?;
        let held = &sequence.groups[index];
        let start = held.sealed_to.max(self.profile.exact_sink_tokens.div_ceil(size));
        let end = limit(sequence);
        if start >= end {
            return Ok(());
        }
        // Owners of a shared page who still want it exact.
        let behind: Vec<&Sequence> = self.sequences.values().filter(|s| limit(s) < end).collect();
        let mut due: Vec<(usize, usize, PageId)> = Vec::new();
        let mut sealed_to = end;
        for row in 0..held.pages.len() {
            for (page, id) in held.numbered(row, start..end) {
                let found = self.groups[index].pool.page(id);
                if found.descriptor.sealed() {
                    continue;
                }
                let pinned = found.descriptor.flags & flags::PINNED != 0
                    || sequence.pinned((page * size) as u32, ((page + 1) * size) as u32);
                let wanted_exact = found.references > 1
                    && behind.iter().any(|s| limit(s) <= page && s.groups[index].page(row, page) == Some(id));
                if pinned || wanted_exact {
                    sealed_to = sealed_to.min(page);
                } else {
                    due.push((page, row, id));
                }
            }
        }
        // Oldest pages first, in case there is not room for all.
        due.sort_unstable();
        let mut left = due.len();
        for (page, row, id) in due {
            let (k, v) = self.groups[index].sealed[row];
            if !self.change_if_room(index, id, k, v, "sealed", journal, moves, events)? {
                sealed_to = sealed_to.min(page);
                self.counters.deferred += left as u64 - 1;
                break;
            }
            left -= 1;
        }
        let held = &mut self.sequence_mut(seq)?.groups[index];
        let before = std::mem::replace(&mut held.sealed_to, sealed_to);
        journal.0.push(Done::SealedTo { seq, group: index, before });
        Ok(())
    }

    /// Changes a page's formats, or counts it as deferred when there is no room for both copies until the step is
    /// done: the page stays readable as it is, and the next step tries again. Returns whether it was changed.
    #[allow(clippy::too_many_arguments)] // one call site a reason; a struct would only rename the list
    pub(super) fn change_if_room(
        &mut self,
        index: usize,
        id: PageId,
        k: FormatId,
        v: FormatId,
        reason: &'static str,
        journal: &mut Journal,
        moves: &mut Vec<Transfer>,
        events: &mut Vec<Event>,
    ) -> Result<bool> {
        match self.change(index, id, k, v, reason, journal, moves, events) {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::OutOfPages | ErrorKind::OutOfMemory) => {
                log::debug!("page {} keeps its format for now: {error}", id.0);
                self.counters.deferred += 1;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Changes a page's formats, with its transfers, its undo and its event.
    #[allow(clippy::too_many_arguments)] // one call site a reason; a struct would only rename the list
    fn change(
        &mut self,
        index: usize,
        id: PageId,
        k: FormatId,
        v: FormatId,
        reason: &'static str,
        journal: &mut Journal,
        moves: &mut Vec<Transfer>,
        events: &mut Vec<Event>,
    ) -> Result<()> {
        let change = self.groups[index]
            .with_pool(self.backend.as_mut(), |pool, backing| pool.change(id, k, v, true, backing))?;
        journal.0.push(Done::Changed { group: index, change });
        moves.extend(transfers(&change.old, &change.new, u32::from(change.before.valid_tokens)));
        if !self.listeners.is_empty() {
            let group = &self.groups[index];
            events.push(Event::PageConverted {
                page: self.facts(index, id),
                from: self.names(change.old.k.0, change.old.v.0),
                from_bytes: group.side_pair_bytes(change.old.k.0, change.old.v.0),
                reason: reason.into(),
            });
        }
        Ok(())
    }

    fn mean_slot(&mut self, r: &SeqRows, index: usize, journal: &mut Journal) -> Result<(u32, bool)> {
        if !self.groups[index].uses_means() {
            return Ok((0, false));
        }
        if let Some(slot) = self.sequence(r.seq)?.groups[index].mean_slot {
            return Ok((slot, false));
        }
        if r.rows == 0 {
            return Ok((0, false));
        }
        let Some(slot) = self.groups[index].mean_slots.pop() else {
            return Err(Error::new(
                ErrorKind::OutOfPages,
                format!("{} sequences hold the means of their basis already", super::storage::MEAN_SLOTS),
                "release a sequence, or use --basis hadamard",
            ));
        };
        self.sequence_mut(r.seq)?.groups[index].mean_slot = Some(slot);
        journal.0.push(Done::MeanSlot { seq: r.seq, group: index });
        Ok((slot, true))
    }

    /// Makes room for a sequence's new rows: a copy of a shared tail page, then new pages.
    fn reserve(
        &mut self,
        r: &SeqRows,
        index: usize,
        journal: &mut Journal,
        moves: &mut Vec<Transfer>,
        events: &mut Vec<Event>,
    ) -> Result<()> {
        if r.rows == 0 {
            return Ok(());
        }
        let logical = self.sequence(r.seq)?.logical as usize;
        let size = self.groups[index].shape.page_tokens;
        let end = logical + r.rows as usize;
        for page in logical / size..end.div_ceil(size) {
            let valid = (end - page * size).min(size) as u16;
            let (used, first_position) = (logical.saturating_sub(page * size).min(size), (page * size) as u32);
            for row in 0..self.sequence(r.seq)?.groups[index].pages.len() {
                let (k, v) = self.groups[index].open[row];
                let held = self.sequence(r.seq)?.groups[index].page(row, page);
                let id = match held {
                    Some(id) if self.groups[index].pool.page(id).references == 1 => {
                        let before = self.groups[index].pool.page(id).descriptor;
                        journal.0.push(Done::Edited { group: index, page: id, before });
                        id
                    }
                    shared => {
                        let fresh = self.groups[index].with_pool(self.backend.as_mut(), |pool, backing| {
                            pool.allocate(k, v, first_position, backing)
                        })?;
                        self.groups[index].note_row(fresh, row);
                        let sequence = self.sequences.get_mut(&r.seq).ok_or_else(|| unknown(r.seq))?;
                        let rows = &mut sequence.groups[index];
                        if let (Some(old), Some(place)) = (shared, rows.page_mut(row, page)) {
                            *place = fresh;
                            journal.0.push(Done::Replaced { seq: r.seq, group: index, row, at: page, old });
                            let pool = &self.groups[index].pool;
                            moves.extend(copies(pool, old, fresh, used as u32));
                        } else {
                            rows.pages[row].push(Some(fresh));
                            journal.0.push(Done::Pushed { seq: r.seq, group: index, row });
                        }
                        if !self.listeners.is_empty() {
                            let reason = if shared.is_some() { "copied" } else { "rows" };
                            events.push(Event::PageAllocated {
                                sequence: r.seq,
                                page: self.facts(index, fresh),
                                copy_of: shared.map(|old| old.0),
                                reason: reason.into(),
                            });
                        }
                        fresh
                    }
                };
                self.groups[index].pool.edit(id, |d| d.valid_tokens = valid);
            }
        }
        Ok(())
    }
}

pub(super) fn no_layer(layer: usize) -> Error {
    Error::new(ErrorKind::Shape, format!("layer {layer} is in no cache group"), "")
}

//! What a step did to the tables before anything ran, so that a refusal can be taken back whole.

use super::storage::Group;
use super::{Engine, SeqId};
use crate::page::{Change, PageDescriptor, PageId};

/// One thing to undo.
#[derive(Debug)]
pub(super) enum Done {
    /// A page's formats or slots changed.
    Changed { group: usize, change: Change },
    /// A page was added at the end of a row.
    Pushed { seq: SeqId, group: usize, row: usize },
    /// Page `at` of the sequence was replaced in a row; the old one keeps its reference until the step is accepted.
    Replaced { seq: SeqId, group: usize, row: usize, at: usize, old: PageId },
    /// Page `at` of the sequence, a sealed one, was replaced by an open one in a row; the old one's reference goes to the waiting entry.
    Reopened { seq: SeqId, group: usize, row: usize, at: usize, old: PageId },
    /// Page `at` of the sequence was evicted from a row; it keeps its reference until the step is accepted.
    Evicted { seq: SeqId, group: usize, row: usize, at: usize, page: PageId },
    /// A descriptor was edited.
    Edited { group: usize, page: PageId, before: PageDescriptor },
    /// A sequence's lengths moved.
    Lengths { seq: SeqId, logical: u32, committed: u32 },
    /// More of a sequence's pages are sealed.
    SealedTo { seq: SeqId, group: usize, before: usize },
    /// A sequence took a slot for its means.
    MeanSlot { seq: SeqId, group: usize },
    /// Reopened pages that waited were taken into the step.
    Pending { group: usize, waiting: Vec<super::moves::Reopened> },
    /// Reopened pages were put to wait for the next step.
    Waiting { group: usize, length: usize },
}

/// Everything since the step began, in order.
#[derive(Debug, Default)]
pub(super) struct Journal(pub Vec<Done>);

impl Journal {
    /// The step stands: replaced pages lose the reference that was kept for undoing, reopened ones their source.
    pub fn accept(self, groups: &mut [Group]) {
        for done in self.0 {
            match done {
                Done::Replaced { group, old, .. } => groups[group].pool.release(old),
                Done::Evicted { group, page, .. } => groups[group].pool.release(page),
                Done::Pending { group, waiting } => {
                    waiting.iter().for_each(|w| groups[group].pool.release(w.source));
                }
                _ => {}
            }
        }
    }
}

impl Engine {
    /// Takes back everything in the journal, newest first.
    pub(super) fn roll_back(&mut self, journal: Journal) {
        self.asked = None;
        for done in journal.0.into_iter().rev() {
            match done {
                Done::Changed { group, change } => self.groups[group].pool.undo(&change),
                Done::Pushed { seq, group, row } => {
                    if let Some(page) = self.row(seq, group, row).and_then(Vec::pop).flatten() {
                        self.groups[group].pool.discard(page);
                    }
                }
                Done::Replaced { seq, group, row, at, old } | Done::Reopened { seq, group, row, at, old } => {
                    let held = self.sequences.get_mut(&seq).and_then(|s| s.groups[group].page_mut(row, at));
                    let fresh = held.map(|page| std::mem::replace(page, old));
                    if let Some(page) = fresh {
                        self.groups[group].pool.discard(page);
                    }
                }
                Done::Evicted { seq, group, row, at, page } => {
                    let held = self.sequences.get_mut(&seq).and_then(|s| s.groups[group].place_mut(row, at));
                    if let Some(place) = held {
                        *place = Some(page);
                    }
                }
                Done::Edited { group, page, before } => self.groups[group].pool.edit(page, |d| *d = before),
                Done::Lengths { seq, logical, committed } => {
                    if let Some(s) = self.sequences.get_mut(&seq) {
                        (s.logical, s.committed) = (logical, committed);
                    }
                }
                Done::SealedTo { seq, group, before } => {
                    if let Some(s) = self.sequences.get_mut(&seq) {
                        s.groups[group].sealed_to = before;
                    }
                }
                Done::MeanSlot { seq, group } => {
                    let slot = self.sequences.get_mut(&seq).and_then(|s| s.groups[group].mean_slot.take());
                    self.groups[group].mean_slots.extend(slot);
                }
                Done::Pending { group, waiting } => self.pending[group] = waiting,
                Done::Waiting { group, length } => self.pending[group].truncate(length),
            }
        }
    }

    fn row(&mut self, seq: SeqId, group: usize, row: usize) -> Option<&mut Vec<Option<PageId>>> {
        self.sequences.get_mut(&seq).map(|s| &mut s.groups[group].pages[row])
    }
}

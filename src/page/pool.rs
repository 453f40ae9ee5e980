//! The pool of one cache group: pages with reference counts and generations, over slabs.

mod bytes;
mod parts;
mod slots;
mod take;

pub use bytes::PoolBytes;
pub use slots::{Page, Slots};

use super::budget::Budget;
use super::descriptor::{NONE, PageDescriptor, flags};
use super::records::Records;
use super::slab::{SegmentKey, Slab};
use crate::error::Result;
use crate::format::FormatId;
use crate::shape::Side;
use std::collections::BTreeMap;

/// A page of a pool: also the index of its descriptor in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId(pub u32);

/// Provides the memory of segments.
pub trait Backing {
    /// Makes the segment `key` of `bytes` bytes.
    ///
    /// # Errors
    /// Whatever the device says; the pool is then as it was.
    fn reserve(&mut self, key: SegmentKey, bytes: u64) -> Result<()>;

    /// Makes segment `index` of the side planes' records, of `bytes` bytes. Called for 0, 1, 2 and so on.
    ///
    /// # Errors
    /// Whatever the device says; the pool is then as it was.
    fn reserve_records(&mut self, index: usize, bytes: u64) -> Result<()>;
}

/// A change of a page's format or place: the bytes go from `old` to `new`.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// The page.
    pub page: PageId,
    /// Its descriptor before, for undoing.
    pub before: PageDescriptor,
    /// Slots to read.
    pub old: Slots,
    /// Slots to write; a side whose slot is the same is left where it is.
    pub new: Slots,
}

/// Pages, slots and segments of one cache group.
#[derive(Debug)]
pub struct Pool {
    slots: BTreeMap<(Side, FormatId), SlotSpec>,
    /// Segment groups so far.
    groups: u16,
    slabs: BTreeMap<SegmentKey, Slab>,
    pages: Vec<Option<Page>>,
    /// Formats whose pages are in two parts, and the format that the first part is a page of.
    nested: BTreeMap<(Side, FormatId), FormatId>,
    /// Rows of further parts' slots, which share their numbers with pages, and whose they are.
    extras: BTreeMap<u32, PageId>,
    free_pages: std::collections::BinaryHeap<std::cmp::Reverse<u32>>,
    retiring: Vec<Slots>,
    retiring_sides: Vec<(SegmentKey, u32)>,
    /// Where side planes are declared.
    records: Option<Records>,
    dirty: Vec<u32>,
    layout: u64,
    max_segment_bytes: u64,
    budget: Budget,
    used_bytes: u64,
    /// Pages that nobody holds any more and the bytes of their slots, where somebody wants to hear of it.
    freed: Option<Vec<(PageId, u64)>>,
}

/// How one side and format is laid into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotSpec {
    /// Bytes of a slot.
    pub bytes: u64,
    /// Slots of the first segment; each later one doubles what there is.
    pub first_slots: u32,
}

impl Pool {
    /// A pool for the given sides and formats. A segment holds at most `max_segment_bytes`; `budget` (or a limit for
    /// this pool alone) bounds the slots in use.
    pub fn new(slots: BTreeMap<(Side, FormatId), SlotSpec>, max_segment_bytes: u64, budget: impl Into<Budget>) -> Self {
        Pool {
            slots,
            groups: 0,
            slabs: BTreeMap::new(),
            pages: Vec::new(),
            nested: BTreeMap::new(),
            extras: BTreeMap::new(),
            free_pages: std::collections::BinaryHeap::new(),
            retiring: Vec::new(),
            retiring_sides: Vec::new(),
            records: None,
            dirty: Vec::new(),
            layout: 0,
            max_segment_bytes,
            budget: budget.into(),
            used_bytes: 0,
            freed: None,
        }
    }

    /// The same pool, whose pages have a record of side planes each. Records are metadata: the budget does not bound them.
    pub fn with_records(mut self, spec: SlotSpec) -> Self {
        self.records = Some(Records::new(spec, self.max_segment_bytes));
        self
    }

    /// A new open page with one reference, and no tokens yet. Its record, where there is one, holds nothing of use.
    ///
    /// # Errors
    /// `OutOfPages` above the budget, naming the bytes short; whatever `backing` says. Nothing has changed then.
    pub fn allocate(
        &mut self,
        k: FormatId,
        v: FormatId,
        first_position: u32,
        backing: &mut dyn Backing,
    ) -> Result<PageId> {
        let slots = self.take_slots(k, v, None, backing)?;
        let side = match self.records.as_mut().map_or(Ok(NONE), |records| records.take(backing)) {
            Ok(row) => row,
            Err(error) => {
                self.give_all(&slots);
                return Err(error);
            }
        };
        let id = PageId(self.fresh_id());
        self.pages[id.0 as usize] = Some(Page::new(slots, first_position, side));
        self.layout += 1;
        self.place(id, slots);
        Ok(id)
    }

    /// The page. Panics when `id` is not live: a fault of the engine's own tables.
    pub fn page(&self, id: PageId) -> &Page {
        match self.pages.get(id.0 as usize) {
            Some(Some(page)) => page,
            _ => panic!("page {} is not live", id.0),
        }
    }

    /// Changes whenever a page is made, or another format or segment becomes a page's.
    pub(crate) fn layout(&self) -> u64 {
        self.layout
    }

    /// Whether `id` names a page in use.
    pub fn is_live(&self, id: PageId) -> bool {
        matches!(self.pages.get(id.0 as usize), Some(Some(_)))
    }

    /// Changes a page's descriptor through `edit`.
    ///
    /// # Errors
    /// `Unsupported` for flags that are not built ([`flags::check`]): the page is then as it was.
    pub fn update(&mut self, id: PageId, edit: impl FnOnce(&mut PageDescriptor)) -> Result<()> {
        let Some(Some(page)) = self.pages.get(id.0 as usize) else { return Ok(()) };
        let mut descriptor = page.descriptor;
        edit(&mut descriptor);
        flags::check(descriptor.flags)?;
        self.edit(id, |d| *d = descriptor);
        Ok(())
    }

    /// [`Pool::update`] for the engine's own edits, which set no flag that is not built.
    pub(crate) fn edit(&mut self, id: PageId, edit: impl FnOnce(&mut PageDescriptor)) {
        if let Some(Some(page)) = self.pages.get_mut(id.0 as usize) {
            let class = |d: &PageDescriptor| (d.k_format, d.v_format, d.segment_group);
            let before = class(&page.descriptor);
            edit(&mut page.descriptor);
            self.layout += u64::from(class(&page.descriptor) != before);
            self.dirty.push(id.0);
        }
    }

    /// One more owner.
    pub fn retain(&mut self, id: PageId) {
        if let Some(Some(page)) = self.pages.get_mut(id.0 as usize) {
            page.references += 1;
        }
    }

    /// One owner less; the last one's going retires the slots.
    pub fn release(&mut self, id: PageId) {
        let Some(Some(page)) = self.pages.get_mut(id.0 as usize) else { return };
        page.references -= 1;
        if page.references == 0
            && let Some((slots, side)) = self.forget(id)
        {
            if self.freed.is_some() {
                let bytes = slots.all().map(|(key, _)| self.slot_size(key.side, key.format)).sum();
                self.freed.get_or_insert_default().push((id, bytes));
            }
            self.retiring.push(slots);
            if let Some(records) = &mut self.records {
                records.retire(side);
            }
        }
    }

    /// Whether pages that go from here on are remembered for [`Pool::take_freed`].
    pub(crate) fn note_freed(&mut self, wanted: bool) {
        self.freed = wanted.then(|| self.freed.take().unwrap_or_default());
    }

    /// Pages that nobody holds any more since the last call, with the bytes of their slots.
    pub(crate) fn take_freed(&mut self) -> Vec<(PageId, u64)> {
        self.freed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Frees a page that no step has seen yet.
    pub fn discard(&mut self, id: PageId) {
        if let Some((slots, side)) = self.forget(id) {
            self.give_all(&slots);
            if let Some(records) = &mut self.records {
                records.give(side);
            }
        }
    }

    /// Frees the slots of retired pages: no recorded or running step can read them any more.
    pub fn reclaim(&mut self) {
        for slots in std::mem::take(&mut self.retiring) {
            self.give_all(&slots);
        }
        for (segment, slot) in std::mem::take(&mut self.retiring_sides) {
            self.give(segment, slot);
        }
        if let Some(records) = &mut self.records {
            records.reclaim();
        }
    }

    /// Descriptors changed since the last call, ascending, as runs of (first id, words).
    pub fn take_dirty(&mut self) -> Vec<(u32, Vec<u32>)> {
        let mut ids = std::mem::take(&mut self.dirty);
        ids.sort_unstable();
        ids.dedup();
        let mut runs: Vec<(u32, Vec<u32>)> = Vec::new();
        for id in ids {
            let Some(words) = self.words(id) else { continue };
            match runs.last_mut() {
                Some((first, run)) if *first + (run.len() / 8) as u32 == id => run.extend_from_slice(&words),
                _ => runs.push((id, words.to_vec())),
            }
        }
        runs
    }

    /// Makes every live descriptor dirty, for a new descriptor buffer.
    pub fn touch_all(&mut self) {
        self.dirty = (0..self.pages.len() as u32).collect();
    }

    /// Room that the descriptor buffer needs, in descriptors.
    pub fn descriptor_count(&self) -> usize {
        self.pages.len()
    }

    /// Live pages.
    pub fn live(&self) -> impl Iterator<Item = (PageId, &Page)> {
        self.pages.iter().enumerate().filter_map(|(i, p)| p.as_ref().map(|p| (PageId(i as u32), p)))
    }

    fn give(&mut self, key: SegmentKey, slot: u32) {
        if let Some(slab) = self.slabs.get_mut(&key) {
            slab.give(slot);
            let bytes = self.slot_size(key.side, key.format);
            self.used_bytes -= bytes;
            self.budget.give(bytes);
        }
    }

    fn give_all(&mut self, slots: &Slots) {
        for (segment, slot) in slots.all() {
            self.give(segment, slot);
        }
    }
}

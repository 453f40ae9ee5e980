//! Changes of a page's formats: new slots, parts freed alone, and the rows in which kernels find further parts.

use super::slots::at;
use super::{Backing, Change, PageId, Pool, Slots};
use crate::error::{Error, ErrorKind, Result};
use crate::format::FormatId;
use crate::page::descriptor::{NONE, PageDescriptor, flags};
use crate::page::slab::SegmentKey;
use crate::shape::Side;
use std::collections::BTreeMap;

impl Pool {
    /// The same pool, where pages of some formats are stored in two parts: by (side, format) the format that the first part
    /// is a page of, and in whose slabs it lies. The slots of such a format itself hold further parts.
    pub fn with_parts(mut self, first: BTreeMap<(Side, FormatId), FormatId>) -> Self {
        self.nested = first;
        self
    }

    /// Gives a page new slots in the formats `k` and `v` and publishes them in its descriptor with a new generation.
    /// The caller copies the bytes before anything reads them; the old slots retire. From a format in two parts to that of
    /// its first part a side stays where it is, and its further part alone retires.
    ///
    /// # Errors
    /// As [`Pool::allocate`]; `Unsupported` for the way back, from the first part to both.
    pub fn change(
        &mut self,
        id: PageId,
        k: FormatId,
        v: FormatId,
        seal: bool,
        backing: &mut dyn Backing,
    ) -> Result<Change> {
        let before = self.page(id).descriptor;
        let old = self.page(id).slots;
        let new = self.places(&old, [k, v], backing)?;
        let retired = old.all().filter(|part| new.all().all(|other| other != *part));
        self.retiring_sides.extend(retired);
        self.place(id, new);
        self.edit(id, |d| {
            d.generation = d.generation.wrapping_add(1);
            if seal {
                d.flags |= flags::SEALED;
            }
        });
        Ok(Change { page: id, before, old, new })
    }

    /// Takes back the newest changes, newest first, provided nothing was reclaimed since.
    pub fn undo(&mut self, change: &Change) {
        let Change { old, new, before, page } = change;
        for part in old.all().filter(|part| new.all().all(|other| other != *part)) {
            if let Some(at) = self.retiring_sides.iter().rposition(|r| *r == part) {
                self.retiring_sides.swap_remove(at);
            }
        }
        for (segment, slot) in new.all().filter(|part| old.all().all(|other| other != *part)) {
            self.give(segment, slot);
        }
        self.place(*page, *old);
        // The row of further parts may be another one now.
        self.edit(*page, |d| *d = PageDescriptor { extra: d.extra, ..*before });
    }

    /// Slots for a page in `old` that is to have other formats.
    fn places(&mut self, old: &Slots, formats: [FormatId; 2], backing: &mut dyn Backing) -> Result<Slots> {
        let (mut kept, mut stays) = (*old, [false; 2]);
        for (side, wanted) in Side::BOTH.into_iter().zip(formats) {
            let ((format, slot), first) = (old.side(side), old.first[at(side)]);
            if wanted == format {
                stays[at(side)] = true;
            } else if old.further(side).is_some() && wanted == first {
                stays[at(side)] = true;
                kept = kept.with(side, (wanted, wanted), [slot, NONE]);
            } else if self.first_of(side, wanted) == first {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!(
                        "a {} page of format {} has no further part to become format {}",
                        side.as_str(),
                        format.0,
                        wanted.0
                    ),
                    "convert to another format: bits that are gone do not come back",
                ));
            }
        }
        let [k, v] = formats;
        let one = match stays {
            [true, true] => return Ok(kept),
            [false, false] => return self.take_slots(k, v, Some(old.group), backing),
            [true, false] => self.take_side(&kept, Side::V, v, backing)?,
            [false, true] => self.take_side(&kept, Side::K, k, backing)?,
        };
        match one {
            Some(slots) => Ok(slots),
            None => self.take_slots(k, v, None, backing),
        }
    }

    /// The format in whose slabs pages of `format`, or their first parts, lie.
    pub(super) fn first_of(&self, side: Side, format: FormatId) -> FormatId {
        self.nested.get(&(side, format)).copied().unwrap_or(format)
    }

    /// Segments that a side in `format` has slots in: of the whole, or of the first and the further part.
    pub(super) fn segments(
        &self,
        group: u16,
        side: Side,
        format: FormatId,
    ) -> impl Iterator<Item = SegmentKey> + use<> {
        let first = self.first_of(side, format);
        let further = (first != format).then_some(SegmentKey { group, side, format });
        [Some(SegmentKey { group, side, format: first }), further].into_iter().flatten()
    }

    /// The segment of a page side of a class, or of its first part.
    pub fn first_segment(&self, group: u16, side: Side, format: FormatId) -> SegmentKey {
        SegmentKey { group, side, format: self.first_of(side, format) }
    }

    /// A number that neither a page nor a row of further parts has.
    pub(super) fn fresh_id(&mut self) -> u32 {
        match self.free_pages.pop() {
            Some(std::cmp::Reverse(id)) => id,
            None => {
                self.pages.push(None);
                self.pages.len() as u32 - 1
            }
        }
    }

    /// Publishes a page's slots in its descriptor and, where it has further parts, in a row of theirs.
    pub(super) fn place(&mut self, id: PageId, slots: Slots) {
        let mut row = self.page(id).descriptor.extra;
        let wanted = slots.further.iter().any(|slot| *slot != NONE);
        if wanted && row == NONE {
            row = self.fresh_id();
            self.extras.insert(row, id);
        } else if !wanted && row != NONE {
            self.free_row(row);
            row = NONE;
        }
        if row != NONE {
            self.dirty.push(row);
        }
        if let Some(Some(page)) = self.pages.get_mut(id.0 as usize) {
            page.slots = slots;
        }
        self.edit(id, |d| {
            (d.k_format, d.k_slot) = slots.k;
            (d.v_format, d.v_slot) = slots.v;
            d.segment_group = slots.group;
            d.extra = row;
        });
    }

    fn free_row(&mut self, row: u32) {
        self.extras.remove(&row);
        self.free_pages.push(std::cmp::Reverse(row));
    }

    /// Takes a page and its row out of the tables; its slots and its record's row are the caller's.
    pub(super) fn forget(&mut self, id: PageId) -> Option<(Slots, u32)> {
        let page = self.pages.get_mut(id.0 as usize)?.take()?;
        self.free_pages.push(std::cmp::Reverse(id.0));
        if page.descriptor.extra != NONE {
            self.free_row(page.descriptor.extra);
        }
        Some((page.slots, page.descriptor.side))
    }

    /// The words that kernels read under a number: of a page, or of a row of further parts.
    pub(super) fn words(&self, id: u32) -> Option<[u32; 8]> {
        if let Some(Some(page)) = self.pages.get(id as usize) {
            return Some(page.descriptor.words());
        }
        let [k, v] = self.page(*self.extras.get(&id)?).slots.further;
        Some([k, v, NONE, NONE, NONE, NONE, NONE, NONE])
    }
}

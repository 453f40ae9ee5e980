//! A page's slots, and what kernels read of it.

use crate::format::FormatId;
use crate::page::descriptor::{NONE, PageDescriptor, Tier};
use crate::page::slab::SegmentKey;
use crate::shape::Side;

/// The slots of a page and what they hold: one a side, or two where a side's format is stored in two parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Segment group of all of them.
    pub group: u16,
    /// K format, and slot of the whole side or of its first part.
    pub k: (FormatId, u32),
    /// V format and slot, likewise.
    pub v: (FormatId, u32),
    /// In whose slabs those slots are, K and V: the formats themselves, or those that first parts are pages of.
    pub first: [FormatId; 2],
    /// Slots of further parts, K and V, in slabs of the format; all ones for sides in one piece.
    pub further: [u32; 2],
}

/// Index of a side in pairs of K and V.
pub(super) fn at(side: Side) -> usize {
    usize::from(side == Side::V)
}

impl Slots {
    /// Format of `side`, and slot of the whole of it or of its first part.
    pub fn side(&self, side: Side) -> (FormatId, u32) {
        match side {
            Side::K => self.k,
            Side::V => self.v,
        }
    }

    /// The segment of `side`, or of its first part.
    pub fn segment(&self, side: Side) -> SegmentKey {
        SegmentKey { group: self.group, side, format: self.first[at(side)] }
    }

    /// Segment and slot of the further part of `side`; `None` where it is in one piece.
    pub fn further(&self, side: Side) -> Option<(SegmentKey, u32)> {
        let slot = Some(self.further[at(side)]).filter(|slot| *slot != NONE)?;
        Some((SegmentKey { group: self.group, side, format: self.side(side).0 }, slot))
    }

    /// Segments and slots of `side`, the first part before the further one.
    pub fn parts(&self, side: Side) -> impl Iterator<Item = (SegmentKey, u32)> + use<> {
        [Some((self.segment(side), self.side(side).1)), self.further(side)].into_iter().flatten()
    }

    /// Segments and slots of both sides.
    pub fn all(&self) -> impl Iterator<Item = (SegmentKey, u32)> + use<> {
        self.parts(Side::K).chain(self.parts(Side::V))
    }

    /// The same, with `side` in other slots.
    pub(super) fn with(mut self, side: Side, (format, first): (FormatId, FormatId), slots: [u32; 2]) -> Self {
        match side {
            Side::K => self.k = (format, slots[0]),
            Side::V => self.v = (format, slots[0]),
        }
        self.first[at(side)] = first;
        self.further[at(side)] = slots[1];
        self
    }
}

/// A page's descriptor and owners.
#[derive(Clone, Debug)]
pub struct Page {
    /// What kernels read.
    pub descriptor: PageDescriptor,
    /// Sequences that hold it.
    pub references: u32,
    pub(super) slots: Slots,
}

impl Page {
    /// An open page without tokens, in slots that it is yet to be given ([`super::Pool::place`]).
    pub(super) fn new(slots: Slots, first_position: u32, side: u32) -> Self {
        let descriptor = PageDescriptor {
            k_format: slots.k.0,
            v_format: slots.v.0,
            flags: 0,
            valid_tokens: 0,
            tier: Tier::Device,
            segment_group: slots.group,
            generation: 0,
            first_position,
            k_slot: slots.k.1,
            v_slot: slots.v.1,
            extra: NONE,
            side,
        };
        Page { descriptor, references: 1, slots }
    }

    /// The page's slots.
    pub fn slots(&self) -> Slots {
        self.slots
    }
}

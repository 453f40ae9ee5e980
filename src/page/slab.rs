//! A slab: equal slots for one side and format, in one segment, with a free list.

use crate::format::FormatId;
use crate::shape::Side;

/// Names a segment: one buffer of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentKey {
    /// The segment group: K and V of a page lie in one group.
    pub group: u16,
    /// Which side it holds.
    pub side: Side,
    /// In which format.
    pub format: FormatId,
}

/// Slots of one segment. Lower slots are handed out first, so that tables read forwards.
#[derive(Clone, Debug)]
pub struct Slab {
    slot_bytes: u64,
    slots: u32,
    /// Freed slots, kept as a heap of the lowest first.
    free: std::collections::BinaryHeap<std::cmp::Reverse<u32>>,
    /// Slots never handed out start here.
    fresh: u32,
}

impl Slab {
    /// `slots` free slots of `slot_bytes` bytes.
    pub fn new(slots: u32, slot_bytes: u64) -> Self {
        Slab { slot_bytes, slots, free: std::collections::BinaryHeap::new(), fresh: 0 }
    }

    /// A free slot, or `None` when all are in use.
    pub fn take(&mut self) -> Option<u32> {
        if let Some(std::cmp::Reverse(slot)) = self.free.pop() {
            return Some(slot);
        }
        (self.fresh < self.slots).then(|| {
            self.fresh += 1;
            self.fresh - 1
        })
    }

    /// Gives a slot back. Giving back one that is not in use is a fault of the caller's.
    pub fn give(&mut self, slot: u32) {
        debug_assert!(slot < self.fresh, "slot {slot} was never handed out");
        self.free.push(std::cmp::Reverse(slot));
    }

    /// Whether a slot is free.
    pub fn has_free(&self) -> bool {
        !self.free.is_empty() || self.fresh < self.slots
    }

    /// All slots.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Slots in use.
    pub fn used(&self) -> u32 {
        self.fresh - self.free.len() as u32
    }

    /// Bytes of slots in use.
    pub fn used_bytes(&self) -> u64 {
        u64::from(self.used()) * self.slot_bytes
    }

    /// Bytes of the whole segment.
    pub fn reserved_bytes(&self) -> u64 {
        u64::from(self.slots) * self.slot_bytes
    }
}

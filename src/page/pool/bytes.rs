//! Bytes of a pool and of what it hands out, and where records lie.

use super::{Pool, Slots};
use crate::format::FormatId;
use crate::page::records::{RecordSegment, Records};
use crate::page::slab::Slab;
use crate::shape::Side;
use std::collections::BTreeMap;

/// Bytes of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolBytes {
    /// Slots in use.
    pub used: u64,
    /// Whole segments.
    pub reserved: u64,
    /// Slots of retired pages that a running step may still read; part of `used`.
    pub retiring: u64,
    /// Records of side planes in use, those of retired pages among them. Metadata: not part of `used`.
    pub records_used: u64,
    /// Whole segments of records.
    pub records_reserved: u64,
}

impl Pool {
    /// Bytes in use and reserved.
    pub fn bytes(&self) -> PoolBytes {
        let retiring = self.retiring.iter().flat_map(Slots::all).chain(self.retiring_sides.iter().copied());
        let retiring = retiring.map(|(key, _)| self.slot_size(key.side, key.format));
        let (records_used, records_reserved) = self.records.as_ref().map_or((0, 0), Records::bytes);
        PoolBytes {
            records_used,
            records_reserved,
            used: self.used_bytes,
            reserved: self.slabs.values().map(Slab::reserved_bytes).sum(),
            retiring: retiring.sum(),
        }
    }

    /// Bytes of slots in use by side and format; first parts under the format that they are pages of.
    pub fn used_by_format(&self) -> Vec<(Side, FormatId, u64)> {
        let mut used: BTreeMap<(Side, FormatId), u64> = BTreeMap::new();
        for (key, slab) in &self.slabs {
            *used.entry((key.side, key.format)).or_default() += slab.used_bytes();
        }
        used.into_iter().filter(|(_, bytes)| *bytes > 0).map(|((side, format), bytes)| (side, format, bytes)).collect()
    }

    /// Bytes of one slot of a format's own: of the further part where its pages are in two.
    pub fn slot_size(&self, side: Side, format: FormatId) -> u64 {
        self.slots.get(&(side, format)).map_or(0, |s| s.bytes)
    }

    /// Bytes of a page side in a format, all its parts together.
    pub fn side_bytes(&self, side: Side, format: FormatId) -> u64 {
        self.segments(0, side, format).map(|key| self.slot_size(side, key.format)).sum()
    }

    /// Bytes of a page's record of side planes; 0 where none are declared.
    pub fn record_bytes(&self) -> u64 {
        self.records.as_ref().map_or(0, Records::record_bytes)
    }

    /// The segment of the record at a row ([`crate::page::PageDescriptor::side`]); `None` for a row that is not there.
    pub fn record_segment(&self, row: u32) -> Option<RecordSegment> {
        self.records.as_ref()?.segment_of(row)
    }

    /// Row of the first record of segment `index`; `None` for one that is not there.
    pub fn first_record(&self, index: usize) -> Option<u32> {
        self.records.as_ref()?.first_row(index)
    }
}

//! Records of side planes: equal rows in segments, numbered on from one segment to the next.
//!
//! A page keeps its record's row whatever becomes of its slots, so that a change of format moves no record.

use super::pool::{Backing, SlotSpec};
use super::slab::Slab;
use crate::error::{Error, ErrorKind, Result};

/// A segment of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordSegment {
    /// Its number, from 0 on.
    pub index: usize,
    /// Row of its first record.
    pub first_row: u32,
}

/// The records of a pool.
#[derive(Debug)]
pub(super) struct Records {
    spec: SlotSpec,
    max_segment_bytes: u64,
    /// First row and rows.
    segments: Vec<(u32, Slab)>,
    /// Rows of pages that are gone, which a running step may still read.
    retiring: Vec<u32>,
}

impl Records {
    /// None yet, of `spec.bytes` bytes each.
    pub fn new(spec: SlotSpec, max_segment_bytes: u64) -> Self {
        Records { spec, max_segment_bytes, segments: Vec::new(), retiring: Vec::new() }
    }

    /// A free row, lower ones first; in a new segment when all are in use.
    ///
    /// # Errors
    /// `Unsupported` for a record above the segment limit, `OutOfPages` beyond 2³² rows, what `backing` says. Nothing
    /// has changed then.
    pub fn take(&mut self, backing: &mut dyn Backing) -> Result<u32> {
        for (first, slab) in &mut self.segments {
            if let Some(row) = slab.take() {
                return Ok(*first + row);
            }
        }
        let most = self.max_segment_bytes / self.spec.bytes.max(1);
        if most == 0 {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "a page's side planes of {} bytes are above the segment limit of {} bytes",
                    self.spec.bytes, self.max_segment_bytes
                ),
                "choose a selector or policy with smaller planes",
            ));
        }
        let so_far = self.segments.last().map_or(0, |(first, slab)| first + slab.slots());
        let rows = u64::from(so_far.max(self.spec.first_slots).max(1)).min(most);
        // The last number marks a page without a record.
        let rows = rows.min(u64::from(u32::MAX - so_far)) as u32;
        let mut slab = Slab::new(rows, self.spec.bytes);
        let Some(row) = slab.take() else {
            return Err(Error::new(
                ErrorKind::OutOfPages,
                "all records of side planes are in use",
                "release sequences",
            ));
        };
        backing.reserve_records(self.segments.len(), slab.reserved_bytes())?;
        self.segments.push((so_far, slab));
        Ok(so_far + row)
    }

    /// Frees a row.
    pub fn give(&mut self, row: u32) {
        if let Some(segment) = self.segment_of(row) {
            self.segments[segment.index].1.give(row - segment.first_row);
        }
    }

    /// Frees a row once no step can read it any more.
    pub fn retire(&mut self, row: u32) {
        self.retiring.push(row);
    }

    /// Frees the rows that were retired.
    pub fn reclaim(&mut self) {
        for row in std::mem::take(&mut self.retiring) {
            self.give(row);
        }
    }

    /// The segment of a row.
    pub fn segment_of(&self, row: u32) -> Option<RecordSegment> {
        let index = self.segments.partition_point(|(first, _)| *first <= row).checked_sub(1)?;
        let (first_row, slab) = &self.segments[index];
        (row - first_row < slab.slots()).then_some(RecordSegment { index, first_row: *first_row })
    }

    /// The first row of a segment.
    pub fn first_row(&self, index: usize) -> Option<u32> {
        self.segments.get(index).map(|(first, _)| *first)
    }

    /// Bytes in use, retired rows among them, and of whole segments.
    pub fn bytes(&self) -> (u64, u64) {
        let sum = |of: fn(&Slab) -> u64| self.segments.iter().map(|(_, slab)| of(slab)).sum();
        (sum(Slab::used_bytes), sum(Slab::reserved_bytes))
    }

    /// Bytes of a record.
    pub fn record_bytes(&self) -> u64 {
        self.spec.bytes
    }
}

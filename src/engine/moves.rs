//! Moving page bytes: sealing, converting, reopening and copy-on-write, as dispatches of a step.

use super::pipelines::Key;
use super::step::parts;
use super::storage::Group;
use crate::backend::{Backend, BufferId, BufferSlice, Recording};
use crate::error::Result;
use crate::format::FormatId;
use crate::kernel::{convert, copy_slots};
use crate::page::{NONE, PageId, Pool, SegmentKey, Slots};
use crate::shape::Side;
use std::collections::BTreeMap;

/// Bytes of one page that go from place to place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Transfer {
    /// One part of one side, as it is, from slot to slot.
    Copy { from: (SegmentKey, u32), to: (SegmentKey, u32) },
    /// One side, from format to format.
    Convert { from: Place, to: Place, valid_tokens: u32 },
    /// Its record of side planes, from row to row.
    Record { from: u32, to: u32 },
}

impl Transfer {
    /// Bytes that it reads and writes.
    pub fn bytes(&self, pool: &Pool) -> u64 {
        let slot = |key: &SegmentKey| pool.slot_size(key.side, key.format);
        let place = |place: &Place| slot(&place.first.0) + place.further.as_ref().map_or(0, |(key, _)| slot(key));
        match self {
            Transfer::Copy { from, to } => slot(&from.0) + slot(&to.0),
            Transfer::Convert { from, to, .. } => place(from) + place(to),
            Transfer::Record { .. } => 2 * pool.record_bytes(),
        }
    }
}

/// One side of a page: format, first slot, and the slot of its further part where it is in two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub format: FormatId,
    pub first: (SegmentKey, u32),
    pub further: Option<(SegmentKey, u32)>,
}

impl Place {
    fn of(slots: &Slots, side: Side) -> Self {
        let (format, slot) = slots.side(side);
        Place { format, first: (slots.segment(side), slot), further: slots.further(side) }
    }
}

/// An open page made of a sealed one's tokens; its bytes come over with the next step.
///
/// It holds a reference on its source: a freed slot could become another reopened page's destination before it
/// is read.
#[derive(Clone, Debug)]
pub(super) struct Reopened {
    pub page: PageId,
    pub source: PageId,
    pub transfers: Vec<Transfer>,
}

/// The transfers that bring a page's sides from `old` to `new`: what stays where it is needs none.
pub(super) fn transfers(old: &Slots, new: &Slots, valid_tokens: u32) -> Vec<Transfer> {
    let mut transfers = Vec::new();
    for side in Side::BOTH {
        let (from, to) = (Place::of(old, side), Place::of(new, side));
        // The same bits elsewhere, or what is left of them without a further part: encoding anew could lose some.
        if from.format == to.format || from.first.0.format == to.first.0.format && to.further.is_none() {
            let parts = old.parts(side).zip(new.parts(side)).filter(|(from, to)| from != to);
            transfers.extend(parts.map(|(from, to)| Transfer::Copy { from, to }));
        } else {
            transfers.push(Transfer::Convert { from, to, valid_tokens });
        }
    }
    transfers
}

/// The transfers that make `fresh` a copy of the page `old`, side planes included. The record covers all of the old
/// page's tokens, also those beyond the `valid_tokens` that are kept.
pub(super) fn copies(pool: &Pool, old: PageId, fresh: PageId, valid_tokens: u32) -> Vec<Transfer> {
    let (from, to) = (pool.page(old), pool.page(fresh));
    let record = Transfer::Record { from: from.descriptor.side, to: to.descriptor.side };
    let has_record = to.descriptor.side != NONE;
    let mut transfers = transfers(&from.slots(), &to.slots(), valid_tokens);
    transfers.extend(has_record.then_some(record));
    transfers
}

/// Appends the transfers' items to `tables` and their dispatches to `recording`.
pub(super) fn record(
    group: &mut Group,
    backend: &mut dyn Backend,
    moves: &[Transfer],
    table_slice: BufferSlice,
    tables: &mut Vec<u32>,
    recording: &mut Recording,
) -> Result<()> {
    let (mut copies, mut conversions, mut records) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    for transfer in moves {
        match *transfer {
            Transfer::Copy { from, to } => {
                let batch: &mut Vec<[u32; 4]> = copies.entry((from.0, to.0)).or_default();
                batch.push([from.1, to.1, 0, 0]);
            }
            Transfer::Convert { from, to, valid_tokens } => {
                let further = from.further.or(to.further);
                let way = Way {
                    formats: (from.format, to.format),
                    segments: (from.first.0, to.first.0),
                    further: further.map(|(segment, _)| segment),
                };
                let batch: &mut Vec<[u32; 4]> = conversions.entry(way).or_default();
                batch.push([from.first.1, to.first.1, valid_tokens, further.map_or(0, |(_, slot)| slot)]);
            }
            Transfer::Record { from, to } => records.push((from, to)),
        }
    }
    copy_records(group, backend, &records, table_slice, tables, recording)?;
    for ((from, to), batch) in copies {
        let (src, dst) = (group.segment_of(from)?, group.segment_of(to)?);
        if from != to {
            let bytes = group.pool.slot_size(from.side, from.format);
            for [from, to, ..] in batch {
                recording.copy(
                    BufferSlice { buffer: src.buffer, offset: u64::from(from) * bytes, bytes },
                    BufferSlice { buffer: dst.buffer, offset: u64::from(to) * bytes, bytes },
                )?;
            }
            continue;
        }
        let first = tables.len() as u32;
        tables.extend(batch.iter().flatten());
        let pipeline = group.pipeline(backend, Key::Copy(from.side, from.format))?;
        for part in parts(backend, pipeline, batch.len() as u32, 1) {
            let (items, items_at) = (part.len() as u32, first + part.start * copy_slots::ITEM_WORDS as u32);
            let buffers = copy_slots::Buffers { slab: src, tables: table_slice };
            recording.dispatch(copy_slots::dispatch(pipeline, &buffers, &copy_slots::Args { items, items_at }));
            recording.boundary();
        }
    }
    for (Way { formats, segments, further }, batch) in conversions {
        let (src_slab, dst_slab) = (group.segment_of(segments.0)?, group.segment_of(segments.1)?);
        let further = further.map(|segment| group.segment_of(segment)).transpose()?;
        let first = tables.len() as u32;
        tables.extend(batch.iter().flatten());
        let pipeline = group.pipeline(backend, Key::Convert(segments.0.side, formats.0, formats.1))?;
        for part in parts(backend, pipeline, batch.len() as u32, 1) {
            let (items, items_at) = (part.len() as u32, first + part.start * convert::ITEM_WORDS as u32);
            let buffers = convert::Buffers { src_slab, dst_slab, tables: table_slice };
            let args = convert::Args { items, items_at };
            recording.dispatch(match further {
                Some(further) => convert::dispatch_parts(pipeline, &buffers, further, &args),
                None => convert::dispatch(pipeline, &buffers, &args),
            });
            recording.boundary();
        }
    }
    Ok(())
}

/// What conversions of one dispatch have in common.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Way {
    formats: (FormatId, FormatId),
    segments: (SegmentKey, SegmentKey),
    /// Segment of the further parts, of the side of the two that is in two parts.
    further: Option<SegmentKey>,
}

/// Copies records of side planes: a dispatch for those that stay in their segment, else a copy each.
fn copy_records(
    group: &mut Group,
    backend: &mut dyn Backend,
    records: &[(u32, u32)],
    table_slice: BufferSlice,
    tables: &mut Vec<u32>,
    recording: &mut Recording,
) -> Result<()> {
    let bytes = group.planes.record_bytes();
    let mut within: BTreeMap<BufferId, (BufferSlice, Vec<[u32; 2]>)> = BTreeMap::new();
    for &(from, to) in records {
        let ((src, from), (dst, to)) = (group.record_at(from)?, group.record_at(to)?);
        if src.buffer == dst.buffer {
            within.entry(src.buffer).or_insert((src, Vec::new())).1.push([from, to]);
        } else {
            let at = |slice: BufferSlice, row: u32| BufferSlice { offset: u64::from(row) * bytes, bytes, ..slice };
            recording.copy(at(src, from), at(dst, to))?;
        }
    }
    for (slab, rows) in within.into_values() {
        let first = tables.len() as u32;
        tables.extend(rows.iter().flat_map(|&[from, to]| [from, to, 0, 0]));
        let pipeline = group.pipeline(backend, Key::CopyRecords)?;
        for part in parts(backend, pipeline, rows.len() as u32, 1) {
            let items_at = first + part.start * copy_slots::ITEM_WORDS as u32;
            let buffers = copy_slots::Buffers { slab, tables: table_slice };
            let args = copy_slots::Args { items: part.len() as u32, items_at };
            recording.dispatch(copy_slots::dispatch(pipeline, &buffers, &args));
            recording.boundary();
        }
    }
    Ok(())
}

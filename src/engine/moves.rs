//! Moving page bytes: sealing, converting, reopening and copy-on-write, as dispatches of a step.

use super::pipelines::Key;
use super::step::parts;
use super::storage::Group;
use crate::backend::{Backend, BufferId, BufferSlice, Recording};
use crate::error::Result;
use crate::kernel::{convert, copy_slots};
use crate::page::{NONE, PageId, Pool, SegmentKey, Slots};
use crate::shape::Side;
use std::collections::BTreeMap;

/// Bytes of one page that go from place to place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Transfer {
    /// One side, from slot to slot.
    Side { from: (SegmentKey, u32), to: (SegmentKey, u32), valid_tokens: u32 },
    /// Its record of side planes, from row to row.
    Record { from: u32, to: u32 },
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

/// The transfers that bring a page's sides from `old` to `new`: those that stay where they are need none.
pub(super) fn transfers(old: &Slots, new: &Slots, valid_tokens: u32) -> impl Iterator<Item = Transfer> + use<> {
    let places = Side::BOTH
        .map(|side| ((old.segment(side), old.side(side).1), (new.segment(side), new.side(side).1)))
        .into_iter();
    places.filter(|(from, to)| from != to).map(move |(from, to)| Transfer::Side { from, to, valid_tokens })
}

/// The transfers that make `fresh` a copy of the page `old`, side planes included. The record covers all of the old
/// page's tokens, also those beyond the `valid_tokens` that are kept.
pub(super) fn copies(pool: &Pool, old: PageId, fresh: PageId, valid_tokens: u32) -> Vec<Transfer> {
    let (from, to) = (pool.page(old), pool.page(fresh));
    let record = Transfer::Record { from: from.descriptor.side, to: to.descriptor.side };
    let has_record = to.descriptor.side != NONE;
    transfers(&from.slots(), &to.slots(), valid_tokens).chain(has_record.then_some(record)).collect()
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
    let mut batches: BTreeMap<(SegmentKey, SegmentKey), Vec<[u32; 3]>> = BTreeMap::new();
    let mut records = Vec::new();
    for transfer in moves {
        match *transfer {
            Transfer::Side { from, to, valid_tokens } => {
                batches.entry((from.0, to.0)).or_default().push([from.1, to.1, valid_tokens]);
            }
            Transfer::Record { from, to } => records.push((from, to)),
        }
    }
    copy_records(group, backend, &records, table_slice, tables, recording)?;
    for ((from, to), batch) in batches {
        let (src, dst) = (group.segment_of(from)?, group.segment_of(to)?);
        if from.format == to.format && from != to {
            // The same bits in another buffer: encoding anew could lose some.
            let bytes = group.pool.slot_size(from.side, from.format);
            for [from, to, _] in batch {
                recording.copy(
                    BufferSlice { buffer: src.buffer, offset: u64::from(from) * bytes, bytes },
                    BufferSlice { buffer: dst.buffer, offset: u64::from(to) * bytes, bytes },
                )?;
            }
            continue;
        }
        let first = tables.len() as u32;
        tables.extend(batch.iter().flat_map(|&[from, to, valid]| [from, to, valid, 0]));
        let key = match from == to {
            true => Key::Copy(from.side, from.format),
            false => Key::Convert(from.side, from.format, to.format),
        };
        let pipeline = group.pipeline(backend, key)?;
        for part in parts(backend, pipeline, batch.len() as u32, 1) {
            let (items, items_at) = (part.len() as u32, first + part.start * convert::ITEM_WORDS as u32);
            recording.dispatch(if from == to {
                let buffers = copy_slots::Buffers { slab: src, tables: table_slice };
                copy_slots::dispatch(pipeline, &buffers, &copy_slots::Args { items, items_at })
            } else {
                let buffers = convert::Buffers { src_slab: src, dst_slab: dst, tables: table_slice };
                convert::dispatch(pipeline, &buffers, &convert::Args { items, items_at })
            });
            recording.boundary();
        }
    }
    Ok(())
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

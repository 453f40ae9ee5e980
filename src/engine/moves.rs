//! Moving page bytes: sealing, converting, reopening and copy-on-write, as dispatches of a step.

use super::pipelines::Key;
use super::step::parts;
use super::storage::Group;
use crate::backend::{Backend, BufferSlice, Recording};
use crate::error::Result;
use crate::kernel::{convert, copy_slots};
use crate::page::{PageId, SegmentKey, Slots};
use crate::shape::Side;
use std::collections::BTreeMap;

/// One side of one page, from slot to slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub from: (SegmentKey, u32),
    pub to: (SegmentKey, u32),
    pub valid_tokens: u32,
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

/// The transfers that bring a page from `old` to `new`: sides that stay where they are need none.
pub(super) fn transfers(old: &Slots, new: &Slots, valid_tokens: u32) -> Vec<Transfer> {
    Side::BOTH
        .into_iter()
        .map(|side| Transfer {
            from: (old.segment(side), old.side(side).1),
            to: (new.segment(side), new.side(side).1),
            valid_tokens,
        })
        .filter(|t| t.from != t.to)
        .collect()
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
    let mut batches: BTreeMap<(SegmentKey, SegmentKey), Vec<&Transfer>> = BTreeMap::new();
    for transfer in moves {
        batches.entry((transfer.from.0, transfer.to.0)).or_default().push(transfer);
    }
    for ((from, to), batch) in batches {
        let (src, dst) = (group.segment_of(from)?, group.segment_of(to)?);
        if from.format == to.format && from != to {
            // The same bits in another buffer: encoding anew could lose some.
            let bytes = group.pool.slot_size(from.side, from.format);
            for t in batch {
                recording.copy(
                    BufferSlice { buffer: src.buffer, offset: u64::from(t.from.1) * bytes, bytes },
                    BufferSlice { buffer: dst.buffer, offset: u64::from(t.to.1) * bytes, bytes },
                )?;
            }
            continue;
        }
        let first = tables.len() as u32;
        tables.extend(batch.iter().flat_map(|t| [t.from.1, t.to.1, t.valid_tokens, 0]));
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

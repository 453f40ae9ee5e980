//! What the pages of a sequence hold, read back on the host: side planes, and decoded rows for the self-test.

use super::prepare::no_layer;
use super::{Engine, SeqId};
use crate::backend::{BufferId, BufferSlice, read_blocking};
use crate::error::{Error, ErrorKind, Result};
use crate::shape::Side;
use std::collections::btree_map::{BTreeMap, Entry};

/// One page as it is stored.
pub(crate) struct StoredPage {
    /// Formats of K and of V.
    pub formats: [String; 2],
    /// Rows of K and of V as the CPU's codecs decode them, `[tokens held][head size]`, in the coordinates of their bases.
    pub rows: [Vec<f32>; 2],
}

impl Engine {
    /// The words of the side plane `plane` of every page that a sequence holds of a layer's KV head, in order, evicted
    /// ones left out. Waits for the device; for tests and tools. What a selector reads on the device is the same.
    ///
    /// # Errors
    /// `Shape` for an unknown sequence, layer or head, `Usage` for a plane that neither selector nor policy declared, and
    /// whatever the device says.
    pub fn plane_records(&mut self, seq: SeqId, layer: usize, kv_head: usize, plane: &str) -> Result<Vec<Vec<u32>>> {
        let (index, at) = self.shape.locate(layer).ok_or_else(|| no_layer(layer))?;
        let group = &self.groups[index];
        let heads = group.shape.kv_heads;
        if kv_head >= heads {
            return Err(Error::new(ErrorKind::Shape, format!("KV head {kv_head} of {heads}"), "heads count from 0"));
        }
        let place = group.planes.place(plane)?;
        let row = &self.sequence(seq)?.groups[index].pages[at * heads + kv_head];
        let pages: Vec<_> = row.iter().copied().flatten().collect();
        if place.words == 0 {
            return Ok(vec![Vec::new(); pages.len()]);
        }
        // A reopened page gets its copy with the next step.
        let source = |page| self.pending[index].iter().find(|w| w.page == page).map_or(page, |w| w.source);
        let rows = pages.into_iter().map(|page| group.pool.page(source(page)).descriptor.side);
        let places = rows.map(|row| group.record_at(row)).collect::<Result<Vec<_>>>()?;
        // Of each segment one read, from its first record wanted to its last.
        let mut spans: BTreeMap<BufferId, (BufferSlice, u32, u32)> = BTreeMap::new();
        for &(slice, row) in &places {
            let (_, first, last) = spans.entry(slice.buffer).or_insert((slice, row, row));
            (*first, *last) = (row.min(*first), row.max(*last));
        }
        let record_bytes = u64::from(place.record_words) * 4;
        let mut segments: BTreeMap<BufferId, (u32, Vec<u32>)> = BTreeMap::new();
        for (buffer, (slice, first, last)) in spans {
            let (offset, bytes) = (u64::from(first) * record_bytes, u64::from(last - first + 1) * record_bytes);
            let bytes = read_blocking(self.backend.as_mut(), buffer, slice.offset + offset, bytes)?;
            segments.insert(buffer, (first, bytemuck::pod_collect_to_vec(&bytes)));
        }
        let record = |(slice, row): (BufferSlice, u32)| {
            let (first, words) = &segments[&slice.buffer];
            let start = (row - first) as usize * place.record_words as usize + place.at as usize;
            words[start..start + place.words as usize].to_vec()
        };
        Ok(places.into_iter().map(record).collect())
    }

    /// The pages that a sequence holds in cache group `group`, by `layer in group × KV heads + KV head`, then in order. Waits
    /// for the device.
    ///
    /// # Errors
    /// `Shape` for an unknown sequence, and whatever the device says.
    pub(crate) fn stored_pages(&mut self, seq: SeqId, group: usize) -> Result<Vec<Vec<StoredPage>>> {
        let sequence = self.sequence(seq)?;
        let rows = &sequence.groups[group];
        let (pages, first, logical) = (rows.pages.clone(), rows.first, sequence.logical as usize);
        let size = self.groups[group].shape.page_tokens;
        let mut segments: BTreeMap<_, Vec<u32>> = BTreeMap::new();
        let mut stored = Vec::with_capacity(pages.len());
        for row in &pages {
            let mut of_row = Vec::with_capacity(row.len());
            for (at, id) in row.iter().enumerate() {
                let (at, Some(id)) = (first + at, *id) else { continue };
                let slots = self.groups[group].pool.page(id).slots();
                let held = logical.saturating_sub(at * size).min(size);
                let mut page = StoredPage { formats: Default::default(), rows: Default::default() };
                for (i, side) in Side::BOTH.into_iter().enumerate() {
                    let codec = self.groups[group].codec(side, slots.side(side).0)?;
                    let mut stored = Vec::with_capacity(codec.codec.layout().page_words);
                    for ((key, slot), part_words) in slots.parts(side).zip(codec.codec.parts()) {
                        let words = match segments.entry(key) {
                            Entry::Occupied(found) => found.into_mut(),
                            Entry::Vacant(place) => {
                                let slice = self.groups[group].segment_of(key)?;
                                let (buffer, offset) = (slice.buffer, slice.offset);
                                let bytes = read_blocking(self.backend.as_mut(), buffer, offset, slice.bytes)?;
                                place.insert(bytemuck::pod_collect_to_vec(&bytes))
                            }
                        };
                        stored.extend_from_slice(&words[slot as usize * part_words..(slot as usize + 1) * part_words]);
                    }
                    let mut rows = vec![f32::NAN; held * codec.codec.layout().geometry.head_dim];
                    codec.codec.decode(&stored, 0..held, &mut rows);
                    page.formats[i] = codec.format;
                    page.rows[i] = rows;
                }
                of_row.push(page);
            }
            stored.push(of_row);
        }
        Ok(stored)
    }
}

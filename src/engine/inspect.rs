//! What the pages of a sequence hold, read back and decoded on the host: for the self-test.

use super::{Engine, SeqId};
use crate::backend::read_blocking;
use crate::error::Result;
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
            for (at, &id) in row.iter().enumerate() {
                let at = first + at;
                let slots = self.groups[group].pool.page(id).slots();
                let held = logical.saturating_sub(at * size).min(size);
                let mut page = StoredPage { formats: Default::default(), rows: Default::default() };
                for (i, side) in Side::BOTH.into_iter().enumerate() {
                    let (format, slot) = slots.side(side);
                    let key = slots.segment(side);
                    let words = match segments.entry(key) {
                        Entry::Occupied(found) => found.into_mut(),
                        Entry::Vacant(place) => {
                            let slice = self.groups[group].segment_of(key)?;
                            let bytes = read_blocking(self.backend.as_mut(), slice.buffer, slice.offset, slice.bytes)?;
                            place.insert(bytemuck::pod_collect_to_vec(&bytes))
                        }
                    };
                    let codec = self.groups[group].codec(side, format)?;
                    let layout = codec.codec.layout();
                    let start = slot as usize * layout.page_words;
                    let mut rows = vec![f32::NAN; held * layout.geometry.head_dim];
                    codec.codec.decode(&words[start..start + layout.page_words], 0..held, &mut rows);
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

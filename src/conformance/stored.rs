//! Pages of one format and side, as a case stores them and as kernels bind them.

use super::reference::unrotate;
use super::{HeadMaps, POISON};
use crate::backend::CodecUse;
use crate::format::Per;
use crate::kernel::SideBasis;
use crate::num::{hadamard_sign, rotate};

/// Pages of one format side.
pub struct StoredSide {
    /// Format at its geometry.
    pub codec: CodecUse,
    /// The slab: slots of one page side each.
    pub words: Vec<u32>,
    /// Slots in use, for tests that damage one.
    pub used: Vec<usize>,
}

/// A side's slabs as kernels bind them: first parts or whole pages, and further parts (empty for pages in one piece).
pub struct BoundSide {
    /// The codec that kernels are specialised for.
    pub codec: CodecUse,
    /// The slab of first parts.
    pub words: Vec<u32>,
    /// The slab of further parts, where `further_slot` says.
    pub further: Vec<u32>,
}

/// Where the further part of the page in slot `slot` of `slots` stands: not where its first part does.
pub(super) fn further_slot(slot: usize, slots: usize) -> usize {
    slots - 1 - slot
}

impl StoredSide {
    /// Slots of the slab.
    pub(super) fn slots(&self) -> usize {
        self.words.len() / self.codec.codec.layout().page_words.max(1)
    }

    /// As kernels bind it: in parts, where that is asked for and the format knows them.
    pub fn bound(&self, in_parts: bool) -> BoundSide {
        let Some(split) = self.codec.codec.split().filter(|_| in_parts) else {
            return BoundSide { codec: self.codec.clone(), words: self.words.clone(), further: Vec::new() };
        };
        let ([first, second], page_words) = (split.parts(), self.codec.codec.layout().page_words);
        let mut further = vec![POISON; self.slots() * second];
        let mut words = Vec::with_capacity(self.slots() * first);
        for (slot, page) in self.words.chunks_exact(page_words).enumerate() {
            let at = further_slot(slot, self.slots()) * second;
            words.extend_from_slice(&page[..first]);
            further[at..at + second].copy_from_slice(&page[first..]);
        }
        BoundSide { codec: CodecUse { format: self.codec.format.clone(), codec: split }, words, further }
    }

    /// Stores rows into a slot and returns them as decoded, back in the model's coordinates.
    pub(super) fn store(
        &mut self,
        slot: usize,
        rows: &mut [Vec<f32>],
        basis: SideBasis,
        (mean, maps): (&[f32], Option<&HeadMaps>),
    ) -> Vec<Vec<f64>> {
        let codec = &self.codec.codec;
        let layout = codec.layout();
        let (tokens, dim) = (layout.geometry.tokens, layout.geometry.head_dim);
        for row in rows.iter_mut() {
            if basis.mean {
                row.iter_mut().zip(mean).for_each(|(x, m)| *x -= m);
            }
            if let Some(maps) = maps {
                maps.forward(basis, row);
            }
            if basis.rotate {
                rotate(row);
            }
        }
        // Tokens beyond the valid ones are NaN, where a NaN of theirs does not touch the others' scale.
        let shared_scale = layout.scalars.iter().any(|s| s.per == Per::Page);
        let mut values = rows.concat();
        values.resize(tokens * dim, if shared_scale { 0.0 } else { f32::NAN });
        let page = &mut self.words[slot * layout.page_words..(slot + 1) * layout.page_words];
        codec.encode(&values, page);
        if shared_scale {
            for (t, c) in (rows.len()..tokens).flat_map(|t| (0..dim).map(move |c| (t, c))) {
                let (word, shift) = layout.position(0, t, c);
                page[word] |= 0x7f << shift;
            }
        }
        self.used.push(slot);
        let mut decoded = vec![f32::NAN; rows.len() * dim];
        codec.decode(page, 0..rows.len(), &mut decoded);
        decoded
            .chunks_exact(dim)
            .map(|row| {
                let row: Vec<f64> = row.iter().map(|&x| f64::from(x)).collect();
                let mut row = if basis.rotate { unrotate(&row, hadamard_sign) } else { row };
                if let Some(maps) = maps {
                    maps.backward(basis, &mut row);
                }
                if basis.mean {
                    row.iter_mut().zip(mean).for_each(|(x, &m)| *x += f64::from(m));
                }
                row
            })
            .collect()
    }
}

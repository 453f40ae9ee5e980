//! The state of a cache at one moment: sequences, their pages, bytes.

use super::{MemoryClasses, PageFacts};
use crate::engine::{Engine, SeqId};
use std::ops::Range;

/// All sequences and pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct Snapshot {
    /// Steps so far.
    pub step: u64,
    /// Cache groups.
    pub groups: Vec<GroupFacts>,
    /// Live sequences, ascending.
    pub sequences: Vec<SequenceFacts>,
    /// Live pages, by cache group, then by index.
    pub pages: Vec<PageFacts>,
    /// Bytes.
    pub memory: MemoryClasses,
}

/// What a cache group's page lists are ordered by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct GroupFacts {
    /// Tokens of a page.
    pub page_tokens: u32,
    /// Model layers.
    pub layers: Vec<u32>,
    /// KV heads.
    pub kv_heads: u32,
}

/// A sequence's lengths and pages.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct SequenceFacts {
    /// Which.
    pub sequence: SeqId,
    /// The next position.
    pub logical: u32,
    /// Rows below it stand.
    pub committed: u32,
    /// Its pages by cache group.
    pub groups: Vec<HeldPages>,
    /// Ranges of tokens that the caller pinned.
    pub pins: Vec<Range<u32>>,
    /// Ranges of tokens that the caller marked as anchors.
    pub anchors: Vec<Range<u32>>,
}

/// A sequence's pages in one cache group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct HeldPages {
    /// Number of the first page of the lists.
    pub first: u32,
    /// By `layer in group × KV heads + KV head`, then by number from `first` on: indices of pages; `None` for one that was
    /// evicted.
    pub rows: Vec<Vec<Option<u32>>>,
}

impl Engine {
    /// All sequences and pages as they are now.
    pub fn snapshot(&self) -> Snapshot {
        let sequences = self.sequences.iter().map(|(&sequence, held)| SequenceFacts {
            sequence,
            logical: held.logical,
            committed: held.committed,
            groups: held
                .groups
                .iter()
                .map(|rows| HeldPages {
                    // Below 2^30, as positions are.
                    first: rows.first as u32,
                    rows: rows.pages.iter().map(|row| row.iter().map(|page| page.map(|id| id.0)).collect()).collect(),
                })
                .collect(),
            pins: held.pins.iter().map(|pin| pin.range.clone()).collect(),
            anchors: held.anchors.clone(),
        });
        let groups = self.groups.iter().map(|group| GroupFacts {
            page_tokens: group.shape.page_tokens as u32,
            layers: group.shape.layers.iter().map(|&layer| layer as u32).collect(),
            kv_heads: group.shape.kv_heads as u32,
        });
        let pages = self
            .groups
            .iter()
            .enumerate()
            .flat_map(|(index, group)| group.pool.live().map(move |(id, _)| self.facts(index, id)));
        Snapshot {
            step: self.counters.steps,
            groups: groups.collect(),
            sequences: sequences.collect(),
            pages: pages.collect(),
            memory: self.memory_classes(),
        }
    }
}

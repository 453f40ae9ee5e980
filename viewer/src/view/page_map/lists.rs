//! A sequence's lists of pages as the grid takes them, with marks of its tokens.

use super::grid::{Cell, EMPTY, GONE, Lists};
use crate::store::Store;
use crate::view::Selection;
use kvarto::engine::{HeldPages, SeqId, SequenceFacts};
use std::ops::Range;

/// Lists and pages that are drawn; more are of a damaged trace.
const MOST_ROWS: usize = 4096;
const MOST_CELLS: usize = 1 << 25;
/// Other sequences that are asked whether they hold a page too.
const MOST_OTHERS: usize = 64;

/// Bits of marks of columns.
pub const ANCHORED: u8 = 1;
/// Tokens that the caller pinned.
pub const PINNED: u8 = 2;

/// Lists of pages of the sequence and cache group that are looked at.
pub struct Held<'a> {
    store: &'a Store,
    /// Which sequence.
    pub sequence: SeqId,
    /// Cache group.
    pub group: usize,
    /// The sequence.
    pub facts: &'a SequenceFacts,
    /// Its lists.
    pub pages: &'a HeldPages,
    /// KV heads of a layer.
    pub heads: usize,
    /// Tokens of a page.
    pub page_tokens: u32,
    others: Vec<&'a HeldPages>,
    most: usize,
}

impl<'a> Held<'a> {
    /// Those of the selection; `None` where nothing is held.
    pub fn of(store: &'a Store, selection: &Selection) -> Option<Self> {
        let (sequence, group) = (selection.sequence?, selection.group);
        let facts = store.state.sequences.get(&sequence)?;
        let pages = facts.groups.get(group)?;
        let shape = store.state.groups.get(group)?;
        let others = store.state.sequences.iter().filter(|(other, _)| **other != sequence);
        let others = others.filter_map(|(_, other)| other.groups.get(group)).take(MOST_OTHERS);
        let rows = pages.rows.len().clamp(1, MOST_ROWS);
        Some(Held {
            store,
            sequence,
            group,
            facts,
            pages,
            heads: shape.kv_heads.max(1) as usize,
            page_tokens: shape.page_tokens.max(1),
            others: others.collect(),
            most: MOST_CELLS / rows,
        })
    }

    /// Number of the first page of the lists.
    pub fn base(&self) -> u32 {
        self.pages.first
    }

    /// The page at a place of a list: outside, evicted, or its index.
    pub fn page(&self, row: usize, at: usize) -> Option<Option<u32>> {
        self.pages.rows.get(row)?.get(at).copied()
    }

    /// Lists or pages that are not drawn.
    pub fn left_out(&self) -> bool {
        self.pages.rows.len() > MOST_ROWS || self.pages.rows.iter().any(|row| row.len() > self.most)
    }

    /// Marks by column of the lists: whether tokens of it are anchored or pinned.
    pub fn marks(&self, columns: usize) -> Vec<u8> {
        let mut marks = vec![0; columns];
        for (ranges, bit) in [(&self.facts.anchors, ANCHORED), (&self.facts.pins, PINNED)] {
            for range in ranges {
                let columns = self.columns(range, columns);
                marks.get_mut(columns).into_iter().flatten().for_each(|mark| *mark |= bit);
            }
        }
        marks
    }

    /// Columns that hold tokens of a range.
    fn columns(&self, tokens: &Range<u32>, most: usize) -> Range<usize> {
        let at = |number: u32| (number.saturating_sub(self.base()) as usize).min(most);
        let (from, to) = (at(tokens.start / self.page_tokens), at(tokens.end.div_ceil(self.page_tokens)));
        from..to.max(from)
    }
}

impl Lists for Held<'_> {
    fn rows(&self) -> usize {
        self.pages.rows.len().min(MOST_ROWS)
    }

    fn len(&self, row: usize) -> usize {
        self.pages.rows.get(row).map_or(0, Vec::len).min(self.most)
    }

    fn cell(&self, row: usize, at: usize) -> Cell {
        let page = match self.page(row, at) {
            None => return EMPTY,
            Some(None) => return Cell { pair: GONE, ..EMPTY },
            Some(Some(page)) => page,
        };
        let Some(stored) = self.store.state.pages.stored(self.group, page) else { return Cell { pair: GONE, ..EMPTY } };
        let number = u64::from(self.base()) + at as u64;
        let holds = |other: &&&HeldPages| {
            let at = number.checked_sub(u64::from(other.first)).and_then(|at| usize::try_from(at).ok());
            let place = at.and_then(|at| other.rows.get(row)?.get(at));
            place == Some(&Some(page))
        };
        let owners = 1 + self.others.iter().filter(holds).count();
        Cell { pair: stored.formats().min(usize::from(GONE) - 1) as u16, owners: owners as u8, shade: 0 }
    }
}

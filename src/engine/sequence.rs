//! A sequence: three lengths, and its pages in every cache group.

use crate::page::{ContentKey, PageId};

/// Names a sequence of an engine; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct SeqId(pub u64);

/// A sequence's pages in one cache group.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    /// Pages by `layer in group × KV heads + KV head`, then by page in sequence, from page `first` on; `None` for one
    /// that was evicted.
    pub pages: Vec<Vec<Option<PageId>>>,
    /// Pages of the sequence before this one are gone: they lay behind the group's window.
    pub first: usize,
    /// Slot of its means, when the group's basis removes one.
    pub mean_slot: Option<u32>,
    /// The tokens that the means were measured over, if their ids were given.
    pub mean_of: Option<ContentKey>,
    /// Pages before this one are sealed in every row, or in the sink.
    pub sealed_to: usize,
}

impl Rows {
    /// Page `page` of the sequence, if it is held.
    pub fn page(&self, row: usize, page: usize) -> Option<PageId> {
        self.pages.get(row)?.get(page.checked_sub(self.first)?).copied()?
    }

    /// The place of page `page` of the sequence, if it is held.
    pub fn page_mut(&mut self, row: usize, page: usize) -> Option<&mut PageId> {
        self.place_mut(row, page)?.as_mut()
    }

    /// The place of page `page` of the sequence, evicted or not.
    pub fn place_mut(&mut self, row: usize, page: usize) -> Option<&mut Option<PageId>> {
        self.pages.get_mut(row)?.get_mut(page.checked_sub(self.first)?)
    }

    /// Every page held, of all rows.
    pub fn all(&self) -> impl Iterator<Item = PageId> {
        self.pages.iter().flatten().copied().flatten()
    }

    /// Pages evicted, of all rows.
    pub fn evicted(&self) -> usize {
        self.pages.iter().flatten().filter(|page| page.is_none()).count()
    }

    /// A row in which page `page` of the sequence was evicted.
    pub fn evicted_row(&self, page: usize) -> Option<usize> {
        let at = page.checked_sub(self.first)?;
        self.pages.iter().position(|row| matches!(row.get(at), Some(None)))
    }

    /// Those of the sequence's pages `pages` that a row holds, with their numbers in the sequence.
    pub fn numbered(&self, row: usize, pages: std::ops::Range<usize>) -> impl Iterator<Item = (usize, PageId)> {
        let held = self.pages.get(row).map_or(&[][..], Vec::as_slice);
        let (first, end) = (self.first, pages.end.min(self.first + held.len()));
        (pages.start.max(first)..end).filter_map(move |page| Some((page, held[page - first]?)))
    }
}

/// A range that the caller keeps in its formats.
#[derive(Clone, Debug)]
pub(super) struct Pin {
    pub range: std::ops::Range<u32>,
    pub reason: String,
}

/// Lengths and pages.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    /// The next position.
    pub logical: u32,
    /// Rows below it may be sealed.
    pub committed: u32,
    /// Pages by cache group.
    pub groups: Vec<Rows>,
    /// Ids of its first tokens, as far as they were given without a gap.
    pub ids: Vec<u32>,
    /// Ranges kept as they are.
    pub pins: Vec<Pin>,
    /// Ranges that policies are to take for anchors.
    pub anchors: Vec<std::ops::Range<u32>>,
}

impl Sequence {
    /// Positions held in the cache group at `index`, whose pages have `page_tokens` tokens.
    pub fn held(&self, index: usize, page_tokens: usize) -> std::ops::Range<u32> {
        // Below 2^30: `first` counts whole pages of the sequence's own tokens.
        let start = (self.groups[index].first * page_tokens) as u32;
        start.min(self.logical)..self.logical
    }

    /// Whether any token of `[start, end)` is pinned.
    pub fn pinned(&self, start: u32, end: u32) -> bool {
        self.pins.iter().any(|p| p.range.start < end && start < p.range.end)
    }

    /// Whether any token of `[start, end)` is marked as an anchor.
    pub fn anchored(&self, start: u32, end: u32) -> bool {
        self.anchors.iter().any(|r| r.start < end && start < r.end)
    }
}

/// A sequence's lengths in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// The next RoPE position.
    pub logical: u32,
    /// Rows held by the cache group that holds most: a `Full` group holds all, a `Window` group lets go of pages
    /// behind its window.
    pub cached: u32,
    /// Rows below it may be sealed.
    pub committed: u32,
}

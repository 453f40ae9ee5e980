//! A sequence: three lengths, and its pages in every cache group.

use crate::page::PageId;

/// Names a sequence of an engine; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeqId(pub u64);

/// A sequence's pages in one cache group.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    /// Pages by `layer in group × KV heads + KV head`, then by page in sequence.
    pub pages: Vec<Vec<PageId>>,
    /// Slot of its means, when the group's basis removes one.
    pub mean_slot: Option<u32>,
    /// Pages before this one are sealed in every row, or in the sink.
    pub sealed_to: usize,
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
    /// Ranges kept as they are.
    pub pins: Vec<Pin>,
}

impl Sequence {
    /// Rows held. Equal to `logical` until rows can be dropped from within a sequence.
    pub fn cached(&self) -> u32 {
        self.logical
    }

    /// Whether any token of `[start, end)` is pinned.
    pub fn pinned(&self, start: u32, end: u32) -> bool {
        self.pins.iter().any(|p| p.range.start < end && start < p.range.end)
    }
}

/// A sequence's lengths in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// The next RoPE position.
    pub logical: u32,
    /// Rows held.
    pub cached: u32,
    /// Rows below it may be sealed.
    pub committed: u32,
}

//! What the planner sees of a cache group: page lists, formats, and which pages rows read.

use super::sequence::Sequence;
use super::storage::Group;
use crate::kernel::tier::Tier;
use crate::page::{PageId, RecordSegment};
use crate::plan::{Class, PageSource};
use crate::select::{Question, Selector};

/// The planner's view of one cache group.
pub(super) struct Source<'a> {
    pub group: &'a Group,
    pub index: usize,
    pub sequences: &'a [&'a Sequence],
    pub selector: &'a dyn Selector,
    pub profile: &'a crate::profile::Profile,
    /// What the backend's kernels use.
    pub tier: Tier,
}

impl PageSource for Source<'_> {
    fn first_page(&self, sequence: usize) -> usize {
        self.sequences[sequence].groups[self.index].first
    }

    fn pages(&self, sequence: usize, layer: usize, kv_head: usize) -> &[Option<PageId>] {
        &self.sequences[sequence].groups[self.index].pages[layer * self.group.shape.kv_heads + kv_head]
    }

    fn layout(&self) -> Option<u64> {
        self.selector.reads_all().then(|| self.group.pool.layout())
    }

    fn class(&self, page: PageId) -> Class {
        let d = &self.group.pool.page(page).descriptor;
        Class { k: d.k_format, v: d.v_format, segment_group: d.segment_group }
    }

    fn record_segment(&self, page: PageId) -> Option<RecordSegment> {
        self.group.pool.record_segment(self.group.pool.page(page).descriptor.side)
    }

    fn class_bytes(&self, class: Class) -> u64 {
        let pool = &self.group.pool;
        pool.side_bytes(crate::shape::Side::K, class.k) + pool.side_bytes(crate::shape::Side::V, class.v)
    }

    fn wave_cost(&self, class: Class) -> Option<u64> {
        if self.tier.tiles.is_some() { self.group.tiles_cost(class.k, class.v) } else { None }
    }

    fn reads(&self, question: &Question, page: usize) -> bool {
        crate::select::reads(self.selector, question, page)
    }

    fn question(&self, _: usize, layer: usize, kv_head: usize, first: u32, last: u32, pages: usize) -> Question {
        let size = self.group.shape.page_tokens;
        // The tail covers every row's own newest tokens, so it is counted from the first row.
        let tail_start = (first as usize + 1).saturating_sub(self.profile.exact_tail_tokens.max(1)) / size;
        Question {
            layer: self.group.shape.layers[layer],
            kv_head,
            first_position: first,
            last_position: last,
            pages,
            page_tokens: size,
            sink_pages: self.profile.exact_sink_tokens.div_ceil(size),
            tail_pages: pages.saturating_sub(tail_start),
        }
    }
}

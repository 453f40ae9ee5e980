//! The attention of the last step's plan, for the next: from token to token hardly a page changes.
//!
//! Looking every page up costs some 40 ns a page and layer; comparing page numbers costs a memory's copy of them. Reads of
//! 32 layers, 8 heads and 512 pages: 5 ms a token, or 0.1.

use super::build::Entry;
use super::{LayerPlan, Limits, PageSource, Route};
use crate::page::PageId;

/// What a step's attention was planned from, and the plan.
#[derive(Debug, Default)]
pub struct Kept {
    key: Option<Key>,
    pages: Vec<Option<PageId>>,
    /// Told apart from every other plan of this group.
    pub(super) stamp: u64,
    pub(super) attention: Attention,
}

/// The attention of all layers; its words stand in front of a step's others.
#[derive(Clone, Debug, Default)]
pub(super) struct Attention {
    pub(super) words: Vec<u32>,
    pub(super) layers: Vec<LayerPlan>,
}

/// All that the plan depends on beside the pages' numbers.
#[derive(Debug, PartialEq, Eq)]
struct Key {
    layout: u64,
    page_items: bool,
    entries: Vec<EntryKey>,
}

#[derive(Debug, PartialEq, Eq)]
struct EntryKey {
    route: Route,
    row_start: u32,
    rows: u32,
    first_held: usize,
    start: usize,
    end: usize,
}

impl Kept {
    /// Whether the plan serves these entries as it is.
    pub(super) fn serves(&self, limits: &Limits, entries: &[Entry], source: &dyn PageSource) -> bool {
        let Some(key) = key(limits, entries, source) else { return false };
        if self.key.as_ref() != Some(&key) {
            return false;
        }
        let mut rest = self.pages.as_slice();
        lists(limits, entries, source, &key).all(|list| match rest.split_at_checked(list.len()) {
            Some((kept, later)) => {
                rest = later;
                kept == list
            }
            None => false,
        })
    }

    /// Keeps a plan of these entries, where one can serve again.
    pub(super) fn keep(&mut self, limits: &Limits, entries: &[Entry], source: &dyn PageSource, attention: &Attention) {
        self.stamp += 1;
        self.pages.clear();
        self.key = key(limits, entries, source);
        if let Some(key) = &self.key {
            lists(limits, entries, source, key).for_each(|list| self.pages.extend_from_slice(list));
            self.attention.clone_from(attention);
        }
    }

    /// Whether what was kept last can serve again.
    pub(super) fn is_kept(&self) -> bool {
        self.key.is_some()
    }
}

/// `None` where the plan depends on more than this, or is not worth keeping.
fn key(limits: &Limits, entries: &[Entry], source: &dyn PageSource) -> Option<Key> {
    let layout = source.layout()?;
    let of = |entry: &Entry| {
        let Route::Decode(_) = entry.route else { return None };
        let (first_held, held) = (source.first_page(entry.sequence), source.pages(entry.sequence, 0, 0).len());
        let (start, end) = entry.pages(limits, first_held, held);
        let (route, row_start, rows) = (entry.route, entry.row_start, entry.rows);
        Some(EntryKey { route, row_start, rows, first_held, start, end })
    };
    let entries = entries.iter().map(of).collect::<Option<Vec<_>>>()?;
    Some(Key { layout, page_items: limits.page_items, entries })
}

/// Pages that the entries see, layer by layer and head by head.
fn lists<'a>(
    limits: &'a Limits,
    entries: &'a [Entry],
    source: &'a dyn PageSource,
    key: &'a Key,
) -> impl Iterator<Item = &'a [Option<PageId>]> {
    entries.iter().zip(&key.entries).flat_map(move |(entry, key)| {
        (0..limits.layers).flat_map(move |layer| {
            (0..limits.kv_heads).map(move |head| {
                let pages = source.pages(entry.sequence, layer, head);
                pages.get(key.start - key.first_held..key.end - key.first_held).unwrap_or_default()
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::FormatId;
    use crate::page::RecordSegment;
    use crate::plan::{Class, PlanSequence, build};
    use crate::select::Question;
    use proptest::prelude::*;

    /// Two layers of two heads; a page's class is kept apart, as the pool keeps it.
    struct Cache {
        pages: Vec<Vec<Vec<Option<PageId>>>>,
        classes: Vec<u8>,
        layout: u64,
    }

    impl Cache {
        fn push(&mut self, sequence: usize) {
            for list in &mut self.pages[sequence] {
                list.push(Some(PageId(self.classes.len() as u32)));
                self.classes.push(0);
            }
            self.layout += 1;
        }
    }

    impl PageSource for Cache {
        fn first_page(&self, _: usize) -> usize {
            0
        }
        fn pages(&self, sequence: usize, layer: usize, kv_head: usize) -> &[Option<PageId>] {
            &self.pages[sequence][layer * 2 + kv_head]
        }
        fn layout(&self) -> Option<u64> {
            Some(self.layout)
        }
        fn class(&self, page: PageId) -> Class {
            let k = FormatId(self.classes[page.0 as usize]);
            Class { k, v: k, segment_group: 0 }
        }
        fn record_segment(&self, _: PageId) -> Option<RecordSegment> {
            None
        }
        fn class_bytes(&self, _: Class) -> u64 {
            10
        }
        fn reads(&self, _: &Question, _: usize) -> bool {
            true
        }
        fn question(&self, _: usize, layer: usize, kv_head: usize, first: u32, last: u32, pages: usize) -> Question {
            let (page_tokens, sink_pages, tail_pages) = (16, 1, 1);
            Question {
                layer,
                kv_head,
                first_position: first,
                last_position: last,
                pages,
                page_tokens,
                sink_pages,
                tail_pages,
            }
        }
    }

    proptest! {
        /// Whatever happens between steps, a plan that takes over what it can is the one made anew.
        #[test]
        fn a_plan_that_follows_another_is_the_plan(
            steps in prop::collection::vec((0u8..8, 0usize..64, 1u32..4), 1..40),
            window in prop::option::of(1usize..60),
        ) {
            let mut cache = Cache { pages: vec![vec![Vec::new(); 4]; 2], classes: Vec::new(), layout: 0 };
            (0..2).for_each(|sequence| cache.push(sequence));
            let mut lengths = [1u32, 7];
            let mut kept = Kept::default();
            for (what, which, rows) in steps {
                let sequence = which % 2;
                match what {
                    // A format, an eviction, a page of another number.
                    0 => {
                        let page = which % cache.classes.len();
                        cache.classes[page] ^= 1;
                        cache.layout += 1;
                    }
                    1 => {
                        let list = &mut cache.pages[sequence][which / 2 % 4];
                        let at = which % list.len();
                        if at + 1 < list.len() {
                            list[at] = None;
                        }
                    }
                    2 => cache.pages[sequence].iter_mut().for_each(|list| list.reverse()),
                    _ => {}
                }
                let sequences: Vec<PlanSequence> = (0..2).map(|s| PlanSequence {
                    row_start: if s == 0 { 0 } else { rows },
                    rows: if s == 0 { rows } else { 1 },
                    first_position: lengths[s],
                    mean_slot: 0,
                    measure_mean: false,
                }).collect();
                for (s, plan) in sequences.iter().enumerate() {
                    lengths[s] += plan.rows;
                    while cache.pages[s][0].len() * 16 < lengths[s] as usize {
                        cache.push(s);
                    }
                    // Rows are written to pages that are there.
                    for (number, list) in cache.pages[s].iter_mut().enumerate() {
                        for page in list.iter_mut().rev().take(2).filter(|page| page.is_none()) {
                            *page = Some(PageId(number as u32));
                        }
                    }
                }
                let limits = Limits {
                    layers: 2,
                    kv_heads: 2,
                    group: 3,
                    page_tokens: 16,
                    window,
                    target_items: 7,
                    wave_items: 0,
                    tile_rows: 8,
                    max_partials: 10_000,
                    max_rows: 10_000,
                    page_items: which % 16 == 0,
                };
                let mut plan = build(&limits, &sequences, &cache, &mut kept);
                let mut fresh = build(&limits, &sequences, &cache, &mut Kept::default());
                prop_assert_eq!(plan.kept.take().map(|k| k.1), fresh.kept.take().map(|k| k.1));
                prop_assert_eq!(plan, fresh);
            }
        }
    }

    #[test]
    fn the_next_token_takes_the_attention_over_and_a_new_page_does_not() {
        let mut cache = Cache { pages: vec![vec![Vec::new(); 4]], classes: Vec::new(), layout: 0 };
        cache.push(0);
        let mut kept = Kept::default();
        let mut stamps = Vec::new();
        for position in [3u32, 4, 5, 16, 17] {
            if position == 16 {
                cache.push(0);
            }
            let limits = Limits {
                layers: 2,
                kv_heads: 2,
                group: 1,
                page_tokens: 16,
                window: None,
                target_items: 4,
                wave_items: 0,
                tile_rows: 8,
                max_partials: 100,
                max_rows: 100,
                page_items: false,
            };
            let row =
                PlanSequence { row_start: 0, rows: 1, first_position: position, mean_slot: 0, measure_mean: false };
            build(&limits, &[row], &cache, &mut kept);
            stamps.push(kept.stamp);
        }
        assert_eq!(stamps, [1, 1, 1, 2, 2]);
    }
}

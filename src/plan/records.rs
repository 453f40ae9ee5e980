//! Which records of side planes a step's new rows change: lists of pages by the segments of their records.

use super::{Limits, PageSource, PlanSequence, PlaneBatch};
use crate::kernel::append::NO_PAGE;
use crate::kernel::plane::ITEM_WORDS;
use crate::page::RecordSegment;
use std::collections::BTreeMap;

/// The batches of a layer, their items into `tables`; none where pages have no records.
pub(super) fn plan_planes(
    limits: &Limits,
    sequences: &[PlanSequence],
    source: &dyn PageSource,
    layer: usize,
    tables: &mut Vec<u32>,
) -> Vec<PlaneBatch> {
    let mut items: BTreeMap<(usize, u32), Vec<[u32; ITEM_WORDS]>> = BTreeMap::new();
    for (sequence, s) in sequences.iter().enumerate() {
        let end = s.first_position + s.rows;
        let (mut position, first_held) = (s.first_position, source.first_page(sequence));
        while position < end {
            let page = position as usize / limits.page_tokens;
            let page_end = (((page + 1) * limits.page_tokens) as u32).min(end);
            let ids = super::written(limits, source, sequence, layer, page - first_held);
            let of_head: Vec<Option<RecordSegment>> = ids.iter().map(|&id| source.record_segment(id)).collect();
            let mut segments: Vec<RecordSegment> = of_head.iter().flatten().copied().collect();
            segments.sort_unstable_by_key(|s| s.index);
            segments.dedup();
            for segment in segments {
                let list = tables.len() as u32;
                tables.extend(ids.iter().zip(&of_head).map(|(id, s)| if *s == Some(segment) { id.0 } else { NO_PAGE }));
                let row = s.row_start + position - s.first_position;
                let item = [row, page_end - position, position % limits.page_tokens as u32, list];
                items.entry((segment.index, segment.first_row)).or_default().push(item);
            }
            position = page_end;
        }
    }
    let batches = items.into_iter().map(|((index, first_row), list)| {
        let items_at = tables.len() as u32;
        tables.extend(list.iter().flatten());
        PlaneBatch { segment: RecordSegment { index, first_row }, items_at, items: list.len() as u32 }
    });
    batches.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::FormatId;
    use crate::page::PageId;
    use crate::plan::Class;
    use crate::select::Question;

    /// Page p of head h is h·100 + p; pages from 3 on have their records in segment 1, those of head 1 one page later.
    struct Pages(Vec<Vec<Option<PageId>>>, bool);

    impl PageSource for Pages {
        fn first_page(&self, _: usize) -> usize {
            0
        }
        fn pages(&self, _: usize, _: usize, kv_head: usize) -> &[Option<PageId>] {
            &self.0[kv_head]
        }
        fn class(&self, _: PageId) -> Class {
            Class { k: FormatId(0), v: FormatId(0), segment_group: 0 }
        }
        fn record_segment(&self, page: PageId) -> Option<RecordSegment> {
            let index = usize::from(page.0 % 100 >= 3 + page.0 / 100);
            self.1.then_some(RecordSegment { index, first_row: 7 * index as u32 })
        }
        fn class_bytes(&self, _: Class) -> u64 {
            1
        }
        fn reads(&self, _: &Question, _: usize) -> bool {
            true
        }
        fn question(&self, _: usize, _: usize, _: usize, _: u32, _: u32, _: usize) -> Question {
            unreachable!("nothing is attended to here")
        }
    }

    #[test]
    fn every_row_stands_once_with_the_page_of_each_head() {
        let limits = Limits {
            layers: 1,
            kv_heads: 2,
            group: 1,
            page_tokens: 16,
            window: None,
            target_items: 1,
            wave_items: 0,
            tile_rows: 8,
            max_partials: 100,
            max_rows: 100,
            page_items: false,
        };
        let pages = || (0..2).map(|h| (0..9).map(|p| Some(PageId(h * 100 + p))).collect()).collect();
        let sequences = [
            PlanSequence { row_start: 0, rows: 40, first_position: 40, mean_slot: 0, measure_mean: false },
            PlanSequence { row_start: 40, rows: 0, first_position: 7, mean_slot: 0, measure_mean: false },
            PlanSequence { row_start: 40, rows: 1, first_position: 5, mean_slot: 0, measure_mean: false },
        ];
        let mut tables = vec![9; 5];
        let batches = plan_planes(&limits, &sequences, &Pages(pages(), true), 0, &mut tables);
        let mut seen = Vec::new();
        for batch in &batches {
            assert_eq!(batch.segment.first_row, 7 * batch.segment.index as u32);
            for i in 0..batch.items as usize {
                let item = &tables[batch.items_at as usize + i * 4..][..4];
                for (head, &page) in tables[item[3] as usize..][..2].iter().enumerate().filter(|(_, p)| **p != NO_PAGE)
                {
                    assert_eq!(page / 100, head as u32);
                    let own = Pages(pages(), true).record_segment(PageId(page)).unwrap();
                    assert_eq!(own, batch.segment);
                    seen.push((head, page % 100, item[0], item[1], item[2]));
                }
            }
        }
        seen.sort_unstable();
        let of_head = [(0, 40, 1, 5), (2, 0, 8, 8), (3, 8, 16, 0), (4, 24, 16, 0)];
        let want = |head| of_head.map(|(page, row, rows, token)| (head, page, row, rows, token));
        assert_eq!(seen, [want(0), want(1)].concat());
        assert_eq!(batches.len(), 2);
        let before = tables.len();
        assert!(plan_planes(&limits, &sequences, &Pages(pages(), false), 0, &mut tables).is_empty());
        assert_eq!(tables.len(), before);
    }
}

//! Building a step's plan.

use super::attend::plan_attend;
use super::kept::{Attention, Kept};
use super::records::plan_planes;
use super::{AppendBatch, Class, LayerPlan, Limits, PageSource, PlanSequence, Route, StepPlan};
use crate::kernel::append::NO_PAGE;
use std::collections::BTreeMap;

/// Rows that share work items: a decoding sequence, or a tile of a prefill.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub sequence: usize,
    pub row_start: u32,
    pub rows: u32,
    pub first_position: u32,
    pub route: Route,
}

impl Entry {
    pub fn last_position(&self) -> u32 {
        self.first_position + self.rows - 1
    }

    /// The pages that its rows see, from one up to another, where `held` from `first_held` on are there.
    pub fn pages(&self, limits: &Limits, first_held: usize, held: usize) -> (usize, usize) {
        let end = (first_held + held).min(self.last_position() as usize / limits.page_tokens + 1);
        let start = match limits.window {
            Some(w) => (self.first_position as usize + 1).saturating_sub(w) / limits.page_tokens,
            None => 0,
        };
        debug_assert!(start >= first_held, "rows from {} on see page {start}", self.first_position);
        (start.max(first_held), end)
    }
}

const ROW_WORDS: usize = 4;

/// Plans one step of one cache group; with `kept` of the step before, whose attention is taken over where it serves.
pub fn build(limits: &Limits, sequences: &[PlanSequence], source: &dyn PageSource, kept: &mut Kept) -> StepPlan {
    // Entries that would not fit the workspace alone are halved until they do: rarely, where bindings are small.
    let mut most_rows = limits.tile_rows.max(16);
    loop {
        match build_with(limits, sequences, source, kept, most_rows) {
            Some(plan) => return plan,
            None => most_rows = (most_rows / 2).max(1),
        }
    }
}

/// A plan whose entries have `most_rows` rows at most; `None` when one of several rows does not fit the workspace.
fn build_with(
    limits: &Limits,
    sequences: &[PlanSequence],
    source: &dyn PageSource,
    kept: &mut Kept,
    most_rows: u32,
) -> Option<StepPlan> {
    let entries = entries(limits, sequences, most_rows);
    let rows: u32 = sequences.iter().map(|s| s.rows).sum();
    // In front, so that the words' places do not depend on the others' number.
    let Attention { words: mut tables, layers } = match kept.serves(limits, &entries, source) {
        true => kept.attention.clone(),
        false => {
            let attention = plan_layers(limits, &entries, source)?;
            kept.keep(limits, &entries, source, &attention);
            attention
        }
    };
    let mut plan = StepPlan { rows_at: tables.len() as u32, rows, ..StepPlan::default() };
    plan.kept = kept.is_kept().then_some((kept.stamp, tables.len()));
    tables.resize(tables.len() + rows as usize * ROW_WORDS, 0);
    for (index, entry) in entries.iter().enumerate() {
        for r in 0..entry.rows {
            let at = plan.rows_at as usize + (entry.row_start + r) as usize * ROW_WORDS;
            let mean_slot = sequences[entry.sequence].mean_slot;
            tables[at..at + ROW_WORDS].copy_from_slice(&[entry.first_position + r, index as u32, r, mean_slot]);
        }
    }
    let means_at = tables.len() as u32;
    let mut mean_items = 0;
    for s in sequences.iter().filter(|s| s.measure_mean && s.rows > 0) {
        tables.extend([s.row_start, s.rows, s.mean_slot, 0]);
        mean_items += 1;
    }
    plan.means = (means_at, mean_items);
    for (layer, attention) in layers.into_iter().enumerate() {
        let append = plan_append(limits, sequences, source, layer, &mut tables);
        let planes = plan_planes(limits, sequences, source, layer, &mut tables);
        let layer_plan = LayerPlan { append, planes, ..attention };
        for round in &layer_plan.rounds {
            plan.partials = plan.partials.max(round.partials);
            plan.round_rows = plan.round_rows.max(round.rows);
        }
        plan.layers.push(layer_plan);
    }
    plan.tables = tables;
    Some(plan)
}

/// The attention of every layer; `None` when an entry of several rows does not fit the workspace alone.
fn plan_layers(limits: &Limits, entries: &[Entry], source: &dyn PageSource) -> Option<Attention> {
    let mut words = Vec::new();
    let layers = (0..limits.layers).map(|layer| plan_attend(limits, entries, source, layer, &mut words));
    Some(Attention { layers: layers.collect::<Option<_>>()?, words })
}

fn entries(limits: &Limits, sequences: &[PlanSequence], most_rows: u32) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (sequence, s) in sequences.iter().enumerate() {
        if s.rows == 0 {
            continue;
        }
        let (route, tile) = match s.rows {
            1..=16 => (Route::Decode(s.rows.next_power_of_two()), s.rows),
            _ => (Route::Prefill, limits.tile_rows.max(1)),
        };
        // The kernel stays that of all the rows: it takes fewer as well, and no other may be made in a step.
        let tile = tile.min(most_rows);
        let mut done = 0;
        while done < s.rows {
            let rows = tile.min(s.rows - done);
            entries.push(Entry {
                sequence,
                row_start: s.row_start + done,
                rows,
                first_position: s.first_position + done,
                route,
            });
            done += rows;
        }
    }
    entries
}

fn plan_append(
    limits: &Limits,
    sequences: &[PlanSequence],
    source: &dyn PageSource,
    layer: usize,
    tables: &mut Vec<u32>,
) -> Vec<AppendBatch> {
    let mut items: BTreeMap<Class, Vec<[u32; 4]>> = BTreeMap::new();
    for (sequence, s) in sequences.iter().enumerate() {
        let end = s.first_position + s.rows;
        let (mut position, first_held) = (s.first_position, source.first_page(sequence));
        while position < end {
            let page = position as usize / limits.page_tokens;
            let page_end = (((page + 1) * limits.page_tokens) as u32).min(end);
            let ids = super::written(limits, source, sequence, layer, page - first_held);
            let mut classes: Vec<Class> = ids.iter().map(|&id| source.class(id)).collect();
            let of_head = classes.clone();
            classes.sort_unstable();
            classes.dedup();
            for class in classes {
                let list = tables.len() as u32;
                tables.extend(ids.iter().zip(&of_head).map(|(id, c)| if *c == class { id.0 } else { NO_PAGE }));
                let rows = (position..page_end).map(|p| {
                    let row = s.row_start + p - s.first_position;
                    [row, p % limits.page_tokens as u32, list, 0]
                });
                items.entry(class).or_default().extend(rows);
            }
            position = page_end;
        }
    }
    items
        .into_iter()
        .map(|(class, list)| {
            let items_at = tables.len() as u32;
            tables.extend(list.iter().flatten());
            AppendBatch { class, items_at, items: list.len() as u32 }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::FormatId;
    use crate::page::{PageId, RecordSegment};
    use crate::select::Question;

    /// Every sequence has the same pages; page p of layer l, head h is l*1000 + h*100 + p, even ones of class 0.
    struct Pages(Vec<Vec<Option<PageId>>>);

    impl PageSource for Pages {
        fn first_page(&self, _: usize) -> usize {
            0
        }
        fn pages(&self, _: usize, layer: usize, kv_head: usize) -> &[Option<PageId>] {
            &self.0[layer * 2 + kv_head]
        }
        fn class(&self, page: PageId) -> Class {
            Class { k: FormatId(0), v: FormatId((page.0 % 2) as u8), segment_group: 0 }
        }
        fn record_segment(&self, _: PageId) -> Option<RecordSegment> {
            None
        }
        fn class_bytes(&self, _: Class) -> u64 {
            10
        }
        fn reads(&self, _: &Question, page: usize) -> bool {
            page != 3
        }
        fn question(&self, _: usize, layer: usize, kv_head: usize, first: u32, last: u32, pages: usize) -> Question {
            Question {
                layer,
                kv_head,
                first_position: first,
                last_position: last,
                pages,
                page_tokens: 16,
                sink_pages: 1,
                tail_pages: 1,
            }
        }
    }

    fn limits() -> Limits {
        Limits {
            layers: 1,
            kv_heads: 2,
            group: 3,
            page_tokens: 16,
            window: None,
            target_items: 7,
            wave_items: 0,
            tile_rows: 8,
            max_partials: 10_000,
            max_rows: 10_000,
            page_items: false,
        }
    }

    #[test]
    fn every_visible_page_is_read_once_by_every_entry_and_partials_do_not_overlap() {
        let source = Pages((0..2).map(|h| (0..9).map(|p| Some(PageId(h * 100 + p))).collect()).collect());
        let sequences = [
            PlanSequence { row_start: 0, rows: 20, first_position: 100, mean_slot: 0, measure_mean: false },
            PlanSequence { row_start: 20, rows: 0, first_position: 7, mean_slot: 0, measure_mean: false },
            PlanSequence { row_start: 20, rows: 3, first_position: 40, mean_slot: 0, measure_mean: false },
        ];
        let plan = build(&limits(), &sequences, &source, &mut Kept::default());
        let t = &plan.tables;
        let layer = &plan.layers[0];
        let mut seen: BTreeMap<(u32, u32), Vec<u32>> = BTreeMap::new();
        let mut taken = vec![false; plan.partials];
        assert_eq!(layer.rounds.len(), 1);
        for batch in &layer.rounds[0].attend {
            for i in 0..batch.items as usize {
                let item = &t[batch.items_at as usize + i * 8..][..8];
                let ids = &t[item[3] as usize..][..item[4] as usize];
                assert!(ids.iter().all(|id| source.class(PageId(*id)) == batch.class));
                seen.entry((item[0], item[2])).or_default().extend(ids.iter().map(|id| id % 100));
                for state in item[5]..item[5] + item[1] * 3 {
                    assert!(!std::mem::replace(&mut taken[state as usize], true));
                }
                let entry = t[plan.rows_at as usize + item[0] as usize * 4 + 1];
                let head = layer.lists_at as usize + (entry as usize * 2 + item[2] as usize) * 2;
                let list = &t[t[head] as usize..][..t[head + 1] as usize];
                assert!(list.contains(&item[5]));
            }
        }
        assert!(taken.iter().all(|&t| t));
        for ((row, _), mut pages) in seen {
            pages.sort_unstable();
            // Tiles of 8 rows from 100: last positions 107, 115, 119; rows 40..43.
            let last = match row {
                0 => 107,
                8 => 115,
                16 => 119,
                _ => 42,
            };
            let want: Vec<u32> = (0..=last / 16).filter(|&p| p != 3).collect();
            assert_eq!(pages, want, "rows from {row}");
        }
    }

    #[test]
    fn a_window_drops_pages_that_no_row_of_the_entry_sees() {
        let source = Pages((0..2).map(|h| (0..9).map(|p| Some(PageId(h * 100 + p))).collect()).collect());
        let sequences =
            [PlanSequence { row_start: 0, rows: 1, first_position: 130, mean_slot: 0, measure_mean: false }];
        let plan = build(&Limits { window: Some(20), ..limits() }, &sequences, &source, &mut Kept::default());
        // Positions 111..=130 lie in pages 6, 7 and 8.
        let ids: usize = plan.layers[0].rounds[0].attend.iter().map(|b| b.items as usize).sum();
        assert!(ids > 0);
        assert_eq!(plan.layers[0].read_bytes, 2 * 3 * 10);
    }

    #[test]
    fn appends_name_the_page_and_token_of_each_row() {
        let source = Pages((0..2).map(|h| (0..9).map(|p| Some(PageId(h * 100 + p))).collect()).collect());
        let sequences = [PlanSequence { row_start: 0, rows: 3, first_position: 15, mean_slot: 0, measure_mean: false }];
        let plan = build(&limits(), &sequences, &source, &mut Kept::default());
        let mut rows = Vec::new();
        for batch in &plan.layers[0].append {
            for i in 0..batch.items as usize {
                let item = &plan.tables[batch.items_at as usize + i * 4..][..4];
                rows.push((item[0], item[1], plan.tables[item[2] as usize] % 100));
            }
        }
        rows.sort_unstable();
        assert_eq!(rows, [(0, 15, 0), (1, 0, 1), (2, 1, 1)]);
    }

    #[test]
    fn rounds_take_every_row_once_and_fit_the_workspace() {
        let source = Pages((0..2).map(|h| (0..9).map(|p| Some(PageId(h * 100 + p))).collect()).collect());
        let sequences = [
            PlanSequence { row_start: 0, rows: 40, first_position: 90, mean_slot: 0, measure_mean: false },
            PlanSequence { row_start: 40, rows: 13, first_position: 100, mean_slot: 0, measure_mean: false },
            PlanSequence { row_start: 53, rows: 1, first_position: 8, mean_slot: 0, measure_mean: false },
        ];
        for (max_partials, max_rows) in [(200, 100), (10_000, 9), (100, 5), (24, 100), (12, 1)] {
            let plan = build(&Limits { max_partials, max_rows, ..limits() }, &sequences, &source, &mut Kept::default());
            let (t, layer) = (&plan.tables, &plan.layers[0]);
            assert!(layer.rounds.len() > 1 && plan.partials <= max_partials && plan.round_rows as usize <= max_rows);
            let mut next = 0;
            for round in &layer.rounds {
                assert_eq!(round.row_start, next);
                next += round.rows;
                let mut taken = vec![false; round.partials];
                for item in round.attend.iter().flat_map(|b| (0..b.items).map(move |i| (b.items_at + i * 8) as usize)) {
                    let item = &t[item..item + 8];
                    assert!(item[0] + item[1] <= round.rows);
                    for state in item[5]..item[5] + item[1] * 3 {
                        assert!(!std::mem::replace(&mut taken[state as usize], true));
                    }
                    // The merge lists of the item's rows name it.
                    let entry = t[plan.rows_at as usize + (round.row_start + item[0]) as usize * 4 + 1];
                    let head = layer.lists_at as usize + (entry as usize * 2 + item[2] as usize) * 2;
                    assert!(t[t[head] as usize..][..t[head + 1] as usize].contains(&item[5]));
                }
                assert!(taken.iter().all(|&t| t));
            }
            assert_eq!(next, plan.rows);
        }
    }
}

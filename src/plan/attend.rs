//! The attention of one layer: page lists by class, work items, rounds that fit the workspace, merge lists.

use super::build::Entry;
use super::waves::waves;
use super::{Batch, Class, LayerPlan, Limits, PageSource, Round, Route};
use std::collections::BTreeMap;
use std::ops::Range;

/// A work item before it has its place in the table: pages `ids` of list `list`.
struct Item {
    list: usize,
    ids: Range<usize>,
}

/// The pages of one class that an entry reads for a head.
pub(super) struct List {
    pub entry: usize,
    kv_head: usize,
    pub class: Class,
    pub ids: Vec<u32>,
    /// The pages' places in the sequence, where [`Limits::page_items`] asks for their order.
    places: Vec<u32>,
}

/// A state of an (entry, head): its place in the merge, and its index among partial states.
type Part = (u32, u32);

/// Plans a layer; `None` when an entry of several rows does not fit the workspace alone.
pub(super) fn plan_attend(
    limits: &Limits,
    entries: &[Entry],
    source: &dyn PageSource,
    layer: usize,
    tables: &mut Vec<u32>,
) -> Option<LayerPlan> {
    let mut plan = LayerPlan::default();
    let lists = page_lists(limits, entries, source, layer, &mut plan.read_bytes);
    let items = items(limits, entries, source, &lists);
    let mut parts: Vec<Vec<Part>> = vec![Vec::new(); entries.len() * limits.kv_heads];
    let mut rest = items.as_slice();
    for round in rounds(limits, entries, &lists, &items)? {
        // Items stand in the order of their entries.
        let (own, later) = rest.split_at(rest.partition_point(|item| lists[item.list].entry < round.end));
        rest = later;
        plan.rounds.push(plan_round(limits, entries, source, (&lists, own), round, &mut parts, tables));
    }
    let mut heads = Vec::with_capacity(parts.len() * 2);
    for list in &mut parts {
        if limits.page_items {
            list.sort_unstable();
        }
        heads.extend([tables.len() as u32, list.len() as u32]);
        tables.extend(list.iter().map(|part| part.1));
    }
    plan.lists_at = tables.len() as u32;
    tables.extend(heads);
    Some(plan)
}

/// Page lists by class for every (entry, head), in the order of the entries.
fn page_lists(
    limits: &Limits,
    entries: &[Entry],
    source: &dyn PageSource,
    layer: usize,
    read_bytes: &mut u64,
) -> Vec<List> {
    let mut lists: Vec<List> = Vec::with_capacity(entries.len() * limits.kv_heads * 2);
    for (at, entry) in entries.iter().enumerate() {
        for kv_head in 0..limits.kv_heads {
            let pages = source.pages(entry.sequence, layer, kv_head);
            let first_held = source.first_page(entry.sequence);
            let (start, end) = entry.pages(limits, first_held, pages.len());
            let question =
                source.question(entry.sequence, layer, kv_head, entry.first_position, entry.last_position(), end);
            // Classes are few and change seldom from page to page: the last page's list is the likeliest.
            let (first, mut last) = (lists.len(), 0);
            for page in (start..end).filter(|&p| source.reads(&question, p)) {
                let Some(id) = pages[page - first_held] else { continue };
                let class = source.class(id);
                if lists.get(last).is_none_or(|list| last < first || list.class != class) {
                    last = match lists[first..].iter().position(|list| list.class == class) {
                        Some(found) => first + found,
                        None => {
                            let ids = Vec::with_capacity(end - page);
                            lists.push(List { entry: at, kv_head, class, ids, places: Vec::new() });
                            lists.len() - 1
                        }
                    };
                }
                lists[last].ids.push(id.0);
                if limits.page_items {
                    lists[last].places.push(page as u32);
                }
            }
            if matches!(entry.route, Route::Decode(_)) {
                let bytes = lists[first..].iter().map(|list| list.ids.len() as u64 * source.class_bytes(list.class));
                *read_bytes += bytes.sum::<u64>();
            }
        }
    }
    lists
}

/// Tokens below which an item costs more than it spares: its partial states have to be written and merged.
const LEAST_TOKENS: usize = 64;

/// Bytes that make an item worth having where there are items enough: on an H200, 8 x 32,768 tokens of f16 took 318 us
/// in 1,024 items and 338 us in 2,048, with a quarter of the bytes 319 us and 285 us.
const ENOUGH_BYTES: u64 = 1 << 20;
/// Items enough: those of 64 threads that fill such a card.
const ENOUGH_ITEMS: usize = 1024;

/// Items a multiprocessor of prefill attention that fills one: states of its many rows cost more than an uneven end.
const PREFILL_WAVES: usize = 2;

/// Splits lists into items that keep the backend busy.
fn items(limits: &Limits, entries: &[Entry], source: &dyn PageSource, lists: &[List]) -> Vec<Item> {
    let states_per_entry = entries.iter().map(|e| e.rows as usize * limits.group).max().unwrap_or(1);
    let most_items = (limits.max_partials / states_per_entry.max(1)).max(1);
    // A class is a dispatch, and dispatches run one after another: each is cut to fill the backend alone.
    let mut totals: BTreeMap<Class, usize> = BTreeMap::new();
    for list in lists {
        *totals.entry(list.class).or_default() += list.ids.len();
    }
    let most_items = (most_items / totals.len().max(1)).max(1);
    let target = limits.target_items.clamp(1, most_items);
    let waves = waves(limits, entries, source, lists, most_items);
    let mut items = Vec::with_capacity(lists.len());
    for (at, List { entry, ids, class, .. }) in lists.iter().enumerate() {
        let enough = (ENOUGH_BYTES / source.class_bytes(*class).max(1)) as usize;
        let most = totals[class].div_ceil(target.min(ENOUGH_ITEMS));
        let pages_per_item = totals[class].div_ceil(target).max(enough.min(most));
        let pages_per_item = match entries[*entry].route {
            Route::Decode(_) => waves.get(class).copied().unwrap_or(pages_per_item),
            Route::Prefill if source.wave_cost(*class).is_some() => {
                totals[class].div_ceil((PREFILL_WAVES * limits.wave_items).clamp(1, most_items))
            }
            Route::Prefill => pages_per_item,
        };
        let pages_per_item = pages_per_item.max(LEAST_TOKENS / limits.page_tokens).max(1);
        // Even shares: 33 pages at 32 an item are two items of 17 and 16, not of 32 and 1.
        let pages_per_item = if limits.page_items { 1 } else { pages_per_item };
        let share = ids.len().div_ceil(ids.len().div_ceil(pages_per_item));
        let starts = (0..ids.len()).step_by(share);
        items.extend(starts.map(|s| Item { list: at, ids: s..(s + share).min(ids.len()) }));
    }
    items
}

/// Entries that go together: as many as the workspace has states and prepared queries for.
fn rounds(limits: &Limits, entries: &[Entry], lists: &[List], items: &[Item]) -> Option<Vec<Range<usize>>> {
    let mut states = vec![0usize; entries.len()];
    for item in items {
        let entry = lists[item.list].entry;
        states[entry] += entries[entry].rows as usize * limits.group;
    }
    let (mut rounds, mut start, mut held) = (Vec::new(), 0, (0, 0));
    for (at, entry) in entries.iter().enumerate() {
        let own = (states[at], entry.rows as usize);
        if entry.rows > 1 && (own.0 > limits.max_partials || own.1 > limits.max_rows) {
            return None;
        }
        if at > start && (held.0 + own.0 > limits.max_partials || held.1 + own.1 > limits.max_rows) {
            rounds.push(start..at);
            (start, held) = (at, (0, 0));
        }
        held = (held.0 + own.0, held.1 + own.1);
    }
    if start < entries.len() {
        rounds.push(start..entries.len());
    }
    Some(rounds)
}

/// Items of a round into the table, and the places of their states into `parts`, by (entry, head).
fn plan_round(
    limits: &Limits,
    entries: &[Entry],
    source: &dyn PageSource,
    (lists, items): (&[List], &[Item]),
    round: Range<usize>,
    parts: &mut [Vec<Part>],
    tables: &mut Vec<u32>,
) -> Round {
    let mut batches: BTreeMap<(Route, Class), Vec<&Item>> = BTreeMap::new();
    for item in items {
        let list = &lists[item.list];
        batches.entry((entries[list.entry].route, list.class)).or_default().push(item);
    }
    let row_start = entries[round.start].row_start;
    let rows = entries[round].iter().map(|e| e.rows).sum();
    let (mut attend, mut partials) = (Vec::with_capacity(batches.len()), 0u32);
    let mut batches: Vec<_> = batches.into_iter().collect();
    if limits.wave_items > 0 {
        // They run side by side: what lasts longest begins first.
        let longest = |items: &[&Item], class: Class| {
            let pages = items.iter().map(|item| item.ids.len()).max().unwrap_or(0) as u64;
            pages * source.wave_cost(class).unwrap_or_else(|| source.class_bytes(class))
        };
        batches.sort_by_key(|((_, class), items)| std::cmp::Reverse(longest(items, *class)));
    }
    for ((route, class), items) in batches {
        let mut words = Vec::with_capacity(items.len() * 8);
        for item in &items {
            let list = &lists[item.list];
            let entry = &entries[list.entry];
            let ids_at = tables.len() as u32;
            tables.extend_from_slice(&list.ids[item.ids.clone()]);
            let (row, count) = (entry.row_start - row_start, item.ids.len() as u32);
            words.extend([row, entry.rows, list.kv_head as u32, ids_at, count, partials, 0, 0]);
            let place = list.places.get(item.ids.start).copied().unwrap_or(0);
            parts[list.entry * limits.kv_heads + list.kv_head].push((place, partials));
            partials += entry.rows * limits.group as u32;
        }
        attend.push(Batch { class, route, items_at: tables.len() as u32, items: items.len() as u32 });
        tables.extend(words);
    }
    Round { row_start, rows, partials: partials as usize, attend }
}

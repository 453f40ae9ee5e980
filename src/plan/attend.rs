//! The attention of one layer: page lists by class, work items, rounds that fit the workspace, merge lists.

use super::build::Entry;
use super::{Batch, Class, LayerPlan, Limits, PageSource, Round, Route};
use std::collections::BTreeMap;
use std::ops::Range;

/// A work item before it has its place in the table: pages `ids` of list `list`.
struct Item {
    list: usize,
    ids: Range<usize>,
}

/// The pages of one class that an entry reads for a head.
struct List {
    entry: usize,
    kv_head: usize,
    class: Class,
    ids: Vec<u32>,
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

/// Bytes that a multiprocessor could read while one of its items begins and ends: on an H200 some 4 us of 32 GB/s. Eight
/// items a multiprocessor instead of one took f16 7 % longer and tq3, a fifth of the bytes, 43 %.
const ITEM_BYTES: u64 = 128 << 10;
/// Most waves of items that are weighed against each other.
const MOST_WAVES: usize = 8;

/// Pages an item for each class whose items fill a multiprocessor. Their dispatches run side by side, so that all share
/// the multiprocessors: items of all classes are to last equally long.
fn waves(
    limits: &Limits,
    entries: &[Entry],
    source: &dyn PageSource,
    lists: &[List],
    most_items: usize,
) -> BTreeMap<Class, usize> {
    let mut costs: BTreeMap<Class, Option<u64>> = BTreeMap::new();
    let mut work = Vec::with_capacity(lists.len());
    if limits.wave_items > 0 {
        for List { entry, class, ids, .. } in lists {
            let cost = *costs.entry(*class).or_insert_with(|| source.wave_cost(*class).map(|cost| cost.max(1)));
            if let (Route::Decode(_), Some(cost)) = (entries[*entry].route, cost) {
                work.push((ids.len() as u64, cost));
            }
        }
    }
    if work.is_empty() {
        return BTreeMap::new();
    }
    let item = quickest_item(&work, limits.wave_items.min(most_items), most_items, ITEM_BYTES);
    costs.into_iter().filter_map(|(class, cost)| Some((class, pages_of(item, cost?) as usize))).collect()
}

/// Pages of an item that costs `item` or less; 1 at least.
fn pages_of(item: u64, cost: u64) -> u64 {
    (item / cost).max(1)
}

/// Cost of an item with which lists of `(pages, cost of a page)` are done soonest where `at_once` items run together,
/// each as long as its cost and `overhead` more; in at most `most` items, or one a list.
fn quickest_item(lists: &[(u64, u64)], at_once: usize, most: usize, overhead: u64) -> u64 {
    let cut = |item: u64| Cut::of(lists, item);
    let longest = lists.iter().map(|&(pages, cost)| pages * cost).max().unwrap_or(1).max(1);
    let total = lists.iter().map(|&(pages, cost)| pages * cost).sum::<u64>();
    let (at_once, most) = (at_once.max(1) as u64, most as u64);
    // When the last one ends: whole waves of the longer items, which the shorter fill up, or all work shared evenly.
    let end = |item: u64| {
        let cut = cut(item);
        let waves = cut.long.div_ceil(at_once).max(1) * (cut.longest + overhead);
        waves.max((total + cut.items * overhead) / at_once)
    };
    let fits = |item: u64, waves: u64| {
        let cut = cut(item);
        cut.items <= most && cut.long <= waves * at_once
    };
    let candidates = (1..=MOST_WAVES as u64).map(|waves| least(longest, |item| fits(item, waves)));
    candidates.min_by_key(|&item| end(item)).unwrap_or(longest)
}

/// What becomes of lists that are cut into items of a cost.
struct Cut {
    items: u64,
    /// Items of more than half that cost: those of short lists stand in their shade.
    long: u64,
    /// Cost of the dearest item.
    longest: u64,
}

impl Cut {
    fn of(lists: &[(u64, u64)], item: u64) -> Self {
        let mut cut = Cut { items: 0, long: 0, longest: 0 };
        for &(pages, cost) in lists {
            let count = pages.div_ceil(pages_of(item, cost)).max(1);
            let each = pages.div_ceil(count) * cost;
            cut.items += count;
            cut.long += if each > item / 2 { count } else { 0 };
            cut.longest = cut.longest.max(each);
        }
        cut
    }
}

/// The least number up to `most` that `fits`, if what is above one that does fits too; `most` where none does.
fn least(most: u64, fits: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (1, most);
    while low < high {
        let middle = (low + high) / 2;
        match fits(middle) {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    low
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

#[cfg(test)]
mod tests {
    use super::{pages_of, quickest_item};
    use proptest::prelude::*;

    /// Costs of the items that a plan with `item` makes.
    fn cut(lists: &[(u64, u64)], item: u64) -> Vec<u64> {
        let of = |&(pages, cost): &(u64, u64)| {
            let share = pages.div_ceil(pages.div_ceil(pages_of(item, cost)));
            (0..pages).step_by(share as usize).map(move |start| share.min(pages - start) * cost).collect::<Vec<_>>()
        };
        lists.iter().flat_map(of).collect()
    }

    /// When the last item ends, if each is begun by the first of `at_once` that is free, the longest first.
    fn end(lists: &[(u64, u64)], item: u64, at_once: usize, overhead: u64) -> u64 {
        let mut items = cut(lists, item);
        items.sort_unstable_by(|a, b| b.cmp(a));
        let mut free = vec![0; at_once];
        for cost in items {
            let first = free.iter_mut().min().expect("one");
            *first += cost + overhead;
        }
        free.into_iter().max().unwrap_or(0)
    }

    fn pages(lengths: &[u64], at_once: usize, most: usize) -> u64 {
        let lists: Vec<_> = lengths.iter().map(|&length| (length, 1000)).collect();
        quickest_item(&lists, at_once, most, 4000) / 1000
    }

    #[test]
    fn equal_lists_fill_the_multiprocessors_once() {
        // Eight sequences of eight heads and 512 pages, 132 multiprocessors: two items a list, not three.
        assert_eq!(pages(&[512; 64], 132, usize::MAX), 256);
        assert_eq!(pages(&[512; 8], 132, usize::MAX), 32);
        assert_eq!(pages(&[512; 8], 132, 8), 512, "no room for more states");
    }

    #[test]
    fn short_lists_do_not_lengthen_the_others_items() {
        // Beside each of 64 lists of 512 pages one of three: the long ones are cut in two, as without the short ones.
        let lists: Vec<(u64, u64)> = (0..64).flat_map(|_| [(512, 1000), (3, 1000)]).collect();
        assert_eq!(quickest_item(&lists, 132, usize::MAX, 4000) / 1000, 256);
        assert!(quickest_item(&lists, 132, 128, 4000) / 1000 >= 512, "no room for more states");
    }

    #[test]
    fn one_long_sequence_among_many_is_shared() {
        // Sixteen short sequences and a long one of eight heads: with an item a list, eight multiprocessors read it all.
        let lengths = [vec![2; 128], vec![2048; 8]].concat();
        let long = pages(&lengths, 132, usize::MAX);
        assert!(long <= 256, "{long}");
        // A few more lists than half the multiprocessors: whole lists would leave the other half idle.
        assert!(pages(&[512; 67], 132, usize::MAX) < 256);
    }

    #[test]
    fn formats_share_the_multiprocessors_by_their_cost() {
        // A sequence of eight heads, a third of its pages twice as dear: all that is read in about one wave.
        let lists: Vec<(u64, u64)> = (0..8).flat_map(|_| [(159, 16_600), (353, 8_600), (3, 32_768)]).collect();
        let item = quickest_item(&lists, 132, usize::MAX, 128 << 10);
        let (items, total) = (cut(&lists, item), lists.iter().map(|(pages, cost)| pages * cost).sum::<u64>());
        assert!(items.len() <= 132, "{}", items.len());
        assert!(items.iter().all(|&cost| cost * 132 <= total * 5 / 4), "{items:?} of {total}");
    }

    proptest! {
        #[test]
        fn no_schedule_is_far_from_the_least(
            lists in prop::collection::vec((1u64..600, 1u64..40), 1..80),
            at_once in 1usize..300,
            overhead in 0u64..200,
        ) {
            let item = quickest_item(&lists, at_once, usize::MAX, overhead);
            let ours = end(&lists, item, at_once, overhead);
            // What no cut can beat: all pages shared evenly, with one overhead a list; and a page is not cut.
            let total: u64 = lists.iter().map(|(pages, cost)| pages * cost + overhead).sum();
            let page = lists.iter().map(|&(_, cost)| cost).max().unwrap_or(0);
            let least = total.div_ceil(at_once as u64).max(page + overhead);
            prop_assert!(ours <= 2 * (least + overhead + page), "{ours} of {least} with items of {item}");
        }
    }
}

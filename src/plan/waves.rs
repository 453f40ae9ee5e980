//! How lists are cut for kernels of which an item fills a multiprocessor: so that the last item ends soonest.

use super::attend::List;
use super::build::Entry;
use super::{Class, Limits, PageSource, Route};
use std::collections::BTreeMap;

/// Bytes that a multiprocessor could read while one of its items begins and ends: on an H200 some 4 us of 32 GB/s. Eight
/// items a multiprocessor instead of one took f16 7 % longer and tq3, a fifth of the bytes, 43 %.
const ITEM_BYTES: u64 = 128 << 10;
/// Most waves of items that are weighed against each other.
const MOST_WAVES: usize = 8;

/// Pages an item for each class whose items fill a multiprocessor. Their dispatches run side by side, so that all share
/// the multiprocessors: items of all classes are to last equally long.
pub(super) fn waves(
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
    let (at_once, most) = (at_once.max(1) as u64, most as u64);
    // When the last one ends: whole waves of the longer items, and what of the shorter does not fit beside them.
    let end = |item: u64| {
        let cut = cut(item);
        let waves = cut.long.div_ceil(at_once).max(1);
        let (wave, short) = (cut.longest + overhead, cut.items - cut.long);
        let beside = (waves * at_once - cut.long) * wave;
        let left = (cut.short_cost + short * overhead).saturating_sub(beside);
        let after = if left > 0 { (left / at_once).max((cut.short_cost / short.max(1)) + overhead) } else { 0 };
        waves * wave + after
    };
    let candidates = (1..=MOST_WAVES as u64).flat_map(|waves| {
        let room = waves * at_once;
        // With the shorter items in the same waves, and without.
        let all = least(longest, |item| cut(item).items <= room.min(most));
        let long = least(longest, |item| {
            let cut = cut(item);
            cut.items <= most && cut.long <= room
        });
        [all, long]
    });
    candidates.min_by_key(|&item| end(item)).unwrap_or(longest)
}

/// What becomes of lists that are cut into items of a cost.
struct Cut {
    items: u64,
    /// Items of more than half that cost: those of short lists stand in their shade.
    long: u64,
    /// Cost of the others together.
    short_cost: u64,
    /// Cost of the dearest item.
    longest: u64,
}

impl Cut {
    fn of(lists: &[(u64, u64)], item: u64) -> Self {
        let mut cut = Cut { items: 0, long: 0, short_cost: 0, longest: 0 };
        for &(pages, cost) in lists {
            let count = pages.div_ceil(pages_of(item, cost)).max(1);
            let each = pages.div_ceil(count) * cost;
            cut.items += count;
            match each > item / 2 {
                true => cut.long += count,
                false => cut.short_cost += pages * cost,
            }
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
        // The short ones fit beside them.
        let long = items.iter().filter(|&&cost| cost > item / 2).count();
        assert!(long <= 132 && items.len() <= 140, "{long} of {}", items.len());
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

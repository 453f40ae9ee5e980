//! What a step's reads are in words: closed forms where they are sure.

use kvarto::engine::{PageSet, ReadFacts, Reads};
use std::ops::Range;

/// The ranges of a list that lie within the visible pages.
pub fn read_ranges(read: &ReadFacts, row: usize) -> Vec<Range<u32>> {
    within(&read.of_row(row), &read.visible)
}

fn within(set: &PageSet, visible: &Range<u32>) -> Vec<Range<u32>> {
    let cut = set.ranges().iter().map(|range| range.start.max(visible.start)..range.end.min(visible.end));
    cut.filter(|range| range.start < range.end).collect()
}

/// Pages of ranges.
pub fn pages(ranges: &[Range<u32>]) -> u64 {
    ranges.iter().map(|range| u64::from(range.end.saturating_sub(range.start))).sum()
}

/// Pages read and pages visible: of a list, or the mean over `rows` lists.
pub fn counts(read: &ReadFacts, row: Option<usize>, rows: usize) -> (f64, u64) {
    let visible = u64::from(read.visible.end.saturating_sub(read.visible.start));
    let count = match (&read.read, row) {
        (Reads::Rows(lists), None) => {
            let sum: u64 = lists.iter().map(|set| pages(&within(set, &read.visible))).sum();
            sum as f64 / rows.max(1) as f64
        }
        (_, row) => pages(&read_ranges(read, row.unwrap_or(0))) as f64,
    };
    (count, visible)
}

fn plural(count: u64, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

/// The pattern of a step's reads in words.
pub fn words(read: &ReadFacts, row: Option<usize>, rows: usize) -> String {
    let (count, visible) = counts(read, row, rows);
    let alike = match &read.read {
        Reads::Rows(lists) => row.is_some() || lists.windows(2).all(|pair| pair[0] == pair[1]),
        Reads::All | Reads::Same(_) => true,
    };
    if visible == 0 {
        return "no pages are visible".into();
    }
    if !alike {
        return format!("{count:.1} of {} read, the mean of {rows} lists", plural(visible, "visible page"));
    }
    let ranges = read_ranges(read, row.unwrap_or(0));
    closed_form(&ranges, &read.visible)
        .unwrap_or_else(|| format!("{count:.0} of {} read", plural(visible, "visible page")))
}

/// A window, a window and sinks, or a dyadic pattern.
fn closed_form(ranges: &[Range<u32>], visible: &Range<u32>) -> Option<String> {
    let newest = ranges.last().filter(|range| range.end == visible.end)?;
    let window = u64::from(newest.end - newest.start);
    let window_words = || format!("a window of {}", plural(window, "page"));
    match ranges {
        [only] if only.start == visible.start => Some(
            format!("all {} are read", plural(window, "visible page"))
                .replace("all 1 visible page are", "the one visible page is"),
        ),
        [_] => Some(window_words()),
        [sink, _] if sink.start == 0 => {
            let sinks = u64::from(sink.end - sink.start);
            Some(format!("{} and {}", window_words(), plural(sinks, "sink")))
        }
        _ => dyadic(ranges).then(|| format!("dyadic: gaps double, after {}", window_words())),
    }
}

/// Whether the gaps between ranges double from the newest on: `g, 2g, 4g` or, where single pages stand at distances that
/// double, `g, 2g + 1, 4g + 3`. The oldest gap may be cut short.
fn dyadic(ranges: &[Range<u32>]) -> bool {
    let gaps: Vec<u64> = ranges.windows(2).rev().map(|pair| u64::from(pair[1].start - pair[0].end)).collect();
    let doubles = |plus: u64| {
        gaps.windows(2).enumerate().all(|(at, pair)| {
            let expected = 2 * (pair[0] + plus);
            let last = at + 2 == gaps.len();
            pair[1] + plus == expected || last && gaps.len() > 3 && pair[1] + plus < expected
        })
    };
    gaps.len() >= 3 && (doubles(0) || doubles(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvarto::engine::SeqId;

    fn said(pages: impl IntoIterator<Item = u32>, visible: Range<u32>) -> String {
        let read = Reads::Same(PageSet::of(pages.into_iter().collect()));
        let facts = ReadFacts { step: 1, sequence: SeqId(1), group: 0, unit_tokens: 16, visible, read };
        words(&facts, None, 4)
    }

    #[test]
    fn closed_forms_are_told_only_where_they_are_sure() {
        assert_eq!(said(0..40, 0..40), "all 40 visible pages are read");
        assert_eq!(said(0..1, 0..1), "the one visible page is read");
        assert_eq!(said(32..40, 0..40), "a window of 8 pages");
        assert_eq!(said((0..1).chain(32..40), 0..40), "a window of 8 pages and 1 sink");
        assert_eq!(said((0..2).chain(39..40), 0..40), "a window of 1 page and 2 sinks");
        let doubling = [0u32, 1, 2, 4, 8, 16, 32].map(|distance| 99 - distance);
        assert_eq!(said(doubling, 0..100), "dyadic: gaps double, after a window of 3 pages");
        let gaps = [99, 97, 94, 89, 80];
        assert_eq!(said(gaps, 0..100), "dyadic: gaps double, after a window of 1 page");
        assert_eq!(said([99, 97, 94, 90], 0..100), "4 of 100 visible pages read");
        assert_eq!(said([99, 97, 94], 0..100), "3 of 100 visible pages read");
        assert_eq!(said([5, 98], 0..100), "2 of 100 visible pages read");
        assert_eq!(said([], 0..100), "0 of 100 visible pages read");
        assert_eq!(said([], 7..7), "no pages are visible");
        // Pages that are not visible do not count.
        assert_eq!(said(0..40, 10..20), "all 10 visible pages are read");
    }

    #[test]
    fn lists_that_differ_are_a_mean() {
        let rows = vec![PageSet::of(vec![0, 1]), PageSet::of(vec![1]), PageSet::default(), PageSet::of(vec![3])];
        let facts = ReadFacts {
            step: 1,
            sequence: SeqId(1),
            group: 0,
            unit_tokens: 16,
            visible: 0..4,
            read: Reads::Rows(rows),
        };
        assert_eq!(words(&facts, None, 4), "1.0 of 4 visible pages read, the mean of 4 lists");
        assert_eq!(words(&facts, Some(3), 4), "a window of 1 page");
        assert_eq!(counts(&facts, Some(9), 4), (0.0, 4), "a list that is not there");
    }
}

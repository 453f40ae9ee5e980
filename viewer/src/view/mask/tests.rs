use super::gone::Gone;
use super::lines::{Line, Whose};
use super::paint::{Inks, MOST_WORK, Painter, Picture};
use crate::palette::Palette;
use crate::store::Store;
use kvarto::engine::{Event, GroupFacts, PageFacts, PageSet, ReadFacts, Reads, SeqId, Snapshot};
use kvarto::trace::Record;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

const DARK: Palette = Palette { dark: true };

fn line(step: u64, visible: Range<u32>, read: Reads) -> Line {
    let facts = ReadFacts { step, sequence: SeqId(1), group: 0, unit_tokens: 16, visible, read };
    Line { event: step * 10, read: Arc::new(facts) }
}

fn picture<'a>(lines: &'a [Line], row: Option<usize>, width: usize, columns: u32) -> Picture<'a> {
    static NONE: BTreeMap<u64, [f32; 2]> = BTreeMap::new();
    Picture {
        whose: Whose { sequence: SeqId(1), group: 0, row, rows: 2 },
        lines,
        room: lines.len() + 1,
        columns,
        width,
        side: (20, 1),
        height: 1,
        inks: Inks::of(DARK),
        qualities: &NONE,
    }
}

#[test]
fn pixels_say_what_was_read() {
    let same = |ranges: Vec<Range<u32>>| Reads::Same(PageSet::from_ranges(ranges).unwrap());
    let rows = Reads::Rows(vec![PageSet::of(vec![0]), PageSet::of(vec![0, 3])]);
    let window = Range { start: 2, end: 4 };
    let lines = [line(1, 0..4, same(vec![0..1, 3..4])), line(2, 2..4, same(vec![window])), line(3, 0..4, rows)];
    let inks = Inks::of(DARK);
    let (image, missing) = Painter::default().picture(&picture(&lines, Some(0), 16, 4), &Gone::default(), false);
    assert!(!missing);
    assert_eq!(image.size, [36, 4]);
    let at = |image: &eframe::egui::ColorImage, page: usize, y: usize| image.pixels[y * 36 + page * 4 + 1];
    let (read, unread, nothing) = (inks.read, inks.unread, inks.nothing);
    assert_eq!([0, 1, 2, 3].map(|page| at(&image, page, 0)), [read, unread, unread, read]);
    assert_eq!([0, 1, 2, 3].map(|page| at(&image, page, 1)), [nothing, nothing, read, read]);
    assert_eq!([0, 1, 2, 3].map(|page| at(&image, page, 2)), [read, unread, unread, unread]);
    assert_eq!(at(&image, 0, 3), nothing, "room for a step that is not there");
    // Beside: half of the visible pages were read.
    let beside = &image.pixels[16..36];
    assert_eq!(beside.iter().filter(|pixel| **pixel == read).count(), 6);
    // The mean of both lists.
    let (image, _) = Painter::default().picture(&picture(&lines, None, 16, 4), &Gone::default(), false);
    let half = at(&image, 3, 2);
    assert!(half != read && half != unread, "{half:?}");
}

#[test]
fn work_of_a_frame_is_bounded_and_lines_are_kept() {
    let ranges: Vec<Range<u32>> = (0..50_000).map(|n| 2 * n..2 * n + 1).collect();
    let set = PageSet::from_ranges(ranges).unwrap();
    let lines: Vec<Line> = (0..200).map(|step| line(step, 0..100_000, Reads::Same(set.clone()))).collect();
    let mut painter = Painter::default();
    let (mut frames, mut missing) = (0, true);
    while missing {
        (_, missing) = painter.picture(&picture(&lines, None, 1280, 100_000), &Gone::default(), false);
        assert!(painter.work <= MOST_WORK + 60_000, "{}", painter.work);
        frames += 1;
    }
    assert!(frames > 2);
    painter.picture(&picture(&lines, None, 1280, 100_000), &Gone::default(), false);
    assert_eq!(painter.work, 0);
}

#[test]
fn evictions_of_an_origin_count_up_to_the_fork() {
    let mut store = Store::default();
    let group = GroupFacts { page_tokens: 16, layers: vec![5], kv_heads: 2 };
    let (first, fork) = (SeqId(1), SeqId(2));
    let page = |number: u32, kv_head| PageFacts {
        group: 0,
        page: number * 2 + kv_head,
        layer: 5,
        kv_head,
        number,
        formats: ("f16".into(), "f16".into()),
        slots: [0, 0],
        segment_group: 0,
        generation: 1,
        flags: 0,
        bytes: 1,
    };
    let evicted =
        |sequence, number, head| Event::PageEvicted { sequence, page: page(number, head), reason: "x".into() };
    let events = [
        Event::Resync { dropped: 0, snapshot: Box::new(Snapshot { groups: vec![group], ..Snapshot::default() }) },
        Event::SequenceCreated { sequence: first },
        evicted(first, 3, 0),
        Event::SequenceForked { sequence: fork, from: first, at_tokens: 160 },
        evicted(first, 4, 0),
        evicted(fork, 4, 1),
        evicted(fork, 3, 1),
    ];
    for (number, event) in events.into_iter().enumerate() {
        let record = Record { number: number as u64, ns: 0, event: Some(event) };
        store.chronicle.take(&record, 0);
        // What the made-up events do not fit is of no matter here.
        let _ = store.apply(&record);
    }
    let runs = |sequence, row, before| {
        let mut gone = Gone::default();
        assert!(!gone.update(&store, (sequence, 0, row)));
        gone.before(before, if row.is_some() { 1 } else { 2 })
    };
    let run = |from: u32, to: u32, share: f32| (from..to, share);
    assert_eq!(runs(first, Some(0), 9), [run(3, 5, 1.0)]);
    assert_eq!(runs(fork, Some(0), 9), [run(3, 4, 1.0)]);
    assert_eq!(runs(fork, None, 9), [run(3, 4, 1.0), run(4, 5, 0.5)]);
    assert_eq!(runs(fork, None, 6), [run(3, 5, 0.5)]);
}

//! The pool against a simple model: bytes, slots, budget, refusals, undo and dirty runs.

use kvarto::error::{Error, ErrorKind, Result};
use kvarto::format::FormatId;
use kvarto::page::{Backing, Change, NONE, PageDescriptor, PageId, Pool, SegmentKey, SlotSpec, flags};
use kvarto::shape::Side;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of whole sides. Format 3 is in two parts, of which the first is a page of format 1.
const BYTES: [(u8, u64, u64); 4] = [(0, 100, 60), (1, 40, 60), (2, 28, 12), (3, 60, 90)];

/// Bytes of a format's own slots.
fn own(side: Side, format: u8) -> u64 {
    size(side, format) - if format == 3 { size(side, 1) } else { 0 }
}

/// Whether a side stays where it is when its format changes so.
fn stays(old: u8, new: u8) -> bool {
    old == new || (old, new) == (3, 1)
}

fn size(side: Side, format: u8) -> u64 {
    let (_, k, v) = BYTES[format as usize];
    if side == Side::K { k } else { v }
}

fn pool(first_slots: u32, most: u64, budget: Option<u64>) -> Pool {
    let specs = BYTES.iter().flat_map(|&(id, ..)| {
        Side::BOTH.map(|side| ((side, FormatId(id)), SlotSpec { bytes: own(side, id), first_slots }))
    });
    let first = Side::BOTH.map(|side| ((side, FormatId(3)), FormatId(1)));
    Pool::new(specs.collect(), most, budget).with_parts(first.into())
}

/// Refuses the calls whose numbers it is told.
#[derive(Default)]
struct Memory {
    calls: u32,
    refuse: BTreeSet<u32>,
    bytes: u64,
    segments: BTreeSet<SegmentKey>,
    records: Vec<u64>,
}

impl Backing for Memory {
    fn reserve(&mut self, key: SegmentKey, bytes: u64) -> Result<()> {
        self.calls += 1;
        if self.refuse.contains(&self.calls) {
            return Err(Error::new(ErrorKind::OutOfMemory, "refused", ""));
        }
        assert!(self.segments.insert(key), "{key:?} is made twice");
        self.bytes += bytes;
        Ok(())
    }

    fn reserve_records(&mut self, index: usize, bytes: u64) -> Result<()> {
        self.calls += 1;
        if self.refuse.contains(&self.calls) {
            return Err(Error::new(ErrorKind::OutOfMemory, "refused", ""));
        }
        assert_eq!(index, self.records.len(), "segments of records come in order");
        self.records.push(bytes);
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Act {
    Allocate(u8, u8),
    Retain(usize),
    Release(usize),
    Change(usize, u8, u8, bool),
    /// Undoes the newest change, if nothing came between.
    Undo,
    Discard(usize),
    Reclaim,
    Flush,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0u8..4, 0u8..4).prop_map(|(k, v)| Act::Allocate(k, v)),
        1 => any::<usize>().prop_map(Act::Retain),
        3 => any::<usize>().prop_map(Act::Release),
        3 => (any::<usize>(), 0u8..4, 0u8..4, any::<bool>()).prop_map(|(p, k, v, s)| Act::Change(p, k, v, s)),
        2 => Just(Act::Undo),
        1 => any::<usize>().prop_map(Act::Discard),
        1 => Just(Act::Reclaim),
        1 => Just(Act::Flush),
    ]
}

/// What the pool should be: pages with owners, and slots that wait.
#[derive(Clone, Default)]
struct Model {
    pages: BTreeMap<PageId, (u32, u8, u8)>,
    retiring: u64,
    device: BTreeMap<u32, [u32; 8]>,
}

impl Model {
    fn used(&self) -> u64 {
        self.pages.values().map(|p| size(Side::K, p.1) + size(Side::V, p.2)).sum::<u64>() + self.retiring
    }

    fn pick(&self, n: usize) -> Option<PageId> {
        self.pages.keys().nth(n % self.pages.len().max(1)).copied()
    }
}

fn slots(pool: &Pool) -> BTreeMap<(SegmentKey, u32), PageId> {
    let mut taken = BTreeMap::new();
    for (id, page) in pool.live() {
        for place in page.slots().all() {
            assert_eq!(taken.insert(place, id), None, "{place:?} belongs to two pages");
        }
        let further = page.slots().further != [NONE; 2];
        assert_eq!(page.descriptor.extra != NONE, further, "a row for further parts, and for nothing else");
    }
    taken
}

/// Pages by the rows of their records.
fn rows(pool: &Pool) -> BTreeMap<u32, PageId> {
    let mut taken = BTreeMap::new();
    for (id, page) in pool.live().filter(|(_, page)| page.descriptor.side != NONE) {
        assert_eq!(taken.insert(page.descriptor.side, id), None, "a row belongs to two pages");
    }
    taken
}

fn fingerprint(pool: &Pool) -> Vec<(PageId, [u32; 8], u32)> {
    pool.live().map(|(id, p)| (id, p.descriptor.words(), p.references)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_pool_does_what_its_model_does(
        acts in proptest::collection::vec(act(), 1..120),
        first_slots in 1u32..5,
        budget in proptest::option::of(300u64..4000),
        refuse in proptest::collection::btree_set(1u32..24, 0..6),
        record in prop_oneof![Just(0u64), 1u64..200],
    ) {
        let mut pool = pool(first_slots, 400, budget);
        if record > 0 {
            pool = pool.with_records(SlotSpec { bytes: record, first_slots });
        }
        // Rows of pages that are gone and not reclaimed: nobody may get them.
        let mut waiting_rows: BTreeSet<u32> = BTreeSet::new();
        let mut memory = Memory { refuse, ..Memory::default() };
        let mut model = Model::default();
        let mut newest: Option<(Change, u64)> = None;
        // Slots given up by pages and not reclaimed: nobody may get them.
        let mut waiting: BTreeSet<(SegmentKey, u32)> = BTreeSet::new();
        for act in acts {
            let (before, before_print) = (pool.bytes(), fingerprint(&pool));
            let held = slots(&pool);
            let held_rows = rows(&pool);
            let mut refused = None;
            let undoable = newest.take();
            match act {
                Act::Allocate(k, v) => match pool.allocate(FormatId(k), FormatId(v), 7, &mut memory) {
                    Ok(id) => {
                        prop_assert!(model.pages.insert(id, (1, k, v)).is_none());
                        prop_assert!(pool.page(id).descriptor.first_position == 7);
                    }
                    Err(error) => refused = Some((error, vec![size(Side::K, k) + size(Side::V, v)])),
                },
                Act::Retain(n) => if let Some(id) = model.pick(n) {
                    pool.retain(id);
                    model.pages.get_mut(&id).unwrap().0 += 1;
                },
                Act::Release(n) => if let Some(id) = model.pick(n) {
                    pool.release(id);
                    let page = model.pages.get_mut(&id).unwrap();
                    page.0 -= 1;
                    if page.0 == 0 {
                        model.retiring += size(Side::K, page.1) + size(Side::V, page.2);
                        model.pages.remove(&id);
                    }
                    prop_assert_eq!(pool.is_live(id), model.pages.contains_key(&id));
                },
                Act::Change(n, k, v, seal) => if let Some(id) = model.pick(n) {
                    let old = model.pages[&id];
                    match pool.change(id, FormatId(k), FormatId(v), seal, &mut memory) {
                        Ok(change) => {
                            let now: Vec<_> = change.new.all().collect();
                            let gone = change.old.all().filter(|part| !now.contains(part));
                            let retired: u64 = gone.map(|(key, _)| own(key.side, key.format.0)).sum();
                            prop_assert!((old.1, k) != (1, 3) && (old.2, v) != (1, 3));
                            let d = pool.page(id).descriptor;
                            prop_assert_eq!(d.generation, change.before.generation + 1);
                            prop_assert_eq!(d.flags, change.before.flags | if seal { flags::SEALED } else { 0 });
                            prop_assert_eq!(d.segment_group, change.new.group);
                            if stays(old.1, k) && stays(old.2, v) {
                                // Further parts go alone.
                                let freed = |side, old, new| if old == new { 0 } else { own(side, 3) };
                                prop_assert_eq!(retired, freed(Side::K, old.1, k) + freed(Side::V, old.2, v));
                            }
                            model.retiring += retired;
                            model.pages.insert(id, (old.0, k, v));
                            newest = Some((change, retired));
                        }
                        Err(error) => {
                            // One side alone, or both anew where its segment group is full.
                            let (new_k, new_v) = (size(Side::K, k), size(Side::V, v));
                            let one = if stays(old.1, k) { new_v } else { new_k };
                            let both = new_k + new_v;
                            let neither = !stays(old.1, k) && !stays(old.2, v);
                            if error.kind() == ErrorKind::Unsupported {
                                prop_assert!((old.1, k) == (1, 3) || (old.2, v) == (1, 3), "{error}");
                                prop_assert!(error.message().contains("no further part"), "{error}");
                            }
                            refused = Some((error, if neither { vec![both] } else { vec![one, both] }));
                        }
                    }
                },
                Act::Undo => if let Some((change, retired)) = undoable {
                    pool.undo(&change);
                    model.retiring -= retired;
                    model.pages.entry(change.page).and_modify(|p| (p.1, p.2) = (change.before.k_format.0, change.before.v_format.0));
                    // The row of further parts can be another one than before.
                    let now = pool.page(change.page).descriptor;
                    prop_assert_eq!(PageDescriptor { extra: change.before.extra, ..now }, change.before);
                    prop_assert_eq!(pool.page(change.page).slots(), change.old);
                    for place in change.old.all() {
                        waiting.remove(&place);
                    }
                },
                Act::Discard(n) => if let Some(id) = model.pick(n) {
                    let slots = pool.page(id).slots();
                    prop_assert!(slots.all().all(|place| !waiting.contains(&place)));
                    pool.discard(id);
                    model.pages.remove(&id);
                },
                Act::Reclaim => {
                    pool.reclaim();
                    model.retiring = 0;
                    waiting.clear();
                }
                Act::Flush => {
                    let mut live: BTreeSet<u32> = model.pages.keys().map(|p| p.0).collect();
                    let rows: Vec<u32> = pool.live().map(|(_, page)| page.descriptor.extra).filter(|r| *r != NONE).collect();
                    for row in rows {
                        prop_assert!(live.insert(row), "row {row} is another page's, or a page");
                    }
                    let mut last = None;
                    for (first, words) in pool.take_dirty() {
                        prop_assert!(last.is_none_or(|last| first > last), "runs ascend with gaps between them");
                        for (i, words) in words.chunks_exact(8).enumerate() {
                            let id = first + i as u32;
                            prop_assert!(live.contains(&id));
                            model.device.insert(id, words.try_into().unwrap());
                            last = Some(id + 1);
                        }
                    }
                    prop_assert!(pool.take_dirty().is_empty());
                    for (id, page) in pool.live() {
                        prop_assert_eq!(model.device[&id.0], page.descriptor.words());
                        if page.descriptor.extra != NONE {
                            prop_assert_eq!(&model.device[&page.descriptor.extra][..2], &page.slots().further);
                        }
                    }
                }
            }
            if let Some((error, wanted)) = refused {
                prop_assert_eq!(fingerprint(&pool), before_print);
                prop_assert_eq!((pool.bytes().used, pool.bytes().retiring), (before.used, before.retiring));
                match error.kind() {
                    ErrorKind::OutOfPages => {
                        let spare = budget.unwrap() - before.used;
                        let named = wanted.iter().filter(|&&w| w > spare).any(|w| {
                            error.message().starts_with(&format!("{} bytes of pages are short", w - spare))
                        });
                        prop_assert!(named, "{error}: {spare} to spare of {wanted:?}");
                    }
                    kind => prop_assert!(matches!(kind, ErrorKind::OutOfMemory | ErrorKind::Unsupported), "{error}"),
                }
            }
            let now = slots(&pool);
            if !matches!(act, Act::Discard(_) | Act::Undo) {
                waiting.extend(held.keys().filter(|place| !now.contains_key(*place)));
            }
            if matches!(act, Act::Reclaim) {
                waiting.clear();
            }
            // Every page has a row of its own, and keeps it whatever becomes of its slots.
            let now_rows = rows(&pool);
            prop_assert_eq!(now_rows.len(), if record > 0 { model.pages.len() } else { 0 });
            if matches!(act, Act::Release(_)) {
                waiting_rows.extend(held_rows.keys().filter(|row| !now_rows.contains_key(*row)));
            }
            if matches!(act, Act::Reclaim) {
                waiting_rows.clear();
            }
            for (row, page) in &now_rows {
                prop_assert!(!waiting_rows.contains(row), "a row in waiting was handed out");
                prop_assert!(held_rows.get(row).is_none_or(|before| before == page));
                let segment = pool.record_segment(*row).unwrap();
                let bytes = u64::from(row - segment.first_row + 1) * record;
                prop_assert!(bytes <= memory.records[segment.index]);
            }
            prop_assert_eq!(pool.bytes().records_used, (now_rows.len() + waiting_rows.len()) as u64 * record);
            prop_assert_eq!(pool.bytes().records_reserved, memory.records.iter().sum::<u64>());
            prop_assert!(now.keys().all(|place| !waiting.contains(place)), "a slot in waiting was handed out");
            prop_assert_eq!(pool.bytes().used, model.used());
            prop_assert_eq!(pool.bytes().retiring, model.retiring);
            prop_assert_eq!(pool.bytes().reserved, memory.bytes);
            prop_assert!(budget.is_none_or(|b| model.used() <= b));
            for (&id, &(references, k, v)) in &model.pages {
                let page = pool.page(id);
                prop_assert_eq!((page.references, page.slots().k.0.0, page.slots().v.0.0), (references, k, v));
                prop_assert!(memory.segments.contains(&page.slots().segment(Side::K)));
            }
        }
    }
}

#[test]
fn segment_groups_are_limited_and_segments_too() {
    // Segments of one slot: every page takes a group of its own.
    let mut pool = pool(1, 100, None);
    let mut memory = Memory::default();
    for _ in 0..4096 {
        pool.allocate(FormatId(0), FormatId(0), 0, &mut memory).unwrap();
    }
    let error = pool.allocate(FormatId(0), FormatId(0), 0, &mut memory).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfPages);
    assert!(error.message().contains("4096"), "{error}");
    let (id, _) = pool.live().next().unwrap();
    pool.release(id);
    pool.reclaim();
    pool.allocate(FormatId(0), FormatId(0), 0, &mut memory).unwrap();
    let mut tight = self::pool(1, 99, None);
    assert_eq!(tight.allocate(FormatId(0), FormatId(0), 0, &mut memory).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(tight.allocate(FormatId(9), FormatId(0), 0, &mut memory).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(tight.bytes().used, 0);
}

#[test]
fn free_slots_are_used_before_new_segments_are_made() {
    let mut pool = pool(2, 400, None);
    let mut memory = Memory::default();
    let pages: Vec<PageId> = (0..6).map(|_| pool.allocate(FormatId(0), FormatId(0), 0, &mut memory).unwrap()).collect();
    // The last pages' group gets segments of format 2, whose free slots serve pages of other groups.
    pool.change(pages[5], FormatId(2), FormatId(2), true, &mut memory).unwrap();
    let reserved = memory.bytes;
    pool.change(pages[0], FormatId(2), FormatId(2), true, &mut memory).unwrap();
    assert_eq!(memory.bytes, reserved);
}

#[test]
fn flags_that_are_not_built_are_refused_by_name() {
    let mut pool = pool(2, 400, None);
    let page = pool.allocate(FormatId(0), FormatId(0), 0, &mut Memory::default()).unwrap();
    pool.update(page, |d| d.flags |= flags::PINNED).unwrap();
    let before = fingerprint(&pool);
    for (flag, name) in [(flags::POSITIONS, "positions"), (flags::LIVE, "live"), (flags::SYNTHETIC, "synthetic")] {
        let error = pool.update(page, |d| (d.flags, d.valid_tokens) = (d.flags | flag, 9)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains(&format!("`{name}`")) && !error.remedy().is_empty(), "{error}");
        assert_eq!(fingerprint(&pool), before);
    }
}

#[test]
fn records_are_limited_by_their_segments() {
    let mut tight = pool(1, 400, None).with_records(SlotSpec { bytes: 401, first_slots: 1 });
    let mut memory = Memory::default();
    let error = tight.allocate(FormatId(0), FormatId(0), 0, &mut memory).unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.message().contains("401"), "{error}");
    assert_eq!((tight.bytes().used, tight.bytes().records_used), (0, 0));
    // Segments double what there is, up to the limit of 4 records.
    let mut pool = pool(1, 400, None).with_records(SlotSpec { bytes: 100, first_slots: 1 });
    let ids: Vec<PageId> = (0..12).map(|_| pool.allocate(FormatId(2), FormatId(2), 0, &mut memory).unwrap()).collect();
    assert_eq!(memory.records, [100, 100, 200, 400, 400]);
    let rows: Vec<u32> = ids.iter().map(|&id| pool.page(id).descriptor.side).collect();
    assert_eq!(rows, (0..12).collect::<Vec<u32>>());
    assert_eq!((pool.record_segment(11), pool.record_segment(12)), (pool.record_segment(8), None));
}

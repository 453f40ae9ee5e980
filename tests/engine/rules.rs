//! Which pages are exact when, and what pins, drafts, forks and truncations do to that.

use crate::model::{Rig, group, profile, shape};
use kvarto::engine::{EngineOptions, Event};
use kvarto::error::ErrorKind;
use kvarto::shape::GroupKind;

fn rig(page: usize, tail: usize, sink: usize) -> Rig {
    let shape = shape(vec![group(vec![0], GroupKind::Full, page, (2, 1), 16, 16)]);
    Rig::new(shape, profile("fp8", tail, sink), EngineOptions::default(), 0.05, 7)
}

#[test]
fn from_128_to_191_tokens_are_exact() {
    let mut rig = rig(64, 128, 64);
    let seq = rig.create();
    for n in 1..=520usize {
        rig.step(&[(seq, 1, true)]).unwrap();
        rig.step(&[(seq, 0, true)]).unwrap();
        let sealed = rig.pages("fp8", "fp8") as usize;
        // Whole pages before the tail, but for the sink's.
        assert_eq!(sealed, (n.saturating_sub(128) / 64).saturating_sub(1), "{n} tokens");
        if n >= 256 {
            assert!((128..=191).contains(&(n - 64 - sealed * 64)), "{n} tokens");
        }
    }
}

#[test]
fn without_a_tail_a_page_is_sealed_when_full() {
    let mut rig = rig(16, 0, 0);
    let seq = rig.create();
    for n in 1..=50u64 {
        rig.step(&[(seq, 1, true)]).unwrap();
        rig.step(&[(seq, 0, true)]).unwrap();
        assert_eq!(rig.pages("fp8", "fp8"), n / 16);
    }
}

#[test]
fn drafts_are_not_sealed_before_they_are_committed() {
    let mut rig = rig(16, 0, 0);
    let seq = rig.create();
    rig.step(&[(seq, 20, false)]).unwrap();
    rig.step(&[(seq, 20, false)]).unwrap();
    rig.step(&[(seq, 0, true)]).unwrap();
    rig.check();
    assert_eq!(rig.pages("fp8", "fp8"), 0);
    assert_eq!(rig.step(&[(seq, 1, true)]).unwrap_err().kind(), ErrorKind::Shape);
    rig.engine.commit(seq, 33).unwrap();
    rig.held.get_mut(&seq).unwrap().committed = 33;
    rig.step(&[(seq, 0, true)]).unwrap();
    assert_eq!(rig.pages("fp8", "fp8"), 2);
    assert!(rig.engine.commit(seq, 32).is_err());
    assert!(rig.engine.commit(seq, 41).is_err());
    rig.check();
}

#[test]
fn a_shared_page_waits_for_every_owner_and_is_not_forgotten() {
    let mut rig = rig(16, 32, 0);
    let a = rig.create();
    rig.step(&[(a, 40, true)]).unwrap();
    let b = rig.fork(a, None).unwrap();
    for _ in 0..10 {
        rig.step(&[(a, 16, true)]).unwrap();
    }
    rig.step(&[(a, 0, true)]).unwrap();
    // B holds 40 tokens: only its pages from token 8 on are exact, so none is whole before its tail.
    let sealed = rig.pages("fp8", "fp8");
    assert_eq!(sealed, (200 - 32) / 16 - 2);
    rig.release(b);
    rig.step(&[(a, 0, true)]).unwrap();
    assert_eq!(rig.pages("fp8", "fp8"), (200 - 32) / 16);
    rig.step(&[(a, 3, true)]).unwrap();
    rig.check();
}

#[test]
fn pins_hold_over_truncation_and_end_with_their_owner() {
    let mut rig = rig(16, 0, 0);
    let a = rig.create();
    rig.step(&[(a, 64, true)]).unwrap();
    rig.engine.pin(a, 20..40, "quoted").unwrap();
    rig.step(&[(a, 1, true)]).unwrap();
    // Pages 1 and 2 are pinned.
    assert_eq!(rig.pages("fp8", "fp8"), 2);
    rig.truncate(a, 30).unwrap();
    assert_eq!(rig.engine.pins(a).unwrap(), [(20..30, "quoted".to_string())]);
    rig.step(&[(a, 34, true)]).unwrap();
    rig.step(&[(a, 1, true)]).unwrap();
    assert_eq!(rig.pages("fp8", "fp8"), 3);
    let b = rig.fork(a, None).unwrap();
    rig.truncate(a, 20).unwrap();
    assert!(rig.engine.pins(a).unwrap().is_empty());
    rig.step(&[(a, 45, true)]).unwrap();
    rig.step(&[(a, 1, true)]).unwrap();
    rig.release(b);
    rig.step(&[(a, 1, true)]).unwrap();
    assert_eq!(rig.pages("fp8", "fp8"), 4);
    assert!(rig.engine.pin(a, 5..5, "nothing").is_err());
    rig.check();
}

#[test]
fn truncation_in_sealed_pages_reopens_them_and_says_so() {
    let mut rig = rig(16, 0, 0);
    let events = rig.engine.subscribe(1000);
    let a = rig.create();
    rig.step(&[(a, 80, true)]).unwrap();
    rig.step(&[(a, 0, true)]).unwrap();
    assert_eq!(rig.pages("fp8", "fp8"), 5);
    let b = rig.fork(a, Some(41)).unwrap();
    rig.truncate(b, 38).unwrap();
    rig.truncate(b, 37).unwrap();
    let c = rig.fork(b, None).unwrap();
    assert_eq!(rig.engine.stats().reopened, 1);
    rig.step(&[(a, 1, true), (b, 5, true), (c, 30, true)]).unwrap();
    rig.step(&[(c, 1, true), (a, 1, true), (b, 20, true)]).unwrap();
    let heard: Vec<Event> = std::iter::from_fn(|| events.try_next()).collect();
    let reopened =
        |e: &Event| matches!(e, Event::PageAllocated { reason, copy_of: Some(_), .. } if reason == "reopened");
    assert!(heard.iter().any(reopened));
    assert!(heard.iter().any(|e| matches!(e, Event::SequenceForked { at_tokens: 41, .. })));
    let sealed = |e: &&Event| matches!(e, Event::PageConverted { reason, .. } if reason == "sealed");
    assert_eq!(heard.iter().filter(sealed).count(), 5 + 2);
    rig.check();
    // Pages that wait for a step are let go with their sequence.
    rig.truncate(a, 70).unwrap();
    rig.truncate(c, 3).unwrap();
    [a, b, c].into_iter().for_each(|id| rig.release(id));
    rig.check();
    assert_eq!(rig.engine.memory().used_slot_bytes, 0);
}

#[test]
fn sources_of_reopened_pages_are_not_overwritten() {
    // Sealed pages have the open pages' format here: a freed source would be the next reopened page's place.
    let shape = shape(vec![group(vec![0, 1], GroupKind::Full, 16, (2, 2), 16, 16)]);
    let mut rig = Rig::new(shape, profile("f16", 0, 0), EngineOptions::default(), 2e-6, 3);
    let ids: Vec<_> = (0..4).map(|_| rig.create()).collect();
    let rows: Vec<_> = ids.iter().map(|&id| (id, 48, true)).collect();
    rig.step(&rows).unwrap();
    rig.step(&ids.iter().map(|&id| (id, 0, true)).collect::<Vec<_>>()).unwrap();
    let before = rig.engine.memory().used_slot_bytes;
    for (i, &id) in ids.iter().rev().enumerate() {
        rig.truncate(id, 40 - 16 * (i as u32 % 2)).unwrap();
    }
    // Four sources wait beside their copies, two whole pages are gone: in 2 layers and 2 heads each.
    let page = before / (4 * 4 * 3);
    assert_eq!(rig.engine.memory().used_slot_bytes, before + (4 - 2) * 4 * page);
    rig.step(&ids.iter().map(|&id| (id, 2, true)).collect::<Vec<_>>()).unwrap();
    assert_eq!(rig.engine.memory().used_slot_bytes, before - 2 * 4 * page);
    rig.check();
}

#[test]
fn empty_sequences_fork_truncate_and_start_again() {
    let mut rig = rig(16, 0, 0);
    let a = rig.create();
    let b = rig.fork(a, None).unwrap();
    let c = rig.fork(a, Some(0)).unwrap();
    rig.truncate(a, 0).unwrap();
    assert!(rig.engine.truncate(a, 1).is_err());
    assert!(rig.engine.fork_at(a, 1).is_err());
    rig.step(&[(a, 17, true), (b, 1, true), (c, 40, true)]).unwrap();
    rig.truncate(a, 0).unwrap();
    rig.step(&[(a, 3, true), (b, 0, true), (c, 1, true)]).unwrap();
    rig.check();
    rig.step(&[]).unwrap();
    rig.check();
}

#[test]
fn heads_of_a_page_may_lie_in_different_segment_groups() {
    // 64 slots in the first segment and 3 heads: the 22nd page has one head here and two in the next segment.
    let shape = shape(vec![group(vec![0], GroupKind::Full, 16, (3, 3), 16, 16)]);
    let options = EngineOptions { context_tokens: 16, ..EngineOptions::default() };
    let mut rig = Rig::new(shape, profile("f32", 0, 0), options, 2e-6, 4);
    let a = rig.create();
    for _ in 0..30 {
        rig.step(&[(a, 17, true)]).unwrap();
        rig.check();
    }
}

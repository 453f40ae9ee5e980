//! Pages behind a window go: bytes stay flat, results right, and a cut that would miss tokens is refused.

use crate::model::{Rig, group, profile, shape};
use kvarto::engine::{EngineOptions, Event};
use kvarto::error::ErrorKind;
use kvarto::shape::{CacheShape, GroupKind};

const WINDOW: usize = 40;

fn windowed() -> CacheShape {
    shape(vec![group(vec![0, 1], GroupKind::Window(WINDOW), 16, (2, 2), 16, 8)])
}

fn rig(kv: &str, rewind_tokens: usize) -> Rig {
    let options = EngineOptions { rewind_tokens, ..EngineOptions::default() };
    Rig::new(windowed(), profile(kv, 16, 16), options, if kv == "f16" { 2e-6 } else { 0.05 }, 3)
}

#[test]
fn bytes_stay_flat_far_beyond_the_window() {
    for kv in ["f16", "fp8", "f16/fp8"] {
        let mut rig = rig(kv, 0);
        let a = rig.create();
        rig.step(&[(a, 100, true)]).unwrap();
        let turn = |rig: &mut Rig| {
            let (mut used, mut pages) = (Vec::new(), Vec::new());
            for _ in 0..160 {
                rig.step(&[(a, 1, true)]).unwrap();
                rig.check();
                used.push(rig.engine.memory().used_slot_bytes);
                pages.push(rig.engine.stats().pages.values().sum::<u64>());
            }
            (used, pages, rig.engine.memory().allocated(), rig.engine.lengths(a).unwrap().cached)
        };
        let first = turn(&mut rig);
        // 160 is a multiple of the page size: the same bytes at the same places, three more times.
        for _ in 0..3 {
            assert_eq!(turn(&mut rig), first, "{kv}");
        }
        // At most the window, the token that may be taken back, and two pages that they begin and end in.
        let most = (WINDOW + 1).div_ceil(16) as u64 + 1;
        assert!(first.1.iter().all(|&pages| pages <= most * 4), "{kv}: {:?}", first.1);
        assert!(first.3 as usize <= WINDOW + 16, "{kv}: {} cached", first.3);
    }
}

#[test]
fn figures_count_what_is_held() {
    let both = shape(vec![
        group(vec![0], GroupKind::Full, 16, (2, 1), 16, 16),
        group(vec![1], GroupKind::Window(WINDOW), 32, (2, 2), 8, 8),
    ]);
    let mut rig = Rig::new(both, profile("f16", 16, 16), EngineOptions::default(), 2e-6, 5);
    let a = rig.create();
    rig.step(&[(a, 300, true)]).unwrap();
    // Tokens below 300 − 40 fill eight pages of 32.
    let held = rig.engine.held(a).unwrap();
    assert_eq!(held, [0..300, 256..300]);
    assert_eq!(rig.engine.lengths(a).unwrap().cached, 300);
    let stats = rig.engine.stats();
    assert_eq!(stats.cached_values, 300 * 32 + 44 * 32);
    assert_eq!(stats.pages.values().sum::<u64>(), 300u64.div_ceil(16) + 2 * 2);
    rig.step(&[(a, 1, true)]).unwrap();
    // A decoding row reads all of the Full group and the two pages of the window: 16 bits a value of a page.
    let read = (19 * 16 * 32 + 2 * 32 * 32) as f64 * 16.0 / (301 * 32 + 45 * 32) as f64;
    assert_eq!(rig.engine.stats().read_bits_per_value, Some(read));
    // A fork shares what is held, and holds it on when its origin has gone on.
    let b = rig.fork(a, None).unwrap();
    assert_eq!(rig.engine.stats().cached_values, 301 * 32 + 45 * 32);
    rig.step(&[(a, 100, true)]).unwrap();
    assert_eq!(rig.engine.held(b).unwrap(), [0..301, 256..301]);
    assert_eq!(rig.engine.held(a).unwrap(), [0..401, 352..401]);
    // Of the shared pages, A filled the open ones up in copies of its own.
    assert_eq!(rig.engine.stats().cached_values, (401 + 301 - 288) * 32 + (49 + 45) * 32);
    rig.step(&[(b, 3, true), (a, 1, true)]).unwrap();
    rig.check();
    rig.release(a);
    rig.step(&[(b, 60, true)]).unwrap();
    rig.release(b);
    assert_eq!(rig.engine.memory().used_slot_bytes, 0);
}

#[test]
fn a_cut_that_misses_tokens_is_refused_and_takes_nothing() {
    let mut rig = rig("fp8", 0);
    let a = rig.create();
    rig.step(&[(a, 200, true)]).unwrap();
    // 200 − 40 = 160: pages 0 to 9 are gone, the row at 199 sees positions from 160 on.
    assert_eq!(rig.engine.held(a).unwrap()[0], 160..200);
    let before = (rig.engine.memory(), rig.engine.stats());
    for n in [1, 40, 160, 198] {
        for error in [rig.truncate(a, n).unwrap_err(), rig.fork(a, Some(n)).unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Shape);
            let said = error.to_string();
            for word in [&format!("({n})"), "40 tokens", "from 160 on", "at least 199 tokens", "rewind_tokens"] {
                assert!(said.contains(word), "{said}");
            }
        }
    }
    assert_eq!((rig.engine.memory(), rig.engine.stats()), before);
    rig.check();
    rig.step(&[(a, 1, true)]).unwrap();
    // One token can be taken back at any time.
    for _ in 0..60 {
        let length = rig.held[&a].tokens.len() as u32;
        rig.truncate(a, length - 1).unwrap();
        rig.step(&[(a, 2, true)]).unwrap();
        rig.check();
    }
    // And a sequence can start again.
    let b = rig.fork(a, Some(0)).unwrap();
    rig.truncate(a, 0).unwrap();
    assert_eq!(rig.engine.memory().used_slot_bytes, 0);
    rig.step(&[(a, 70, true), (b, 30, true)]).unwrap();
    rig.check();
}

#[test]
fn leave_to_go_back_holds_pages_longer() {
    let mut rig = rig("fp8", 50);
    let a = rig.create();
    rig.step(&[(a, 200, true)]).unwrap();
    // 200 − 40 − 50 lies in page 6.
    assert_eq!(rig.engine.held(a).unwrap()[0], 96..200);
    let b = rig.fork(a, Some(136)).unwrap();
    rig.fork(a, Some(134)).unwrap_err();
    rig.truncate(a, 149).unwrap();
    rig.step(&[(a, 5, true), (b, 20, true)]).unwrap();
    rig.step(&[(a, 30, true), (b, 1, true)]).unwrap();
    rig.check();
}

#[test]
fn drafts_let_nothing_go_until_they_are_committed() {
    let mut rig = rig("fp8", 0);
    let a = rig.create();
    rig.step(&[(a, 60, true)]).unwrap();
    rig.step(&[(a, 50, false)]).unwrap();
    rig.step(&[(a, 16, false)]).unwrap();
    assert_eq!(rig.engine.held(a).unwrap()[0], 16..126);
    rig.truncate(a, 60).unwrap();
    rig.step(&[(a, 70, false)]).unwrap();
    rig.check();
    let events = rig.engine.subscribe(100);
    rig.commit(a);
    // 130 − 40 lies in page 5.
    assert_eq!(rig.engine.held(a).unwrap()[0], 80..130);
    let wanted = Event::PagesLeftBehind { sequence: a, group: 0, pages: 1..5 };
    assert!(std::iter::from_fn(|| events.try_next()).any(|event| event == wanted));
    rig.step(&[(a, 1, true)]).unwrap();
    rig.check();
}

#[test]
fn an_unfinished_step_lets_nothing_go() {
    let mut rig = rig("f16", 0);
    let a = rig.create();
    rig.step(&[(a, 100, true)]).unwrap();
    let before = (rig.engine.held(a).unwrap(), rig.engine.memory().used_slot_bytes);
    for executed in [false, true] {
        let rows = kvarto::engine::SeqRows { seq: a, rows: 90, committed: true };
        let mut step = rig.engine.begin_step(&[rows]).unwrap();
        if executed {
            step.submit().unwrap();
        }
        drop(step);
        assert_eq!((rig.engine.held(a).unwrap(), rig.engine.memory().used_slot_bytes), before);
        rig.check();
    }
    rig.step(&[(a, 9, true)]).unwrap();
    rig.check();
}

#[test]
fn pins_and_forks_over_pages_that_go() {
    let mut rig = rig("fp8", 0);
    let a = rig.create();
    rig.step(&[(a, 80, true)]).unwrap();
    rig.engine.pin(a, 48..80, "quoted").unwrap();
    let b = rig.fork(a, None).unwrap();
    rig.step(&[(a, 150, true)]).unwrap();
    rig.step(&[(a, 1, true), (b, 1, true)]).unwrap();
    rig.check();
    // B holds the pinned pages, with the pin it took over; without B nobody does.
    rig.step(&[(b, 100, true)]).unwrap();
    rig.step(&[(a, 40, true), (b, 40, true)]).unwrap();
    rig.check();
    rig.release(a);
    rig.release(b);
    assert_eq!(rig.engine.memory().used_slot_bytes, 0);
}

#[test]
fn a_window_of_one_token_and_windows_longer_than_the_sequence() {
    for window in [1, 16, 17, 1000] {
        let one = shape(vec![group(vec![0], GroupKind::Window(window), 16, (2, 1), 16, 8)]);
        let mut rig = Rig::new(one, profile("f16", 0, 0), EngineOptions::default(), 2e-6, 3);
        let a = rig.create();
        for rows in [1, 15, 1, 16, 33, 1, 2, 40, 1] {
            rig.step(&[(a, rows, true)]).unwrap();
            let b = rig.fork(a, None).unwrap();
            rig.step(&[(b, 17, false)]).unwrap();
            rig.step(&[(b, 3, false)]).unwrap();
            rig.check();
            rig.release(b);
        }
        rig.check();
    }
}

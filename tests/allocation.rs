//! Memory stays flat: a decode step's host allocations are bounded and nothing of a cache's size is copied.

use kvarto::backend::CpuBackend;
use kvarto::engine::{Engine, Input, Output, Registry, SeqId, SeqRows};
use kvarto::profile::Profile;
use kvarto::shape::CacheShape;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

static CALLS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicU64 = AtomicU64::new(0);
static LARGEST: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged; only counters are kept beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        LIVE.fetch_add(layout.size() as u64, Ordering::Relaxed);
        LARGEST.fetch_max(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: `at` came from `alloc` above with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations, their bytes and the largest of one call.
fn counted(act: impl FnOnce()) -> (u64, u64, u64) {
    LARGEST.store(0, Ordering::Relaxed);
    let before = (CALLS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
    act();
    let after = (CALLS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
    (after.0 - before.0, after.1 - before.1, LARGEST.load(Ordering::Relaxed))
}

fn step(engine: &mut Engine, seq: SeqId, rows: u32, out: &mut [f32]) {
    let mut step = engine.begin_step(&[SeqRows { seq, rows, committed: true }]).unwrap();
    let input = [0.5f32; 64 * 8];
    let kv = &input[..rows as usize * 8];
    step.append(0, Input::Host(kv), Input::Host(kv)).unwrap();
    step.attend(0, Input::Host(kv), Output::Host(&mut out[..rows as usize * 8])).unwrap();
    step.finish().unwrap();
}

// One test: the counters are the process's.
#[test]
fn ten_thousand_decode_steps_stay_flat() {
    let mut profile = Profile::formats("fp8", "fp8");
    (profile.exact_sink_tokens, profile.exact_tail_tokens) = (16, 32);
    let mut engine = Engine::new(
        Box::new(CpuBackend::new(1).unwrap()),
        CacheShape::uniform(1, 1, 1, 8, 16),
        profile,
        Registry::builtin(),
    )
    .unwrap();
    let seq = engine.create().unwrap();
    let mut out = [0.0f32; 64 * 8];
    for _ in 0..64 {
        step(&mut engine, seq, 64, &mut out);
    }
    let length = engine.lengths(seq).unwrap().logical;
    assert_eq!(length, 4096);
    let mut churn = |engine: &mut Engine| {
        engine.truncate(seq, length - 1).unwrap();
        step(engine, seq, 1, &mut out);
    };
    for _ in 0..100 {
        churn(&mut engine);
    }
    let device = engine.backend().allocated_bytes();
    let first = counted(|| (0..100).for_each(|_| churn(&mut engine)));
    let live = LIVE.load(Ordering::Relaxed);
    (0..9700).for_each(|_| churn(&mut engine));
    let last = counted(|| (0..100).for_each(|_| churn(&mut engine)));
    assert_eq!(engine.backend().allocated_bytes(), device);
    assert_eq!(engine.memory().allocated(), device);
    assert!(LIVE.load(Ordering::Relaxed) <= live + 4096, "{} live, {live} before", LIVE.load(Ordering::Relaxed));
    assert!(last.0 <= first.0 + 20, "{last:?} after {first:?}");
    // Tables name 256 pages; the cache itself is 64 KiB and no allocation comes near it.
    assert!(last.0 / 100 <= 250, "{} allocations a step", last.0 / 100);
    assert!(last.2 <= 16 << 10, "an allocation of {} bytes", last.2);
    // Several small ones; one more of the size of the cache would show.
    assert!(last.1 / 100 <= 24 << 10, "{} bytes a step", last.1 / 100);
    println!("{} allocations, {} bytes a step, the largest {}", last.0 / 100, last.1 / 100, last.2);
}

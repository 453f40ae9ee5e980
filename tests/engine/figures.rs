//! Bits and bytes: what statistics say is what the pages and the allocator have.

use crate::model::{Rig, group, profile, shape};
use kvarto::engine::{EngineOptions, Input, Output, Registry, SeqRows};
use kvarto::profile::Profile;
use kvarto::shape::{CacheShape, GroupKind, PageGeometry, Side};
use std::time::Instant;

fn one(page: usize) -> CacheShape {
    shape(vec![group(vec![0, 1], GroupKind::Full, page, (2, 2), 16, 32)])
}

fn slot(format: &str, side: Side, tokens: usize, head_dim: usize) -> u64 {
    let registry = Registry::builtin();
    let (_, format) = registry.formats.by_name(format).unwrap();
    format.codec(side, PageGeometry { tokens, head_dim }).unwrap().layout().page_bytes() as u64
}

#[test]
fn used_bytes_are_those_of_the_pages() {
    let mut rig = Rig::new(one(16), profile("fp8/tq3", 16, 16), EngineOptions::default(), 0.4, 1);
    let a = rig.create();
    for n in [5, 1, 40, 1, 1, 17, 80] {
        rig.step(&[(a, n, true)]).unwrap();
        let stats = rig.engine.stats();
        let bytes = stats.pages.iter().map(|((k, v), &n)| n * (slot(k, Side::K, 16, 16) + slot(v, Side::V, 16, 32)));
        assert_eq!(stats.memory.used_slot_bytes, bytes.sum::<u64>());
        let tokens = rig.held[&a].tokens.len() as u64;
        assert_eq!(stats.cached_values, tokens * 4 * 48);
        let bits = stats.memory.used_slot_bytes as f64 * 8.0 / stats.cached_values as f64;
        assert_eq!(stats.resident_bits_per_value, Some(bits));
        let pages: u64 = stats.pages.values().sum();
        assert_eq!(pages, 4 * tokens.div_ceil(16));
        assert_eq!(stats.metadata_bits_per_value, Some((pages * 36 * 8) as f64 / stats.cached_values as f64));
        assert_eq!(stats.total_bits_per_value(), Some(bits + stats.metadata_bits_per_value.unwrap()));
    }
}

#[test]
fn a_fork_counts_shared_pages_once() {
    let mut rig = Rig::new(one(16), profile("f16", 16, 16), EngineOptions::default(), 1e-5, 1);
    let a = rig.create();
    rig.step(&[(a, 100, true)]).unwrap();
    let before = rig.engine.stats();
    let b = rig.fork(a, None).unwrap();
    let c = rig.fork(a, Some(70)).unwrap();
    let shared = rig.engine.stats();
    // Every page is full here, so none is reopened but C's page of 70 tokens when it was sealed.
    let reopened = shared.reopened * 6;
    assert_eq!(shared.cached_values, before.cached_values + reopened * 48);
    rig.release(a);
    rig.release(b);
    assert_eq!(rig.engine.stats().cached_values, 70 * 4 * 48);
    rig.truncate(c, 33).unwrap();
    assert_eq!(rig.engine.stats().cached_values, 33 * 4 * 48);
    rig.check();
}

#[test]
fn dense_reading_of_exact_pages_tends_to_sixteen_bits() {
    for (tokens, most) in [(40u32, 22.0), (4000, 16.1)] {
        let mut rig = Rig::new(one(16), profile("f16", 16, 16), EngineOptions::default(), 1e-5, 1);
        let a = rig.create();
        rig.step(&[(a, tokens, true)]).unwrap();
        assert_eq!(rig.engine.stats().read_bits_per_value, None);
        for _ in 0..3 {
            rig.step(&[(a, 1, true)]).unwrap();
        }
        let bits = rig.engine.stats().read_bits_per_value.unwrap();
        assert!((16.0..=most).contains(&bits), "{tokens} tokens: {bits} bits");
    }
}

#[test]
fn a_window_selector_reads_less() {
    let windowed = Profile { selector: "window".into(), ..profile("f16", 16, 16) };
    let mut rig = Rig::new(one(16), windowed, EngineOptions::default(), f64::INFINITY, 1);
    let a = rig.create();
    rig.step(&[(a, 4000, true)]).unwrap();
    rig.step(&[(a, 1, true)]).unwrap();
    let bits = rig.engine.stats().read_bits_per_value.unwrap();
    let want = 16.0 * (16.0 + 1024.0) / 4001.0;
    assert!((bits - want).abs() < 0.2, "{bits} for {want}");
}

/// Host time of a decode step's bookkeeping: 30 layers, 3 KV heads, 8192 cached tokens.
#[test]
#[ignore = "prints times"]
fn host_time_of_a_decode_step() {
    let shape = CacheShape::uniform(30, 9, 3, 64, 64);
    let options = EngineOptions { context_tokens: 8300, chunk_tokens: 512, ..EngineOptions::default() };
    for kv in ["f16", "fp8"] {
        let mut rig = Rig::new(shape.clone(), profile(kv, 128, 64), options.clone(), f64::INFINITY, 1);
        let a = rig.create();
        let input = vec![0.5f32; 512 * 9 * 64];
        for _ in 0..16 {
            let mut step = rig.engine.begin_step(&[SeqRows { seq: a, rows: 512, committed: true }]).unwrap();
            for layer in 0..30 {
                let kv = &input[..512 * 3 * 64];
                step.append(layer, Input::Host(kv), Input::Host(kv)).unwrap();
            }
            step.finish().unwrap();
        }
        let (mut begin, mut record) = (Vec::new(), Vec::new());
        for _ in 0..40 {
            let start = Instant::now();
            let mut step = rig.engine.begin_step(&[SeqRows { seq: a, rows: 1, committed: true }]).unwrap();
            begin.push(start.elapsed().as_micros());
            let start = Instant::now();
            for layer in 0..30 {
                let kv = &input[..3 * 64];
                step.append(layer, Input::Host(kv), Input::Host(kv)).unwrap();
            }
            record.push(start.elapsed().as_micros());
            let mut out = vec![0.0; 9 * 64];
            step.attend(0, Input::Host(&input[..9 * 64]), Output::Host(&mut out)).unwrap();
            step.finish().unwrap();
        }
        begin.sort_unstable();
        record.sort_unstable();
        println!("{kv}: begin_step {} µs, appends and tables {} µs (medians of 40)", begin[20], record[20]);
    }
}

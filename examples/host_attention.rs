//! The cache without a model: the CPU backend, rows as host slices, and what mixed formats cost in accuracy.
//!
//! `cargo run --example host_attention`

use kvarto::backend::CpuBackend;
use kvarto::engine::{Engine, Input, Output, Registry, SeqId, SeqRows};
use kvarto::profile::Profile;
use kvarto::shape::CacheShape;

const LAYERS: usize = 2;
const Q_HEADS: usize = 4;
const KV_HEADS: usize = 2;
const DIM: usize = 64;

/// Numbers that look like noise and are the same in every run.
fn noise(seed: usize, count: usize) -> Vec<f32> {
    let mix = |i: usize| {
        let mut z = (seed as u64 * 0x9e37_79b9 + i as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z >> 40) as f32 / (1u64 << 24) as f32
    };
    // Three uniform numbers come near a normal one of variance 1.
    (0..count).map(|i| 2.0 * (mix(3 * i) + mix(3 * i + 1) + mix(3 * i + 2) - 1.5)).collect()
}

/// Appends `rows` tokens to every layer and returns the last layer's attention.
fn step(engine: &mut Engine, seq: SeqId, rows: usize) -> kvarto::Result<Vec<f32>> {
    let at = engine.lengths(seq)?.logical as usize;
    let mut step = engine.begin_step(&[SeqRows { seq, rows: rows as u32, committed: true }])?;
    let mut out = vec![0.0; rows * Q_HEADS * DIM];
    for layer in 0..LAYERS {
        let seed = 10 * at + 3 * layer;
        let k = noise(seed, rows * KV_HEADS * DIM);
        let v = noise(seed + 1, rows * KV_HEADS * DIM);
        let q = noise(seed + 2, rows * Q_HEADS * DIM);
        step.append(layer, Input::Host(&k), Input::Host(&v))?;
        step.attend(layer, Input::Host(&q), Output::Host(&mut out))?;
    }
    step.finish()?;
    Ok(out)
}

fn main() -> kvarto::Result<()> {
    let registry = Registry::builtin();
    let mut exact: Option<Vec<f32>> = None;
    println!("{:<14} {:>10} {:>10} {:>10} {:>12}", "cache", "resident", "read", "pages", "off by");
    for kv in ["f32", "f16", "fp8", "k=fp8,v=tq3", "tq3"] {
        let profile = Profile::parse_kv(kv, &registry.formats)?;
        let shape = CacheShape::uniform(LAYERS, Q_HEADS, KV_HEADS, DIM, 32);
        let mut engine = Engine::new(Box::new(CpuBackend::new(0)?), shape, profile, registry.clone())?;
        let seq = engine.create()?;
        for _ in 0..8 {
            step(&mut engine, seq, 128)?;
        }
        let mut last = Vec::new();
        for _ in 0..16 {
            last = step(&mut engine, seq, 1)?;
        }
        // Against the run in f32: the length of the difference, as a fraction of the output's.
        let exact = exact.get_or_insert_with(|| last.clone());
        let length = |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt();
        let off = length(&mut last.iter().zip(exact.iter()).map(|(a, b)| a - b)) / length(&mut exact.iter().copied());
        let stats = engine.stats();
        println!(
            "{kv:<14} {:>10.2} {:>10.2} {:>10} {:>11.2}%",
            stats.resident_bits_per_value.unwrap_or(f64::NAN),
            stats.read_bits_per_value.unwrap_or(f64::NAN),
            stats.pages.values().sum::<u64>(),
            100.0 * off
        );
        // What the formats promise on such data; a program that trusts its cache may well check it.
        assert!(off <= 0.5, "{kv} is off by {off}");
        branch(&mut engine, seq)?;
    }
    Ok(())
}

/// A fork shares pages with its origin until one of them writes; truncating takes tokens back.
fn branch(engine: &mut Engine, seq: SeqId) -> kvarto::Result<()> {
    let before = engine.memory().used_slot_bytes;
    let length = engine.lengths(seq)?.logical;
    let other = engine.fork(seq)?;
    assert_eq!(engine.memory().used_slot_bytes, before, "a fork takes no pages");
    let here = step(engine, seq, 1)?;
    let there = step(engine, other, 1)?;
    assert_eq!(here, there, "the same token over the same cache");
    engine.truncate(other, length - 700)?;
    step(engine, other, 1)?;
    assert_eq!(engine.lengths(seq)?.logical, length + 1);
    assert_eq!(engine.lengths(other)?.logical, length - 699);
    engine.release(other)
}

//! Long random lives of many sequences; every output is compared with dense attention in f64.

use crate::model::{Rig, group, profile, shape};
use kvarto::backend::CpuBackend;
use kvarto::engine::{AttentionOptions, EngineOptions, Registry, SeqId};
use kvarto::policy::{Move, PageView, Policy};
use kvarto::profile::Profile;
use kvarto::shape::{CacheShape, GroupKind};

pub fn live(mut rig: Rig, actions: usize, most_tokens: usize) {
    rig.create();
    for _ in 0..actions {
        let ids: Vec<SeqId> = rig.held.keys().copied().collect();
        let Some(&seq) = ids.get(rig.rng.below(ids.len() as u64) as usize) else {
            rig.create();
            continue;
        };
        let length = rig.held[&seq].tokens.len();
        // Anywhere, or not far back, where windows still allow it.
        let back = if rig.rng.below(2) == 0 { length } else { length.min(40) };
        let cut = (length as u64 - rig.rng.below(back as u64 + 1)) as u32;
        match rig.rng.below(20) {
            0 if ids.len() < 5 => {
                rig.create();
            }
            1 if ids.len() < 5 => {
                rig.fork(seq, None).unwrap();
            }
            2 if ids.len() < 5 => {
                assert_eq!(rig.fork(seq, Some(cut)).is_ok(), rig.allows(seq, cut));
            }
            3 if ids.len() > 1 => rig.release(seq),
            4 => {
                let allowed = rig.allows(seq, cut);
                assert_eq!(rig.truncate(seq, cut).is_ok(), allowed);
            }
            5 => {
                // Twice before any step, most often within one page.
                let less = rig.rng.below(u64::from(cut.min(9)) + 1) as u32;
                for cut in [cut, cut - less] {
                    let allowed = rig.allows(seq, cut);
                    assert_eq!(rig.truncate(seq, cut).is_ok(), allowed);
                }
            }
            6 => rig.commit(seq),
            7 if length > 0 => {
                let start = rig.rng.below(length as u64) as u32;
                rig.engine.pin(seq, start..start + 20, "kept").unwrap();
            }
            8 => rig.step(&[(seq, 0, true)]).unwrap(),
            _ => {
                let mut rows = Vec::new();
                for id in ids {
                    let held = &rig.held[&id];
                    let (length, drafts) = (held.tokens.len(), held.tokens.len() > held.committed);
                    let n = match rig.rng.below(10) {
                        0 => 17 + rig.rng.below(70) as u32,
                        1 | 2 => 2 + rig.rng.below(14) as u32,
                        3 => 0,
                        _ => 1,
                    };
                    if length + n as usize <= most_tokens {
                        rows.push((id, n, !drafts && rig.rng.below(4) > 0));
                    }
                }
                rig.step(&rows).unwrap();
            }
        }
        rig.check();
    }
    let ids: Vec<SeqId> = rig.held.keys().copied().collect();
    ids.into_iter().for_each(|id| rig.release(id));
    rig.check();
    assert_eq!(rig.engine.memory().used_slot_bytes, 0);
    assert!(rig.worst > 0.0);
}

pub fn mixed() -> CacheShape {
    shape(vec![
        group(vec![0, 2], GroupKind::Full, 16, (4, 2), 16, 24),
        group(vec![1], GroupKind::Window(37), 32, (3, 1), 32, 8),
    ])
}

fn run(shape: CacheShape, profile: Profile, attention: Vec<AttentionOptions>, tolerance: f64) {
    for seed in 0..3 {
        let rewind_tokens = 23 * seed as usize;
        let options = EngineOptions { attention: attention.clone(), rewind_tokens, ..EngineOptions::default() };
        live(Rig::new(shape.clone(), profile.clone(), options, tolerance, seed), 120, 400);
    }
}

#[test]
fn f32_and_f16_are_exact() {
    run(mixed(), profile("f32", 32, 16), Vec::new(), 2e-6);
    // The rows are exact in 16 bits.
    run(mixed(), profile("f16", 32, 16), Vec::new(), 2e-6);
}

#[test]
fn defaults_of_sink_and_tail_with_coded_pages() {
    run(mixed(), profile("fp8", 128, 64), Vec::new(), 0.05);
}

#[test]
fn no_exact_tokens_at_all() {
    run(mixed(), profile("fp8/tq3", 0, 0), Vec::new(), 0.4);
    run(mixed(), profile("f16/fp8", 0, 0), Vec::new(), 0.05);
}

#[test]
fn larger_pages() {
    let full = |page| shape(vec![group(vec![0], GroupKind::Full, page, (2, 1), 32, 32)]);
    run(full(64), profile("fp8", 0, 64), Vec::new(), 0.05);
    run(full(128), profile("tq3", 0, 0), Vec::new(), 0.4);
}

#[test]
fn bases_change_nothing_but_rounding() {
    for basis in ["hadamard", "mean"] {
        let exact = Profile { k_basis: Some(basis.into()), v_basis: Some(basis.into()), ..profile("f32", 16, 16) };
        run(mixed(), exact, Vec::new(), 2e-5);
    }
    let coded = Profile { k_basis: Some("mean".into()), v_basis: Some("none".into()), ..profile("fp8", 16, 0) };
    run(mixed(), coded, Vec::new(), 0.08);
}

#[test]
fn softcap_sinks_and_scale() {
    let sinks = |layers: usize, heads: usize| {
        Some((0..layers).map(|l| (0..heads).map(|h| (l + h) as f32 * 0.4 - 0.5).collect()).collect())
    };
    let attention = vec![
        AttentionOptions { scale: Some(0.7), softcap: Some(2.0), sinks: sinks(2, 4) },
        AttentionOptions { scale: None, softcap: None, sinks: sinks(1, 3) },
    ];
    run(mixed(), profile("f32", 16, 16), attention.clone(), 4e-6);
    let mean = Profile { k_basis: Some("mean".into()), v_basis: Some("mean".into()), ..profile("f32", 0, 0) };
    run(mixed(), mean, attention, 2e-5);
}

/// Sends sealed pages of a certain age from format to format, whatever that does to them.
struct Restless(u64);

impl Policy for Restless {
    fn name(&self) -> &str {
        "restless"
    }

    fn decide(&mut self, pages: &[PageView]) -> Vec<Move> {
        let formats = ["f16", "fp8", "f32", "bf16"];
        let mut moves = Vec::new();
        for (i, page) in pages.iter().enumerate() {
            assert!(!page.pinned && page.references > 0);
            self.0 += 1;
            if self.0.is_multiple_of(5) {
                moves.push(Move::Convert {
                    sequence: page.sequence,
                    layer: page.layer,
                    kv_head: page.kv_head,
                    page: page.page,
                    k: formats[(self.0 / 5) as usize % 4].into(),
                    v: formats[i % 4].into(),
                    reason: "restless",
                });
            }
        }
        moves
    }
}

#[test]
fn a_policy_may_convert_what_it_likes() {
    let registry = Registry::builtin().with_policy("restless", || Restless(0)).unwrap();
    for seed in 0..3 {
        let profile = Profile { policy: "restless".into(), ..profile("f16/fp8", 16, 0) };
        let backend = CpuBackend::new(1).unwrap();
        let options = EngineOptions::default();
        let rig = Rig::on(backend, mixed(), profile, registry.clone(), options, 0.1, seed);
        live(rig, 120, 300);
    }
}

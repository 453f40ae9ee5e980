//! What `plan` says a cache takes is what the allocator gives out when the same pages are really allocated.

use crate::calibrations::with;
use crate::model::{Rig, Rng, group, profile, shape};
use kvarto::backend::CpuBackend;
use kvarto::engine::{EngineOptions, Registry};
use kvarto::footprint::Estimator;
use kvarto::needs::{Needs, PlaneSpec};
use kvarto::policy::{Move, PageView, Policy};
use kvarto::profile::{Override, Profile, Ranges};
use kvarto::shape::{CacheShape, GroupKind};

/// Changes nothing, and wants boxes of the group with 16 channels of K only, and a word more of every page.
struct Boxed;

impl Policy for Boxed {
    fn name(&self) -> &str {
        "boxed"
    }

    fn needs(&self, _: &CacheShape) -> Needs {
        let some = PlaneSpec { words: |group| if group.k_dim == 16 { 16 } else { 0 }, ..PlaneSpec::boxes() };
        Needs {
            planes: vec![some, PlaneSpec { name: "one".into(), words: |_| 1, ..PlaneSpec::boxes() }],
            ..Needs::default()
        }
    }

    fn decide(&mut self, _: &[PageView]) -> Vec<Move> {
        Vec::new()
    }
}

/// Grows one sequence to each length in turn and compares every figure.
fn agree(shape: &CacheShape, profile: &Profile, lengths: &[u32]) {
    let registry = with(Registry::builtin().with_policy("boxed", || Boxed).unwrap(), shape);
    let estimator = Estimator::new(shape, profile, &registry).unwrap();
    let (backend, options) = (CpuBackend::new(1).unwrap(), EngineOptions::default());
    let mut rig = Rig::on(backend, shape.clone(), profile.clone(), registry, options, f64::INFINITY, 3);
    let a = rig.create();
    let mut held = 0;
    for &length in lengths {
        rig.step(&[(a, length - held, true)]).unwrap();
        held = length;
        // Pages become due with the rows of the step before; their old slots are free one step later.
        for _ in 0..2 {
            rig.step(&[(a, 0, true)]).unwrap();
        }
        let stats = rig.engine.stats();
        let said = estimator.at(u64::from(length));
        let pages: Vec<_> = said.pages.iter().map(|(pair, count)| (pair.clone(), count.pages)).collect();
        assert_eq!(stats.pages.into_iter().collect::<Vec<_>>(), pages, "{length} tokens");
        assert_eq!(stats.memory.used_slot_bytes, said.slot_bytes(), "{length} tokens");
        assert_eq!(stats.cached_values, said.values, "{length} tokens");
        assert_eq!(stats.resident_bits_per_value, said.resident_bits_per_value(), "{length} tokens");
        assert_eq!(stats.metadata_bits_per_value, said.metadata_bits_per_value(), "{length} tokens");
    }
}

#[test]
fn the_estimate_is_what_the_allocator_gives_out() {
    let mut rng = Rng(11);
    for (page, sink, tail) in [(16, 16, 16), (16, 0, 0), (32, 64, 100), (64, 64, 128), (128, 1, 1)] {
        for kv in ["f16", "f32", "fp8/tq3", "tq3/bf16"] {
            let shape = shape(vec![
                group(vec![0, 1], GroupKind::Full, page, (2, 2), 16, 32),
                group(vec![2, 3], GroupKind::Window(100), page, (2, 1), 32, 16),
            ]);
            let mut profile = profile(kv, tail, sink);
            profile.overrides =
                vec![Override { layers: (1..2).into(), heads: Ranges::all(), k: Some("fp8".into()), v: None }];
            let mut lengths: Vec<u32> = vec![1, page as u32 - 1, page as u32, page as u32 + 1];
            for _ in 0..6 {
                lengths.push(lengths[lengths.len() - 1] + 1 + rng.below(150) as u32);
            }
            if page == 32 {
                profile.k_basis = Some("mean".into());
            }
            if page == 128 {
                (profile.k_basis, profile.v_basis) = (Some("map".into()), Some("mean:x.kvcal".into()));
            }
            if kv.starts_with("fp8") {
                profile.policy = "boxed".into();
            }
            agree(&shape, &profile, &lengths);
        }
    }
}

#[test]
fn a_context_within_a_budget_fits_and_the_next_page_does_not() {
    let registry = Registry::builtin();
    for (page, tail) in [(16, 20), (64, 128)] {
        let groups = vec![
            group(vec![0], GroupKind::Full, page, (2, 2), 16, 32),
            group(vec![1, 2], GroupKind::Window(100), page, (2, 1), 64, 64),
        ];
        let estimator = Estimator::new(&shape(groups), &profile("fp8/tq3", tail, 16), &registry).unwrap();
        for budget in [0u64, 5_000, 100_000, 1_000_000, 12_345_678] {
            let tokens = estimator.context_within(budget, 1 << 30);
            let most = (0..=tokens).map(|n| estimator.at(n).total_bytes()).max().unwrap();
            assert!(most <= budget, "{tokens} tokens take {most} of {budget} bytes");
            assert!(estimator.at(tokens + 1).total_bytes() > budget);
        }
        assert_eq!(estimator.context_within(u64::MAX, 1000), 1000);
    }
}

//! One budget over all cache groups: never exceeded, refusals name the bytes short and take nothing away.

use crate::model::{Rig, group, profile, shape};
use kvarto::engine::{EngineOptions, SeqId};
use kvarto::error::{Error, ErrorKind};
use kvarto::page::PageDescriptor;
use kvarto::shape::{CacheShape, GroupKind};
use proptest::prelude::*;

fn two_groups() -> CacheShape {
    shape(vec![
        group(vec![0], GroupKind::Full, 16, (2, 1), 16, 8),
        group(vec![1], GroupKind::Window(40), 32, (2, 2), 8, 16),
    ])
}

/// The four numbers of a refusal: bytes short, in use, wanted, budget.
fn numbers(error: &Error) -> Vec<u64> {
    let words = error.message().split(|c: char| !c.is_ascii_digit());
    words.filter(|w| !w.is_empty()).map(|w| w.parse().unwrap()).collect()
}

#[derive(Clone, Debug)]
enum Act {
    Step(Vec<(usize, u32)>),
    Create,
    Fork(usize),
    ForkAt(usize, u32),
    Truncate(usize, u32),
    Release(usize),
}

fn act() -> impl Strategy<Value = Act> {
    let rows = proptest::collection::vec((0usize..4, 0u32..30), 1..4);
    prop_oneof![
        8 => rows.prop_map(Act::Step),
        1 => Just(Act::Create),
        1 => any::<usize>().prop_map(Act::Fork),
        1 => (any::<usize>(), any::<u32>()).prop_map(|(s, n)| Act::ForkAt(s, n)),
        2 => (any::<usize>(), any::<u32>()).prop_map(|(s, n)| Act::Truncate(s, n)),
        1 => any::<usize>().prop_map(Act::Release),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_sum_over_groups_stays_within_the_budget(
        acts in proptest::collection::vec(act(), 1..40),
        budget in 4000u64..40_000,
        kv in prop_oneof![Just("f16"), Just("fp8"), Just("fp8/tq3")],
        seed in any::<u64>(),
    ) {
        let options = EngineOptions { kv_budget_bytes: Some(budget), ..EngineOptions::default() };
        let mut rig = Rig::new(two_groups(), profile(kv, 16, 0), options, 0.4, seed);
        rig.create();
        for act in acts {
            let ids: Vec<_> = rig.held.keys().copied().collect();
            let pick = |n: usize| ids.get(n % ids.len().max(1)).copied();
            let (used, pages) = (rig.engine.memory().used_slot_bytes, rig.engine.stats().pages);
            let refused = match act {
                Act::Step(rows) => {
                    let mut asked: Vec<(SeqId, u32, bool)> = Vec::new();
                    for (s, n) in rows {
                        if let Some(&id) = ids.get(s).filter(|id| !asked.iter().any(|&(seq, ..)| seq == **id)) {
                            asked.push((id, n, true));
                        }
                    }
                    rig.step(&asked).err()
                }
                Act::Create => {
                    if ids.len() < 4 {
                        rig.create();
                    }
                    None
                }
                Act::Fork(s) => pick(s).filter(|_| ids.len() < 4).and_then(|id| rig.fork(id, None).err()),
                Act::ForkAt(s, n) => pick(s).filter(|_| ids.len() < 4).and_then(|id| {
                    let length = rig.held[&id].tokens.len() as u32;
                    rig.fork(id, Some(n % (length + 1))).err()
                }),
                Act::Truncate(s, n) => pick(s).and_then(|id| {
                    let length = rig.held[&id].tokens.len() as u32;
                    rig.truncate(id, n % (length + 1)).err()
                }),
                Act::Release(s) => {
                    if let Some(id) = pick(s) {
                        rig.release(id);
                    }
                    None
                }
            };
            if let Some(error) = refused.filter(|error| error.kind() != ErrorKind::Shape) {
                prop_assert_eq!(error.kind(), ErrorKind::OutOfPages, "{}", error);
                let said = numbers(&error);
                prop_assert_eq!(said.len(), 4, "{}", error);
                prop_assert_eq!(said[0] + said[3], said[1] + said[2], "{}", error);
                prop_assert_eq!(said[3], budget);
                prop_assert!(said[1] <= budget && said[0] > 0);
                // Rolled back to the page and to the byte.
                prop_assert_eq!(rig.engine.memory().used_slot_bytes, used);
                prop_assert_eq!(rig.engine.stats().pages, pages);
            }
            prop_assert!(rig.engine.memory().used_slot_bytes <= budget);
            rig.check();
        }
        let ids: Vec<_> = rig.held.keys().copied().collect();
        ids.into_iter().for_each(|id| rig.release(id));
        prop_assert_eq!(rig.engine.memory().used_slot_bytes, 0);
    }
}

#[test]
fn groups_draw_on_one_budget() {
    // One page a group: 16 tokens of 16 + 8 and 32 tokens of 2 heads of 8 + 16 values, 2 bytes each.
    let (full, windowed) = (16 * 24 * 2, 2 * 32 * 24 * 2);
    let options = EngineOptions { kv_budget_bytes: Some(full + windowed), ..EngineOptions::default() };
    let mut rig = Rig::new(two_groups(), profile("f16", 0, 0), options, 2e-6, 1);
    let a = rig.create();
    rig.step(&[(a, 16, true)]).unwrap();
    assert_eq!(rig.engine.memory().used_slot_bytes, full + windowed);
    let error = rig.step(&[(a, 1, true)]).unwrap_err();
    assert_eq!(numbers(&error), [full, full + windowed, full, full + windowed], "{error}");
    rig.check();
    rig.truncate(a, 8).unwrap();
    rig.step(&[(a, 8, true)]).unwrap();
    rig.check();
    // Descriptors and tables are not pages.
    assert!(rig.engine.memory().descriptor_bytes >= 2 * PageDescriptor::BYTES as u64);
}

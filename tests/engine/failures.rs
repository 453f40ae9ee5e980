//! Refusals of every kind leave sequences as they were and bytes accounted for.

use crate::model::{Rig, attend, group, profile, shape};
use kvarto::backend::CpuBackend;
use kvarto::engine::{Engine, EngineOptions, Input, Output, Registry, SeqId, SeqRows};
use kvarto::error::ErrorKind;
use kvarto::profile::Profile;
use kvarto::shape::{CacheShape, GroupKind};

fn small() -> CacheShape {
    shape(vec![
        group(vec![0], GroupKind::Full, 16, (2, 1), 16, 8),
        group(vec![1], GroupKind::Window(20), 16, (2, 2), 8, 8),
    ])
}

fn rows(seq: SeqId, rows: u32) -> [SeqRows; 1] {
    [SeqRows { seq, rows, committed: true }]
}

#[test]
fn a_spent_budget_names_the_bytes_and_can_be_freed() {
    let options = EngineOptions { kv_budget_bytes: Some(16_000), ..EngineOptions::default() };
    let mut rig = Rig::new(small(), profile("fp8", 16, 0), options, 0.05, 1);
    let (a, b) = (rig.create(), rig.create());
    rig.step(&[(a, 30, true), (b, 20, true)]).unwrap();
    let (mut refused, mut steps) = (0, 0);
    while refused < 3 && steps < 300 {
        let used = rig.engine.memory().used_slot_bytes;
        match rig.step(&[(a, 5, true), (b, 4, true)]) {
            Ok(()) => steps += 1,
            Err(error) => {
                refused += 1;
                assert_eq!(error.kind(), ErrorKind::OutOfPages);
                assert!(error.message().contains("bytes of pages are short"), "{error}");
                assert_eq!(rig.engine.memory().used_slot_bytes, used);
            }
        }
        rig.check();
    }
    assert_eq!(refused, 3);
    rig.truncate(b, 0).unwrap();
    rig.step(&[(b, 0, true)]).unwrap();
    rig.step(&[(b, 1, true)]).unwrap();
    rig.release(b);
    rig.step(&[(a, 9, true)]).unwrap();
    rig.check();
}

#[test]
fn sealing_waits_for_room_rather_than_stopping_the_sequence() {
    // Room for exactly the open pages of 64 tokens: no sealed copy fits beside them.
    let one = shape(vec![group(vec![0], GroupKind::Full, 16, (1, 1), 16, 16)]);
    let page = 16 * 16 * 2 * 2;
    let options = EngineOptions { kv_budget_bytes: Some(4 * page), ..EngineOptions::default() };
    let mut rig = Rig::new(one, profile("fp8", 0, 0), options, 0.05, 1);
    let a = rig.create();
    rig.step(&[(a, 60, true)]).unwrap();
    rig.step(&[(a, 4, true)]).unwrap();
    assert_eq!((rig.pages("fp8", "fp8"), rig.engine.stats().deferred), (0, 3));
    rig.truncate(a, 40).unwrap();
    rig.step(&[(a, 2, true)]).unwrap();
    assert!(rig.pages("fp8", "fp8") > 0);
    rig.step(&[(a, 0, true)]).unwrap();
    assert_eq!((rig.pages("fp8", "fp8"), rig.engine.stats().deferred), (2, 0));
    rig.step(&[(a, 20, true)]).unwrap();
    rig.check();
}

#[test]
fn every_allocation_may_be_refused() {
    // The same life under ever larger limits: the refusals move through every allocation.
    let mut outcomes = (0, 0);
    let full = limited(&mut outcomes, CpuBackend::new(1).unwrap());
    let mut limit = full / 40;
    while limit < full {
        limited(&mut outcomes, CpuBackend::new(1).unwrap().with_memory_limit(limit));
        limit += full / 97 + 1;
    }
    assert!(outcomes.0 > 50 && outcomes.1 > 20, "{outcomes:?}");
}

/// Steps that are tried until they are refused, then released and tried again; the peak bytes.
fn limited(outcomes: &mut (u32, u32), backend: CpuBackend) -> u64 {
    let made = Engine::with_options(
        Box::new(backend),
        small(),
        profile("fp8/tq3", 0, 0),
        Registry::builtin(),
        EngineOptions::default(),
    );
    let Ok(mut engine) = made else {
        outcomes.1 += 1;
        return 0;
    };
    let mirror = crate::mirror::Mirror::of(&mut engine);
    let mut rig = Rig {
        engine,
        held: Default::default(),
        rng: crate::model::Rng(5),
        options: Vec::new(),
        rewind: 0,
        tolerance: 0.4,
        worst: 0.0,
        mirror,
    };
    let mut ids = vec![rig.create()];
    for n in 0..14u32 {
        let rows: Vec<_> = ids.iter().map(|&id| (id, 1 + n * 9, true)).collect();
        match rig.step(&rows) {
            Ok(()) => outcomes.0 += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
                outcomes.1 += 1;
                rig.check();
                if let Some(id) = ids.pop().filter(|_| !ids.is_empty()) {
                    rig.release(id);
                    rig.check();
                }
            }
        }
        rig.check();
        if n % 4 == 2 && !ids.is_empty() {
            let length = rig.held[&ids[0]].tokens.len() as u32;
            if let Ok(id) = rig.fork(ids[0], Some(length / 2 + 3)) {
                ids.push(id);
            }
            rig.check();
        }
        if ids.is_empty() {
            ids.push(rig.create());
        }
    }
    rig.engine.backend().peak_bytes()
}

#[test]
fn steps_left_unfinished_leave_the_tokens_there_were() {
    let mut rig = Rig::new(small(), profile("fp8", 0, 0), EngineOptions::default(), 0.05, 2);
    let a = rig.create();
    rig.step(&[(a, 31, true)]).unwrap();
    let b = rig.fork(a, None).unwrap();
    let used = rig.engine.memory().used_slot_bytes;
    drop(rig.engine.begin_step(&rows(a, 5)).unwrap());
    assert_eq!(rig.engine.memory().used_slot_bytes, used);
    rig.check();
    let (k, v, q) = (vec![9.0; 5 * 16], vec![9.0; 5 * 8], vec![1.0; 5 * 32]);
    // Recorded only.
    let mut step = rig.engine.begin_step(&rows(a, 5)).unwrap();
    step.append(0, Input::Host(&k), Input::Host(&v)).unwrap();
    drop(step);
    assert_eq!(rig.engine.memory().used_slot_bytes, used);
    rig.check();
    // One layer has run.
    let mut step = rig.engine.begin_step(&rows(a, 5)).unwrap();
    attend(&mut step, 0, (&k, &v, &q), &mut vec![0.0; 5 * 16]).unwrap();
    drop(step);
    rig.check();
    rig.step(&[(a, 3, true), (b, 4, true)]).unwrap();
    // Finished without layer 1.
    let mut step = rig.engine.begin_step(&rows(a, 5)).unwrap();
    attend(&mut step, 0, (&k, &v, &q), &mut vec![0.0; 5 * 16]).unwrap();
    let error = step.finish().unwrap_err();
    assert!(error.message().contains("[1]"), "{error}");
    rig.check();
    rig.step(&[(a, 3, true), (b, 4, true)]).unwrap();
    rig.check();
}

#[test]
fn wrong_calls_are_refused_by_name() {
    let mut rig = Rig::new(small(), profile("fp8", 0, 0), EngineOptions::default(), 0.05, 2);
    let a = rig.create();
    let gone = rig.create();
    rig.release(gone);
    let once = rows(a, 1)[0];
    for bad in [vec![once, once], vec![rows(gone, 1)[0]], vec![rows(a, u32::MAX)[0]]] {
        assert_eq!(rig.engine.begin_step(&bad).err().unwrap().kind(), ErrorKind::Shape);
    }
    for error in [
        rig.engine.fork(gone).err(),
        rig.engine.release(gone).err(),
        rig.engine.truncate(gone, 0).err(),
        rig.engine.commit(gone, 0).err(),
        rig.engine.pin(gone, 0..1, "").err(),
        rig.engine.lengths(gone).err(),
    ] {
        assert_eq!(error.unwrap().kind(), ErrorKind::Shape);
    }
    let (k, v) = (vec![0.5; 2 * 16], vec![0.5; 2 * 8]);
    let mut step = rig.engine.begin_step(&rows(a, 2)).unwrap();
    assert!(step.append(0, Input::Host(&k[1..]), Input::Host(&v)).is_err());
    assert!(step.append(0, Input::Host(&k), Input::Host(&v[..8])).is_err());
    assert!(step.append(7, Input::Host(&k), Input::Host(&v)).is_err());
    let q = vec![0.1; 2 * 32];
    assert!(step.attend(0, Input::Host(&q), Output::Host(&mut [0.0; 32])).is_err());
    step.append(0, Input::Host(&k), Input::Host(&v)).unwrap();
    assert!(step.append(0, Input::Host(&k), Input::Host(&v)).is_err());
    assert!(step.attend(0, Input::Host(&q[1..]), Output::Host(&mut [0.0; 32])).is_err());
    assert!(step.attend(0, Input::Host(&q), Output::Host(&mut [0.0; 31])).is_err());
    step.attend(0, Input::Host(&q), Output::Host(&mut [0.0; 32])).unwrap();
    attend(&mut step, 1, (&[0.1; 32], &[0.2; 32], &[0.3; 32]), &mut [0.0; 32]).unwrap();
    step.finish().unwrap();
}

#[test]
fn sixty_four_means_and_no_more() {
    let mean = Profile { k_basis: Some("mean".into()), v_basis: Some("mean".into()), ..profile("f32", 0, 0) };
    let mut rig = Rig::new(small(), mean, EngineOptions::default(), 1e-5, 2);
    let ids: Vec<_> = (0..65).map(|_| rig.create()).collect();
    rig.step(&ids[..64].iter().map(|&id| (id, 2, true)).collect::<Vec<_>>()).unwrap();
    assert_eq!(rig.step(&[(ids[64], 2, true)]).unwrap_err().kind(), ErrorKind::OutOfPages);
    // A fork shares its origin's.
    let fork = rig.fork(ids[3], Some(1)).unwrap();
    rig.step(&[(fork, 2, true), (ids[3], 2, true)]).unwrap();
    rig.release(ids[3]);
    assert!(rig.step(&[(ids[64], 2, true)]).is_err());
    rig.step(&[(fork, 2, true)]).unwrap();
    rig.release(fork);
    rig.step(&[(ids[64], 2, true)]).unwrap();
    // One that starts again gives its place back until it does.
    rig.truncate(ids[0], 0).unwrap();
    let late = rig.create();
    rig.step(&[(late, 3, true)]).unwrap();
    rig.check();
}

#[test]
fn a_nan_reaches_those_who_read_it_and_nobody_else() {
    let one = shape(vec![group(vec![0], GroupKind::Window(16), 16, (1, 1), 16, 16)]);
    let mut engine =
        Engine::new(Box::new(CpuBackend::new(1).unwrap()), one, profile("f16", 0, 0), Registry::builtin()).unwrap();
    let a = engine.create().unwrap();
    let clean = vec![0.25f32; 16];
    for n in 0..60 {
        let mut k = clean.clone();
        if n == 3 {
            k[5] = f32::NAN;
        }
        let mut step = engine.begin_step(&rows(a, 1)).unwrap();
        let mut out = vec![0.0; 16];
        attend(&mut step, 0, (&k, &clean, &clean), &mut out).unwrap();
        step.finish().unwrap();
        // Visible in its window of 16 tokens; the page is read up to position 30.
        assert_eq!(out.iter().any(|x| x.is_nan()), (3..19).contains(&n), "position {n}");
    }
}

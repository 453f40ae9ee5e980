//! Content keys: equal for equal tokens from the start on, whatever the sequence, engine and formats.

use crate::model::{group, profile, shape};
use kvarto::backend::CpuBackend;
use kvarto::engine::{Engine, EngineOptions, Input, Registry, SeqId, SeqRows};
use kvarto::error::ErrorKind;
use kvarto::page::ContentKey;
use kvarto::profile::Profile;
use kvarto::shape::GroupKind;

const PAGE: usize = 16;

struct Rig(Engine);

impl Rig {
    fn new(kv: &str, basis: &str, model: Option<&str>) -> Rig {
        let kinds = [(0, GroupKind::Full, PAGE), (1, GroupKind::Window(40), 2 * PAGE)];
        let groups = kinds.map(|(layer, kind, page)| group(vec![layer], kind, page, (1, 1), 8, 8));
        let profile = Profile { k_basis: Some(basis.into()), v_basis: Some(basis.into()), ..profile(kv, 16, 16) };
        let options = EngineOptions { model_hash: model.map(String::from), ..EngineOptions::default() };
        let backend = Box::new(CpuBackend::new(1).unwrap());
        Rig(Engine::with_options(backend, shape(groups.into()), profile, Registry::builtin(), options).unwrap())
    }

    fn create(&mut self) -> SeqId {
        self.0.create().unwrap()
    }

    fn step(&mut self, seq: SeqId, ids: &[u32]) {
        self.rows(seq, ids.len(), Some(ids), true);
    }

    fn rows(&mut self, seq: SeqId, rows: usize, ids: Option<&[u32]>, committed: bool) {
        let row = SeqRows { seq, rows: rows as u32, committed };
        let mut step = self.0.begin_step_with_tokens(&[row], &[ids]).unwrap();
        let input = vec![0.5; rows * 8];
        for layer in 0..2 {
            step.append(layer, Input::Host(&input), Input::Host(&input)).unwrap();
        }
        step.finish().unwrap();
    }

    fn keys(&self, seq: SeqId) -> Vec<Option<ContentKey>> {
        self.0.content_keys(seq, 0).unwrap()
    }

    /// How many leading pages have a key; none after them has.
    fn known(&self, seq: SeqId) -> usize {
        let keys = self.keys(seq);
        let known = keys.iter().take_while(|key| key.is_some()).count();
        assert!(keys[known..].iter().all(Option::is_none), "{keys:?}");
        known
    }
}

fn ids(n: u32) -> Vec<u32> {
    (0..n).map(|i| i * i % 211).collect()
}

#[test]
fn the_same_tokens_have_the_same_keys_in_every_format_and_cut() {
    let text = ids(100);
    let mut first: Option<Vec<Option<ContentKey>>> = None;
    for (kv, cut) in [("f16", 100), ("fp8", 7), ("fp8/tq3", 33), ("f32", 1)] {
        let mut rig = Rig::new(kv, "hadamard", Some("m"));
        let seq = rig.create();
        text.chunks(cut).for_each(|part| rig.step(seq, part));
        assert_eq!(rig.known(seq), 100 / PAGE, "{kv}");
        let keys = rig.keys(seq);
        assert_eq!(keys.len(), 100usize.div_ceil(PAGE));
        assert_eq!(*first.get_or_insert(keys.clone()), keys, "{kv}");
        // Another sequence of the same engine, which differs from token 40 on.
        let other = rig.create();
        let mut changed = text.clone();
        changed[40] += 1;
        rig.step(other, &changed);
        let theirs = rig.keys(other);
        assert_eq!(keys[..2], theirs[..2]);
        assert!(keys.iter().zip(&theirs).skip(2).take(4).all(|(a, b)| a != b && b.is_some()));
    }
    let keys: Vec<_> = first.into_iter().flatten().flatten().collect();
    assert!(keys.iter().enumerate().all(|(i, key)| !keys[..i].contains(key)));
}

#[test]
fn other_models_bases_and_places_have_other_keys() {
    let text = [7u32; 64];
    let key = |basis: &str, model: &str| {
        let mut rig = Rig::new("f16", basis, Some(model));
        let seq = rig.create();
        rig.step(seq, &text);
        assert_eq!(rig.known(seq), 4);
        let wide = rig.0.content_keys(seq, 1).unwrap();
        [rig.keys(seq)[0], rig.keys(seq)[1], wide[0], wide[1]].map(Option::unwrap).to_vec()
    };
    let mut all: Vec<ContentKey> = [("none", "a"), ("none", "b"), ("hadamard", "a"), ("mean", "a")]
        .into_iter()
        .flat_map(|(basis, model)| key(basis, model))
        .collect();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
}

#[test]
fn missing_ids_and_missing_models_give_no_key() {
    let mut rig = Rig::new("fp8", "none", Some("m"));
    let (a, b) = (rig.create(), rig.create());
    rig.step(a, &ids(40));
    rig.rows(a, 3, None, true);
    rig.step(a, &ids(60));
    // Whole pages before the gap only.
    assert_eq!((rig.known(a), rig.keys(a).len()), (2, 7));
    rig.rows(b, 40, None, true);
    rig.step(b, &ids(40));
    assert_eq!(rig.known(b), 0);
    // The gap taken back, ids go on where they were; a sequence begun anew has keys again.
    rig.0.truncate(a, 43).unwrap_err();
    let c = rig.create();
    rig.step(c, &ids(20));
    rig.rows(c, 20, None, true);
    rig.0.truncate(c, 20).unwrap();
    rig.step(c, &ids(40)[20..]);
    assert_eq!(rig.keys(c)[..2], rig.keys(a)[..2]);
    rig.0.truncate(b, 0).unwrap();
    rig.step(b, &ids(40));
    assert_eq!(rig.keys(b)[..2], rig.keys(a)[..2]);
    // begin_step names no ids.
    let mut unnamed = Rig::new("fp8", "none", None);
    let seq = unnamed.create();
    unnamed.step(seq, &ids(40));
    assert_eq!(unnamed.known(seq), 0);
    unnamed.0.set_model_hash("m");
    assert_eq!(unnamed.keys(seq), rig.keys(b));
}

#[test]
fn forks_truncation_and_drafts_keep_keys_right() {
    let mut rig = Rig::new("fp8", "hadamard", Some("m"));
    let a = rig.create();
    rig.step(a, &ids(64));
    let b = rig.0.fork(a).unwrap();
    let c = rig.0.fork_at(a, 40).unwrap();
    assert_eq!(rig.keys(b), rig.keys(a));
    assert_eq!((rig.known(c), rig.keys(c).len()), (2, 3));
    // Within a sealed page cut, and filled again: with other tokens, then with the same.
    rig.step(c, &[1; 24]);
    assert_eq!(rig.keys(c)[..2], rig.keys(a)[..2]);
    assert!(rig.known(c) == 4 && rig.keys(c)[2] != rig.keys(a)[2] && rig.keys(c)[3] != rig.keys(a)[3]);
    rig.0.truncate(c, 40).unwrap();
    rig.step(c, &ids(64)[40..]);
    assert_eq!(rig.keys(c), rig.keys(a));
    // Drafts have none until they stand.
    rig.rows(b, 30, Some(&ids(94)[64..]), false);
    assert_eq!((rig.known(b), rig.keys(b).len()), (4, 6));
    rig.0.truncate(b, 81).unwrap();
    rig.0.commit(b, 80).unwrap();
    assert_eq!(rig.known(b), 5);
    rig.step(a, &ids(80)[64..]);
    assert_eq!(rig.keys(b)[..5], rig.keys(a)[..]);
    // A step that does not finish teaches nothing.
    let row = SeqRows { seq: a, rows: 16, committed: true };
    let before = rig.keys(a);
    drop(rig.0.begin_step_with_tokens(&[row], &[Some(&[9; 16])]).unwrap());
    let mut step = rig.0.begin_step_with_tokens(&[row], &[Some(&[9; 16])]).unwrap();
    step.submit().unwrap();
    step.finish().unwrap_err();
    assert_eq!(rig.keys(a), before);
    rig.step(a, &ids(96)[80..]);
    assert_eq!(rig.known(a), 6);
}

#[test]
fn measured_means_are_part_of_the_basis() {
    let text = ids(64);
    let keys = |first: usize, known: bool| {
        let mut rig = Rig::new("fp8", "mean", Some("m"));
        let seq = rig.create();
        rig.rows(seq, first, known.then_some(&text[..first]), true);
        rig.step(seq, &text[first..]);
        rig.keys(seq)
    };
    assert_eq!(keys(40, true), keys(40, true));
    assert!(keys(40, true).iter().zip(keys(41, true)).all(|(a, b)| a.is_some() && *a != b));
    assert!(keys(40, false).iter().all(Option::is_none));
}

#[test]
fn pages_behind_a_window_have_no_key_and_later_ones_keep_theirs() {
    let (mut short, mut long) = (Rig::new("f16", "none", Some("m")), Rig::new("f16", "none", Some("m")));
    let (a, b) = (short.create(), long.create());
    short.step(a, &ids(128));
    ids(128).chunks(32).for_each(|part| long.step(b, part));
    long.step(b, &ids(170)[128..]);
    let held = long.0.held(b).unwrap()[1].clone();
    let keys = long.0.content_keys(b, 1).unwrap();
    let gone = held.start as usize / (2 * PAGE);
    assert!(gone == 4 && keys[..gone].iter().all(Option::is_none) && keys[4].is_some(), "{held:?}: {keys:?}");
    assert_eq!(short.0.content_keys(a, 1).unwrap()[2..4].iter().flatten().count(), 2);
    assert_eq!(short.keys(a), long.keys(b)[..8]);
}

#[test]
fn ids_that_are_not_the_rows_are_refused() {
    let mut rig = Rig::new("f16", "none", Some("m"));
    let a = rig.create();
    let row = SeqRows { seq: a, rows: 3, committed: true };
    let wrong: [&[Option<&[u32]>]; 4] =
        [&[Some(&[1, 2])], &[Some(&[1, 2, 3, 4])], &[None, None], &[Some(&[1, 2, 3]), None]];
    for tokens in wrong {
        let error = rig.0.begin_step_with_tokens(&[row], tokens).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Shape, "{error}");
    }
    assert_eq!(rig.0.lengths(a).unwrap().logical, 0);
    assert!(rig.0.content_keys(a, 2).is_err());
}

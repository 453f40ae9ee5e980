//! Sequences of an engine, and which keys the box of each of their pages got.

use half::f16;
use kvarto::backend::Backend;
use kvarto::engine::{Engine, EngineOptions, Input, Registry, SeqId, SeqRows};
use kvarto::needs::{Needs, PlaneSpec};
use kvarto::policy::{Move, PageView, Policy};
use kvarto::profile::Profile;
use kvarto::select::{Question, Selector};
use kvarto::shape::{CacheGroup, CacheShape, GroupKind, KeySpace, VSource};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// Reads everything; wants boxes.
pub struct Boxed;

impl Selector for Boxed {
    fn name(&self) -> &str {
        "boxed"
    }

    fn summary(&self) -> &str {
        "every page, with boxes"
    }

    fn reads(&self, _: &Question, _: usize) -> bool {
        true
    }

    fn needs(&self, _: &CacheShape) -> Needs {
        Needs { planes: vec![PlaneSpec::boxes()], ..Needs::default() }
    }
}

/// Sends sealed pages from format to format; wants boxes as well, and a second plane before them.
struct Restless(usize);

impl Policy for Restless {
    fn name(&self) -> &str {
        "restless"
    }

    fn needs(&self, _: &CacheShape) -> Needs {
        let second = PlaneSpec { name: "second".into(), ..PlaneSpec::boxes() };
        Needs { planes: vec![second, PlaneSpec::boxes()], ..Needs::default() }
    }

    fn targets(&self) -> Vec<(String, String)> {
        ["f16", "fp8", "f32", "bf16"].map(|f| (f.to_string(), f.to_string())).to_vec()
    }

    fn decide(&mut self, pages: &[PageView]) -> Vec<Move> {
        let formats = ["f16", "fp8", "f32", "bf16"];
        let mut moves = Vec::new();
        for page in pages {
            self.0 += 1;
            if self.0.is_multiple_of(5) {
                let format = formats[self.0 / 5 % 4].to_string();
                moves.push(Move::Convert {
                    sequence: page.sequence,
                    layer: page.layer,
                    kv_head: page.kv_head,
                    page: page.page,
                    k: format.clone(),
                    v: format,
                    reason: "restless",
                });
            }
        }
        moves
    }
}

pub fn registry() -> Registry {
    let registry = Registry::builtin().with_selector(Arc::new(Boxed)).expect("a new name");
    registry.with_policy("restless", || Restless(0)).expect("a new name")
}

pub fn profile(kv: &str) -> Profile {
    let (k, v) = kv.split_once('/').unwrap_or((kv, kv));
    Profile {
        exact_sink_tokens: 16,
        exact_tail_tokens: 16,
        selector: "boxed".into(),
        policy: "restless".into(),
        ..Profile::formats(k, v)
    }
}

pub fn shape() -> CacheShape {
    let group = |layers: Vec<usize>, kind, page_tokens, kv_heads, k_dim, v_dim| CacheGroup {
        layers,
        kind,
        page_tokens,
        q_heads: kv_heads,
        kv_heads,
        k_dim,
        v_dim,
        v: VSource::Own,
        key_space: KeySpace::PostRope,
    };
    CacheShape {
        groups: vec![
            group(vec![0, 2], GroupKind::Full, 16, 2, 80, 16),
            group(vec![1], GroupKind::Window(37), 32, 1, 24, 8),
        ],
    }
}

/// Keys of a token, by layer: `[kv_heads][k_dim]`.
type Token = Rc<Vec<Vec<f32>>>;

#[derive(Clone, Default)]
struct Held {
    tokens: Vec<Token>,
    /// Tokens taken back that boxes still cover, by (cache group, page).
    gone: BTreeMap<(usize, usize), Vec<Token>>,
}

impl Held {
    fn cut(&mut self, n: usize, pages: &[usize]) {
        let taken = self.tokens.split_off(n.min(self.tokens.len()));
        for (group, &size) in pages.iter().enumerate() {
            let (page, kept) = (n / size, n % size);
            // Whole pages go, and their records with them.
            self.gone.retain(|(g, p), _| *g != group || *p < page || (*p == page && kept > 0));
            if kept > 0 {
                let here = taken.iter().take(size - kept).cloned();
                self.gone.entry((group, page)).or_default().extend(here);
            }
        }
    }
}

pub struct Rig {
    pub engine: Engine,
    held: BTreeMap<SeqId, Held>,
    random: u64,
    /// Boxes compared so far.
    pub checked: usize,
}

impl Rig {
    pub fn new(backend: Box<dyn Backend>, profile: Profile, seed: u64) -> Rig {
        let options = EngineOptions { rewind_tokens: 20, ..EngineOptions::default() };
        let mut engine = Engine::with_options(backend, shape(), profile, registry(), options).expect("an engine");
        engine.warm_up(&[1], true).expect("kernels compile");
        engine.backend().forbid_new_pipelines(true);
        Rig { engine, held: BTreeMap::new(), random: seed, checked: 0 }
    }

    fn below(&mut self, n: usize) -> usize {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.random >> 33) as usize % n.max(1)
    }

    pub fn create(&mut self) -> SeqId {
        let id = self.engine.create().expect("a sequence");
        self.held.insert(id, Held::default());
        id
    }

    fn pages(&self) -> Vec<usize> {
        self.engine.shape().groups.iter().map(|g| g.page_tokens).collect()
    }

    fn widths() -> [usize; 3] {
        [160, 24, 160]
    }

    /// Rows of a step, of normal size and of every size.
    pub fn step(&mut self, rows: &[(SeqId, usize)]) {
        let mut state = self.below(1 << 30) as u32;
        self.step_of(rows, &mut |_, _, _| {
            state = state.wrapping_mul(0x915f_77f5).wrapping_add(0x6d2b_79f5);
            let unit = (state >> 8) as f32 / 8_388_608.0 - 1.0;
            if state >> 3 & 15 == 0 { unit * 2f32.powi((state >> 12 & 31) as i32 - 24) } else { unit }
        });
    }

    /// Rows of a step, key by (token, layer, channel).
    pub fn step_of(&mut self, rows: &[(SeqId, usize)], number: &mut dyn FnMut(usize, usize, usize) -> f32) {
        let mut fresh: Vec<Vec<Token>> = Vec::new();
        for &(seq, n) in rows {
            let start = self.held[&seq].tokens.len();
            let token = |at: usize, number: &mut dyn FnMut(usize, usize, usize) -> f32| {
                let layers = Self::widths().into_iter().enumerate();
                Rc::new(layers.map(|(l, width)| (0..width).map(|c| number(start + at, l, c)).collect()).collect())
            };
            fresh.push((0..n).map(|at| token(at, number)).collect());
        }
        let asked: Vec<SeqRows> =
            rows.iter().map(|&(seq, n)| SeqRows { seq, rows: n as u32, committed: true }).collect();
        let mut step = self.engine.begin_step(&asked).expect("room");
        for layer in 0..3 {
            let k: Vec<f32> = fresh.iter().flatten().flat_map(|token: &Token| token[layer].clone()).collect();
            let v = vec![0.5; step.rows() as usize * [32, 8, 32][layer]];
            step.append(layer, Input::Host(&k), Input::Host(&v)).expect("append");
        }
        step.finish().expect("finish");
        for (&(seq, _), fresh) in rows.iter().zip(fresh) {
            self.held.get_mut(&seq).expect("known").tokens.extend(fresh);
        }
    }

    /// A step of large keys that is dropped after so many layers, submitted or not.
    pub fn recorded(&mut self, seq: SeqId, rows: usize, layers: usize, submit: bool) {
        let asked = [SeqRows { seq, rows: rows as u32, committed: false }];
        let mut step = self.engine.begin_step(&asked).expect("room");
        for layer in 0..layers {
            let k = vec![100.0; rows * Self::widths()[layer]];
            let v = vec![0.5; rows * [32, 8, 32][layer]];
            step.append(layer, Input::Host(&k), Input::Host(&v)).expect("append");
        }
        if submit {
            step.submit().expect("submit");
        }
    }

    pub fn live(&mut self, actions: usize) {
        self.create();
        let pages = self.pages();
        for _ in 0..actions {
            let ids: Vec<SeqId> = self.held.keys().copied().collect();
            let at = self.below(ids.len());
            let Some(&seq) = ids.get(at) else {
                self.create();
                continue;
            };
            let length = self.held[&seq].tokens.len();
            let back = if self.below(3) == 0 { length } else { length.min(30) };
            let cut = length - self.below(back + 1);
            match self.below(10) {
                0 if ids.len() < 5 => {
                    self.create();
                }
                1 if ids.len() < 5 => {
                    let id = self.engine.fork(seq).expect("a fork");
                    self.held.insert(id, self.held[&seq].clone());
                }
                2 | 3 if ids.len() < 5 => {
                    if let Ok(id) = self.engine.fork_at(seq, cut as u32) {
                        let mut held = self.held[&seq].clone();
                        held.cut(cut, &pages);
                        self.held.insert(id, held);
                    }
                }
                4 if ids.len() > 2 => {
                    self.engine.release(seq).expect("known");
                    self.held.remove(&seq);
                }
                5 | 6 => {
                    // Twice before any step, most often within one page.
                    let less = self.below(cut.min(9) + 1);
                    for cut in [cut, cut - less] {
                        if self.engine.truncate(seq, cut as u32).is_ok() {
                            self.held.get_mut(&seq).expect("known").cut(cut, &pages);
                        }
                    }
                }
                _ => {
                    let mut rows = Vec::new();
                    for id in ids {
                        let n = [0, 1, 1, 2, 9, 33, 70][self.below(7)];
                        if self.held[&id].tokens.len() + n <= 300 {
                            rows.push((id, n));
                        }
                    }
                    self.step(&rows);
                }
            }
            self.check();
        }
    }

    /// Every box is the one of the keys that its page got, rounded outwards; every byte is accounted for.
    pub fn check(&mut self) {
        let memory = self.engine.memory();
        assert_eq!(self.engine.backend().allocated_bytes(), memory.allocated(), "{memory:?}");
        self.each_box(|words, keys| {
            for (channel, &word) in words.iter().enumerate() {
                let want = bounds(keys.iter().map(|key| key[channel]));
                assert_eq!((word as u16, (word >> 16) as u16), want, "channel {channel} of {} keys", keys.len());
            }
        });
    }

    /// Every box contains the keys that its page holds.
    pub fn check_contained(&mut self) {
        self.each_box(|words, keys| {
            for (channel, &word) in words.iter().enumerate() {
                let [low, high] = [word as u16, (word >> 16) as u16].map(|bits| f16::from_bits(bits).to_f64());
                assert!(keys.iter().all(|key| low <= f64::from(key[channel]) && f64::from(key[channel]) <= high));
            }
        });
    }

    fn each_box(&mut self, mut see: impl FnMut(&[u32], &[&[f32]])) {
        let groups = self.engine.shape().groups.clone();
        for (&seq, held) in &self.held {
            let ranges = self.engine.held(seq).expect("known");
            for (index, group) in groups.iter().enumerate() {
                let (size, first) = (group.page_tokens, ranges[index].start as usize / group.page_tokens);
                for &layer in &group.layers {
                    for head in 0..group.kv_heads {
                        let boxes = self.engine.plane_records(seq, layer, head, "box").expect("boxes");
                        assert_eq!(boxes, self.engine.plane_records(seq, layer, head, "second").expect("as many"));
                        assert_eq!(boxes.len(), held.tokens.len().div_ceil(size).saturating_sub(first));
                        for (at, words) in boxes.iter().enumerate() {
                            let page = first + at;
                            let end = held.tokens.len().min((page + 1) * size);
                            let gone = held.gone.get(&(index, page)).map_or(&[][..], Vec::as_slice);
                            let keys: Vec<&[f32]> = held.tokens[page * size..end]
                                .iter()
                                .chain(gone)
                                .map(|token| &token[layer][head * group.k_dim..(head + 1) * group.k_dim])
                                .collect();
                            assert_eq!(words.len(), group.k_dim);
                            see(words, &keys);
                            self.checked += 1;
                        }
                    }
                }
            }
        }
    }
}

/// The least and the greatest of the numbers, each the nearest f16 on its outer side that is zero, normal or infinite.
fn bounds(keys: impl Iterator<Item = f32> + Clone) -> (u16, u16) {
    if keys.clone().any(f32::is_nan) {
        return (0x7e00, 0x7e00);
    }
    let least = keys.clone().fold(f64::INFINITY, |m, x| m.min(f64::from(x)));
    let most = keys.fold(f64::NEG_INFINITY, |m, x| m.max(f64::from(x)));
    // What is above x is what is below −x, turned round.
    let below = |x: f64| -> f64 {
        let smallest = f16::MIN_POSITIVE.to_f64();
        if x.abs() < smallest {
            return if x < 0.0 { -smallest } else { 0.0 };
        }
        let near = f16::from_f64(x);
        if near.to_f64() <= x {
            return near.to_f64();
        }
        // One step towards −∞.
        let bits = near.to_bits();
        f16::from_bits(if bits & 0x8000 == 0 { bits - 1 } else { bits + 1 }).to_f64()
    };
    // No negative zero.
    let bits = |x: f64| f16::from_f64(x + 0.0).to_bits();
    (bits(below(least)), bits(-below(-most)))
}

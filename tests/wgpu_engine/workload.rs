//! Work of several sequences, drawn once and run on any engine.

use kvarto::engine::{Engine, Input, Output, SeqId, SeqRows};

/// One thing to do; sequences are numbered in the order they were made.
#[derive(Clone, Debug)]
enum Do {
    Create,
    /// (sequence, rows).
    Step(Vec<(usize, usize)>),
    Fork(usize),
    Truncate(usize, u32),
    Release(usize),
}

/// A list of things to do.
pub struct Workload {
    list: Vec<Do>,
    seed: u64,
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// About normal, variance 1.
    fn row(&mut self, count: usize) -> Vec<f32> {
        let mut unit = || (self.next() >> 40) as f32 / (1u64 << 24) as f32;
        (0..count).map(|_| 2.0 * (unit() + unit() + unit() - 1.5)).collect()
    }
}

impl Workload {
    /// `count` steps of up to 4 sequences, with forks, truncations and releases between them.
    pub fn draw(seed: u64, count: usize) -> Self {
        let mut random = Random(seed);
        let mut lengths: Vec<Option<usize>> = vec![Some(0), Some(0)];
        // First a truncation into a sealed page, whatever the page size.
        let mut list = vec![Do::Create, Do::Create, Do::Step(vec![(0, 300), (1, 37)])];
        list.extend([Do::Step(vec![(0, 1), (1, 1)]), Do::Truncate(0, 200)]);
        (lengths[0], lengths[1]) = (Some(200), Some(38));
        for _ in 0..count {
            let live: Vec<usize> = (0..lengths.len()).filter(|&s| lengths[s].is_some()).collect();
            let one = live[random.below(live.len())];
            let length = lengths[one].unwrap_or(0);
            match random.below(8) {
                0 if live.len() < 4 => {
                    list.push(Do::Create);
                    lengths.push(Some(0));
                }
                1 if live.len() < 4 => {
                    list.push(Do::Fork(one));
                    lengths.push(lengths[one]);
                }
                2 if length > 20 => {
                    let keep = length - 1 - random.below(length.min(140) - 1);
                    list.push(Do::Truncate(one, keep as u32));
                    lengths[one] = Some(keep);
                }
                3 if live.len() > 2 && length > 0 => {
                    list.push(Do::Release(one));
                    lengths[one] = None;
                }
                _ => {}
            }
            let mut rows = Vec::new();
            for (s, length) in lengths.iter_mut().enumerate() {
                let Some(length) = length else { continue };
                let n = match random.below(10) {
                    0 => 20 + random.below(60),
                    1 => 2 + random.below(2),
                    2 => continue,
                    _ => 1,
                };
                rows.push((s, n));
                *length += n;
            }
            if !rows.is_empty() {
                list.push(Do::Step(rows));
            }
        }
        Workload { list, seed }
    }

    /// Three long sequences, a fork and a few decoding steps.
    pub fn long(seed: u64) -> Self {
        let mut list = vec![Do::Create, Do::Create, Do::Create];
        list.extend((0..22).map(|i| Do::Step(vec![(0, 30 + i % 2), (1, 28), (2, 6)])));
        list.push(Do::Fork(0));
        list.extend((0..4).map(|_| Do::Step(vec![(0, 1), (1, 1), (2, 1), (3, 1)])));
        list.push(Do::Truncate(3, 300));
        list.push(Do::Step(vec![(3, 20), (0, 1)]));
        Workload { list, seed }
    }

    /// Everything in order; outputs of all steps and layers, one after the other.
    pub fn run(&self, engine: &mut Engine) -> Vec<f32> {
        let mut random = Random(!self.seed);
        let mut ids: Vec<SeqId> = Vec::new();
        let mut all = Vec::new();
        let group = engine.shape().groups[0].clone();
        for what in &self.list {
            match what {
                Do::Create => ids.push(engine.create().expect("create")),
                Do::Fork(s) => ids.push(engine.fork(ids[*s]).expect("fork")),
                Do::Truncate(s, keep) => engine.truncate(ids[*s], *keep).expect("truncate"),
                Do::Release(s) => engine.release(ids[*s]).expect("release"),
                Do::Step(rows) => {
                    let rows: Vec<SeqRows> =
                        rows.iter().map(|&(s, n)| SeqRows { seq: ids[s], rows: n as u32, committed: true }).collect();
                    let mut step = engine.begin_step(&rows).expect("begin");
                    let n = step.rows() as usize;
                    for &layer in &group.layers {
                        let k = random.row(n * group.kv_heads * group.k_dim);
                        let v = random.row(n * group.kv_heads * group.v_dim);
                        let q = random.row(n * group.q_heads * group.k_dim);
                        let mut out = vec![f32::NAN; n * group.q_heads * group.v_dim];
                        step.append(layer, Input::Host(&k), Input::Host(&v)).expect("append");
                        step.attend(layer, Input::Host(&q), Output::Host(&mut out)).expect("attend");
                        all.extend(out);
                    }
                    step.finish().expect("finish");
                }
            }
        }
        all
    }
}

/// The largest relative error of a head's output; NaN as soon as one is.
pub fn worst(got: &[f32], expected: &[f32], dim: usize) -> f64 {
    assert_eq!(got.len(), expected.len());
    got.chunks(dim).zip(expected.chunks(dim)).fold(0.0, |worst: f64, (got, expected)| {
        let length = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
        let off = length(&mut got.iter().zip(expected).map(|(&g, &e)| f64::from(g) - f64::from(e)))
            / length(&mut expected.iter().map(|&e| f64::from(e)));
        if worst.is_nan() || off <= worst { worst } else { off }
    })
}

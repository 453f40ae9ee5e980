//! Policies that free and move parts, and what pages then give back.

use half::f16;
use kvarto::conformance::reference::{Query, Token, attend};
use kvarto::engine::Registry;
use kvarto::policy::{Move, PageView, Policy};
use kvarto::shape::{PageGeometry, Side};

pub const P: usize = 32;
pub const DIM: usize = 64;
pub const Q_HEADS: usize = 4;
pub const KV_HEADS: usize = 2;
pub const LAYERS: usize = 2;

/// Frees the further parts of every second page, of K, of V or of both in turn.
#[derive(Default)]
pub struct Dropper;

/// Which sides of page `page` are to lose their further parts.
pub fn dropped(page: usize) -> [bool; 2] {
    [page % 4 == 1 || page % 4 == 3, page % 4 == 2 || page % 4 == 3]
}

impl Policy for Dropper {
    fn name(&self) -> &str {
        "dropper"
    }

    fn targets(&self) -> Vec<(String, String)> {
        [("tq2", "tq3n"), ("tq3n", "tq2"), ("tq2", "tq2")].map(|(k, v)| (k.to_string(), v.to_string())).to_vec()
    }

    fn decide(&mut self, pages: &[PageView]) -> Vec<Move> {
        let word = |gone: bool| if gone { "tq2" } else { "tq3n" }.to_string();
        let due = pages.iter().filter(|p| p.formats == ("tq3n".into(), "tq3n".into()) && dropped(p.page) != [false; 2]);
        due.map(|p| Move::Convert {
            sequence: p.sequence,
            layer: p.layer,
            kv_head: p.kv_head,
            page: p.page,
            k: word(dropped(p.page)[0]),
            v: word(dropped(p.page)[1]),
            reason: "further parts",
        })
        .collect()
    }
}

/// Brings V of pages of `tq3n` to fp8, for which their segment group may have no room: K goes along, in both parts or, on odd
/// pages, as what the first is alone.
pub struct Mover;

/// Formats that page `page` ends in.
pub fn moved(page: usize) -> [&'static str; 2] {
    [if page % 2 == 1 { "tq2" } else { "tq3n" }, "fp8"]
}

impl Policy for Mover {
    fn name(&self) -> &str {
        "mover"
    }

    fn targets(&self) -> Vec<(String, String)> {
        [moved(0), moved(1)].map(|[k, v]| (k.to_string(), v.to_string())).to_vec()
    }

    fn decide(&mut self, pages: &[PageView]) -> Vec<Move> {
        let due = pages.iter().filter(|p| &*p.formats.1 == "tq3n");
        due.map(|p| Move::Convert {
            sequence: p.sequence,
            layer: p.layer,
            kv_head: p.kv_head,
            page: p.page,
            k: moved(p.page)[0].into(),
            v: moved(p.page)[1].into(),
            reason: "moved",
        })
        .collect()
    }
}

/// Asks for bits back that are gone.
pub struct Regretful;

impl Policy for Regretful {
    fn name(&self) -> &str {
        "regretful"
    }

    fn decide(&mut self, pages: &[PageView]) -> Vec<Move> {
        let all = pages.iter().map(|p| Move::Convert {
            sequence: p.sequence,
            layer: p.layer,
            kv_head: p.kv_head,
            page: p.page,
            k: "tq3n".into(),
            v: "tq3n".into(),
            reason: "regret",
        });
        all.collect()
    }
}

pub fn draw(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    };
    // Sums of uniform numbers: near enough to a normal distribution. Exact in the open pages' f16.
    (0..count).map(|_| f16::from_f32(next() + next() + next()).to_f32()).collect()
}

/// What a page gives back of a head's rows: by side, rows and number of the page.
pub type Held<'a> = &'a dyn Fn(Side, &[f32], usize) -> Vec<f32>;

/// Rows of a page as it gives them back: of `tq3n`, of the first part alone as `tq2`, or encoded anew from `tq3n` in
/// another format.
pub fn stored(side: Side, rows: &[f32], page: usize, format: &str) -> Vec<f32> {
    let registry = Registry::builtin();
    let codec = |name: &str| {
        let (_, format) = registry.formats.by_name(name).expect("built in");
        format.codec(side, PageGeometry { tokens: P, head_dim: DIM }).expect("64 channels")
    };
    let whole = codec("tq3n").split().expect("two parts");
    let [first, further] = whole.parts();
    let (mut words, mut out) = (vec![0; first + further], vec![f32::NAN; P * DIM]);
    whole.encode(&rows[page * P * DIM..(page + 1) * P * DIM], &mut words);
    match format {
        "tq2" => codec("tq2").decode(&words[..first], 0..P, &mut out),
        _ => whole.decode(&words, 0..P, &mut out),
    }
    if !["tq2", "tq3n"].contains(&format) {
        let other = codec(format);
        let mut words = vec![0; other.layout().page_words];
        other.encode(&out, &mut words);
        other.decode(&words, 0..P, &mut out);
    }
    out
}

/// Holds what a step of `rows` rows said against attention in f64 over what pages hold: the first `pages` of each head give
/// their rows back as `held` says, the others as they came.
pub fn compare(
    said: &[Vec<f32>],
    keys: &[[Vec<f32>; 2]],
    (rows, seed): (usize, u64),
    pages: usize,
    held: Held<'_>,
    on: &str,
) {
    let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
    let length = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    for (layer, out) in said.iter().enumerate() {
        let q = draw(seed + layer as u64 + 20, rows * Q_HEADS * DIM);
        for head in 0..Q_HEADS {
            let kv_head = head / (Q_HEADS / KV_HEADS);
            let of = |x: &[f32]| -> Vec<f32> {
                x.chunks(KV_HEADS * DIM).flat_map(|r| r[kv_head * DIM..(kv_head + 1) * DIM].to_vec()).collect()
            };
            let mut sides = keys[layer].each_ref().map(|rows| of(rows));
            for page in 0..pages {
                for (rows, side) in sides.iter_mut().zip(Side::BOTH) {
                    let back = held(side, rows, page);
                    rows[page * P * DIM..(page + 1) * P * DIM].copy_from_slice(&back);
                }
            }
            let total = sides[0].len() / DIM;
            let token = |t: usize| Token {
                position: t as u64,
                key: wide(&sides[0][t * DIM..(t + 1) * DIM]),
                value: wide(&sides[1][t * DIM..(t + 1) * DIM]),
            };
            let tokens: Vec<Token> = (0..total).map(token).collect();
            for row in 0..rows {
                let at = (row * Q_HEADS + head) * DIM;
                let query = Query {
                    q: &wide(&q[at..at + DIM]),
                    position: (total - rows + row) as u64,
                    scale: 1.0 / (DIM as f64).sqrt(),
                    window: None,
                    softcap: None,
                    sink: None,
                };
                let want = attend(&tokens, &query, DIM);
                let off = length(&mut out[at..at + DIM].iter().zip(&want).map(|(&g, w)| f64::from(g) - w))
                    / length(&mut want.iter().copied());
                assert!(off <= 2e-3, "{on}, layer {layer}, head {head}, row {row} is off by {off}");
            }
        }
    }
}

/// Keys and values of a step, appended to those of the steps before, by layer.
pub fn remember(keys: &mut [[Vec<f32>; 2]], rows: usize, seed: u64) {
    for (layer, [k, v]) in keys.iter_mut().enumerate() {
        k.extend(draw(seed + layer as u64, rows * KV_HEADS * DIM));
        v.extend(draw(seed + layer as u64 + 10, rows * KV_HEADS * DIM));
    }
}

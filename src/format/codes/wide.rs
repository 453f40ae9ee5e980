//! Decoding on AVX-512: sixteen channels of a token at a time, codes by shifts and values by one permutation.
//!
//! Nothing of a layout is known here but its positions. Tokens whose codes stand in the same words make a **row**: its
//! words are gathered once, spread over lanes by a permutation that all rows share, and shifted for each of its tokens.

use std::collections::HashMap;
use std::ops::Range;

use pulp::x86::V4;
use pulp::{NullaryFnOnce, cast, f32x16};

use super::super::Layout;
use super::{FIRST, PLANE1};

/// Channels of a vector.
const LANES: usize = 16;
/// The most words of a row: head sizes up to 512.
const MOST_WORDS: usize = 512;

/// Where the lanes of one vector of channels find their codes.
#[derive(Clone, Copy, PartialEq)]
struct Lanes {
    /// Which of the gathered words.
    word: [u32; LANES],
    /// Bits below the code, for the layout's first token.
    shift: [u32; LANES],
}

/// A token of a row, and how much further its codes stand in the words than the first token's.
#[derive(Clone, Copy)]
struct Member {
    token: usize,
    shift: [u32; 2],
}

/// The plan of a page side; planes are the first one and, of three-bit codes, `plane1`.
pub(super) struct Wide {
    simd: V4,
    /// `[vector][plane]`.
    lanes: Vec<[Lanes; 2]>,
    /// Words to gather for a vector, by plane.
    counts: [usize; 2],
    /// `[row][vector][words of the first plane, then of the second]`.
    words: Vec<u16>,
    /// Tokens of each row.
    rows: Vec<Vec<Member>>,
}

/// The words and shifts of a token's codes in one plane, `[vector]`.
fn positions(layout: &Layout, plane: usize, token: usize) -> Vec<([u32; LANES], [u32; LANES])> {
    (0..layout.geometry.head_dim / LANES)
        .map(|vector| {
            let at = |lane| layout.position(plane, token, vector * LANES + lane);
            (std::array::from_fn(|lane| at(lane).0 as u32), std::array::from_fn(|lane| at(lane).1))
        })
        .collect()
}

/// Numbers the words of lanes in the order of their appearance.
fn numbered(words: &[u32; LANES]) -> ([u32; LANES], Vec<u32>) {
    let mut distinct = Vec::new();
    let number = words.map(|word| {
        let known = distinct.iter().position(|w| *w == word);
        known.unwrap_or_else(|| {
            distinct.push(word);
            distinct.len() - 1
        }) as u32
    });
    (number, distinct)
}

impl Wide {
    /// The plan for a layout; `None` where the processor or the layout does not serve.
    pub(super) fn new(layout: &Layout) -> Option<Self> {
        let simd = V4::try_new()?;
        let head_dim = layout.geometry.head_dim;
        if !head_dim.is_multiple_of(LANES) {
            return None;
        }
        let planes: &[usize] = if layout.planes.len() > PLANE1 { &[FIRST, PLANE1] } else { &[FIRST] };
        let mut wide = Wide { simd, lanes: Vec::new(), counts: [0; 2], words: Vec::new(), rows: Vec::new() };
        let mut known: HashMap<Vec<u16>, usize> = HashMap::new();
        for token in 0..layout.geometry.tokens {
            let by_plane: Vec<_> = planes.iter().map(|&plane| positions(layout, plane, token)).collect();
            let mut words = Vec::new();
            let mut member = Member { token, shift: [0; 2] };
            for vector in 0..head_dim / LANES {
                let mut lanes = [Lanes { word: [0; LANES], shift: [0; LANES] }; 2];
                for (plane, vectors) in by_plane.iter().enumerate() {
                    let (number, distinct) = numbered(&vectors[vector].0);
                    lanes[plane] = Lanes { word: number, shift: vectors[vector].1 };
                    if token == 0 && vector == 0 {
                        wide.counts[plane] = distinct.len();
                    }
                    if wide.counts[plane] != distinct.len() {
                        return None;
                    }
                    words.extend(distinct.iter().map(|&word| word as u16));
                }
                if token == 0 {
                    wide.lanes.push(lanes);
                }
                for plane in 0..planes.len() {
                    let (ours, shared) = (&lanes[plane], &wide.lanes[vector][plane]);
                    let further = ours.shift[0].wrapping_sub(shared.shift[0]);
                    let same = |(a, b): (&u32, &u32)| a.wrapping_sub(*b) == further;
                    let uniform = ours.shift.iter().zip(&shared.shift).all(same);
                    if vector == 0 {
                        member.shift[plane] = further;
                    }
                    if !uniform || ours.word != shared.word || further != member.shift[plane] || further >= 32 {
                        return None;
                    }
                }
            }
            if words.len() > MOST_WORDS {
                return None;
            }
            let row = *known.entry(words).or_insert_with_key(|words| {
                wide.words.extend(words);
                wide.rows.push(Vec::new());
                wide.rows.len() - 1
            });
            wide.rows[row].push(member);
        }
        Some(wide)
    }

    /// Reads the rows of `tokens`: entry i of a token's table is the value of the nibble i, see
    /// [`code_of`](super::reader::code_of).
    #[inline(always)]
    pub(super) fn decode<const N: usize>(
        &self,
        page: &[u32],
        tokens: Range<usize>,
        out: &mut [f32],
        table: impl Fn(usize) -> [f32; N],
    ) {
        self.simd.vectorize(Decode { wide: self, page, tokens, out, table });
    }
}

struct Decode<'a, F> {
    wide: &'a Wide,
    page: &'a [u32],
    tokens: Range<usize>,
    out: &'a mut [f32],
    table: F,
}

impl<const N: usize, F: Fn(usize) -> [f32; N]> NullaryFnOnce for Decode<'_, F> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Decode { wide, page, tokens, out, table } = self;
        let avx = wide.simd.avx512f;
        let low_bits = avx._mm512_set1_epi32(3);
        let head_dim = wide.lanes.len() * LANES;
        let per_vector = wide.counts[0] + wide.counts[1];
        let mut gathered = [0u32; MOST_WORDS + LANES];
        let mut tables = [f32x16(0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0.); LANES];
        for (members, words) in wide.rows.iter().zip(wide.words.chunks_exact(wide.lanes.len() * per_vector)) {
            if !members.iter().any(|member| tokens.contains(&member.token)) {
                continue;
            }
            // All of a row's words first: vectors that were stored in pieces a moment ago are slow to load.
            for (to, &word) in gathered.iter_mut().zip(words) {
                *to = page[usize::from(word)];
            }
            for members in members.chunks(LANES) {
                for (to, member) in tables.iter_mut().zip(members) {
                    let values = table(member.token);
                    let repeated: [f32; LANES] = std::array::from_fn(|i| values[i % N]);
                    *to = cast(repeated);
                }
                for (vector, lanes) in wide.lanes.iter().enumerate() {
                    let own = &gathered[vector * per_vector..];
                    let (Some(words), Some(words1)) = (own.first_chunk::<LANES>(), own[wide.counts[0]..].first_chunk())
                    else {
                        continue;
                    };
                    let first = avx._mm512_permutexvar_epi32(cast(lanes[0].word), cast(*words));
                    let first = avx._mm512_srlv_epi32(first, cast(lanes[0].shift));
                    let mut second = first;
                    if N == 8 {
                        // Rotated so that the second plane's bit comes to stand above the first plane's two.
                        second = avx._mm512_permutexvar_epi32(cast(lanes[1].word), cast::<[u32; LANES], _>(*words1));
                        second = avx._mm512_ror_epi32::<30>(avx._mm512_rorv_epi32(second, cast(lanes[1].shift)));
                    }
                    for (member, values) in members.iter().zip(&tables) {
                        let mut code = avx._mm512_srlv_epi32(first, avx._mm512_set1_epi32(member.shift[0] as i32));
                        if N == 8 {
                            let bit = avx._mm512_rorv_epi32(second, avx._mm512_set1_epi32(member.shift[1] as i32));
                            // Bits of the first where the mask has ones. Higher bits do not matter: tables repeat.
                            code = avx._mm512_ternarylogic_epi32::<0xca>(low_bits, code, bit);
                        }
                        let start = member.token.wrapping_sub(tokens.start).wrapping_mul(head_dim) + vector * LANES;
                        // Tokens outside the range are not in `out`.
                        if let Some(to) = out.get_mut(start..).and_then(|out| out.first_chunk_mut::<LANES>()) {
                            *to = cast(avx._mm512_permutexvar_ps(code, cast(*values)));
                        }
                    }
                }
            }
        }
    }
}

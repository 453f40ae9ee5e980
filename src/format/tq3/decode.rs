//! From words to rows, and from codes to words, through tables of addresses made from the layout.
//!
//! Of a word's bits only their order is known here: nibble n of `plane2` and of `plane1`, shifted
//! by 2s and so on, belong together. One table entry serves 8 values.

use std::ops::Range;

use super::super::Layout;
use super::{GAMMA, PLANE1, PLANE2, UNIT_INVERSE, integer};
use crate::num::f16_value;
use crate::shape::Side;

/// Words and shifts of eight values.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    // A page of 128 tokens of 512 channels has 6,400 words.
    word2: u16,
    word1: u16,
    shift2: u8,
    shift1: u8,
}

impl Entry {
    fn at(layout: &Layout, t: usize, c: usize) -> Self {
        let (word2, shift2) = layout.position(PLANE2, t, c);
        let (word1, shift1) = layout.position(PLANE1, t, c);
        Entry { word2: word2 as u16, word1: word1 as u16, shift2: shift2 as u8, shift1: shift1 as u8 }
    }

    /// Eight nibbles, n ascending: hi in bits 0 and 1, lo in bit 2.
    #[inline(always)]
    fn nibbles(self, page: &[u32]) -> u32 {
        let hi = (page[self.word2 as usize] >> self.shift2) & 0x3333_3333;
        let lo = (page[self.word1 as usize] >> self.shift1) & 0x1111_1111;
        hi | (lo << 2)
    }

    /// ORs eight codes into a page, given as nibbles like [`Entry::nibbles`].
    #[inline(always)]
    fn put(self, nibbles: u32, page: &mut [u32]) {
        page[self.word2 as usize] |= (nibbles & 0x3333_3333) << self.shift2;
        page[self.word1 as usize] |= ((nibbles >> 2) & 0x1111_1111) << self.shift1;
    }
}

/// Channels of an entry.
fn channels(side: Side) -> usize {
    match side {
        Side::K => 4,
        Side::V => 2,
    }
}

/// Address tables of a page side.
pub(super) struct Reader {
    side: Side,
    head_dim: usize,
    /// K: for every token without its bit 3 (which selects half words) and every four channels.
    /// V: for every token with T%2 = 0 and (T/8)%2 = 0, and every two channels.
    entries: Vec<Entry>,
    /// Word and shift of every token's γ.
    gammas: Vec<(u16, u8)>,
}

/// The tokens of a V entry's nibbles 0 to 3, counted from the entry's own; 4 to 7 are channel C + 1.
const V_TOKENS: [usize; 4] = [0, 1, 8, 9];

impl Reader {
    pub(super) fn new(layout: &Layout) -> Self {
        let (side, tokens, head_dim) = (layout.side, layout.geometry.tokens, layout.geometry.head_dim);
        let step = channels(side);
        let own_row = |t: &usize| (t / 8).is_multiple_of(2) && (side == Side::K || t.is_multiple_of(2));
        let places = (0..tokens).filter(own_row).flat_map(|t| (0..head_dim / step).map(move |i| (t, step * i)));
        let entries = places.map(|(t, c)| Entry::at(layout, t, c)).collect();
        let gamma = |t| {
            let (word, shift) = layout.scalar_position(GAMMA, t);
            (word as u16, shift as u8)
        };
        Reader { side, head_dim, entries, gammas: (0..tokens).map(gamma).collect() }
    }

    /// Entries of token `t`, and where it stands in their nibbles.
    fn row(&self, t: usize) -> (&[Entry], usize) {
        let (row, n) = match self.side {
            Side::K => (t / 16 * 8 + t % 8, t / 8 % 2),
            Side::V => (t / 16 * 4 + t % 8 / 2, t % 2 + 2 * (t / 8 % 2)),
        };
        let per_row = self.head_dim / channels(self.side);
        (&self.entries[row * per_row..(row + 1) * per_row], n)
    }

    /// Values of the eight nibbles under token `t`'s scale.
    fn values(&self, page: &[u32], t: usize) -> [f32; 8] {
        let (word, shift) = self.gammas[t];
        let scale = f16_value((page[usize::from(word)] >> shift) as u16) * UNIT_INVERSE;
        std::array::from_fn(|nibble| integer(((nibble as u32 & 3) << 1) | (nibble as u32 >> 2)) * scale)
    }

    /// ORs the codes of token `t` into `page`.
    pub(super) fn place(&self, codes: &[u8], t: usize, page: &mut [u32]) {
        let (entries, n) = self.row(t);
        // Nibbles hold hi in bits 0 and 1, lo in bit 2.
        let nibble = |code: &u8| u32::from(code >> 1) | (u32::from(code & 1) << 2);
        match self.side {
            Side::K => {
                for (entry, four) in entries.iter().zip(codes.as_chunks::<4>().0) {
                    let nibbles = four.iter().rev().fold(0, |w, code| (w << 4) | nibble(code));
                    entry.put(nibbles << (16 * n), page);
                }
            }
            Side::V => {
                for (entry, [a, b]) in entries.iter().zip(codes.as_chunks::<2>().0) {
                    entry.put((nibble(a) | (nibble(b) << 16)) << (4 * n), page);
                }
            }
        }
    }

    pub(super) fn decode(&self, page: &[u32], tokens: Range<usize>, out: &mut [f32]) {
        let head_dim = self.head_dim;
        if self.side == Side::K {
            for (row, t) in out.chunks_exact_mut(head_dim).zip(tokens) {
                let (entries, n) = self.row(t);
                let table = self.values(page, t);
                for (to, entry) in row.as_chunks_mut::<4>().0.iter_mut().zip(entries) {
                    let nibbles = entry.nibbles(page) >> (16 * n);
                    *to = std::array::from_fn(|k| table[(nibbles >> (4 * k)) as usize & 7]);
                }
            }
            return;
        }
        // Four tokens share every word of V. All four are read, tokens outside the range for nothing.
        let mut buffer = [[0f32; 512]; 4];
        let first_rows =
            (tokens.start / 16 * 16..tokens.end).filter(|t| t.is_multiple_of(2) && (t / 8).is_multiple_of(2));
        for first in first_rows {
            let members = V_TOKENS.map(|d| first + d);
            if !members.iter().any(|t| tokens.contains(t)) {
                continue;
            }
            let (entries, _) = self.row(first);
            let tables = members.map(|t| self.values(page, t));
            let [a, b, c, d] = &mut buffer;
            let pairs = a.as_chunks_mut::<2>().0.iter_mut().zip(b.as_chunks_mut::<2>().0);
            let pairs = pairs.zip(c.as_chunks_mut::<2>().0.iter_mut().zip(d.as_chunks_mut::<2>().0));
            for (entry, ((a, b), (c, d))) in entries.iter().zip(pairs) {
                let nibbles = entry.nibbles(page);
                let value = |row: usize, n: usize| tables[row][(nibbles >> (4 * n)) as usize & 7];
                *a = [value(0, 0), value(0, 4)];
                *b = [value(1, 1), value(1, 5)];
                *c = [value(2, 2), value(2, 6)];
                *d = [value(3, 3), value(3, 7)];
            }
            for (t, row) in members.iter().zip(&buffer) {
                if tokens.contains(t) {
                    let start = (t - tokens.start) * head_dim;
                    out[start..start + head_dim].copy_from_slice(&row[..head_dim]);
                }
            }
        }
    }
}

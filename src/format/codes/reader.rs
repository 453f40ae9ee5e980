//! From words to rows, and from codes to words, through tables of addresses made from the layout.
//!
//! Of a word's bits only their order is known here: nibble n of a plane, shifted by 2s and so on,
//! belongs to nibble n of the others. One table entry serves 8 values.
//!
//! Formats are told apart by N, the number of their codes: 4, 8 or 16.

use std::ops::Range;

use super::super::Layout;
use super::{FIRST, PLANE1, SCALAR};
use crate::shape::Side;

/// Words and shifts of eight values.
#[derive(Clone, Copy)]
struct Entry {
    // A page of 128 tokens of 512 channels of four bits has 8,256 words.
    word: u16,
    word1: u16,
    shift: u8,
    shift1: u8,
}

impl Entry {
    fn at(layout: &Layout, t: usize, c: usize) -> Self {
        let (word, shift) = layout.position(FIRST, t, c);
        let (word1, shift1) = if layout.planes.len() > PLANE1 { layout.position(PLANE1, t, c) } else { (0, 0) };
        Entry { word: word as u16, word1: word1 as u16, shift: shift as u8, shift1: shift1 as u8 }
    }

    /// Eight nibbles, n ascending; see [`nibble_of`].
    #[inline(always)]
    fn nibbles<const N: usize>(self, page: &[u32]) -> u32 {
        let first = page[self.word as usize];
        match N {
            // plane4's words hold nibbles and nothing else.
            16 => first,
            4 => (first >> self.shift) & 0x3333_3333,
            _ => {
                let lo = (page[self.word1 as usize] >> self.shift1) & 0x1111_1111;
                (first >> self.shift) & 0x3333_3333 | (lo << 2)
            }
        }
    }

    /// ORs eight codes into a page, given as nibbles like [`Entry::nibbles`].
    fn put<const N: usize>(self, nibbles: u32, page: &mut [u32]) {
        match N {
            16 => page[self.word as usize] |= nibbles,
            _ => page[self.word as usize] |= (nibbles & 0x3333_3333) << self.shift,
        }
        if N == 8 {
            page[self.word1 as usize] |= ((nibbles >> 2) & 0x1111_1111) << self.shift1;
        }
    }
}

/// The nibble of a code: of three bits, hi stands in bits 0 and 1 and lo in bit 2.
fn nibble_of<const N: usize>(code: u8) -> u32 {
    let code = u32::from(code);
    if N == 8 { (code >> 1) | ((code & 1) << 2) } else { code }
}

/// The code of a nibble.
#[inline(always)]
fn code_of<const N: usize>(nibble: usize) -> usize {
    if N == 8 { ((nibble & 3) << 1) | (nibble >> 2) } else { nibble }
}

/// Values in the order of nibbles from values in the order of codes.
#[inline(always)]
fn by_nibble<const N: usize>(by_code: [f32; N]) -> [f32; N] {
    std::array::from_fn(|nibble| by_code[code_of::<N>(nibble)])
}

/// Channels of an entry.
fn channels(side: Side) -> usize {
    match side {
        Side::K => 4,
        Side::V => 2,
    }
}

/// Address tables of a page side.
pub(in super::super) struct Reader {
    side: Side,
    head_dim: usize,
    /// K: for every token without its bit 3 (which selects half words) and every four channels.
    /// V: for every token with T%2 = 0 and (T/8)%2 = 0, and every two channels.
    entries: Vec<Entry>,
    /// Word and shift of every token's scalar.
    scalars: Vec<(u16, u8)>,
    scalar_mask: u32,
    #[cfg(target_arch = "x86_64")]
    wide: Option<super::wide::Wide>,
}

/// The tokens of a V entry's nibbles 0 to 3, counted from the entry's own; 4 to 7 are channel C + 1.
const V_TOKENS: [usize; 4] = [0, 1, 8, 9];

impl Reader {
    /// The tables of a layout of [`super::layout`].
    pub(in super::super) fn new(layout: &Layout) -> Self {
        let (side, tokens, head_dim) = (layout.side, layout.geometry.tokens, layout.geometry.head_dim);
        let step = channels(side);
        let own_row = |t: &usize| (t / 8).is_multiple_of(2) && (side == Side::K || t.is_multiple_of(2));
        let places = (0..tokens).filter(own_row).flat_map(|t| (0..head_dim / step).map(move |i| (t, step * i)));
        let entries = places.map(|(t, c)| Entry::at(layout, t, c)).collect();
        let scalar = |t| {
            let (word, shift) = layout.scalar_position(SCALAR, t, 0);
            (word as u16, shift as u8)
        };
        let scalar_mask = super::super::mask(layout.scalars[SCALAR].bits);
        Reader {
            side,
            head_dim,
            entries,
            scalars: (0..tokens).map(scalar).collect(),
            scalar_mask,
            #[cfg(target_arch = "x86_64")]
            wide: super::wide::Wide::new(layout),
        }
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

    /// The bits of token `t`'s scalar.
    fn scalar(&self, page: &[u32], t: usize) -> u32 {
        let (word, shift) = self.scalars[t];
        (page[usize::from(word)] >> shift) & self.scalar_mask
    }

    /// ORs the N-valued codes and the scalar of token `t` into `page`.
    pub(in super::super) fn place<const N: usize>(&self, codes: &[u8], scalar: u32, t: usize, page: &mut [u32]) {
        let (word, shift) = self.scalars[t];
        page[usize::from(word)] |= scalar << shift;
        let (entries, n) = self.row(t);
        match self.side {
            Side::K => {
                for (entry, four) in entries.iter().zip(codes.as_chunks::<4>().0) {
                    let nibbles = four.iter().rev().fold(0, |w, code| (w << 4) | nibble_of::<N>(*code));
                    entry.put::<N>(nibbles << (16 * n), page);
                }
            }
            Side::V => {
                for (entry, [a, b]) in entries.iter().zip(codes.as_chunks::<2>().0) {
                    entry.put::<N>((nibble_of::<N>(*a) | (nibble_of::<N>(*b) << 16)) << (4 * n), page);
                }
            }
        }
    }

    /// Reads the rows of `tokens`; `values` tells what each code means under a token's scalar.
    #[inline(always)]
    pub(in super::super) fn decode<const N: usize>(
        &self,
        page: &[u32],
        tokens: Range<usize>,
        out: &mut [f32],
        values: impl Fn(u32) -> [f32; N],
    ) {
        let head_dim = self.head_dim;
        #[cfg(target_arch = "x86_64")]
        if let Some(wide) = &self.wide {
            return wide.decode::<N>(
                page,
                tokens,
                out,
                #[inline(always)]
                |t| by_nibble(values(self.scalar(page, t))),
            );
        }
        let table = |t| by_nibble(values(self.scalar(page, t)));
        if self.side == Side::K {
            for (row, t) in out.chunks_exact_mut(head_dim).zip(tokens) {
                let (entries, n) = self.row(t);
                let table = table(t);
                for (to, entry) in row.as_chunks_mut::<4>().0.iter_mut().zip(entries) {
                    let nibbles = entry.nibbles::<N>(page) >> (16 * n);
                    *to = std::array::from_fn(|k| table[(nibbles >> (4 * k)) as usize & (N - 1)]);
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
            let tables = members.map(table);
            let [a, b, c, d] = &mut buffer;
            let pairs = a.as_chunks_mut::<2>().0.iter_mut().zip(b.as_chunks_mut::<2>().0);
            let pairs = pairs.zip(c.as_chunks_mut::<2>().0.iter_mut().zip(d.as_chunks_mut::<2>().0));
            for (entry, ((a, b), (c, d))) in entries.iter().zip(pairs) {
                let nibbles = entry.nibbles::<N>(page);
                let value = |row: usize, n: usize| tables[row][(nibbles >> (4 * n)) as usize & (N - 1)];
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

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::super::layout;
    use super::*;
    use crate::shape::PageGeometry;

    fn alike<const N: usize>(side: Side, tokens: usize, head_dim: usize) {
        let geometry = PageGeometry { tokens, head_dim };
        let layout = layout(side, geometry, N.trailing_zeros(), "scalar", 32).expect("a legal geometry");
        let mut reader = Reader::new(&layout);
        let there = pulp::x86::V4::try_new().is_some() && head_dim.is_multiple_of(16);
        assert_eq!(reader.wide.is_some(), there, "{side:?} {tokens} x {head_dim}, {N} codes");
        let page: Vec<u32> = (0..layout.page_words as u32).map(|i| i.wrapping_mul(0x9e37_79b9) ^ (i << 7)).collect();
        let values =
            |scalar: u32| -> [f32; N] { std::array::from_fn(|code| (scalar % 1021) as f32 + code as f32 / 16.0) };
        let ranges = [0..tokens, 3..tokens - 2, 5..6, 9..9];
        let decoded = |reader: &Reader| {
            ranges.clone().map(|range| {
                let mut out = vec![f32::NAN; range.len() * head_dim];
                reader.decode::<N>(&page, range, &mut out, values);
                out
            })
        };
        let by_vectors = decoded(&reader);
        reader.wide = None;
        // No NaN in either: a value that was never written would differ from itself.
        assert_eq!(by_vectors, decoded(&reader), "{side:?} {tokens} x {head_dim}, {N} codes");
    }

    #[test]
    fn vectors_and_words_decode_alike() {
        for side in Side::BOTH {
            for tokens in [16, 32, 64, 128] {
                for head_dim in [8, 64, 72, 80, 96, 128, 192, 256, 512] {
                    alike::<4>(side, tokens, head_dim);
                    alike::<8>(side, tokens, head_dim);
                    alike::<16>(side, tokens, head_dim);
                }
            }
        }
    }
}

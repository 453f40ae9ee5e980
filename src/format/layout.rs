//! Where every bit of a page stands: the one statement from which CPU, WGSL and CUDA code follow.

use super::Expr;
use crate::error::{Error, ErrorKind, Result};
use crate::shape::{PAGE_TOKENS, PageGeometry, Side};

/// Words of a unit: 16 bytes, what one thread reads at once.
pub const UNIT_WORDS: usize = 4;

/// A plane of equally many bits per value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaneSpec {
    /// Name within the layout, such as `codes` or `plane2`; part of emitted function names.
    pub name: &'static str,
    /// Bits of a value: 1, 2, 4, 8, 16 or 32.
    pub bits: u32,
    /// First word of the plane within the page; a multiple of [`UNIT_WORDS`].
    pub offset_words: usize,
    /// Words of the plane, padding channels included.
    pub words: usize,
    /// Word of value (T, C), counted from the plane's first word.
    pub word: Expr,
    /// Lowest bit of the value within that word.
    pub shift: Expr,
}

/// What a scalar belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    /// One scalar for each token.
    Token,
    /// One scalar for so many neighbouring channels of each token, a divisor of the head size.
    Block(u32),
    /// One scalar for the page side.
    Page,
}

/// A plane of scalars: scales of tokens, of blocks of channels or of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalarPlane {
    /// Name within the layout, such as `gamma` or `scale`.
    pub name: &'static str,
    /// What one scalar belongs to.
    pub per: Per,
    /// 16 (f16) or 32 (f32).
    pub bits: u32,
    /// First word of the plane within the page; a multiple of [`UNIT_WORDS`].
    pub offset_words: usize,
    /// Words of the plane, padding included.
    pub words: usize,
    /// Word of the scalar of value (T, C), counted from the plane's first word; over T alone unless of blocks.
    pub word: Expr,
    /// Lowest bit of the scalar within that word.
    pub shift: Expr,
}

impl ScalarPlane {
    /// The first value (token, channel) of each scalar's owner: one entry a scalar, in a page of `geometry`.
    pub fn owners(&self, geometry: PageGeometry) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (tokens, channels) = match self.per {
            Per::Page => (1, geometry.head_dim),
            Per::Token => (geometry.tokens, geometry.head_dim),
            Per::Block(channels) => (geometry.tokens, channels.max(1) as usize),
        };
        (0..tokens).flat_map(move |t| (0..geometry.head_dim).step_by(channels).map(move |c| (t, c)))
    }
}

/// Bits of a page side of one format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Keys or values.
    pub side: Side,
    /// Tokens and channels.
    pub geometry: PageGeometry,
    /// Planes of values, in the order of the page.
    pub planes: Vec<PlaneSpec>,
    /// Planes of scalars, in the order of the page.
    pub scalars: Vec<ScalarPlane>,
    /// Words of the page, a multiple of [`UNIT_WORDS`].
    pub page_words: usize,
}

impl Layout {
    /// An empty layout; add its planes in the order of the page.
    ///
    /// Refuses, as `Unsupported`, pages of other than 16, 32, 64 or 128 tokens and head sizes that
    /// are not multiples of 8 from 8 to 512.
    pub fn new(side: Side, geometry: PageGeometry) -> Result<Self> {
        let PageGeometry { tokens, head_dim } = geometry;
        if !PAGE_TOKENS.contains(&tokens) {
            let message = format!("pages of {tokens} tokens");
            return Err(Error::new(ErrorKind::Unsupported, message, "use 16, 32, 64 or 128 tokens"));
        }
        if !(8..=512).contains(&head_dim) || !head_dim.is_multiple_of(8) {
            let message = format!("{} head size {head_dim}: formats take multiples of 8 from 8 to 512", side.as_str());
            return Err(Error::new(ErrorKind::Unsupported, message, ""));
        }
        Ok(Layout { side, geometry, planes: Vec::new(), scalars: Vec::new(), page_words: 0 })
    }

    /// Appends a plane of `words` words at the next unit; `word` counts from the plane's start.
    pub fn plane(mut self, name: &'static str, bits: u32, words: usize, word: Expr, shift: Expr) -> Self {
        let offset_words = self.page_words;
        self.page_words += words.next_multiple_of(UNIT_WORDS);
        self.planes.push(PlaneSpec { name, bits, offset_words, words, word, shift });
        self
    }

    /// Appends a plane of scalars of `words` words at the next unit.
    pub fn scalar(
        mut self,
        name: &'static str,
        per: Per,
        bits: u32,
        words: usize,
        word: impl Into<Expr>,
        shift: impl Into<Expr>,
    ) -> Self {
        let offset_words = self.page_words;
        self.page_words += words.next_multiple_of(UNIT_WORDS);
        self.scalars.push(ScalarPlane { name, per, bits, offset_words, words, word: word.into(), shift: shift.into() });
        self
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        4 * self.page_words
    }

    /// Bits that a page holds resident for each of its values, scalars and padding included.
    pub fn resident_bits_per_value(&self) -> f64 {
        32.0 * self.page_words as f64 / self.geometry.values() as f64
    }

    /// Word within the page and lowest bit of value (`t`, `c`) in plane number `plane`.
    ///
    /// # Panics
    /// If the layout has no such plane.
    pub fn position(&self, plane: usize, t: usize, c: usize) -> (usize, u32) {
        let p = &self.planes[plane];
        let (t, c) = (t as u32, c as u32);
        (p.offset_words + p.word.eval(t, c) as usize, p.shift.eval(t, c))
    }

    /// Word within the page and lowest bit of the scalar of value (`t`, `c`) in scalar plane number `scalar`.
    ///
    /// # Panics
    /// If the layout has no such plane.
    pub fn scalar_position(&self, scalar: usize, t: usize, c: usize) -> (usize, u32) {
        let s = &self.scalars[scalar];
        let (t, c) = (t as u32, c as u32);
        (s.offset_words + s.word.eval(t, c) as usize, s.shift.eval(t, c))
    }

    /// The stored bits of value (`t`, `c`) in plane number `plane`; slow, the reference for decoders.
    ///
    /// # Panics
    /// If the layout has no such plane or `page` is shorter than a page.
    pub fn read(&self, page: &[u32], plane: usize, t: usize, c: usize) -> u32 {
        let (word, shift) = self.position(plane, t, c);
        (page[word] >> shift) & mask(self.planes[plane].bits)
    }

    /// The stored bits of the scalar of value (`t`, `c`) in scalar plane number `scalar`.
    ///
    /// # Panics
    /// If the layout has no such plane or `page` is shorter than a page.
    pub fn read_scalar(&self, page: &[u32], scalar: usize, t: usize, c: usize) -> u32 {
        let (word, shift) = self.scalar_position(scalar, t, c);
        (page[word] >> shift) & mask(self.scalars[scalar].bits)
    }
}

/// The lowest `bits` bits, 1 to 32.
pub fn mask(bits: u32) -> u32 {
    u32::MAX >> (32 - bits.clamp(1, 32))
}

//! What pages hold against what the CPU's codecs store for the same rows.

use super::reference::{Data, vector};
use super::{HEAD_DIM, KV_HEADS, PAGE_TOKENS, TAIL};
use crate::engine::StoredPage;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Codec, FormatRegistry};
use crate::num::rotate;
use crate::shape::{PageGeometry, Side};
use std::sync::Arc;

/// How far a value may be from what the CPU stores, as a fraction of it: nothing, as encoders work in integers and in
/// sums that every device rounds alike; but the `tq` formats have a row's scale from a sum of squares, which a device may
/// fuse, and round it to 16 bits, one way or the other.
fn slack(format: &str) -> f32 {
    if format.starts_with("tq") { 1.1e-3 } else { 0.0 }
}

/// A value next to a boundary between two codes may be stored as either; a value further from it than this fraction of
/// itself may not.
const BOUNDARY: f32 = 1e-5;

/// Where a side of pages comes from: rows of one KV head of one layer.
pub(super) struct Origin<'a> {
    pub data: &'a Data,
    pub layer: usize,
    pub head: usize,
    pub side: Side,
    pub rotated: bool,
}

impl Origin<'_> {
    /// The rows of a page's first `count` tokens, in the basis, zeros after them.
    fn rows(&self, page: usize, count: usize) -> Vec<f32> {
        let layer = &self.data.0[self.layer];
        let x = if self.side == Side::K { &layer.k } else { &layer.v };
        let mut rows = Vec::with_capacity(PAGE_TOKENS * HEAD_DIM);
        for token in 0..count {
            let mut row = vector(x, KV_HEADS, page * PAGE_TOKENS + token, self.head).to_vec();
            if self.rotated {
                rotate(&mut row);
            }
            rows.extend(row);
        }
        rows.resize(PAGE_TOKENS * HEAD_DIM, 0.0);
        rows
    }
}

/// The formats that a page's values went through.
struct Chain(Vec<Arc<dyn Codec>>);

impl Chain {
    fn new(names: &[&str], side: Side) -> Result<Self> {
        let formats = FormatRegistry::builtin();
        let geometry = PageGeometry { tokens: PAGE_TOKENS, head_dim: HEAD_DIM };
        let codec = |name: &&str| formats.by_name(name)?.1.codec(side, geometry);
        Ok(Chain(names.iter().map(codec).collect::<Result<_>>()?))
    }

    /// The page's values as stored and read back.
    fn through(&self, mut values: Vec<f32>) -> Vec<f32> {
        for codec in &self.0 {
            let mut page = vec![0; codec.layout().page_words];
            codec.encode(&values, &mut page);
            codec.decode(&page, 0..PAGE_TOKENS, &mut values);
        }
        values
    }
}

/// Squared errors of stored values and squares of the values themselves, summed.
#[derive(Default)]
pub(super) struct Rounding {
    error: f64,
    energy: f64,
}

impl Rounding {
    /// The normalised mean squared error; NaN of nothing.
    pub fn nmse(&self) -> f64 {
        self.error / self.energy
    }

    fn add(&mut self, stored: &[f32], values: &[f32]) {
        for (&stored, &value) in stored.iter().zip(values) {
            self.error += (f64::from(stored) - f64::from(value)).powi(2);
            self.energy += f64::from(value).powi(2);
        }
    }
}

/// Compares one side of a row of pages, of which those full and older than the tail of `before` tokens must be in
/// `format`, and adds the errors of these to `rounding`.
///
/// # Errors
/// `Device` with the first difference.
pub(super) fn check(
    pages: &[StoredPage],
    origin: &Origin<'_>,
    format: &str,
    before: usize,
    rounding: &mut Rounding,
) -> Result<()> {
    let open = if format == "f32" { "f32" } else { "f16" };
    let side = origin.side;
    for (at, page) in pages.iter().enumerate() {
        let sealed = at < before.saturating_sub(TAIL) / PAGE_TOKENS;
        let wanted = if sealed { format } else { open };
        let stored = &page.rows[side as usize];
        let place = |token: usize| {
            format!("{} side, layer {}, KV head {}, token {token}", side.as_str(), origin.layer, origin.head)
        };
        if page.formats[side as usize] != wanted {
            let found = &page.formats[side as usize];
            return Err(fault(format!("{}: its page is in format {found}, not {wanted}", place(at * PAGE_TOKENS))));
        }
        let chain = Chain::new(&[open, format][..1 + usize::from(sealed)], side)?;
        let values = origin.rows(at, stored.len() / HEAD_DIM);
        let expected = chain.through(values.clone());
        for (i, (&stored, &expected)) in stored.iter().zip(&expected).enumerate() {
            let near = |other: f32| (stored - other).abs() <= slack(wanted) * other.abs();
            let beside = |factor: f32| {
                let mut moved = values.clone();
                moved[i] *= factor;
                near(chain.through(moved)[i])
            };
            if !(near(expected) || beside(1.0 - BOUNDARY) || beside(1.0 + BOUNDARY)) {
                let token = at * PAGE_TOKENS + i / HEAD_DIM;
                let channel = i % HEAD_DIM;
                return Err(fault(format!("{}, channel {channel}: {stored} is stored, not {expected}", place(token))));
            }
        }
        if wanted == format {
            rounding.add(stored, &values);
        }
    }
    Ok(())
}

fn fault(message: String) -> Error {
    Error::new(ErrorKind::Device, message, "this is a fault of the library or of the driver: report it")
}

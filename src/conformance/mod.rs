//! The numeric suite of attention: cases over hand-built pages, run on any backend and compared with dense attention in
//! f64 ([`mod@reference`], which shares no code with the kernels).
//!
//! Slots are permuted, unused slots and the tails of last pages hold NaN patterns, outputs start as NaN patterns.

mod build;
mod case;
pub mod codes;
mod execute;
pub mod grid;
pub mod reference;

pub use build::{Built, Class, StoredSide};
pub use case::{BASES, Case, Formats, Kernel, POISON, Random, Values};
pub use execute::{Measured, Outcome, buffer, within, words};

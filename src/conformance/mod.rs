//! The numeric suite of attention: cases over hand-built pages, run on any backend and compared with dense attention in
//! f64 ([`mod@reference`], which shares no code with the kernels); every format's codes, to the bit.
//!
//! Slots are permuted, unused slots and the tails of last pages hold NaN patterns, outputs start as NaN patterns. It
//! needs nothing but a backend: [`run`] is the whole of it, as `kvarto conformance` shows it; a [`Case`] is one step.

mod build;
mod case;
pub mod codes;
mod execute;
mod expected;
pub mod grid;
mod maps;
pub mod reference;
mod report;
mod stored;
mod suite;

pub use build::{Built, Class};
pub use case::{BASES, CALIBRATED, Case, Formats, Kernel, POISON, Random, Values};
pub use execute::{Measured, Outcome, buffer, within, words};
pub use expected::{EXPECTED_FAILURES, ExpectedFailure};
pub use maps::{HeadMaps, SideMaps};
pub use report::{CheckResult, Report, Summary, Verdict};
pub use stored::{BoundSide, StoredSide};
pub use suite::{CPU_TOLERANCE, GPU_TOLERANCE, HALF_TOLERANCE, Options, Progress, run};

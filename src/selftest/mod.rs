//! A self-test of a backend: a small cache filled and asked through the engine, against dense attention in f64.
//!
//! It returns data and prints nothing; `kvarto doctor` shows it, and a program may run it at its own start.

mod kernels;
mod reference;

pub use kernels::{HEAD_SIZES, KernelReport, Support, formats, kernels, kernels_for};

use crate::backend::Backend;
use crate::engine::{Engine, Input, Output, Registry, SeqRows};
use crate::error::{Error, ErrorKind, Result};
use crate::profile::Profile;
use crate::shape::CacheShape;
use reference::{Data, worst_of};
use std::time::{Duration, Instant};

/// Layers of the tested shape.
pub const LAYERS: usize = 2;
/// Query heads.
pub const Q_HEADS: usize = 4;
/// KV heads.
pub const KV_HEADS: usize = 2;
/// Head size.
pub const HEAD_DIM: usize = 64;
/// Tokens of a page.
pub const PAGE_TOKENS: usize = 32;
/// Rows of the steps: two prefill chunks, of which the second reads sealed pages, then decoding.
pub const STEPS: [usize; 6] = [96, 96, 1, 1, 1, 1];
/// Newest tokens that stay exact, so that most of the cache is in the tested format.
const TAIL: usize = 16;

/// Formats tested (each on both sides) and the most that a row may be off: the length of the difference between
/// a head's output and the exact one, as a fraction of the exact one's length, in the worst row of all.
///
/// The limits leave room above what the formats' own rounding gives on this data (6e-7, 6e-4, 4e-3, 0.06, 0.70: one
/// row of 64 in its worst case); another row's output is off by 1.4 or so.
pub const FORMATS: [(&str, f64); 10] = [
    ("f32", 1e-5),
    ("f16", 2e-3),
    ("bf16", 1.2e-2),
    ("fp8", 0.12),
    ("tq3", 0.8),
    ("tq2", 1.6),
    ("tq4", 0.5),
    ("q8_0", 0.05),
    ("q4_0", 0.5),
    ("q3_affine", 0.9),
];

/// What came of one format.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Format of both sides.
    pub format: String,
    /// Worst row's relative error; NaN when an output was not a number or nothing was computed.
    pub worst: f64,
    /// What it may be.
    pub tolerance: f64,
    /// Time of the whole test, compiling included.
    pub time: Duration,
    /// Why it did not run to its end.
    pub fault: Option<Error>,
}

impl Verdict {
    /// Whether it ran to its end within the tolerance. An error that is not a number fails.
    pub fn passed(&self) -> bool {
        self.fault.is_none() && self.worst <= self.tolerance
    }
}

/// The test's inputs and exact outputs, made once for any number of backends.
pub struct SelfTest {
    data: Data,
}

impl Default for SelfTest {
    fn default() -> Self {
        SelfTest::new()
    }
}

impl SelfTest {
    /// Draws the inputs and computes the exact outputs.
    pub fn new() -> Self {
        SelfTest { data: Data::new() }
    }

    /// Tests one format on both sides; gives the backend back unless the engine could not be made.
    pub fn run(&self, backend: Box<dyn Backend>, format: &str, tolerance: f64) -> (Option<Box<dyn Backend>>, Verdict) {
        let start = Instant::now();
        let profile = Profile { exact_sink_tokens: 0, exact_tail_tokens: TAIL, ..Profile::formats(format, format) };
        let shape = CacheShape::uniform(LAYERS, Q_HEADS, KV_HEADS, HEAD_DIM, PAGE_TOKENS);
        let verdict = |outcome: Result<f64>| {
            let (worst, fault) = match outcome {
                Ok(worst) => (worst, None),
                Err(error) => (f64::NAN, Some(error)),
            };
            Verdict { format: format.into(), worst, tolerance, time: start.elapsed(), fault }
        };
        let mut engine = match Engine::new(backend, shape, profile, Registry::builtin()) {
            Ok(engine) => engine,
            Err(error) => return (None, verdict(Err(error))),
        };
        let outcome = self.drive(&mut engine, format);
        let verdict = verdict(outcome);
        (Some(engine.into_backend()), verdict)
    }

    fn drive(&self, engine: &mut Engine, format: &str) -> Result<f64> {
        let seq = engine.create()?;
        let (mut at, mut worst) = (0, 0.0);
        for rows in STEPS {
            let mut step = engine.begin_step(&[SeqRows { seq, rows: rows as u32, committed: true }])?;
            for layer in 0..LAYERS {
                let inputs = self.data.rows(layer, at, rows);
                step.append(layer, Input::Host(inputs.k), Input::Host(inputs.v))?;
                let mut out = vec![f32::NAN; rows * Q_HEADS * HEAD_DIM];
                step.attend(layer, Input::Host(inputs.q), Output::Host(&mut out))?;
                worst = worst_of(worst, &out, inputs.expected);
            }
            step.finish()?;
            at += rows;
        }
        let stats = engine.stats();
        engine.release(seq)?;
        let sealed = stats.pages.get(&(format.to_string(), format.to_string())).copied().unwrap_or(0);
        if sealed == 0 {
            return Err(Error::new(
                ErrorKind::Device,
                format!("no page was in format {format} at the end: {:?}", stats.pages),
                "this is a fault of the library: report it",
            ));
        }
        Ok(worst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::CpuBackend;

    #[test]
    fn every_format_passes_on_the_cpu() -> Result<()> {
        let test = SelfTest::new();
        let mut backend: Option<Box<dyn Backend>> = None;
        for (format, tolerance) in FORMATS {
            let held = match backend.take() {
                Some(backend) => backend,
                None => Box::new(CpuBackend::new(2)?),
            };
            let (back, verdict) = test.run(held, format, tolerance);
            backend = back;
            println!("{format}: {:.2e} of {tolerance:.0e}", verdict.worst);
            assert!(verdict.passed(), "{verdict:?}");
            // Tight enough to tell formats apart.
            assert!(verdict.worst > tolerance / 50.0, "{verdict:?}");
        }
        Ok(())
    }

    #[test]
    fn a_wrong_output_and_an_unknown_format_fail() -> Result<()> {
        let mut test = SelfTest::new();
        test.data.spoil();
        let (backend, verdict) = test.run(Box::new(CpuBackend::new(1)?), "tq3", FORMATS[4].1);
        assert!(backend.is_some() && !verdict.passed() && verdict.fault.is_none(), "{verdict:?}");
        let (backend, verdict) = test.run(Box::new(CpuBackend::new(1)?), "none", 1.0);
        assert!(backend.is_none() && !verdict.passed() && verdict.fault.is_some(), "{verdict:?}");
        let nan = Verdict { format: "f16".into(), worst: f64::NAN, tolerance: 1.0, time: Duration::ZERO, fault: None };
        assert!(!nan.passed());
        assert!(worst_of(0.5, &[f32::NAN; HEAD_DIM], &[1.0; HEAD_DIM]).is_nan());
        assert!(worst_of(f64::NAN, &[1.0; HEAD_DIM], &[1.0; HEAD_DIM]).is_nan());
        Ok(())
    }
}

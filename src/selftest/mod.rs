//! A self-test of a backend: a small cache filled and asked through the engine.
//!
//! Three things are compared, each with what it alone depends on: the values in the pages with those that the CPU's
//! codecs store for the same rows; the outputs with dense attention in f64 over the values in the pages, so that no
//! format's own rounding is in the way; and that rounding with what the format is known for.
//!
//! It returns data and prints nothing; `kvarto doctor` shows it, and a program may run it at its own start.

mod kernels;
#[cfg(test)]
mod planted;
mod reference;
mod stored;

pub use kernels::{HEAD_SIZES, KernelReport, Support, formats, kernels, kernels_for};

use crate::backend::Backend;
use crate::conformance::HALF_TOLERANCE;
use crate::engine::{Engine, Input, Output, Registry, SeqRows, StoredPage};
use crate::error::{Error, Result};
use crate::kernel::tier::Tier;
use crate::profile::Profile;
use crate::shape::{CacheShape, PageGeometry, Side};
use reference::{Data, Held, attend, model_coordinates, vector, worst_of};
use std::time::{Duration, Instant};
use stored::{Origin, Rounding};

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

/// Formats tested (each on both sides), and the normalised mean squared error that each is known for on normal values.
///
/// A float with m bits after the point is off by a third of a squared half step, on average 0.56 · 2^(-2m)/12 of the
/// square: 4.3e-8 for f16 (m = 10) and 2.8e-6 for bf16 (m = 7); fp8 (m = 3) has steps below its smallest normal as
/// well; tq3 has the error of its codebook at this head size, the mean of both sides.
pub const FORMATS: [(&str, f64); 11] = [
    ("f32", 0.0),
    ("f16", 4.3e-8),
    ("bf16", 2.8e-6),
    ("fp8", 7e-4),
    ("tq3", 0.034),
    ("tq2", 0.123),
    ("tq4", 0.00885),
    ("q8_0", 2.5e-5),
    ("q4_0", 0.0069),
    ("q3_affine", 0.039),
    ("tq3n", 0.034),
];

/// The most that an output may be off: the length of the difference between a head's output and the exact one over the
/// same stored values, as a fraction of the exact one's length, in the worst row of all. Only f32 arithmetic is in it.
pub const TOLERANCE: f64 = 1e-5;

/// How far the error of a format's rounding may be from what it is known for, as a factor either way.
pub const ROUNDING_FACTOR: f64 = 1.15;

/// What came of one format.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Format of both sides.
    pub format: String,
    /// Worst output's relative error; NaN when an output was not a number or nothing was computed.
    pub worst: f64,
    /// What it may be.
    pub tolerance: f64,
    /// Normalised mean squared error of the values that the format's pages hold; NaN when nothing was computed.
    pub nmse: f64,
    /// What the format is known for.
    pub known_nmse: f64,
    /// Time of the whole test, compiling included.
    pub time: Duration,
    /// Why it did not run to its end: a page that does not hold what it should is one reason.
    pub fault: Option<Error>,
}

impl Verdict {
    /// Whether it ran to its end, outputs within the tolerance and rounding as it should be. What is not a number fails.
    pub fn passed(&self) -> bool {
        let rounds = self.nmse <= self.known_nmse * ROUNDING_FACTOR && self.nmse >= self.known_nmse / ROUNDING_FACTOR;
        self.fault.is_none() && self.worst <= self.tolerance && rounds
    }
}

/// The test's inputs, made once for any number of backends.
pub struct SelfTest {
    data: Data,
}

impl Default for SelfTest {
    fn default() -> Self {
        SelfTest::new()
    }
}

/// What was seen of one format.
struct Seen {
    worst: f64,
    rounding: Rounding,
}

impl SelfTest {
    /// Draws the inputs.
    pub fn new() -> Self {
        SelfTest { data: Data::new() }
    }

    /// Tests one format on both sides, known for this error of rounding; gives the backend back unless the engine could
    /// not be made.
    pub fn run(&self, backend: Box<dyn Backend>, format: &str, known_nmse: f64) -> (Option<Box<dyn Backend>>, Verdict) {
        let start = Instant::now();
        let profile = Profile { exact_sink_tokens: 0, exact_tail_tokens: TAIL, ..Profile::formats(format, format) };
        let shape = CacheShape::uniform(LAYERS, Q_HEADS, KV_HEADS, HEAD_DIM, PAGE_TOKENS);
        let tier = Tier::of(backend.caps());
        let half = Registry::builtin().formats.by_name(format).is_ok_and(|(_, f)| {
            let geometry = PageGeometry { tokens: PAGE_TOKENS, head_dim: HEAD_DIM };
            f.codec(Side::K, geometry).is_ok_and(|codec| tier.in_half(codec.as_ref()))
        });
        let tolerance = if half { HALF_TOLERANCE } else { TOLERANCE };
        let verdict = |outcome: Result<Seen>| {
            let (worst, nmse, fault) = match outcome {
                Ok(seen) => (seen.worst, seen.rounding.nmse(), None),
                Err(error) => (f64::NAN, f64::NAN, Some(error)),
            };
            let time = start.elapsed();
            Verdict { format: format.into(), worst, tolerance, nmse, known_nmse, time, fault }
        };
        let mut engine = match Engine::new(backend, shape, profile, Registry::builtin()) {
            Ok(engine) => engine,
            Err(error) => return (None, verdict(Err(error))),
        };
        let outcome = self.drive(&mut engine, format);
        let verdict = verdict(outcome);
        (Some(engine.into_backend()), verdict)
    }

    fn drive(&self, engine: &mut Engine, format: &str) -> Result<Seen> {
        let seq = engine.create()?;
        let (mut at, mut seen) = (0, Seen { worst: 0.0, rounding: Rounding::default() });
        for rows in STEPS {
            let mut step = engine.begin_step(&[SeqRows { seq, rows: rows as u32, committed: true }])?;
            let mut outputs = Vec::with_capacity(LAYERS);
            for layer in &self.data.0 {
                let range = |heads: usize| at * heads * HEAD_DIM..(at + rows) * heads * HEAD_DIM;
                let (q, kv) = (range(Q_HEADS), range(KV_HEADS));
                step.append(outputs.len(), Input::Host(&layer.k[kv.clone()]), Input::Host(&layer.v[kv]))?;
                let mut out = vec![f32::NAN; rows * Q_HEADS * HEAD_DIM];
                step.attend(outputs.len(), Input::Host(&layer.q[q]), Output::Host(&mut out))?;
                outputs.push(out);
            }
            step.finish()?;
            let pages = engine.stored_pages(seq, 0)?;
            let rotated = engine.bases().iter().map(|&(k, v)| [k != "none", v != "none"]).next().unwrap_or_default();
            seen.rounding = Rounding::default();
            for (layer, out) in outputs.iter().enumerate() {
                let pages = &pages[layer * KV_HEADS..(layer + 1) * KV_HEADS];
                let held = self.held(pages, layer, format, at, rotated, &mut seen.rounding)?;
                for (row, head) in (0..rows).flat_map(|row| (0..Q_HEADS).map(move |head| (row, head))) {
                    let query = vector(&self.data.0[layer].q, Q_HEADS, at + row, head);
                    let expected = attend(&held[head / (Q_HEADS / KV_HEADS)], at + row + 1, query);
                    seen.worst = worst_of(seen.worst, vector(out, Q_HEADS, row, head), &expected);
                }
            }
            at += rows;
        }
        engine.release(seq)?;
        Ok(seen)
    }

    /// Checks what the pages of a layer hold after a step that began at `before` tokens, and gives it by KV head.
    fn held(
        &self,
        pages: &[Vec<StoredPage>],
        layer: usize,
        format: &str,
        before: usize,
        rotated: [bool; 2],
        rounding: &mut Rounding,
    ) -> Result<Vec<Held>> {
        let mut all = Vec::with_capacity(KV_HEADS);
        for (head, pages) in pages.iter().enumerate() {
            let mut held = Held::default();
            for side in Side::BOTH {
                let rotated = rotated[side as usize];
                let origin = Origin { data: &self.data, layer, head, side, rotated };
                stored::check(pages, &origin, format, before, rounding)?;
                let rows = pages.iter().flat_map(|page| model_coordinates(&page.rows[side as usize], rotated));
                match side {
                    Side::K => held.keys.extend(rows),
                    Side::V => held.values.extend(rows),
                }
            }
            all.push(held);
        }
        Ok(all)
    }
}

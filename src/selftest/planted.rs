//! Planted faults: the self-test must fail for each of them, and pass without.

use super::reference::worst_of;
use super::{FORMATS, HEAD_DIM, SelfTest, TOLERANCE, Verdict};
use crate::backend::{
    Backend, BufferSlice, Command, CpuBackend, Dispatch, PipelineId, Recording, Specialisation, SubmissionId,
    read_blocking,
};
use crate::error::Result;
use hooked::{Hooked, Hooks};
use std::collections::HashMap;
use std::time::Duration;

// The test programs' own backend with hooks.
#[path = "../../tests/support/hooked.rs"]
mod hooked;

/// What goes wrong, once: the `turn`th dispatch of a kernel, and what then becomes of a binding that it writes.
#[derive(Clone, Copy, Debug)]
struct Fault {
    kernel: &'static str,
    turn: usize,
    binding: usize,
    damage: Damage,
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    /// The last words that it changed stay as they were.
    Unwritten,
    /// The last word that it changed becomes another.
    Changed(fn(u32) -> u32),
}

/// Does a fault in the CPU's backend.
struct Faulty {
    fault: Fault,
    names: HashMap<PipelineId, &'static str>,
    seen: usize,
}

fn words(inner: &mut dyn Backend, slice: BufferSlice) -> Result<Vec<u32>> {
    let bytes = read_blocking(inner, slice.buffer, slice.offset, slice.bytes)?;
    Ok(bytemuck::pod_collect_to_vec(&bytes))
}

impl Faulty {
    /// Whether this dispatch is the one.
    fn due(&mut self, pipeline: PipelineId) -> bool {
        if self.names.get(&pipeline) != Some(&self.fault.kernel) {
            return false;
        }
        self.seen += 1;
        self.seen == self.fault.turn
    }

    /// Runs the dispatch, and does the damage.
    fn run_faulty(&self, inner: &mut dyn Backend, dispatch: Dispatch) -> Result<()> {
        let slice = dispatch.bindings[self.fault.binding];
        let before = words(inner, slice)?;
        let mut alone = Recording::new();
        alone.dispatch(dispatch);
        inner.submit(alone)?;
        let mut after = words(inner, slice)?;
        let changed: Vec<usize> = (0..after.len()).filter(|&at| before[at] != after[at]).collect();
        assert!(!changed.is_empty(), "{:?} writes nothing", self.fault);
        match self.fault.damage {
            Damage::Unwritten => changed.iter().rev().take(16).for_each(|&at| after[at] = before[at]),
            Damage::Changed(change) => {
                // A prepared query ends with two powers of two that only products in f16 are scaled by.
                let unread = if self.fault.kernel == "query" { 2 } else { 0 };
                let at = changed[changed.len() - 1 - unread];
                after[at] = change(after[at]);
            }
        }
        inner.write(slice.buffer, slice.offset, bytemuck::cast_slice(&after))
    }
}

impl Hooks for Faulty {
    fn submit(&mut self, inner: &mut dyn Backend, recording: Recording) -> Result<SubmissionId> {
        let mut healthy = Recording::new();
        for command in recording.commands() {
            match command {
                Command::Dispatch(dispatch) if self.due(dispatch.pipeline) => {
                    inner.submit(std::mem::take(&mut healthy))?;
                    self.run_faulty(inner, dispatch.clone())?;
                }
                Command::Dispatch(dispatch) => healthy.dispatch(dispatch.clone()),
                Command::Copy { src, dst } => healthy.copy(*src, *dst)?,
                Command::Boundary => healthy.boundary(),
                Command::Beside => healthy.beside(),
            }
        }
        inner.submit(healthy)
    }

    fn prepare(&mut self, inner: &mut dyn Backend, specialisation: &Specialisation) -> Result<PipelineId> {
        let id = inner.prepare(specialisation)?;
        self.names.insert(id, specialisation.decl.name);
        Ok(id)
    }
}

/// What the test says of the format of this number with a fault planted, which must have come about.
fn verdict_of(test: &SelfTest, format: usize, fault: Fault) -> Verdict {
    let inner = CpuBackend::new(2).expect("threads");
    let backend = Hooked::new(inner, Faulty { fault, names: HashMap::new(), seen: 0 });
    let (format, known) = FORMATS[format];
    test.run(Box::new(backend), format, known).1
}

#[test]
fn every_format_passes_on_the_cpu() -> Result<()> {
    let test = SelfTest::new();
    let mut backend: Option<Box<dyn Backend>> = None;
    for (format, known) in FORMATS {
        let held = match backend.take() {
            Some(backend) => backend,
            None => Box::new(CpuBackend::new(2)?),
        };
        let (back, verdict) = test.run(held, format, known);
        backend = back;
        println!("{format}: {:.2e} of {TOLERANCE:.0e}, rounding {:.4e} of {known:.2e}", verdict.worst, verdict.nmse);
        assert!(verdict.passed(), "{verdict:?}");
        // The limit is near what arithmetic alone gives.
        assert!(verdict.worst > TOLERANCE / 50.0, "{verdict:?}");
    }
    Ok(())
}

/// (kernel, turns at which it is tried, bindings that it writes). Some formats of this test convert nothing.
const KERNELS: [(&str, &[usize], &[usize]); 6] = [
    ("query", &[1, 12], &[4]),
    ("append", &[1, 12], &[6, 7]),
    ("prefill", &[1, 3], &[5]),
    ("decode", &[1, 6], &[5]),
    ("merge", &[1, 12], &[5]),
    ("convert", &[1, 4], &[1]),
];

/// Tries a damage everywhere: all formats, kernels, turns and bindings.
fn everywhere(damage: impl Fn(&str, &str) -> Damage, passes: bool) {
    let test = SelfTest::new();
    for (format, (name, _)) in FORMATS.into_iter().enumerate() {
        let kernels = KERNELS.iter().filter(|(kernel, ..)| *kernel != "convert" || !["f32", "f16"].contains(&name));
        for &(kernel, turns, bindings) in kernels {
            // Both parts of a page in two.
            let bindings = if (name, kernel) == ("tq3n", "convert") { &[1, 3][..] } else { bindings };
            for (&turn, &binding) in turns.iter().flat_map(|turn| bindings.iter().map(move |b| (turn, b))) {
                let fault = Fault { kernel, turn, binding, damage: damage(name, kernel) };
                let verdict = verdict_of(&test, format, fault);
                assert_eq!(verdict.passed(), passes, "{fault:?}: {verdict:?}");
            }
        }
    }
}

#[test]
fn a_word_written_again_as_it_was_is_no_fault() {
    everywhere(|_, _| Damage::Changed(|word| word), true);
}

#[test]
fn words_left_unwritten_fail() {
    everywhere(|_, _| Damage::Unwritten, false);
}

/// The lowest bit of what pages hold; the lowest of the exponent in prepared queries, partial states and outputs, whose
/// lower bits are within the rounding of f32 arithmetic.
#[test]
fn one_flipped_bit_fails() {
    let stored = |kernel: &str| ["append", "convert"].contains(&kernel);
    let damage = |format: &str, kernel: &str| match stored(kernel) {
        // Their pages end with scales, whose last bit may be rounded either way.
        true if kernel == "convert" && ["tq2", "tq4", "tq3n"].contains(&format) => {
            Damage::Changed(|word| word ^ 1 << 2)
        }
        true => Damage::Changed(|word| word ^ 1),
        false => Damage::Changed(|word| word ^ 1 << 23),
    };
    everywhere(damage, false);
}

#[test]
fn one_nan_fails() {
    let damage = |format: &str, kernel: &str| match (format, kernel) {
        // Open pages of the other formats hold halves.
        (format, "append") if format != "f32" => Damage::Changed(|word| word | 0x7e00),
        // Codes of all ones: a NaN where the format has one.
        (_, "convert") => Damage::Changed(|_| u32::MAX),
        _ => Damage::Changed(|_| f32::NAN.to_bits()),
    };
    everywhere(damage, false);
}

#[test]
fn rounding_that_is_not_the_formats_and_an_unknown_format_fail() -> Result<()> {
    let test = SelfTest::new();
    for known in [FORMATS[4].1 * 1.4, FORMATS[4].1 / 1.4, f64::NAN] {
        let (_, verdict) = test.run(Box::new(CpuBackend::new(1)?), "tq3", known);
        assert!(!verdict.passed() && verdict.fault.is_none(), "{verdict:?}");
    }
    let (backend, verdict) = test.run(Box::new(CpuBackend::new(1)?), "none", 1.0);
    assert!(backend.is_none() && !verdict.passed() && verdict.fault.is_some(), "{verdict:?}");
    Ok(())
}

#[test]
fn what_is_not_a_number_fails() {
    let good = Verdict {
        format: "f16".into(),
        worst: 0.0,
        tolerance: 1.0,
        nmse: 1.0,
        known_nmse: 1.0,
        time: Duration::ZERO,
        fault: None,
    };
    assert!(good.passed());
    assert!(!Verdict { worst: f64::NAN, ..good.clone() }.passed());
    assert!(!Verdict { nmse: f64::NAN, ..good }.passed());
    assert!(worst_of(0.5, &[f32::NAN; HEAD_DIM], &[1.0; HEAD_DIM]).is_nan());
    assert!(worst_of(f64::NAN, &[1.0; HEAD_DIM], &[1.0; HEAD_DIM]).is_nan());
}

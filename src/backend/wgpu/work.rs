//! How long submissions will take, from how long earlier ones took, and where to split a recording.
//!
//! A dispatch is predicted to take its workgroups times its pipeline's nanoseconds a workgroup; a submission, the sum of
//! its dispatches. A pipeline begins with a guess of 2000 ns. Each completed submission is timed on the host, from the
//! completion of the one before it, or its own submission where that was later; the rates of its pipelines are then all
//! multiplied by time / prediction, held between 1/8 and 4. Submissions below a millisecond raise no rate: most of their
//! time is overhead. So a prediction is of workgroups like the newest ones: where their work grows with the context, the
//! rate follows a step behind.

use crate::backend::Command;
use crate::backend::reading::lock;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Nanoseconds a workgroup is taken to need before any measurement.
const FIRST_GUESS_NS: f64 = 2000.0;
/// Submissions below this say little of their kernels: most of it is overhead.
const TELLING_NS: f64 = 1e6;

/// A completed submission.
struct Measured {
    work: Vec<(usize, u64)>,
    nanoseconds: f64,
}

#[derive(Default)]
struct Clock {
    last_done: Option<Instant>,
    measured: Vec<Measured>,
}

/// Estimates of kernels' running times.
#[derive(Default)]
pub(super) struct Work {
    clock: Arc<Mutex<Clock>>,
    ns_a_group: Vec<f64>,
    /// What every rate is, when measurements are not to be heeded.
    assumed_ns: Option<f64>,
    steps: u64,
    steps_ns: f64,
}

impl Work {
    /// Estimates from measurements, or `ns` a workgroup of every kernel.
    pub(super) fn assuming(ns: Option<u32>) -> Self {
        Work { assumed_ns: ns.map(|ns| f64::from(ns.max(1))), ..Work::default() }
    }

    /// A callback for the completion of a submission of `commands` that is submitted now.
    pub(super) fn measure(&self, commands: &[Command]) -> impl FnOnce() + Send + 'static {
        let mut work: Vec<(usize, u64)> = Vec::new();
        for command in commands {
            if let Command::Dispatch(dispatch) = command {
                let (kernel, groups) = (dispatch.pipeline.0 as usize, u64::from(dispatch.groups));
                match work.iter_mut().find(|(k, _)| *k == kernel) {
                    Some((_, sum)) => *sum += groups,
                    None => work.push((kernel, groups)),
                }
            }
        }
        let (clock, submitted) = (self.clock.clone(), Instant::now());
        move || {
            let now = Instant::now();
            let mut clock = lock(&clock);
            // The device starts a submission when the one before it is done.
            let start = clock.last_done.map_or(submitted, |last| last.max(submitted));
            clock.last_done = Some(now);
            clock.measured.push(Measured { work, nanoseconds: now.duration_since(start).as_nanos() as f64 });
        }
    }

    /// Takes in what was measured since the last call.
    pub(super) fn absorb(&mut self) {
        let measured = std::mem::take(&mut lock(&self.clock).measured);
        for done in measured {
            self.steps += 1;
            self.steps_ns += done.nanoseconds;
            self.learn(&done);
        }
    }

    fn learn(&mut self, done: &Measured) {
        let predicted: f64 = done.work.iter().map(|&(kernel, groups)| self.rate(kernel) * groups as f64).sum();
        if predicted <= 0.0 {
            return;
        }
        let ratio = (done.nanoseconds / predicted).clamp(0.125, 4.0);
        if ratio > 1.0 && done.nanoseconds < TELLING_NS {
            return;
        }
        for &(kernel, _) in &done.work {
            let rate = self.rate(kernel) * ratio;
            if kernel >= self.ns_a_group.len() {
                self.ns_a_group.resize(kernel + 1, FIRST_GUESS_NS);
            }
            self.ns_a_group[kernel] = rate.max(0.01);
        }
    }

    fn rate(&self, kernel: usize) -> f64 {
        self.assumed_ns.or(self.ns_a_group.get(kernel).copied()).unwrap_or(FIRST_GUESS_NS)
    }

    /// Workgroups of a kernel that are predicted to take `limit_ms`; at least 1, and all of them without a limit.
    pub(super) fn groups_within(&self, kernel: usize, limit_ms: u32) -> u32 {
        match limit_ms {
            0 => u32::MAX,
            // Casts saturate.
            ms => ((f64::from(ms) * 1e6 / self.rate(kernel)) as u32).max(1),
        }
    }

    /// Submissions completed and their nanoseconds since the last call.
    pub(super) fn take_steps(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.steps), std::mem::take(&mut self.steps_ns) as u64)
    }

    /// Ranges of `commands`, cut at boundaries, each predicted to stay under `limit_ms` where boundaries allow.
    pub(super) fn segments(&self, commands: &[Command], limit_ms: u32) -> Vec<Range<usize>> {
        let limit = f64::from(limit_ms) * 1e6;
        let mut segments = Vec::new();
        // Since the last cut, and since the last boundary.
        let (mut from, mut before, mut boundary, mut since) = (0, 0.0, 0, 0.0);
        for at in 0..=commands.len() {
            match commands.get(at) {
                Some(Command::Dispatch(d)) => {
                    since += self.rate(d.pipeline.0 as usize) * f64::from(d.groups);
                    continue;
                }
                Some(Command::Copy { .. } | Command::Beside) => continue,
                Some(Command::Boundary) | None => {}
            }
            if limit_ms > 0 && before > 0.0 && since > 0.0 && before + since > limit {
                segments.push(from..boundary);
                (from, before) = (boundary, 0.0);
            }
            before += since;
            (boundary, since) = (at, 0.0);
        }
        segments.push(from..commands.len());
        segments
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Dispatch, PipelineId};

    fn commands(groups: &[u32]) -> Vec<Command> {
        let dispatch = |&groups| Dispatch { pipeline: PipelineId(0), groups, params: vec![], bindings: vec![] };
        groups.iter().flat_map(|g| [Command::Dispatch(dispatch(g)), Command::Boundary]).collect()
    }

    #[test]
    #[allow(clippy::single_range_in_vec_init)] // a list of ranges that happens to hold one
    fn splits_only_at_boundaries_and_only_above_the_limit() {
        let work = Work { ns_a_group: vec![1e6], ..Work::default() };
        let all = commands(&[30, 30, 10, 200, 5]);
        assert_eq!(work.segments(&all, 0), [0..10]);
        assert_eq!(work.segments(&all, 1000), [0..10]);
        // 30, 30 + 10, 200 alone, 5.
        assert_eq!(work.segments(&all, 50), [0..1, 1..5, 5..7, 7..10]);
        assert_eq!(work.segments(&all, 1), [0..1, 1..3, 3..5, 5..7, 7..10]);
        assert_eq!(work.segments(&[], 50), [0..0]);
    }

    #[test]
    fn groups_within_a_limit_are_at_least_one() {
        let work = Work { ns_a_group: vec![1e6, 3e9, 0.01], ..Work::default() };
        assert_eq!([0, 1, 2, 3].map(|kernel| work.groups_within(kernel, 50)), [50, 1, u32::MAX, 25_000]);
        assert_eq!(work.groups_within(1, 0), u32::MAX);
    }

    #[test]
    fn rates_follow_long_measurements() {
        let mut work = Work::default();
        for _ in 0..40 {
            work.learn(&Measured { work: vec![(3, 1000)], nanoseconds: 5e9 });
        }
        assert!((work.rate(3) - 5e6).abs() < 1e3, "{}", work.rate(3));
        // A short submission cannot raise a rate.
        work.learn(&Measured { work: vec![(1, 1)], nanoseconds: 9e5 });
        assert_eq!(work.rate(1), FIRST_GUESS_NS);
        for _ in 0..40 {
            work.learn(&Measured { work: vec![(3, 1000)], nanoseconds: 1e6 });
        }
        assert!((work.rate(3) - 1e3).abs() < 1.0, "{}", work.rate(3));
    }
}

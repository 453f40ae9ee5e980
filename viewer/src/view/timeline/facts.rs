//! Steps as the lanes need them, gathered once for as much of a trace as is known.

use crate::store::{Change, Chronicle};
use kvarto::engine::StepFacts;
use std::collections::BTreeMap;

/// A step counts as stalled above this many times the median of steps with as many rows.
pub const STALL: u64 = 3;

/// Sums up to a step, itself included.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// Rows of decoding steps.
    pub rows: u64,
    /// Their host time.
    pub ns: u64,
    /// Decoding steps.
    pub decoding: u64,
    /// Stalled steps.
    pub stalls: u64,
    /// Steps that left moves waiting.
    pub waiting: u64,
}

/// A step.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Seconds since the first event.
    pub start: f64,
    /// The same.
    pub end: f64,
    /// Whether a sequence had more than one row.
    pub prefill: bool,
    /// Whether it took much longer than others like it.
    pub stalled: bool,
    /// Pages converted since the step before.
    pub conversions: u32,
    /// Pages evicted since the step before.
    pub evictions: u32,
    /// Bytes read a second, where it read any.
    pub bandwidth: Option<f64>,
    /// The sample of kernel times that it lies in.
    pub kernels: Option<u32>,
    /// Sums up to here.
    pub sums: Sums,
}

/// How much of a trace facts are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    steps: (usize, u64),
    newest: u64,
    changes: u64,
    kernels: (usize, u64),
}

impl Extent {
    /// How much there is.
    pub fn of(chronicle: &Chronicle) -> Self {
        Extent {
            steps: (chronicle.steps.samples().len(), chronicle.steps.stride()),
            newest: chronicle.steps.samples().last().map_or(0, |step| step.when.event),
            changes: chronicle.changes.forgotten() + chronicle.changes.items().len() as u64,
            kernels: (chronicle.kernels.samples().len(), chronicle.kernels.stride()),
        }
    }
}

/// All steps, as long as the list of the chronicle.
#[derive(Debug, Default)]
pub struct Facts {
    /// By place in the chronicle's list.
    pub bars: Vec<Bar>,
    /// Median host time by number of rows, nanoseconds.
    medians: BTreeMap<u32, u64>,
    /// Whether bandwidths are of the device's time of `decode`, not of host time.
    pub device_time: bool,
    /// Kernels by summed time, longest first.
    pub kernels: Vec<String>,
    /// The newest event of the trace, seconds.
    newest: f64,
    /// One step in so many was kept when these were gathered.
    stride: u64,
    /// Changes of pages that are counted, of all that the trace had.
    counted: u64,
}

/// Kernels that are told apart; further ones count together.
pub const MOST_KERNELS: usize = 64;

impl Facts {
    /// Gathers them. `before` are those of the same trace when less of it was known: what it counted stands.
    pub fn of(chronicle: &Chronicle, before: &Facts) -> Self {
        let steps = chronicle.steps.samples();
        let start_ns = chronicle.start_ns.unwrap_or(0);
        let seconds = |ns: u64| (ns as f64 - start_ns as f64) / 1e9;
        let medians = medians(steps.iter().map(|step| &step.what));
        let mut bars: Vec<Bar> = steps
            .iter()
            .map(|step| Bar {
                start: seconds(step.when.ns) - step.what.host_ns as f64 / 1e9,
                end: seconds(step.when.ns),
                prefill: step.what.sequences.iter().any(|rows| rows.rows > 1),
                stalled: medians
                    .get(&step.what.rows)
                    .is_some_and(|median| step.what.host_ns > median.saturating_mul(STALL)),
                conversions: 0,
                evictions: 0,
                bandwidth: None,
                kernels: None,
                sums: Sums::default(),
            })
            .collect();
        let device_time = !chronicle.kernels.samples().is_empty();
        let newest = seconds(chronicle.end.ns);
        let stride = chronicle.steps.stride();
        let mut facts = Facts { device_time, medians, newest, stride, ..Facts::default() };
        add_up(&mut bars, chronicle);
        // Fewer steps than before are those of a file that was opened anew.
        let goes_on = before.stride == stride && before.bars.len() <= bars.len();
        let known = if goes_on { before.bars.len() } else { 0 };
        for (bar, counted) in bars.iter_mut().zip(&before.bars[..known]) {
            (bar.conversions, bar.evictions) = (counted.conversions, counted.evictions);
        }
        let counted = if known > 0 { before.counted } else { 0 };
        facts.counted = count_changes(&mut bars, chronicle, known, counted);
        facts.kernels = kernels(chronicle);
        bandwidths(&mut bars, chronicle);
        facts.bars = bars;
        facts
    }

    /// The median host time of steps with as many rows, nanoseconds.
    pub fn median(&self, rows: u32) -> Option<u64> {
        self.medians.get(&rows).copied()
    }

    /// The earliest beginning and the latest end, seconds.
    pub fn span(&self) -> (f64, f64) {
        let start = self.bars.iter().map(|bar| bar.start).fold(f64::INFINITY, f64::min);
        let end = self.bars.iter().map(|bar| bar.end).fold(self.newest, f64::max);
        // No trace is as short; a damaged one may be as long as it says.
        if start.is_finite() && end.is_finite() { (start, end.max(start + 1e-6)) } else { (0.0, 1.0) }
    }

    /// The step at a time: the one that runs then, or else the nearest.
    pub fn at(&self, time: f64) -> Option<usize> {
        let after = self.bars.partition_point(|bar| bar.end < time);
        let distance = |at: &usize| {
            let bar = &self.bars[*at];
            (bar.start - time).max(time - bar.end).max(0.0)
        };
        [after.checked_sub(1), Some(after)]
            .into_iter()
            .flatten()
            .filter(|at| *at < self.bars.len())
            .min_by(|a, b| distance(a).total_cmp(&distance(b)))
    }
}

fn medians<'a>(steps: impl Iterator<Item = &'a StepFacts>) -> BTreeMap<u32, u64> {
    let mut times: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    steps.for_each(|step| times.entry(step.rows).or_default().push(step.host_ns));
    let median = |(rows, mut times): (u32, Vec<u64>)| {
        let middle = times.len() / 2;
        (rows, *times.select_nth_unstable(middle).1)
    };
    times.into_iter().map(median).collect()
}

fn add_up(bars: &mut [Bar], chronicle: &Chronicle) {
    let mut sums = Sums::default();
    for (bar, step) in bars.iter_mut().zip(chronicle.steps.samples()) {
        if !bar.prefill {
            sums.rows = sums.rows.saturating_add(step.what.rows.into());
            sums.ns = sums.ns.saturating_add(step.what.host_ns);
            sums.decoding += 1;
        }
        sums.stalls += u64::from(bar.stalled);
        sums.waiting += u64::from(step.what.waiting_moves > 0);
        bar.sums = sums;
    }
}

/// Changes before a step's end belong to it: counts for the steps from place `known` on, after the first `counted`
/// changes of the trace. How many are counted then.
fn count_changes(bars: &mut [Bar], chronicle: &Chronicle, known: usize, counted: u64) -> u64 {
    let changes = chronicle.changes.items();
    let forgotten = chronicle.changes.forgotten();
    let mut at = usize::try_from(counted.saturating_sub(forgotten)).unwrap_or(usize::MAX).min(changes.len());
    for (bar, step) in bars.iter_mut().zip(chronicle.steps.samples()).skip(known) {
        while let Some(change) = changes.get(at).filter(|change| change.when.event < step.when.event) {
            match change.what.change {
                Change::Converted => bar.conversions = bar.conversions.saturating_add(1),
                Change::Evicted => bar.evictions = bar.evictions.saturating_add(1),
                Change::Allocated => {}
            }
            at += 1;
        }
    }
    forgotten.saturating_add(at as u64)
}

/// Bytes read a second: by the time of `decode` since the kernel times before, else by host time.
fn bandwidths(bars: &mut [Bar], chronicle: &Chronicle) {
    let steps = chronicle.steps.samples();
    let mut from = 0;
    for (number, sample) in chronicle.kernels.samples().iter().enumerate() {
        let to = steps.partition_point(|step| step.what.step <= sample.what.step).max(from);
        // Of a list that was thinned, times are of the newest step alone.
        if chronicle.kernels.stride() > 1 {
            from = to.saturating_sub(1);
        }
        let decode = sample.what.kernels.iter().filter(|share| share.kernel == "decode");
        let ns = decode.fold(0u64, |sum, share| sum.saturating_add(share.nanoseconds));
        let read = steps[from..to].iter().fold(0u64, |sum, step| sum.saturating_add(step.what.read_bytes));
        let rate = (ns > 0 && read > 0).then(|| read as f64 / (ns as f64 / 1e9));
        for (bar, step) in bars[from..to].iter_mut().zip(&steps[from..to]) {
            bar.kernels = u32::try_from(number).ok();
            bar.bandwidth = rate.filter(|_| step.what.read_bytes > 0);
        }
        from = to;
    }
    if chronicle.kernels.samples().is_empty() {
        for (bar, step) in bars.iter_mut().zip(steps) {
            let (read, ns) = (step.what.read_bytes, step.what.host_ns);
            bar.bandwidth = (read > 0 && ns > 0).then(|| read as f64 / (ns as f64 / 1e9));
        }
    }
}

/// Names by summed time, longest first.
fn kernels(chronicle: &Chronicle) -> Vec<String> {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for share in chronicle.kernels.samples().iter().flat_map(|sample| sample.what.kernels.iter()) {
        if sums.len() < MOST_KERNELS || sums.contains_key(share.kernel.as_ref()) {
            let sum = sums.entry(share.kernel.as_ref()).or_default();
            *sum = sum.saturating_add(share.nanoseconds);
        }
    }
    let mut all: Vec<(&str, u64)> = sums.into_iter().collect();
    all.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    all.into_iter().map(|(name, _)| name.to_string()).collect()
}

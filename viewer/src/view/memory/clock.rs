//! Which sample of memory belongs to a place on the axis of time, and which event a place leads to.

use crate::store::{Chronicle, Store};
use kvarto::engine::MemoryClasses;

/// What the axis counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// Steps: each is as wide as any other.
    #[default]
    Steps,
    /// Seconds since the first event.
    Seconds,
}

impl Clock {
    /// The end of the axis, which begins at 0.
    pub fn end(self, chronicle: &Chronicle) -> f64 {
        match self {
            // A step's bytes are those after it, up to the next one.
            Clock::Steps => chronicle.last_step as f64 + 1.0,
            Clock::Seconds => (seconds(chronicle, chronicle.end.ns)).max(1e-6),
        }
    }

    /// Where the cursor is.
    pub fn cursor(self, store: &Store) -> f64 {
        match self {
            Clock::Steps => store.state.step as f64,
            Clock::Seconds => store.cursor.map_or(0.0, |at| seconds(&store.chronicle, at.ns)),
        }
    }

    /// The first event that comes after place `x`; beyond the last one where all events come before it.
    fn after(self, chronicle: &Chronicle, x: f64) -> u64 {
        let steps = chronicle.steps.samples();
        match self {
            Clock::Steps => {
                let step = x.max(0.0) as u64;
                let next = steps.get(steps.partition_point(|sample| sample.what.step <= step));
                next.map_or(u64::MAX, |sample| sample.when.event)
            }
            Clock::Seconds => {
                let ns = chronicle.start_ns.unwrap_or(0).saturating_add((x.max(0.0) * 1e9) as u64);
                let (memory, step) = (
                    chronicle.memory.until(|sample| sample.when.ns > ns).last(),
                    chronicle.steps.until(|sample| sample.when.ns > ns).last(),
                );
                let events = [memory.map(|at| at.when.event), step.map(|at| at.when.event)];
                events.into_iter().flatten().max().map_or(0, |event| event.saturating_add(1))
            }
        }
    }

    /// The bytes at place `x`; `None` before the first that are told.
    pub fn memory(self, chronicle: &Chronicle, x: f64) -> Option<(usize, &MemoryClasses)> {
        let after = self.after(chronicle, x);
        let samples = chronicle.memory.until(|sample| sample.when.event >= after);
        samples.last().map(|sample| (samples.len() - 1, &sample.what))
    }

    /// Where to seek for the state at place `x`: behind the last step and the bytes told after it.
    pub fn seek(self, chronicle: &Chronicle, x: f64) -> u64 {
        let after = self.after(chronicle, x).min(chronicle.events);
        let memory = chronicle.memory.until(|sample| sample.when.event >= after).last();
        let step = chronicle.steps.until(|sample| sample.when.event >= after).last();
        let events = [memory.map(|at| at.when.event), step.map(|at| at.when.event)];
        events.into_iter().flatten().max().map_or(0, |event| event.saturating_add(1))
    }
}

/// The bytes at the cursor, and whether they were told of just this state. Those of a step are told after its end: where
/// they come before the next step, they are looked up.
pub fn at_cursor(store: &Store) -> (&MemoryClasses, bool) {
    let (chronicle, done) = (&store.chronicle, store.events_done());
    let memory = chronicle.memory.samples();
    let next = memory.partition_point(|sample| sample.when.event < done);
    let steps = chronicle.steps.samples();
    let after = steps.partition_point(|sample| sample.when.event < done);
    let (ended, step) = (after.checked_sub(1).and_then(|at| steps.get(at)), steps.get(after));
    // Only at a step's end: before it, further pages may come.
    let at_end = ended.is_some_and(|step| step.when.event + 1 == done);
    if let Some(told) = memory.get(next).filter(|_| at_end)
        && step.is_none_or(|step| told.when.event < step.when.event)
    {
        return (&told.what, true);
    }
    let told_now = next.checked_sub(1).and_then(|at| memory.get(at)).is_some_and(|told| told.when.event + 1 == done);
    (&store.state.memory, told_now)
}

/// Seconds since the first event.
pub fn seconds(chronicle: &Chronicle, ns: u64) -> f64 {
    ns.saturating_sub(chronicle.start_ns.unwrap_or(0)) as f64 / 1e9
}

//! Times of kernels, from events around them.

use super::driver::{Context, Event, Stream};
use crate::backend::{KernelTime, Timing};
use crate::error::Result;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Dispatches that are timed together.
struct Span {
    entry: &'static str,
    dispatches: u64,
    start: Event,
    end: Event,
}

/// Sums of kernel times.
#[derive(Default)]
pub(super) struct Timer {
    pub(super) timing: Timing,
    open: Option<(&'static str, u64, Event)>,
    spans: VecDeque<Span>,
    unused: Vec<Event>,
    times: BTreeMap<&'static str, KernelTime>,
}

/// Spans that wait for the device before those that are past are counted.
const WAITING: usize = 1024;

impl Timer {
    fn event(&mut self, context: &Arc<Context>) -> Result<Event> {
        match self.unused.pop() {
            Some(event) => Ok(event),
            None => Event::new(context, true),
        }
    }

    /// Called before each dispatch of `kernel`.
    pub(super) fn before(&mut self, context: &Arc<Context>, stream: &Stream, kernel: &'static str) -> Result<()> {
        let Some(entry) = self.timing.entry(kernel) else { return self.close(context, stream) };
        let goes_on = matches!(self.timing, Timing::Spans(_)) && self.open.is_some();
        if !goes_on {
            self.close(context, stream)?;
            let start = self.event(context)?;
            stream.mark(&start)?;
            self.open = Some((entry, 0, start));
        }
        if let Some((_, dispatches, _)) = &mut self.open {
            *dispatches += 1;
        }
        Ok(())
    }

    /// Called where a span must end: before other work, and at a submission's end.
    pub(super) fn close(&mut self, context: &Arc<Context>, stream: &Stream) -> Result<()> {
        if let Some((entry, dispatches, start)) = self.open.take() {
            let end = self.event(context)?;
            stream.mark(&end)?;
            self.spans.push_back(Span { entry, dispatches, start, end });
            while self.spans.len() > WAITING
                && let Some(span) = self.spans.pop_front()
            {
                self.count(span)?;
            }
        }
        Ok(())
    }

    fn count(&mut self, Span { entry, dispatches, start, end }: Span) -> Result<()> {
        end.wait()?;
        let time = self.times.entry(entry).or_insert(KernelTime { kernel: entry, dispatches: 0, nanoseconds: 0 });
        time.dispatches += dispatches;
        time.nanoseconds += start.nanoseconds_to(&end)?;
        self.unused.extend([start, end]);
        Ok(())
    }

    /// Waits for all times and returns the sums.
    pub(super) fn take(&mut self) -> Result<Vec<KernelTime>> {
        while let Some(span) = self.spans.pop_front() {
            self.count(span)?;
        }
        Ok(std::mem::take(&mut self.times).into_values().collect())
    }
}

//! Times of kernels, from the device's timestamps.

use crate::backend::{Command, Dispatch, KernelTime, ReadFuture, Timing, block_on};
use crate::error::{Error, ErrorKind, Result};
use std::collections::{BTreeMap, VecDeque};
use std::task::{Context, Poll, Waker};

/// Spans that one query set times, with two timestamps each.
pub(super) const SPANS_A_SET: usize = 2048;

/// Dispatches of a submission that are timed together, in a pass of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// What their time is counted under.
    entry: &'static str,
    /// The first of them, among the submission's dispatches.
    first: usize,
    dispatches: usize,
}

/// Query sets of one submission, and where they are resolved to.
pub(super) struct Queries {
    pub(super) sets: Vec<wgpu::QuerySet>,
    spans: Vec<Span>,
    resolved: wgpu::Buffer,
}

impl Queries {
    /// Sets for a submission that has these spans; none for no spans.
    pub(super) fn new(device: &wgpu::Device, spans: Vec<Span>) -> Option<Self> {
        if spans.is_empty() {
            return None;
        }
        let count = |set: usize| (spans.len() - set * SPANS_A_SET).min(SPANS_A_SET) * 2;
        let sets = (0..spans.len().div_ceil(SPANS_A_SET))
            .map(|set| {
                device.create_query_set(&wgpu::QuerySetDescriptor {
                    label: Some("kernel times"),
                    ty: wgpu::QueryType::Timestamp,
                    count: count(set) as u32,
                })
            })
            .collect();
        let resolved = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("kernel times"),
            size: spans.len() as u64 * 16,
            usage: wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        Some(Queries { sets, spans, resolved })
    }

    /// The number of the span that dispatch `number` is in.
    pub(super) fn span_of(&self, number: usize) -> Option<usize> {
        let at = self.spans.partition_point(|span| span.first <= number).checked_sub(1)?;
        (number < self.spans[at].first + self.spans[at].dispatches).then_some(at)
    }

    /// Bytes of all timestamps.
    pub(super) fn bytes(&self) -> u64 {
        self.resolved.size()
    }

    /// Encodes the way of the timestamps to `staging`.
    pub(super) fn resolve(&self, encoder: &mut wgpu::CommandEncoder, staging: &wgpu::Buffer) {
        for (at, set) in self.sets.iter().enumerate() {
            let offset = (at * SPANS_A_SET * 16) as u64;
            encoder.resolve_query_set(set, 0..set.count(), &self.resolved, offset);
        }
        encoder.copy_buffer_to_buffer(&self.resolved, 0, staging, 0, self.bytes());
    }
}

/// Sums of kernel times.
#[derive(Default)]
pub(super) struct Timer {
    times: BTreeMap<&'static str, KernelTime>,
    pending: VecDeque<(Vec<Span>, ReadFuture)>,
}

impl Timer {
    /// Counts `dispatches` of `kernel`.
    pub(super) fn add(&mut self, kernel: &'static str, dispatches: usize, nanoseconds: u64) {
        let time = self.times.entry(kernel).or_insert(KernelTime { kernel, dispatches: 0, nanoseconds: 0 });
        time.dispatches += dispatches as u64;
        time.nanoseconds += nanoseconds;
    }

    /// Counts `queries` once `timestamps` are there.
    pub(super) fn expect(&mut self, queries: Queries, timestamps: ReadFuture) {
        self.pending.push_back((queries.spans, timestamps));
    }

    /// Takes in the timestamps that are there, without waiting.
    pub(super) fn harvest(&mut self, period_ns: f32) -> Result<()> {
        let mut context = Context::from_waker(Waker::noop());
        while let Some((spans, mut future)) = self.pending.pop_front() {
            match future.as_mut().poll(&mut context) {
                Poll::Ready(bytes) => self.count(&spans, &bytes?, period_ns),
                Poll::Pending => {
                    self.pending.push_front((spans, future));
                    break;
                }
            }
        }
        Ok(())
    }

    /// Waits for all timestamps and returns the sums.
    pub(super) fn take(&mut self, period_ns: f32) -> Result<Vec<KernelTime>> {
        while let Some((spans, future)) = self.pending.pop_front() {
            let bytes = block_on(future)?;
            self.count(&spans, &bytes, period_ns);
        }
        Ok(std::mem::take(&mut self.times).into_values().collect())
    }

    fn count(&mut self, spans: &[Span], bytes: &[u8], period_ns: f32) {
        for (span, pair) in spans.iter().zip(bytes.as_chunks::<16>().0) {
            let ticks: [u64; 2] = bytemuck::pod_read_unaligned(pair);
            let elapsed = ticks[1].saturating_sub(ticks[0]) as f64 * f64::from(period_ns);
            self.add(span.entry, span.dispatches, elapsed as u64);
        }
    }
}

/// What of `commands` is timed together: each dispatch alone, or runs of those that [`Timing::Spans`] names. A copy ends a
/// run, since it ends a pass.
pub(super) fn spans_of(
    timing: Timing,
    commands: &[Command],
    name: impl Fn(&Dispatch) -> Result<&'static str>,
) -> Result<Vec<Span>> {
    let mut spans: Vec<Span> = Vec::new();
    let (mut first, mut open) = (0, false);
    for command in commands {
        match command {
            Command::Dispatch(dispatch) => {
                let entry = timing.entry(name(dispatch)?);
                match (entry, spans.last_mut()) {
                    (Some(_), Some(span)) if open => span.dispatches += 1,
                    (Some(entry), _) => spans.push(Span { entry, first, dispatches: 1 }),
                    (None, _) => {}
                }
                open = entry.is_some() && timing != Timing::Kernels;
                first += 1;
            }
            Command::Copy { .. } => open = false,
            Command::Boundary | Command::Beside => {}
        }
    }
    Ok(spans)
}

/// Why kernels cannot be timed, where the queue says so.
pub(super) fn period_of(queue: &wgpu::Queue) -> Result<f32> {
    let period = queue.get_timestamp_period();
    if period > 0.0 {
        return Ok(period);
    }
    Err(Error::new(ErrorKind::Unsupported, format!("the queue's timestamps have a period of {period} ns"), ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{BufferId, BufferSlice, PipelineId};

    #[test]
    fn runs_of_named_kernels_are_timed_together_and_end_at_a_copy() {
        let dispatch = |kernel| {
            Command::Dispatch(Dispatch { pipeline: PipelineId(kernel), groups: 1, params: vec![], bindings: vec![] })
        };
        let slice = BufferSlice { buffer: BufferId(0), offset: 0, bytes: 16 };
        let copy = Command::Copy { src: slice, dst: slice };
        let mut commands = vec![dispatch(0), Command::Boundary, dispatch(1), dispatch(2), dispatch(0), dispatch(2)];
        commands.extend([copy, dispatch(1), Command::Boundary, dispatch(1)]);
        let names = ["append", "decode", "merge"];
        let of = |timing| spans_of(timing, &commands, |d| Ok(names[d.pipeline.0 as usize])).unwrap();
        let span = |entry, first, dispatches| Span { entry, first, dispatches };
        let named: &[&str] = &["decode", "merge"];
        let expected = [span("span", 1, 2), span("span", 4, 1), span("span", 5, 2)];
        assert_eq!(of(Timing::Spans(named)), expected);
        let each = [0, 1, 2, 0, 2, 1, 1].into_iter().enumerate();
        assert_eq!(of(Timing::Kernels), each.map(|(at, name)| span(names[name], at, 1)).collect::<Vec<_>>());
        assert_eq!(of(Timing::Spans(&[])), []);
    }
}

//! Times of kernels, from the device's timestamps.

use crate::backend::{Command, KernelTime, ReadFuture, block_on};
use crate::error::{Error, ErrorKind, Result};
use std::collections::{BTreeMap, VecDeque};
use std::task::{Context, Poll, Waker};

/// Dispatches that one query set times, with two timestamps each.
pub(super) const DISPATCHES_A_SET: usize = 2048;

/// Query sets of one submission, and where they are resolved to.
pub(super) struct Queries {
    pub(super) sets: Vec<wgpu::QuerySet>,
    kernels: Vec<&'static str>,
    resolved: wgpu::Buffer,
}

impl Queries {
    /// Sets for a submission that runs `kernels` in this order; none for no kernels.
    pub(super) fn new(device: &wgpu::Device, kernels: Vec<&'static str>) -> Option<Self> {
        if kernels.is_empty() {
            return None;
        }
        let count = |set: usize| (kernels.len() - set * DISPATCHES_A_SET).min(DISPATCHES_A_SET) * 2;
        let sets = (0..kernels.len().div_ceil(DISPATCHES_A_SET))
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
            size: kernels.len() as u64 * 16,
            usage: wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        Some(Queries { sets, kernels, resolved })
    }

    /// Bytes of all timestamps.
    pub(super) fn bytes(&self) -> u64 {
        self.resolved.size()
    }

    /// Encodes the way of the timestamps to `staging`.
    pub(super) fn resolve(&self, encoder: &mut wgpu::CommandEncoder, staging: &wgpu::Buffer) {
        for (at, set) in self.sets.iter().enumerate() {
            let offset = (at * DISPATCHES_A_SET * 16) as u64;
            encoder.resolve_query_set(set, 0..set.count(), &self.resolved, offset);
        }
        encoder.copy_buffer_to_buffer(&self.resolved, 0, staging, 0, self.bytes());
    }
}

/// Sums of kernel times.
#[derive(Default)]
pub(super) struct Timer {
    times: BTreeMap<&'static str, KernelTime>,
    pending: VecDeque<(Vec<&'static str>, ReadFuture)>,
}

impl Timer {
    /// Counts one dispatch.
    pub(super) fn add(&mut self, kernel: &'static str, nanoseconds: u64) {
        let time = self.times.entry(kernel).or_insert(KernelTime { kernel, dispatches: 0, nanoseconds: 0 });
        time.dispatches += 1;
        time.nanoseconds += nanoseconds;
    }

    /// Counts `queries` once `timestamps` are there.
    pub(super) fn expect(&mut self, queries: Queries, timestamps: ReadFuture) {
        self.pending.push_back((queries.kernels, timestamps));
    }

    /// Takes in the timestamps that are there, without waiting.
    pub(super) fn harvest(&mut self, period_ns: f32) -> Result<()> {
        let mut context = Context::from_waker(Waker::noop());
        while let Some((kernels, mut future)) = self.pending.pop_front() {
            match future.as_mut().poll(&mut context) {
                Poll::Ready(bytes) => self.count(&kernels, &bytes?, period_ns),
                Poll::Pending => {
                    self.pending.push_front((kernels, future));
                    break;
                }
            }
        }
        Ok(())
    }

    /// Waits for all timestamps and returns the sums.
    pub(super) fn take(&mut self, period_ns: f32) -> Result<Vec<KernelTime>> {
        while let Some((kernels, future)) = self.pending.pop_front() {
            let bytes = block_on(future)?;
            self.count(&kernels, &bytes, period_ns);
        }
        Ok(std::mem::take(&mut self.times).into_values().collect())
    }

    fn count(&mut self, kernels: &[&'static str], bytes: &[u8], period_ns: f32) {
        for (kernel, pair) in kernels.iter().zip(bytes.as_chunks::<16>().0) {
            let ticks: [u64; 2] = bytemuck::pod_read_unaligned(pair);
            let elapsed = ticks[1].saturating_sub(ticks[0]) as f64 * f64::from(period_ns);
            self.add(kernel, elapsed as u64);
        }
    }
}

/// The kernels of `commands` in order.
pub(super) fn kernels_of(
    commands: &[Command],
    name: impl Fn(&crate::backend::Dispatch) -> Result<&'static str>,
) -> Result<Vec<&'static str>> {
    let dispatches = commands.iter().filter_map(|command| match command {
        Command::Dispatch(dispatch) => Some(dispatch),
        _ => None,
    });
    dispatches.map(name).collect()
}

/// Why kernels cannot be timed, where the queue says so.
pub(super) fn period_of(queue: &wgpu::Queue) -> Result<f32> {
    let period = queue.get_timestamp_period();
    if period > 0.0 {
        return Ok(period);
    }
    Err(Error::new(ErrorKind::Unsupported, format!("the queue's timestamps have a period of {period} ns"), ""))
}

//! How recordings become submissions of the queue, and how many may be under way.

use super::device::WgpuBackend;
use super::encode::{self, Encoding};
use super::health::{full_text, poll_device, scoped};
use super::poller;
use super::timing::{self, Queries};
use crate::backend::{Command, Dispatch, Timing};
use crate::error::{Error, ErrorKind, Result};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Submissions that may wait for the device; one more waits for the oldest, so that memory stays bounded.
const MOST_IN_FLIGHT: usize = 128;

/// The error of a recording's part `at`: with parts before it done, want of memory cannot be answered by trying again.
pub(super) fn amid(at: usize, error: Error) -> Error {
    if at == 0 || error.kind() != ErrorKind::OutOfMemory {
        return error;
    }
    Error::new(ErrorKind::Device, format!("in the middle of a recording, {}", error.message()), "build the engine anew")
}

impl WgpuBackend {
    /// Lets callbacks run and fails if the device reported an error.
    pub(super) fn refresh(&mut self) -> Result<()> {
        self.sink.check()?;
        let _ = poll_device(&self.device, &self.sink, wgpu::PollType::Poll);
        self.sink.check()?;
        let done = self.completed.load(Ordering::Acquire);
        while self.in_flight.front().is_some_and(|(id, _)| id.0 <= done) {
            self.in_flight.pop_front();
        }
        Ok(())
    }

    /// The device's objection to `what` as an error of ours; its loss, where that is what is behind it.
    pub(super) fn objection(&mut self, error: Option<wgpu::Error>, what: &str) -> Result<()> {
        let Some(error) = error else { return Ok(()) };
        self.refresh()?;
        let kind = match error {
            wgpu::Error::OutOfMemory { .. } => ErrorKind::OutOfMemory,
            _ => ErrorKind::Device,
        };
        let remedy = if kind == ErrorKind::OutOfMemory { "free sequences, or lower the page budget" } else { "" };
        Err(Error::new(kind, format!("the device refused a {what}: {}", full_text(&error)), remedy))
    }

    pub(super) fn submit_segment(&mut self, commands: &[Command]) -> Result<()> {
        if self.in_flight.len() >= MOST_IN_FLIGHT
            && let Some((_, oldest)) = self.in_flight.pop_front()
        {
            poller::wait(&self.device, &self.sink, &oldest, self.poller.slice());
            self.refresh()?;
        }
        encode::blocks(commands, &mut self.scratch);
        let queries = match self.timing.of_kernels() && self.caps.timestamps {
            true => {
                let name = |d: &Dispatch| self.pipelines.get(d.pipeline).map(|p| p.decl.name);
                Queries::new(&self.device, timing::spans_of(self.timing, commands, name)?)
            }
            false => None,
        };
        let device = self.device.clone();
        let (outcome, error) = scoped(&device, || self.encode_and_submit(commands, queries.as_ref()));
        if error.is_some()
            && let Some(id) = self.uniforms.forget_own()
        {
            // It may be a buffer that the device refused.
            self.groups.forget_uniform(id);
        }
        self.objection(error, "submission")?;
        let (index, staging) = outcome?;
        self.pending_write_bytes = 0;
        self.last.0 += 1;
        let (id, completed) = (self.last, self.completed.clone());
        let watched = self.caps.max_submission_ms > 0 || self.timing == Timing::Steps;
        let measure = watched.then(|| self.work.measure(commands));
        self.queue.on_submitted_work_done(move || {
            completed.fetch_max(id.0, Ordering::AcqRel);
            if let Some(measure) = measure {
                measure();
            }
        });
        if let (Some(queries), Some(staging)) = (queries, staging) {
            let read = self.staging.finish_when_mapped(&self.device, staging, queries.bytes(), &self.sink);
            self.timer.expect(queries, Box::pin(read));
            self.poller.wait_for(index.clone());
        } else if watched {
            self.poller.wait_for(index.clone());
        }
        self.in_flight.push_back((id, index));
        Ok(())
    }

    fn encode_and_submit(
        &mut self,
        commands: &[Command],
        queries: Option<&Queries>,
    ) -> Result<(wgpu::SubmissionIndex, Option<wgpu::Buffer>)> {
        let (uniform, replaced) = self.uniforms.own(&self.device, self.scratch.len() as u64);
        if let Some(id) = replaced {
            self.groups.forget_uniform(id);
        }
        if !self.scratch.is_empty() {
            self.queue.write_buffer(&uniform.buffer, 0, &self.scratch);
        }
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("kvarto") });
        Encoding {
            device: &self.device,
            buffers: &self.buffers,
            pipelines: &self.pipelines,
            groups: &mut self.groups,
            uniform: &uniform,
            max_groups: self.caps.max_workgroups_per_dimension,
        }
        .encode(commands, &mut encoder, queries)?;
        let staging = queries.map(|queries| {
            let staging = self.staging.take(&self.device, queries.bytes(), self.caps.max_buffer_bytes);
            queries.resolve(&mut encoder, &staging);
            staging
        });
        Ok((self.queue.submit([encoder.finish()]), staging))
    }

    /// One submission a dispatch, waited for: how kernels are timed where the device has no timestamps.
    pub(super) fn submit_timed_by_host(&mut self, commands: &[Command]) -> Result<()> {
        for (at, command) in commands.iter().filter(|c| !matches!(c, Command::Boundary | Command::Beside)).enumerate() {
            let start = Instant::now();
            self.submit_segment(std::slice::from_ref(command)).map_err(|e| amid(at, e))?;
            if let Command::Dispatch(dispatch) = command {
                self.wait_for_last()?;
                if let Some(entry) = self.timing.entry(self.pipelines.get(dispatch.pipeline)?.decl.name) {
                    self.timer.add(entry, 1, start.elapsed().as_nanos() as u64);
                }
            }
        }
        Ok(())
    }

    pub(super) fn wait_for_last(&mut self) -> Result<()> {
        if let Some((_, index)) = self.in_flight.back() {
            poller::wait(&self.device, &self.sink, index, self.poller.slice());
        }
        self.refresh()
    }

    /// Sends queued writes to the device, so that their staging memory can be used again.
    pub(super) fn flush_writes(&mut self) -> Result<()> {
        let index = self.queue.submit([]);
        self.pending_write_bytes = 0;
        // One flush may be under way while the next is filled.
        if let Some(before) = self.last_flush.replace(index) {
            poller::wait(&self.device, &self.sink, &before, self.poller.slice());
        }
        self.refresh()
    }
}

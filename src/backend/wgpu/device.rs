//! The backend itself: what it owns, and how calls reach the queue.

use super::adapters::{self, AdapterChoice, AdapterReport};
use super::buffers::Buffers;
use super::encode::{self, Encoding};
use super::groups::Groups;
use super::health::{ErrorSink, scoped};
use super::options::OpenOptions;
use super::pipelines::Pipelines;
use super::poller::Poller;
use super::read::Staging;
use super::submit;
use super::timing::{self, Timer};
use super::uniforms::Uniforms;
use super::work::Work;
use crate::backend::assemble::AssembleOptions;
use crate::backend::{
    Backend, BufferId, BufferSlice, Caps, KernelTime, PipelineId, ReadFuture, Recording, Specialisation, SubmissionId,
    Timing,
};
use crate::error::Result;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of one queued write, and of all queued writes before they are sent to the device.
const WRITE_CHUNK_BYTES: usize = 16 << 20;
const MOST_PENDING_BYTES: u64 = 64 << 20;

/// Runs kernels on a GPU through wgpu.
pub struct WgpuBackend {
    pub(super) device: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    pub(super) caps: Caps,
    pub(super) sink: ErrorSink,
    pub(super) poller: Poller,
    pub(super) buffers: Buffers,
    pub(super) pipelines: Pipelines,
    pub(super) groups: Groups,
    pub(super) uniforms: Uniforms,
    pub(super) staging: Staging,
    pub(super) work: Work,
    pub(super) timer: Timer,
    pub(super) timing: Timing,
    pub(super) scratch: Vec<u8>,
    pub(super) last: SubmissionId,
    pub(super) completed: Arc<AtomicU64>,
    pub(super) in_flight: VecDeque<(SubmissionId, wgpu::SubmissionIndex)>,
    pub(super) pending_write_bytes: u64,
    pub(super) last_flush: Option<wgpu::SubmissionIndex>,
    pub(super) splits: u64,
}

impl WgpuBackend {
    /// Every adapter of every API of this machine, and whether the kernels run on it.
    pub fn adapters() -> Vec<AdapterReport> {
        adapters::adapters()
    }

    /// Opens an adapter with [`OpenOptions::default`].
    ///
    /// # Errors
    /// `Unsupported` when none serves (the message lists what was found and why it was refused); `Device` when
    /// the driver gives no device.
    pub fn open(choice: &AdapterChoice) -> Result<Self> {
        Self::open_with(choice, &OpenOptions::default())
    }

    /// Opens an adapter.
    ///
    /// # Errors
    /// As [`WgpuBackend::open`]; also `Unsupported` for a limit above the adapter's, `Usage` for one that is too low.
    pub fn open_with(choice: &AdapterChoice, options: &OpenOptions) -> Result<Self> {
        let (device, queue) = adapters::open_adapter(choice, options)?;
        // The adapter was found to serve; masked limits are not held to the defaults.
        let caps = adapters::caps_of(&device, options)?;
        Self::with_caps(device, queue, caps, options)
    }

    /// A backend on the caller's own device.
    ///
    /// The device needs WebGPU's default limits for compute; kernel times need `TIMESTAMP_QUERY`, native kernels
    /// `SHADER_F16` and `SUBGROUP`. Its callbacks are replaced unless [`OpenOptions::take_callbacks`] is false.
    ///
    /// # Errors
    /// `Unsupported` when the device's limits are too low, or lower than a mask's; `Usage` for a mask that is too low;
    /// `Device` when the host gives no thread.
    pub fn from_device(device: wgpu::Device, queue: wgpu::Queue, options: &OpenOptions) -> Result<Self> {
        adapters::check_device(&device)?;
        let caps = adapters::caps_of(&device, options)?;
        Self::with_caps(device, queue, caps, options)
    }

    fn with_caps(device: wgpu::Device, queue: wgpu::Queue, caps: Caps, options: &OpenOptions) -> Result<Self> {
        let sink = ErrorSink::default();
        if options.take_callbacks {
            sink.install(&device);
        }
        let poller = Poller::start(device.clone(), sink.clone(), caps.api == "gl")?;
        let checked = std::env::var("KVARTO_CHECKED").is_ok_and(|v| v == "1");
        let assembly = AssembleOptions { poison_workgroup: options.poison_workgroup, ..AssembleOptions::default() };
        let buffers = Buffers::with_limit(options.memory_limit);
        Ok(WgpuBackend {
            device,
            queue,
            caps,
            sink,
            poller,
            buffers,
            pipelines: Pipelines::new(options.trusted && !checked, assembly),
            groups: Groups::default(),
            uniforms: Uniforms::new(),
            staging: Staging::default(),
            work: Work::assuming(options.assumed_group_ns),
            timer: Timer::default(),
            timing: Timing::None,
            scratch: Vec::new(),
            last: SubmissionId(0),
            completed: Arc::default(),
            in_flight: VecDeque::new(),
            pending_write_bytes: 0,
            last_flush: None,
            splits: 0,
        })
    }

    /// The device, for the caller's own pipelines and encoders.
    pub fn device(&self) -> &wgpu::Device {
        &self.device
    }

    /// The queue that submissions go to.
    pub fn queue(&self) -> &wgpu::Queue {
        &self.queue
    }

    /// Where a caller who keeps the device's callbacks hands their reports on to.
    pub fn error_sink(&self) -> ErrorSink {
        self.sink.clone()
    }

    /// Lets kernels use the first `bytes` bytes of a buffer of the caller's, which stays theirs; `free` forgets it.
    ///
    /// It needs `STORAGE` usage, `COPY_SRC` to be read or copied from, `COPY_DST` to be written or copied to.
    /// The same buffer gives the same id. Its bytes are in no count of this backend.
    ///
    /// # Errors
    /// `Shape` for a buffer that lacks `STORAGE` or is shorter.
    pub fn import(&mut self, buffer: wgpu::Buffer, bytes: u64) -> Result<BufferId> {
        self.buffers.import(buffer, bytes)
    }

    /// The wgpu buffer behind an id.
    pub fn buffer(&self, id: BufferId) -> Option<&wgpu::Buffer> {
        self.buffers.get(id).ok().map(|entry| &entry.buffer)
    }

    /// Records into the caller's encoder, between the caller's own passes, instead of submitting.
    ///
    /// Bytes that [`Backend::write`] queued are there before the caller's submission, also those queued after
    /// this call. Nothing is split or timed. Any number of recordings may be recorded before they are submitted.
    ///
    /// # Errors
    /// As [`Backend::submit`]; the encoder is untouched where the recording is refused.
    pub fn record_into(&mut self, recording: &Recording, encoder: &mut wgpu::CommandEncoder) -> Result<()> {
        self.refresh()?;
        let commands = recording.commands();
        encode::check(&self.buffers, &self.pipelines, &self.caps, commands)?;
        if recording.is_empty() {
            return Ok(());
        }
        encode::blocks(commands, &mut self.scratch);
        let (outcome, error) = scoped(&self.device, || {
            let (uniform, loan) = self.uniforms.borrow(&self.device, self.scratch.len() as u64);
            self.queue.write_buffer(&uniform.buffer, 0, &self.scratch);
            // Runs when the caller's submission is done; dropped with an encoder that is not submitted.
            encoder.on_submitted_work_done(move || drop(loan));
            Encoding {
                device: &self.device,
                buffers: &self.buffers,
                pipelines: &self.pipelines,
                groups: &mut self.groups,
                uniform: &uniform,
                max_groups: self.caps.max_workgroups_per_dimension,
            }
            .encode(commands, encoder, None)
        });
        outcome?;
        self.objection(error, "recording")
    }

    /// Bind groups that are cached.
    pub fn cached_bind_groups(&self) -> usize {
        self.groups.len()
    }

    /// Host-visible bytes kept for the next reads.
    pub fn staging_bytes(&self) -> u64 {
        self.staging.kept_bytes()
    }

    /// Destroys the device, as a driver's reset would: for tests of what comes after.
    pub fn lose_for_test(&self) {
        self.device.destroy();
    }
}

impl Backend for WgpuBackend {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn alloc(&mut self, label: &str, bytes: u64) -> Result<BufferId> {
        // A lost device gives buffers that only look like some, so whether it is there is asked first.
        self.refresh()?;
        self.buffers.alloc(&self.device, &self.caps, label, bytes)
    }

    fn free(&mut self, buffer: BufferId) {
        if self.buffers.free(buffer) {
            self.groups.forget_buffer(buffer);
        }
    }

    fn write(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.sink.check()?;
        if bytes.is_empty() {
            return Ok(());
        }
        let slice = BufferSlice { buffer, offset, bytes: bytes.len() as u64 };
        let target = self.buffers.check(&slice, wgpu::BufferUsages::COPY_DST, || "write".into())?.buffer.clone();
        let mut at = offset;
        for chunk in bytes.chunks(WRITE_CHUNK_BYTES) {
            let ((), error) = scoped(&self.device, || self.queue.write_buffer(&target, at, chunk));
            self.objection(error, "write")?;
            at += chunk.len() as u64;
            self.pending_write_bytes += chunk.len() as u64;
            if self.pending_write_bytes >= MOST_PENDING_BYTES {
                self.flush_writes()?;
            }
        }
        Ok(())
    }

    fn prepare(&mut self, specialisation: &Specialisation) -> Result<PipelineId> {
        self.sink.check()?;
        let prepared = self.pipelines.prepare(&self.device, &self.caps, specialisation);
        if prepared.is_err() {
            self.refresh()?;
        }
        prepared
    }

    fn submit(&mut self, recording: Recording) -> Result<SubmissionId> {
        self.refresh()?;
        let commands = recording.commands();
        encode::check(&self.buffers, &self.pipelines, &self.caps, commands)?;
        self.work.absorb();
        match self.timing {
            timing if timing.of_kernels() && !self.caps.timestamps => self.submit_timed_by_host(commands)?,
            _ => {
                if self.timing.of_kernels() {
                    self.timer.harvest(timing::period_of(&self.queue)?)?;
                }
                let segments = self.work.segments(commands, self.caps.max_submission_ms);
                if segments.len() > 1 {
                    log::debug!("a recording goes in {} submissions", segments.len());
                }
                self.splits += segments.len() as u64 - 1;
                for (at, segment) in segments.into_iter().enumerate() {
                    self.submit_segment(&commands[segment]).map_err(|e| submit::amid(at, e))?;
                }
            }
        }
        self.sink.check()?;
        Ok(self.last)
    }

    fn poll(&mut self) -> Result<SubmissionId> {
        self.refresh()?;
        Ok(SubmissionId(self.completed.load(Ordering::Acquire)))
    }

    fn read(&mut self, buffer: BufferId, offset: u64, bytes: u64) -> Result<ReadFuture> {
        self.refresh()?;
        if bytes == 0 {
            return Ok(Box::pin(std::future::ready(Ok(Vec::new()))));
        }
        let slice = BufferSlice { buffer, offset, bytes };
        let source = self.buffers.check(&slice, wgpu::BufferUsages::COPY_SRC, || "read".into())?;
        let ((staging, index), error) = scoped(&self.device, || {
            let staging = self.staging.take(&self.device, bytes, self.caps.max_buffer_bytes);
            let descriptor = wgpu::CommandEncoderDescriptor { label: Some("read") };
            let mut encoder = self.device.create_command_encoder(&descriptor);
            encoder.copy_buffer_to_buffer(&source.buffer, offset, &staging, 0, bytes);
            let index = self.queue.submit([encoder.finish()]);
            (staging, index)
        });
        self.objection(error, "read")?;
        self.pending_write_bytes = 0;
        let read = self.staging.finish_when_mapped(&self.device, staging, bytes, &self.sink);
        self.poller.wait_for(index);
        Ok(Box::pin(read))
    }

    fn set_timing(&mut self, timing: Timing) -> Result<()> {
        if timing.of_kernels() && self.caps.timestamps {
            timing::period_of(&self.queue)?;
        }
        self.work.absorb();
        self.work.take_steps();
        self.timing = timing;
        Ok(())
    }

    /// Waits for the submissions that are being timed. `Timing::Steps` gives one entry named `step`.
    fn take_times(&mut self) -> Result<Vec<KernelTime>> {
        self.wait_for_last()?;
        let mut times = match self.caps.timestamps {
            true => self.timer.take(timing::period_of(&self.queue)?)?,
            false => self.timer.take(1.0)?,
        };
        self.work.absorb();
        let (dispatches, nanoseconds) = self.work.take_steps();
        if self.timing == Timing::Steps && dispatches > 0 {
            times.push(KernelTime { kernel: "step", dispatches, nanoseconds });
        }
        Ok(times)
    }

    fn allocated_bytes(&self) -> u64 {
        self.buffers.allocated_bytes
    }

    fn peak_bytes(&self) -> u64 {
        self.buffers.peak_bytes
    }

    fn pipelines_made(&self) -> u64 {
        self.pipelines.len() as u64
    }

    fn groups_a_submission(&self, pipeline: PipelineId) -> u32 {
        self.work.groups_within(pipeline.0 as usize, self.caps.max_submission_ms)
    }

    fn splits(&self) -> u64 {
        self.splits
    }

    fn forbid_new_pipelines(&mut self, forbid: bool) {
        self.pipelines.forbid_new = forbid;
    }

    fn as_wgpu(&mut self) -> Option<&mut WgpuBackend> {
        Some(self)
    }
}

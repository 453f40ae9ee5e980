//! The backend.

use super::buffers::Buffers;
use super::compile::Compiler;
use super::driver::{Context, Entered, Event, Function, Pinned, Stream};
use super::probe::{DeviceReport, device};
use super::read::Reader;
use super::source::{Source, source};
use super::timing::Timer;
use crate::backend::{
    Backend, BackendKind, BufferId, BufferSlice, Caps, Command, Dispatch, KernelDecl, KernelTime, PipelineId,
    ReadFuture, Recording, Specialisation, SubmissionId, Timing, checks,
};
use crate::error::{Error, ErrorKind, Result};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Submissions whose end is watched; a longer queue waits for the oldest.
const WATCHED: usize = 64;

/// Workgroups of portable kernels that keep a multiprocessor busy, about.
const WORKGROUPS_A_MULTIPROCESSOR: u32 = 8;

/// A compiled kernel.
struct Pipeline {
    decl: &'static KernelDecl,
    function: Function,
}

/// Executes recordings on one stream of a device.
pub struct CudaBackend {
    caps: Caps,
    capability: (u32, u32),
    compiler: Compiler,
    buffers: Buffers,
    pipelines: Vec<Pipeline>,
    by_key: HashMap<String, PipelineId>,
    forbid_new: bool,
    last: SubmissionId,
    done: SubmissionId,
    watched: VecDeque<(SubmissionId, Event)>,
    timer: Timer,
    reader: Reader,
    /// The device's first error; every later call gives it.
    failed: Option<Error>,
    stream: Stream,
    context: Arc<Context>,
}

impl CudaBackend {
    /// The device of this number, as [`super::devices`] counts them.
    ///
    /// # Errors
    /// `Unsupported` without a driver or such a device, or below compute capability 8.0; `Device` or `OutOfMemory` when
    /// it cannot be opened.
    pub fn open(index: usize) -> Result<Self> {
        let report = device(index)?;
        let context = Context::open(index)?;
        let compiler = Compiler::for_device(&report, Compiler::usual_folder())?;
        Ok(CudaBackend {
            caps: caps(&report, &compiler),
            capability: report.capability,
            compiler,
            buffers: Buffers::default(),
            pipelines: Vec::new(),
            by_key: HashMap::new(),
            forbid_new: false,
            last: SubmissionId(0),
            done: SubmissionId(0),
            watched: VecDeque::new(),
            timer: Timer::default(),
            reader: Reader::new()?,
            failed: None,
            stream: Stream::new(&context)?,
            context,
        })
    }

    /// Refuses allocations that would bring the live bytes above `bytes`, as a smaller device would.
    pub fn with_memory_limit(mut self, bytes: u64) -> Self {
        self.buffers.limit = Some(bytes);
        self
    }

    /// Free and all bytes of the device's memory.
    pub fn device_memory(&self) -> Result<(usize, usize)> {
        self.context.memory()
    }

    /// Begins a call: the context is this thread's, and no error is known.
    fn enter(&self) -> Result<Entered> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None => self.context.enter(),
        }
    }

    /// Keeps what the device says for every later call. What was only refused is the caller's to deal with.
    fn noted<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result
            && matches!(error.kind(), ErrorKind::Device | ErrorKind::DeviceLost)
        {
            self.failed.get_or_insert_with(|| error.clone());
        }
        result
    }

    /// Everything that could be wrong with a recording, before any of it runs.
    fn check(&self, recording: &Recording) -> Result<()> {
        for command in recording.commands() {
            match command {
                Command::Dispatch(dispatch) => self.check_dispatch(dispatch)?,
                Command::Copy { src, dst } => {
                    self.buffers.slice(src, &|| "copy source".into())?;
                    self.buffers.slice(dst, &|| "copy destination".into())?;
                }
                Command::Boundary => {}
            }
        }
        Ok(())
    }

    fn check_dispatch(&self, dispatch: &Dispatch) -> Result<()> {
        let Some(pipeline) = self.pipelines.get(dispatch.pipeline.0 as usize) else {
            return Err(Error::new(
                ErrorKind::Shape,
                format!("{:?} is not a pipeline of this backend", dispatch.pipeline),
                "prepare it here first",
            ));
        };
        let most = u64::from(self.caps.max_workgroups_per_dimension);
        checks::dispatch(pipeline.decl, dispatch, &self.caps, most, |slice, what| {
            self.buffers.slice(slice, what).map(|_| ())
        })
    }

    fn execute(&mut self, recording: &Recording) -> Result<()> {
        for command in recording.commands() {
            match command {
                Command::Dispatch(dispatch) => {
                    let pipeline = &self.pipelines[dispatch.pipeline.0 as usize];
                    self.timer.before(&self.context, &self.stream, pipeline.decl.name)?;
                    let mut pointers = [0u64; 8];
                    for (pointer, slice) in pointers.iter_mut().zip(&dispatch.bindings) {
                        *pointer = self.buffers.get(slice.buffer)?.at(slice.offset);
                    }
                    let mut block = [0u32; 32];
                    block[0] = dispatch.groups;
                    block[1..=dispatch.params.len()].copy_from_slice(&dispatch.params);
                    let pointers = &mut pointers[..dispatch.bindings.len()];
                    self.stream.launch(&pipeline.function, dispatch.groups, pointers, &mut block)?;
                }
                Command::Copy { src, dst } => {
                    self.timer.close(&self.context, &self.stream)?;
                    let (from, to) = (self.buffers.get(src.buffer)?, self.buffers.get(dst.buffer)?);
                    self.stream.copy((from, src.offset), (to, dst.offset), src.bytes)?;
                }
                Command::Boundary => {}
            }
        }
        self.timer.close(&self.context, &self.stream)
    }

    fn watch(&mut self) -> Result<()> {
        self.last.0 += 1;
        let event = match self.watched.len() >= WATCHED {
            true => match self.watched.pop_front() {
                Some((id, event)) => {
                    event.wait()?;
                    self.done = id;
                    event
                }
                None => Event::new(&self.context, false)?,
            },
            false => Event::new(&self.context, false)?,
        };
        self.stream.mark(&event)?;
        self.watched.push_back((self.last, event));
        Ok(())
    }

    fn progress(&mut self) -> Result<()> {
        while let Some((id, event)) = self.watched.front() {
            if !event.is_past()? {
                break;
            }
            self.done = *id;
            self.watched.pop_front();
        }
        Ok(())
    }

    fn start_read(&mut self, buffer: BufferId, offset: u64, bytes: u64) -> Result<ReadFuture> {
        let slice = BufferSlice { buffer, offset, bytes };
        let memory = self.buffers.slice(&slice, &|| "read".into())?;
        let length = bytes as usize;
        let mut host = match self.reader.take(length) {
            Some(host) => host,
            None => Pinned::new(&self.context, length.next_power_of_two().max(4096))?,
        };
        let event = Event::new(&self.context, false)?;
        let queued = self.stream.read(memory, offset, &mut host, length).and_then(|()| self.stream.mark(&event));
        if let Err(error) = queued {
            // The device may still write to what is about to be freed.
            let _ = self.stream.wait();
            return Err(error);
        }
        Ok(Box::pin(self.reader.expect(event, host, length)))
    }
}

impl Drop for CudaBackend {
    fn drop(&mut self) {
        // What is freed after this is in nobody's use.
        let _ = self.stream.wait();
    }
}

/// The capabilities of a device, as its backend has them.
pub fn caps(report: &DeviceReport, compiler: &Compiler) -> Caps {
    Caps {
        kind: BackendKind::Cuda,
        api: "cuda".into(),
        adapter: report.name.clone(),
        driver: format!("CUDA {}, {}", report.driver, compiler.describe()),
        device_type: if report.integrated { "integrated" } else { "discrete" }.into(),
        software: false,
        tier: "native".into(),
        // Kernels count words by 32 bits.
        max_binding_bytes: u64::from(u32::MAX) * 4,
        max_buffer_bytes: (u64::from(u32::MAX) * 4).min(report.memory_bytes),
        max_workgroup_bytes: report.shared_bytes,
        max_invocations: 1024,
        max_workgroups_per_dimension: i32::MAX as u32,
        max_storage_buffers: 8,
        offset_alignment: 256,
        target_workgroups: WORKGROUPS_A_MULTIPROCESSOR * report.multiprocessors,
        multiprocessors: Some(report.multiprocessors),
        timestamps: true,
        // Products on tensor cores.
        f16: true,
        subgroups: None,
        played_subgroup: None,
        features: vec![compiler.target().to_string()],
        masked: Vec::new(),
        max_submission_ms: 0,
    }
}

impl Backend for CudaBackend {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn alloc(&mut self, label: &str, bytes: u64) -> Result<BufferId> {
        let _entered = self.enter()?;
        let bytes = bytes.max(16).next_multiple_of(4);
        if bytes > self.caps.max_buffer_bytes {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{label}: {bytes} bytes; a buffer holds {}", self.caps.max_buffer_bytes),
                "split it",
            ));
        }
        let id = self.buffers.add(&self.context, label, bytes)?;
        let cleared = self.buffers.get(id).and_then(|memory| self.stream.clear(memory));
        if cleared.is_err() {
            self.buffers.remove(id);
        }
        self.noted(cleared)?;
        Ok(id)
    }

    fn free(&mut self, buffer: BufferId) {
        self.buffers.remove(buffer);
    }

    fn write(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let _entered = self.enter()?;
        let slice = BufferSlice { buffer, offset, bytes: bytes.len() as u64 };
        let memory = self.buffers.slice(&slice, &|| "write".into())?;
        let written = self.stream.write(memory, offset, bytes);
        self.noted(written)
    }

    fn prepare(&mut self, specialisation: &Specialisation) -> Result<PipelineId> {
        if let Some(&id) = self.by_key.get(specialisation.key()) {
            return Ok(id);
        }
        let _entered = self.enter()?;
        if self.forbid_new {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("pipeline made after warm-up: {}", specialisation.key()),
                "prepare it at load",
            ));
        }
        specialisation.decl.check_size(self.caps.max_storage_buffers)?;
        let mut text = source(specialisation)?;
        // Older devices start a kernel when the one ahead of it has ended.
        text.overlaps &= self.capability >= (9, 0);
        let load = |code: &[u8], text: &Source| Function::load(&self.context, code, text);
        let function = self.compiler.load(&text, specialisation.key(), load)?;
        let id = PipelineId(self.pipelines.len() as u32);
        self.pipelines.push(Pipeline { decl: specialisation.decl, function });
        self.by_key.insert(specialisation.key().to_string(), id);
        Ok(id)
    }

    fn submit(&mut self, recording: Recording) -> Result<SubmissionId> {
        let _entered = self.enter()?;
        self.check(&recording)?;
        // From here on commands are in the queue: memory that is refused now leaves a step half done.
        let run = self.execute(&recording).and_then(|()| self.watch()).map_err(|e| match e.kind() {
            ErrorKind::OutOfMemory => Error::new(
                ErrorKind::Device,
                format!("a submission broke off: {}", e.message()),
                "build the engine anew, with less of the card's memory",
            ),
            _ => e,
        });
        self.noted(run)?;
        Ok(self.last)
    }

    fn poll(&mut self) -> Result<SubmissionId> {
        let _entered = self.enter()?;
        let progress = self.progress();
        self.noted(progress)?;
        Ok(self.done)
    }

    fn read(&mut self, buffer: BufferId, offset: u64, bytes: u64) -> Result<ReadFuture> {
        if bytes == 0 {
            return Ok(Box::pin(std::future::ready(Ok(Vec::new()))));
        }
        let _entered = self.enter()?;
        let future = self.start_read(buffer, offset, bytes);
        self.noted(future)
    }

    fn set_timing(&mut self, timing: Timing) -> Result<()> {
        self.timer.timing = timing;
        Ok(())
    }

    fn take_times(&mut self) -> Result<Vec<KernelTime>> {
        let _entered = self.enter()?;
        let times = self.timer.take();
        self.noted(times)
    }

    fn allocated_bytes(&self) -> u64 {
        self.buffers.bytes()
    }

    fn peak_bytes(&self) -> u64 {
        self.buffers.peak()
    }

    fn pipelines_made(&self) -> u64 {
        self.pipelines.len() as u64
    }

    fn forbid_new_pipelines(&mut self, forbid: bool) {
        self.forbid_new = forbid;
    }
}

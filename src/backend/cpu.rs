//! The CPU backend: buffers are vectors of words, kernels run at once on a pool of threads.

use super::awake::Awake;
use super::cpu_call::{CpuBinding, CpuCall};
use super::{
    Access, Backend, BackendKind, BufferId, BufferSlice, Caps, Command, KernelTime, PipelineId, ReadFuture, Recording,
    Specialisation, SubmissionId, Timing, checks,
};
use crate::error::{Error, ErrorKind, Result};
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

/// More than any machine has cores for; each costs a stack and a share of every kernel's start.
const MOST_THREADS: usize = 1024;

/// Executes recordings at submission, on threads of its own.
pub struct CpuBackend {
    caps: Caps,
    pool: std::sync::Arc<rayon::ThreadPool>,
    buffers: HashMap<BufferId, Vec<u32>>,
    next_buffer: u64,
    pipelines: Vec<std::sync::Arc<Specialisation>>,
    by_key: HashMap<String, PipelineId>,
    forbid_new: bool,
    last: SubmissionId,
    allocated_bytes: u64,
    peak_bytes: u64,
    limit_bytes: Option<u64>,
    timing: Timing,
    times: BTreeMap<&'static str, KernelTime>,
}

impl CpuBackend {
    /// A backend with `threads` threads; 0 takes one a core.
    ///
    /// # Errors
    /// `Usage` above 1024 threads, `Device` when the threads cannot be made.
    pub fn new(threads: usize) -> Result<Self> {
        if threads > MOST_THREADS {
            return Err(Error::new(
                ErrorKind::Usage,
                format!("{threads} threads are asked for; the CPU backend takes at most {MOST_THREADS}"),
                "--threads 0 takes one a core",
            ));
        }
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("kvarto-{i}"))
            .build()
            .map_err(|e| {
                Error::new(ErrorKind::Device, format!("no threads for the CPU backend: {e}"), "try --threads 1")
            })?;
        let threads = pool.current_num_threads();
        let caps = Caps {
            kind: BackendKind::Cpu,
            api: "cpu".into(),
            adapter: format!("{threads} threads, {}", vector_name()),
            driver: std::env::consts::ARCH.into(),
            device_type: "cpu".into(),
            software: true,
            tier: "native".into(),
            max_binding_bytes: u64::from(u32::MAX) * 4,
            max_buffer_bytes: u64::from(u32::MAX) * 4,
            max_workgroup_bytes: u32::MAX,
            max_invocations: u32::MAX,
            max_workgroups_per_dimension: u32::MAX,
            max_storage_buffers: 8,
            offset_alignment: 16,
            target_workgroups: 4 * threads as u32,
            multiprocessors: None,
            timestamps: true,
            f16: false,
            subgroups: None,
            played_subgroup: None,
            features: vec![vector_name().into()],
            masked: Vec::new(),
            max_submission_ms: 0,
        };
        Ok(CpuBackend {
            caps,
            pool: std::sync::Arc::new(pool),
            buffers: HashMap::new(),
            next_buffer: 0,
            pipelines: Vec::new(),
            by_key: HashMap::new(),
            forbid_new: false,
            last: SubmissionId(0),
            allocated_bytes: 0,
            peak_bytes: 0,
            limit_bytes: None,
            timing: Timing::None,
            times: BTreeMap::new(),
        })
    }

    /// Refuses allocations that would bring the live bytes above `bytes`, as a small device would.
    pub fn with_memory_limit(mut self, bytes: u64) -> Self {
        self.limit_bytes = Some(bytes);
        self
    }

    /// Refuses bindings of more than `bytes` bytes, as an adapter with that limit would.
    pub fn with_binding_limit(mut self, bytes: u64) -> Self {
        self.caps.max_binding_bytes = bytes;
        self
    }

    fn check_slice(&self, slice: &BufferSlice, what: &dyn Fn() -> String) -> Result<()> {
        let size = self.buffers.get(&slice.buffer).map(|b| b.len() as u64 * 4).ok_or_else(|| unknown(slice.buffer))?;
        checks::within(slice, &slice.buffer, size, what)
    }

    fn run(&mut self, dispatch: &super::Dispatch) -> Result<()> {
        let Some(spec) = self.pipelines.get(dispatch.pipeline.0 as usize).cloned() else {
            return Err(Error::new(
                ErrorKind::Shape,
                format!("{:?} is not a pipeline of this backend", dispatch.pipeline),
                "prepare it here first",
            ));
        };
        let decl = spec.decl;
        checks::dispatch(decl, dispatch, &self.caps, u64::from(u32::MAX), |slice, what| self.check_slice(slice, what))?;
        // Written buffers are moved out of the map for the call, so that the rest can be borrowed.
        let mut written: Vec<Option<(usize, Vec<u32>)>> = Vec::new();
        for (at, (slice, binding)) in dispatch.bindings.iter().zip(decl.bindings).enumerate() {
            if binding.access == Access::ReadWrite {
                let taken = self.buffers.get_mut(&slice.buffer).map(std::mem::take).unwrap_or_default();
                written.push(Some((at, taken)));
            }
        }
        let range = |slice: &BufferSlice| (slice.offset / 4) as usize..((slice.offset + slice.bytes) / 4) as usize;
        let result = {
            let mut bindings: Vec<CpuBinding<'_>> = Vec::with_capacity(decl.bindings.len());
            let mut outs = written.iter_mut();
            for (slice, binding) in dispatch.bindings.iter().zip(decl.bindings) {
                bindings.push(match binding.access {
                    Access::Read => CpuBinding::Read(&self.buffers[&slice.buffer][range(slice)]),
                    Access::ReadWrite => match outs.next() {
                        Some(Some((_, words))) => CpuBinding::Write(&mut words[range(slice)]),
                        _ => CpuBinding::Taken,
                    },
                });
            }
            let mut call = CpuCall { spec: &spec, groups: dispatch.groups, params: &dispatch.params, bindings };
            (decl.cpu)(&mut call)
        };
        for (at, words) in written.into_iter().flatten() {
            self.buffers.insert(dispatch.bindings[at].buffer, words);
        }
        result.map_err(|e| e.context(decl.name))
    }

    fn execute(&mut self, recording: &Recording) -> Result<()> {
        for command in recording.commands() {
            match command {
                Command::Dispatch(dispatch) => {
                    let start = Instant::now();
                    self.run(dispatch)?;
                    let kernel = self.pipelines[dispatch.pipeline.0 as usize].decl.name;
                    // Of whole submissions too, since a submission is its kernels here.
                    let entry = if self.timing == Timing::Steps { Some(kernel) } else { self.timing.entry(kernel) };
                    if let Some(kernel) = entry {
                        let time =
                            self.times.entry(kernel).or_insert(KernelTime { kernel, dispatches: 0, nanoseconds: 0 });
                        time.dispatches += 1;
                        time.nanoseconds += start.elapsed().as_nanos() as u64;
                    }
                }
                Command::Copy { src, dst } => self.copy(src, dst)?,
                Command::Boundary | Command::Beside => {}
            }
        }
        Ok(())
    }

    fn copy(&mut self, src: &BufferSlice, dst: &BufferSlice) -> Result<()> {
        self.check_slice(src, &|| "copy source".into())?;
        self.check_slice(dst, &|| "copy destination".into())?;
        let from =
            self.buffers[&src.buffer][(src.offset / 4) as usize..((src.offset + src.bytes) / 4) as usize].to_vec();
        if let Some(to) = self.buffers.get_mut(&dst.buffer) {
            to[(dst.offset / 4) as usize..((dst.offset + dst.bytes) / 4) as usize].copy_from_slice(&from);
        }
        Ok(())
    }
}

fn unknown(buffer: BufferId) -> Error {
    Error::new(ErrorKind::Shape, format!("{buffer:?} is not a live buffer of this backend"), "")
}

/// The widest vectors that the kernels' dispatch will use here.
fn vector_name() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if pulp::x86::V4::try_new().is_some() {
            return "AVX-512";
        }
        if pulp::x86::V3::try_new().is_some() {
            return "AVX2";
        }
    }
    "baseline vectors"
}

impl Backend for CpuBackend {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn alloc(&mut self, label: &str, bytes: u64) -> Result<BufferId> {
        let words = bytes.max(16).div_ceil(4);
        let total = self.allocated_bytes.saturating_add(words * 4);
        if let Some(limit) = self.limit_bytes.filter(|&l| total > l) {
            return Err(Error::new(
                ErrorKind::OutOfMemory,
                format!(
                    "{label}: {bytes} bytes would bring the backend to {total}, {} above its limit of {limit}",
                    total - limit
                ),
                "free sequences or raise the limit",
            ));
        }
        let mut data = Vec::new();
        let reserved = usize::try_from(words).ok().and_then(|n| data.try_reserve_exact(n).ok().map(|()| n));
        let Some(words) = reserved else {
            return Err(Error::new(ErrorKind::OutOfMemory, format!("{label}: the host refused {bytes} bytes"), ""));
        };
        data.resize(words, 0u32);
        self.next_buffer += 1;
        let id = BufferId(self.next_buffer);
        self.allocated_bytes = total;
        self.peak_bytes = self.peak_bytes.max(total);
        self.buffers.insert(id, data);
        Ok(id)
    }

    fn free(&mut self, buffer: BufferId) {
        if let Some(data) = self.buffers.remove(&buffer) {
            self.allocated_bytes -= data.len() as u64 * 4;
        }
    }

    fn write(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.check_slice(&BufferSlice { buffer, offset, bytes: bytes.len() as u64 }, &|| "write".into())?;
        let data = self.buffers.get_mut(&buffer).ok_or_else(|| unknown(buffer))?;
        let target: &mut [u8] = bytemuck::cast_slice_mut(data);
        target[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn prepare(&mut self, specialisation: &Specialisation) -> Result<PipelineId> {
        if let Some(&id) = self.by_key.get(specialisation.key()) {
            return Ok(id);
        }
        if self.forbid_new {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("pipeline made after warm-up: {}", specialisation.key()),
                "prepare it at load",
            ));
        }
        let id = PipelineId(self.pipelines.len() as u32);
        self.pipelines.push(std::sync::Arc::new(specialisation.clone()));
        self.by_key.insert(specialisation.key().to_string(), id);
        Ok(id)
    }

    fn submit(&mut self, recording: Recording) -> Result<SubmissionId> {
        // Entering the pool costs more than a small kernel: once a submission, not once a dispatch.
        let pool = self.pool.clone();
        pool.install(|| {
            let _awake = Awake::begin();
            self.execute(&recording)
        })?;
        self.last.0 += 1;
        Ok(self.last)
    }

    fn poll(&mut self) -> Result<SubmissionId> {
        Ok(self.last)
    }

    fn read(&mut self, buffer: BufferId, offset: u64, bytes: u64) -> Result<ReadFuture> {
        if bytes == 0 {
            return Ok(Box::pin(std::future::ready(Ok(Vec::new()))));
        }
        self.check_slice(&BufferSlice { buffer, offset, bytes }, &|| "read".into())?;
        let data: &[u8] = bytemuck::cast_slice(&self.buffers[&buffer]);
        let copy = data[offset as usize..(offset + bytes) as usize].to_vec();
        Ok(Box::pin(std::future::ready(Ok(copy))))
    }

    fn set_timing(&mut self, timing: Timing) -> Result<()> {
        self.timing = timing;
        Ok(())
    }

    fn take_times(&mut self) -> Result<Vec<KernelTime>> {
        Ok(std::mem::take(&mut self.times).into_values().collect())
    }

    fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes
    }

    fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    fn pipelines_made(&self) -> u64 {
        self.pipelines.len() as u64
    }

    fn forbid_new_pipelines(&mut self, forbid: bool) {
        self.forbid_new = forbid;
    }
}

//! A backend over Dawn: what the library's own wgpu backend does, through another implementation of WebGPU.

use super::{Dawn, Lane};
use kvarto::backend::assemble::params_bytes;
use kvarto::backend::{
    Backend, BackendKind, BufferId, BufferSlice, Caps, Command, Dispatch, KernelTime, PipelineId, ReadFuture,
    Recording, Specialisation, SubmissionId, Timing,
};
use kvarto::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::fmt::Write;

/// Bytes between the parameter blocks of a submission.
const BLOCK_STRIDE: usize = 256;

/// Runs kernels on Dawn's OpenGL device. Each call waits for its answer.
pub struct DawnBackend {
    dawn: Dawn,
    caps: Caps,
    /// Bytes of live buffers.
    buffers: HashMap<BufferId, u64>,
    pipelines: Vec<Specialisation>,
    by_key: HashMap<String, PipelineId>,
    next_buffer: u64,
    peak_bytes: u64,
    last: SubmissionId,
}

impl DawnBackend {
    /// Opens the device.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub fn open() -> Result<Self, String> {
        let dawn = Dawn::start(Lane::Gl)?;
        let number = |name: &str| dawn.said(name).parse::<u64>().unwrap_or_else(|e| panic!("{name}: {e}"));
        let narrow = |name: &str| u32::try_from(number(name)).unwrap_or(u32::MAX);
        let caps = Caps {
            kind: BackendKind::Wgpu,
            api: "dawn-gl".into(),
            adapter: dawn.said("adapter").into(),
            driver: dawn.said("driver").into(),
            device_type: "software".into(),
            software: true,
            tier: "floor".into(),
            max_binding_bytes: number("maxStorageBufferBindingSize"),
            max_buffer_bytes: number("maxBufferSize"),
            max_workgroup_bytes: narrow("maxComputeWorkgroupStorageSize"),
            max_invocations: narrow("maxComputeInvocationsPerWorkgroup"),
            max_workgroups_per_dimension: narrow("maxComputeWorkgroupsPerDimension"),
            max_storage_buffers: narrow("maxStorageBuffersPerShaderStage"),
            offset_alignment: number("minStorageBufferOffsetAlignment"),
            target_workgroups: 8,
            multiprocessors: None,
            timestamps: false,
            f16: false,
            subgroups: None,
            features: Vec::new(),
            played_subgroup: None,
            masked: Vec::new(),
            max_submission_ms: 0,
        };
        Ok(DawnBackend {
            dawn,
            caps,
            buffers: HashMap::new(),
            pipelines: Vec::new(),
            by_key: HashMap::new(),
            next_buffer: 0,
            peak_bytes: 0,
            last: SubmissionId(0),
        })
    }

    fn call(&mut self, text: &str, data: &[u8]) -> Result<Vec<u8>> {
        self.dawn.call(text, data).map_err(|e| Error::new(ErrorKind::Device, format!("Dawn: {e}"), ""))
    }

    /// `groups` and the parameters into `blocks`, and the command's text.
    fn command(&self, dispatch: &Dispatch, blocks: &mut Vec<u8>) -> Result<String> {
        let fault = |what: &str| Error::new(ErrorKind::Shape, format!("{what} in {dispatch:?}"), "");
        let spec = self.pipelines.get(dispatch.pipeline.0 as usize).ok_or_else(|| fault("no such pipeline"))?;
        let (bindings, params) = (spec.decl.bindings.len(), spec.decl.params.len());
        if dispatch.bindings.len() != bindings || dispatch.params.len() != params {
            return Err(fault("wrong counts"));
        }
        let start = blocks.len();
        blocks.extend(dispatch.groups.to_le_bytes());
        dispatch.params.iter().for_each(|word| blocks.extend(word.to_le_bytes()));
        assert!(blocks.len() - start <= params_bytes(params) as usize);
        blocks.resize(start + BLOCK_STRIDE, 0);
        // Folded as the shaders unfold: rows of x groups, those beyond the last inert.
        let y = dispatch.groups.div_ceil(self.caps.max_workgroups_per_dimension);
        let mut text = format!("[{},{},{y}", dispatch.pipeline.0, dispatch.groups.div_ceil(y));
        for BufferSlice { buffer, offset, bytes } in &dispatch.bindings {
            let _ = write!(text, ",[{},{offset},{bytes}]", buffer.0);
        }
        Ok(text + "]")
    }
}

impl Backend for DawnBackend {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn alloc(&mut self, _label: &str, bytes: u64) -> Result<BufferId> {
        let (id, bytes) = (BufferId(self.next_buffer), bytes.max(16).next_multiple_of(16));
        self.call(&format!(r#"{{"op":"alloc","id":{},"bytes":{bytes}}}"#, id.0), &[])?;
        self.next_buffer += 1;
        self.buffers.insert(id, bytes);
        self.peak_bytes = self.peak_bytes.max(self.allocated_bytes());
        Ok(id)
    }

    fn free(&mut self, buffer: BufferId) {
        if self.buffers.remove(&buffer).is_some() {
            // What is wrong then is told by the next call.
            let _ = self.call(&format!(r#"{{"op":"free","id":{}}}"#, buffer.0), &[]);
        }
    }

    fn write(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.call(&format!(r#"{{"op":"write","id":{},"offset":{offset}}}"#, buffer.0), bytes).map(drop)
    }

    fn prepare(&mut self, specialisation: &Specialisation) -> Result<PipelineId> {
        if let Some(&id) = self.by_key.get(specialisation.key()) {
            return Ok(id);
        }
        let id = PipelineId(self.pipelines.len() as u32);
        self.dawn.prepare(id.0, specialisation).map_err(|e| {
            Error::new(ErrorKind::Unsupported, format!("Dawn, kernel {}: {e}", specialisation.key()), "")
        })?;
        self.pipelines.push(specialisation.clone());
        self.by_key.insert(specialisation.key().into(), id);
        Ok(id)
    }

    fn submit(&mut self, recording: Recording) -> Result<SubmissionId> {
        let (mut blocks, mut commands) = (Vec::new(), Vec::new());
        for command in recording.commands() {
            match command {
                Command::Dispatch(dispatch) => commands.push(self.command(dispatch, &mut blocks)?),
                Command::Boundary | Command::Beside => {}
                Command::Copy { .. } => {
                    return Err(Error::new(ErrorKind::Unsupported, "copies are not carried to Dawn", ""));
                }
            }
        }
        self.call(&format!(r#"{{"op":"submit","commands":[{}]}}"#, commands.join(",")), &blocks)?;
        self.last.0 += 1;
        Ok(self.last)
    }

    fn poll(&mut self) -> Result<SubmissionId> {
        Ok(self.last)
    }

    fn read(&mut self, buffer: BufferId, offset: u64, bytes: u64) -> Result<ReadFuture> {
        let read =
            self.call(&format!(r#"{{"op":"read","id":{},"offset":{offset},"bytes":{bytes}}}"#, buffer.0), &[])?;
        if read.len() as u64 != bytes {
            return Err(Error::new(ErrorKind::Device, format!("Dawn gave {} bytes of {bytes}", read.len()), ""));
        }
        Ok(Box::pin(std::future::ready(Ok(read))))
    }

    fn set_timing(&mut self, timing: Timing) -> Result<()> {
        match timing {
            Timing::None => Ok(()),
            _ => Err(Error::new(ErrorKind::Unsupported, "nothing is timed on Dawn", "")),
        }
    }

    fn take_times(&mut self) -> Result<Vec<KernelTime>> {
        Ok(Vec::new())
    }

    fn allocated_bytes(&self) -> u64 {
        self.buffers.values().sum()
    }

    fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    fn pipelines_made(&self) -> u64 {
        self.pipelines.len() as u64
    }

    fn forbid_new_pipelines(&mut self, _forbid: bool) {}
}

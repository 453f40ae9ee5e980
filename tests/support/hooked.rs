//! A backend behind hooks: every call reaches the backend within, but what a test's hooks take into their own hands.
//!
//! The library's own tests include this file as well, so it names the library from outside.
#![allow(dead_code, reason = "each test program uses a part")]

use kvarto::Result;
use kvarto::backend::{
    Backend, BufferId, Caps, KernelTime, PipelineId, ReadFuture, Recording, Specialisation, SubmissionId, Timing,
};

/// What a test does about calls; left out, a call is handed on as it came.
pub trait Hooks: Send {
    /// [`Backend::alloc`].
    fn alloc(&mut self, inner: &mut dyn Backend, label: &str, bytes: u64) -> Result<BufferId> {
        inner.alloc(label, bytes)
    }

    /// [`Backend::free`].
    fn free(&mut self, inner: &mut dyn Backend, buffer: BufferId) {
        inner.free(buffer);
    }

    /// [`Backend::write`].
    fn write(&mut self, inner: &mut dyn Backend, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<()> {
        inner.write(buffer, offset, bytes)
    }

    /// [`Backend::prepare`].
    fn prepare(&mut self, inner: &mut dyn Backend, specialisation: &Specialisation) -> Result<PipelineId> {
        inner.prepare(specialisation)
    }

    /// [`Backend::submit`].
    fn submit(&mut self, inner: &mut dyn Backend, recording: Recording) -> Result<SubmissionId> {
        inner.submit(recording)
    }

    /// [`Backend::poll`].
    fn poll(&mut self, inner: &mut dyn Backend) -> Result<SubmissionId> {
        inner.poll()
    }

    /// [`Backend::read`].
    fn read(&mut self, inner: &mut dyn Backend, buffer: BufferId, offset: u64, bytes: u64) -> Result<ReadFuture> {
        inner.read(buffer, offset, bytes)
    }
}

/// `inner`, with `hooks` before it.
pub struct Hooked<H> {
    pub inner: Box<dyn Backend>,
    pub hooks: H,
}

impl<H: Hooks> Hooked<H> {
    /// Puts `hooks` before `inner`.
    pub fn new(inner: impl Backend + 'static, hooks: H) -> Self {
        Hooked { inner: Box::new(inner), hooks }
    }
}

impl<H: Hooks> Backend for Hooked<H> {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn alloc(&mut self, label: &str, bytes: u64) -> Result<BufferId> {
        self.hooks.alloc(self.inner.as_mut(), label, bytes)
    }

    fn free(&mut self, buffer: BufferId) {
        self.hooks.free(self.inner.as_mut(), buffer);
    }

    fn write(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.hooks.write(self.inner.as_mut(), buffer, offset, bytes)
    }

    fn prepare(&mut self, specialisation: &Specialisation) -> Result<PipelineId> {
        self.hooks.prepare(self.inner.as_mut(), specialisation)
    }

    fn submit(&mut self, recording: Recording) -> Result<SubmissionId> {
        self.hooks.submit(self.inner.as_mut(), recording)
    }

    fn poll(&mut self) -> Result<SubmissionId> {
        self.hooks.poll(self.inner.as_mut())
    }

    fn read(&mut self, buffer: BufferId, offset: u64, bytes: u64) -> Result<ReadFuture> {
        self.hooks.read(self.inner.as_mut(), buffer, offset, bytes)
    }

    fn set_timing(&mut self, timing: Timing) -> Result<()> {
        self.inner.set_timing(timing)
    }

    fn take_times(&mut self) -> Result<Vec<KernelTime>> {
        self.inner.take_times()
    }

    fn allocated_bytes(&self) -> u64 {
        self.inner.allocated_bytes()
    }

    fn peak_bytes(&self) -> u64 {
        self.inner.peak_bytes()
    }

    fn pipelines_made(&self) -> u64 {
        self.inner.pipelines_made()
    }

    fn forbid_new_pipelines(&mut self, forbid: bool) {
        self.inner.forbid_new_pipelines(forbid);
    }

    fn groups_a_submission(&self, pipeline: PipelineId) -> u32 {
        self.inner.groups_a_submission(pipeline)
    }

    fn splits(&self) -> u64 {
        self.inner.splits()
    }

    #[cfg(feature = "wgpu")]
    fn as_wgpu(&mut self) -> Option<&mut kvarto::backend::wgpu::WgpuBackend> {
        self.inner.as_wgpu()
    }
}

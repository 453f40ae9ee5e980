//! The driver's objects, each released when it is dropped.
//!
//! Every function may be called from any thread; [`Context::enter`] makes the context current on it.

#![allow(unsafe_code)]

use super::function::Function;
use super::launch::Launch;
use crate::error::{Error, ErrorKind, Result};
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;
use std::marker::PhantomData;
use std::sync::Arc;

pub(super) fn name_of(error: DriverError) -> String {
    match error.error_string() {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(_) => format!("{:?}", error.0),
    }
}

/// The error for what the driver says. After a fault of a kernel the context is lost.
pub(super) fn fault(error: DriverError, what: &str) -> Error {
    use sys::CUresult as Code;
    let message = format!("{what}: CUDA says {:?}, {}", error.0, name_of(error));
    match error.0 {
        Code::CUDA_ERROR_OUT_OF_MEMORY => {
            Error::new(ErrorKind::OutOfMemory, message, "free sequences, or take a smaller context")
        }
        Code::CUDA_ERROR_ILLEGAL_ADDRESS
        | Code::CUDA_ERROR_ILLEGAL_INSTRUCTION
        | Code::CUDA_ERROR_MISALIGNED_ADDRESS
        | Code::CUDA_ERROR_INVALID_ADDRESS_SPACE
        | Code::CUDA_ERROR_INVALID_PC
        | Code::CUDA_ERROR_HARDWARE_STACK_ERROR
        | Code::CUDA_ERROR_LAUNCH_FAILED
        | Code::CUDA_ERROR_LAUNCH_TIMEOUT
        | Code::CUDA_ERROR_ASSERT
        | Code::CUDA_ERROR_ECC_UNCORRECTABLE
        | Code::CUDA_ERROR_CONTEXT_IS_DESTROYED => {
            Error::new(ErrorKind::DeviceLost, message, "start the program anew: a process's context does not recover")
        }
        _ => Error::new(ErrorKind::Device, message, ""),
    }
}

/// A device's primary context.
pub(super) struct Context {
    device: sys::CUdevice,
    raw: sys::CUcontext,
}

// SAFETY: the driver's contexts may be used from any thread, as may its streams, events and memory.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    pub(super) fn open(index: usize) -> Result<Arc<Self>> {
        let device = result::device::get(index as i32).map_err(|e| fault(e, "asking for a device"))?;
        // SAFETY: the device is one that the driver gave; released when this is dropped.
        let raw = unsafe { result::primary_ctx::retain(device) }.map_err(|e| match e.0 {
            sys::CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE => Error::new(
                ErrorKind::Unsupported,
                format!("no CUDA on device {index}: another process holds it for itself"),
                "end that process, or change the device's compute mode (nvidia-smi -c)",
            ),
            _ => fault(e, "making a context"),
        })?;
        Ok(Arc::new(Context { device, raw }))
    }

    /// Makes this the thread's context until the guard is dropped; the thread then has again what it had.
    pub(super) fn enter(&self) -> Result<Entered> {
        // SAFETY: the context is retained.
        unsafe { sys::cuCtxPushCurrent_v2(self.raw) }.result().map_err(|e| fault(e, "entering the context"))?;
        Ok(Entered(PhantomData))
    }

    /// Free and all bytes of the device.
    pub(super) fn memory(&self) -> Result<(usize, usize)> {
        let _entered = self.enter()?;
        result::mem_get_info().map_err(|e| fault(e, "asking for free memory"))
    }
}

/// A context that is this thread's.
pub(super) struct Entered(PhantomData<*const ()>);

impl Drop for Entered {
    fn drop(&mut self) {
        let mut left = std::ptr::null_mut();
        // SAFETY: takes off what was put on this thread's stack; the guard cannot leave the thread.
        let _ = unsafe { sys::cuCtxPopCurrent_v2(&mut left) };
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once; whatever was made in it holds this context and is gone.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

/// Commands in order.
pub(super) struct Stream {
    raw: sys::CUstream,
    context: Arc<Context>,
}

// SAFETY: see `Context`.
unsafe impl Send for Stream {}

impl Stream {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self> {
        let _entered = context.enter()?;
        let raw =
            result::stream::create(result::stream::StreamKind::NonBlocking).map_err(|e| fault(e, "making a stream"))?;
        Ok(Stream { raw, context: context.clone() })
    }

    /// Waits for everything queued.
    pub(super) fn wait(&self) -> Result<()> {
        let _entered = self.context.enter()?;
        // SAFETY: the stream lives.
        unsafe { result::stream::synchronize(self.raw) }.map_err(|e| fault(e, "waiting for the device"))
    }

    /// Queues a kernel.
    pub(super) fn launch(&self, function: &Function, launch: &Launch) -> Result<()> {
        let mut arguments = launch.arguments();
        // SAFETY: plain numbers and unions of them, for which zeros are values.
        let mut overlap: sys::CUlaunchAttribute = unsafe { std::mem::zeroed() };
        overlap.id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        overlap.value.programmaticStreamSerializationAllowed = 1;
        let config = sys::CUlaunchConfig {
            gridDimX: launch.groups,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: function.threads(),
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: function.shared_bytes(),
            hStream: self.raw,
            attrs: &mut overlap,
            numAttrs: u32::from(function.overlaps()),
        };
        // SAFETY: the function takes one pointer for each buffer and the parameter block by value, as its text is
        // made; the caller checked the buffers' ranges, which live until the stream is past this.
        unsafe { sys::cuLaunchKernelEx(&config, function.raw(), arguments.as_mut_ptr(), std::ptr::null_mut()) }
            .result()
            .map_err(|e| fault(e, "starting a kernel"))
    }

    /// Queues a graph that was made ready.
    pub(super) fn launch_graph(&self, graph: sys::CUgraphExec) -> Result<()> {
        // SAFETY: both live; what the graph's kernels are told was checked as a launch is.
        unsafe { sys::cuGraphLaunch(graph, self.raw) }.result().map_err(|e| fault(e, "starting a graph"))
    }

    /// Queues host bytes. They are read before this returns: the driver stages those of pageable memory, and others are
    /// waited for.
    pub(super) fn write(&self, memory: &Memory, offset: u64, bytes: &[u8]) -> Result<()> {
        // SAFETY: the caller checked the range; the bytes are not read after this returns.
        unsafe { result::memcpy_htod_async(memory.at(offset), bytes, self.raw) }.map_err(|e| fault(e, "writing"))?;
        match is_pageable(bytes) {
            true => Ok(()),
            false => self.wait(),
        }
    }

    /// Queues a copy between buffers.
    pub(super) fn copy(&self, from: (&Memory, u64), to: (&Memory, u64), bytes: u64) -> Result<()> {
        // SAFETY: the caller checked both ranges.
        unsafe { result::memcpy_dtod_async(to.0.at(to.1), from.0.at(from.1), bytes as usize, self.raw) }
            .map_err(|e| fault(e, "copying"))
    }

    /// Queues zeros over a whole buffer.
    pub(super) fn clear(&self, memory: &Memory) -> Result<()> {
        // SAFETY: the range is the buffer's.
        unsafe { result::memset_d8_async(memory.pointer, 0, memory.bytes as usize, self.raw) }
            .map_err(|e| fault(e, "clearing a buffer"))
    }

    /// Queues a read into page-locked host memory.
    pub(super) fn read(&self, memory: &Memory, offset: u64, host: &mut Pinned, bytes: usize) -> Result<()> {
        // SAFETY: the caller checked the device's range; `host` holds as many bytes and lives until an event after
        // this is done, which is what `read.rs` waits for.
        let to = unsafe { std::slice::from_raw_parts_mut(host.pointer, bytes.min(host.bytes)) };
        // SAFETY: as above.
        unsafe { result::memcpy_dtoh_async(to, memory.at(offset), self.raw) }.map_err(|e| fault(e, "reading"))
    }

    /// Queues an event.
    pub(super) fn mark(&self, event: &Event) -> Result<()> {
        // SAFETY: both live.
        unsafe { result::event::record(event.raw, self.raw) }.map_err(|e| fault(e, "marking the stream"))
    }
}

/// Whether the driver knows nothing of these bytes.
fn is_pageable(bytes: &[u8]) -> bool {
    let mut kind = 0u32;
    let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    // SAFETY: writes one number; any address may be asked for.
    unsafe { sys::cuPointerGetAttribute((&raw mut kind).cast(), attribute, bytes.as_ptr() as u64) }.result().is_err()
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _entered = self.context.enter();
        // SAFETY: made here, and nobody else has it.
        let _ = unsafe { result::stream::destroy(self.raw) };
    }
}

/// Bytes of the device.
pub(super) struct Memory {
    pointer: sys::CUdeviceptr,
    bytes: u64,
    context: Arc<Context>,
}

impl Memory {
    pub(super) fn new(context: &Arc<Context>, label: &str, bytes: u64) -> Result<Self> {
        let _entered = context.enter()?;
        // SAFETY: freed when this is dropped.
        let pointer = unsafe { result::malloc_sync(bytes as usize) }
            .map_err(|e| fault(e, &format!("{label}: allocating {bytes} bytes")))?;
        Ok(Memory { pointer, bytes, context: context.clone() })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The device's address of byte `offset`.
    pub(super) fn at(&self, offset: u64) -> u64 {
        self.pointer + offset
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _entered = self.context.enter();
        // SAFETY: allocated here. The driver waits for the device before it frees, so no kernel loses it.
        let _ = unsafe { result::free_sync(self.pointer) };
    }
}

/// Page-locked host memory that the device writes to.
pub(super) struct Pinned {
    pointer: *mut u8,
    bytes: usize,
    context: Arc<Context>,
}

// SAFETY: plain memory with one owner.
unsafe impl Send for Pinned {}

impl Pinned {
    pub(super) fn new(context: &Arc<Context>, bytes: usize) -> Result<Self> {
        let _entered = context.enter()?;
        // SAFETY: freed when this is dropped.
        let pointer = unsafe { result::malloc_host(bytes, 0) }
            .map_err(|e| fault(e, &format!("page-locking {bytes} bytes to read into")))?;
        // SAFETY: all of it is the allocation's. It is never seen unwritten.
        unsafe { std::ptr::write_bytes(pointer.cast::<u8>(), 0, bytes) };
        Ok(Pinned { pointer: pointer.cast(), bytes, context: context.clone() })
    }

    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// The first `bytes` bytes, after an event behind the read is done.
    pub(super) fn bytes(&self, bytes: usize) -> &[u8] {
        // SAFETY: the allocation is as long, and was written when it was made.
        unsafe { std::slice::from_raw_parts(self.pointer, bytes.min(self.bytes)) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _entered = self.context.enter();
        // SAFETY: allocated here.
        let _ = unsafe { result::free_host(self.pointer.cast()) };
    }
}

/// A place in a stream.
pub(super) struct Event {
    raw: sys::CUevent,
    context: Arc<Context>,
}

// SAFETY: see `Context`.
unsafe impl Send for Event {}
// SAFETY: see `Context`.
unsafe impl Sync for Event {}

impl Event {
    /// An event; with the time of its passing if `timed`.
    pub(super) fn new(context: &Arc<Context>, timed: bool) -> Result<Self> {
        let _entered = context.enter()?;
        let flags = match timed {
            true => sys::CUevent_flags::CU_EVENT_DEFAULT,
            false => sys::CUevent_flags::CU_EVENT_DISABLE_TIMING,
        };
        let raw = result::event::create(flags).map_err(|e| fault(e, "making an event"))?;
        Ok(Event { raw, context: context.clone() })
    }

    /// Whether the stream is past it.
    pub(super) fn is_past(&self) -> Result<bool> {
        let _entered = self.context.enter()?;
        // SAFETY: the event lives.
        match unsafe { result::event::query(self.raw) } {
            Ok(()) => Ok(true),
            Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            Err(error) => Err(fault(error, "asking for the device's progress")),
        }
    }

    /// Waits until the stream is past it.
    pub(super) fn wait(&self) -> Result<()> {
        let _entered = self.context.enter()?;
        // SAFETY: the event lives.
        unsafe { result::event::synchronize(self.raw) }.map_err(|e| fault(e, "waiting for the device"))
    }

    /// Nanoseconds from this event to `later`, both timed and past.
    pub(super) fn nanoseconds_to(&self, later: &Event) -> Result<u64> {
        let _entered = self.context.enter()?;
        // SAFETY: both events live.
        let milliseconds =
            unsafe { result::event::elapsed(self.raw, later.raw) }.map_err(|e| fault(e, "taking a time"))?;
        Ok((f64::from(milliseconds) * 1e6) as u64)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _entered = self.context.enter();
        // SAFETY: made here.
        let _ = unsafe { result::event::destroy(self.raw) };
    }
}

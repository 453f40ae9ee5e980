//! Kernels that the device has.

#![allow(unsafe_code)]

use super::driver::{Context, fault};
use super::source::{ENTRY, Source};
use crate::error::{Error, ErrorKind, Result};
use cudarc::driver::{result, sys};
use std::ffi::CString;
use std::sync::Arc;

/// A kernel that the device has.
pub(super) struct Function {
    raw: sys::CUfunction,
    module: sys::CUmodule,
    threads: u32,
    shared_bytes: u32,
    overlaps: bool,
    context: Arc<Context>,
}

// SAFETY: see `Context`.
unsafe impl Send for Function {}

impl Function {
    /// Loads the kernel of a cubin that `source` was compiled to.
    pub(super) fn load(context: &Arc<Context>, image: &[u8], source: &Source) -> Result<Self> {
        let _entered = context.enter()?;
        let name = CString::new(ENTRY).map_err(|_| Error::new(ErrorKind::Shape, "a kernel's name holds a zero", ""))?;
        let Source { threads, shared_bytes, overlaps, .. } = *source;
        // SAFETY: an image that a compiler made for this device, or that the driver refuses; unloaded when dropped.
        let module =
            unsafe { result::module::load_data(image.as_ptr().cast()) }.map_err(|e| fault(e, "loading a kernel"))?;
        // SAFETY: the module is loaded.
        let raw = match unsafe { result::module::get_function(module, name) } {
            Ok(raw) => raw,
            Err(error) => {
                // SAFETY: as above; nothing of it is in use.
                let _ = unsafe { result::module::unload(module) };
                return Err(fault(error, "finding a kernel"));
            }
        };
        let function = Function { raw, module, threads, shared_bytes, overlaps, context: context.clone() };
        if shared_bytes > 48 << 10 {
            let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is loaded.
            unsafe { result::function::set_function_attribute(raw, attribute, shared_bytes as i32) }
                .map_err(|e| fault(e, &format!("asking for {shared_bytes} bytes of shared memory")))?;
        }
        Ok(function)
    }
}

impl Function {
    pub(super) fn raw(&self) -> sys::CUfunction {
        self.raw
    }

    /// Threads of a block.
    pub(super) fn threads(&self) -> u32 {
        self.threads
    }

    /// Shared memory that a launch asks for.
    pub(super) fn shared_bytes(&self) -> u32 {
        self.shared_bytes
    }

    /// Whether it may begin before the kernel ahead of it has ended.
    pub(super) fn overlaps(&self) -> bool {
        self.overlaps
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        let _entered = self.context.enter();
        // SAFETY: loaded here; the driver waits for kernels in flight.
        let _ = unsafe { result::module::unload(self.module) };
    }
}

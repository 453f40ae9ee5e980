//! A recording's dispatches with their addresses and parameter blocks: what the driver is told.

use super::buffers::Buffers;
use crate::backend::Dispatch;
use crate::backend::assemble::params_bytes;
use crate::error::Result;
use std::ffi::c_void;

/// Most pointers of a kernel, and words of its parameter block with the word behind it.
const POINTERS: usize = 8;
const WORDS: usize = 36;

/// One kernel's launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Launch {
    /// Index of the pipeline.
    pub(super) pipeline: usize,
    /// Blocks.
    pub(super) groups: u32,
    pointers: [u64; POINTERS],
    buffers: usize,
    block: [u32; WORDS],
}

impl Launch {
    /// The launch of a dispatch that was checked; `beside` where it may run with the one ahead of it and that one is a
    /// launch of the same submission.
    ///
    /// # Errors
    /// `Shape` for a buffer that is not there.
    pub(super) fn of(dispatch: &Dispatch, buffers: &Buffers, beside: bool) -> Result<Self> {
        let mut pointers = [0; POINTERS];
        for (pointer, slice) in pointers.iter_mut().zip(&dispatch.bindings) {
            *pointer = buffers.get(slice.buffer)?.at(slice.offset);
        }
        let words = dispatch.params.len();
        let mut block = [0; WORDS];
        block[0] = dispatch.groups;
        block[1..=words].copy_from_slice(&dispatch.params);
        // Kernels of CUDA's own text look at it, behind the block that all backends share.
        block[params_bytes(words) as usize / 4] = u32::from(beside);
        Ok(Launch {
            pipeline: dispatch.pipeline.0 as usize,
            groups: dispatch.groups,
            pointers,
            buffers: dispatch.bindings.len(),
            block,
        })
    }

    /// Addresses of the arguments: the pointers, then the block. They are good while `self` is where it is.
    pub(super) fn arguments(&self) -> [*mut c_void; POINTERS + 1] {
        let mut arguments = [std::ptr::null_mut(); POINTERS + 1];
        for (to, pointer) in arguments.iter_mut().zip(&self.pointers[..self.buffers]) {
            *to = std::ptr::from_ref(pointer).cast_mut().cast();
        }
        arguments[self.buffers] = self.block.as_ptr().cast_mut().cast();
        arguments
    }
}

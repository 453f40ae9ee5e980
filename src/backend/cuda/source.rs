//! The CUDA text of a specialised kernel.

use super::translate::translate;
use crate::backend::Specialisation;
use crate::error::Result;

/// Name of every kernel's entry point: pointers to its buffers in the declaration's order, then its parameter block.
pub const ENTRY: &str = "kvarto_kernel";

/// One complete CUDA source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its text, without includes.
    pub text: String,
    /// Threads of a block.
    pub threads: u32,
    /// Shared memory that a launch asks for, beside what the text declares.
    pub shared_bytes: u32,
}

/// The text of `spec`: its own where it has one in `cuda/`, else its WGSL's translation.
///
/// # Errors
/// As the assembler; `Unsupported` for WGSL that the translation does not know.
pub fn source(spec: &Specialisation) -> Result<Source> {
    translate(spec)
}

//! What every backend refuses in a dispatch before any of it runs.

use super::{Access, BufferSlice, Caps, Dispatch, KernelDecl};
use crate::error::{Error, ErrorKind, Result};
use std::fmt::Debug;

/// Checks a dispatch of `decl`: buffers and parameters by number, workgroups against `most_groups`, bindings against the
/// adapter's limits and, by `bounds`, against their buffers; and that none is bound beside one that is written.
///
/// # Errors
/// `Shape`, naming the kernel and the binding.
pub(super) fn dispatch(
    decl: &KernelDecl,
    dispatch: &Dispatch,
    caps: &Caps,
    most_groups: u64,
    bounds: impl Fn(&BufferSlice, &dyn Fn() -> String) -> Result<()>,
) -> Result<()> {
    let fault = |message: String, remedy: &str| {
        Err(Error::new(ErrorKind::Shape, format!("kernel {}: {message}", decl.name), remedy))
    };
    if dispatch.bindings.len() != decl.bindings.len() || dispatch.params.len() != decl.params.len() {
        return fault(
            format!(
                "takes {} buffers and {} parameters, got {} and {}",
                decl.bindings.len(),
                decl.params.len(),
                dispatch.bindings.len(),
                dispatch.params.len()
            ),
            "",
        );
    }
    if u64::from(dispatch.groups) > most_groups {
        return fault(format!("{} workgroups; at most {most_groups} serve", dispatch.groups), "split the dispatch");
    }
    for (at, (slice, binding)) in dispatch.bindings.iter().zip(decl.bindings).enumerate() {
        let what = || format!("{}.{}", decl.name, binding.name);
        if slice.bytes > caps.max_binding_bytes || !slice.offset.is_multiple_of(caps.offset_alignment) {
            return Err(Error::new(
                ErrorKind::Shape,
                format!(
                    "{}: binds {} bytes at {}; {} allows {} bytes at multiples of {}",
                    what(),
                    slice.bytes,
                    slice.offset,
                    caps.title(),
                    caps.max_binding_bytes,
                    caps.offset_alignment
                ),
                "bind less, or at an aligned offset",
            ));
        }
        bounds(slice, &what)?;
        let mut others = dispatch.bindings.iter().enumerate().filter(|&(other, _)| other != at);
        if binding.access == Access::ReadWrite && others.any(|(_, other)| other.buffer == slice.buffer) {
            return fault(
                format!("{} is written while its buffer is bound twice", binding.name),
                "a dispatch may not bind a buffer that it writes a second time, not even another range of it",
            );
        }
    }
    Ok(())
}

/// Checks that a slice lies within a buffer of `size` bytes, called `label`, and is of whole words.
///
/// # Errors
/// `Shape`, led by `what`.
pub(super) fn within(slice: &BufferSlice, label: &dyn Debug, size: u64, what: &dyn Fn() -> String) -> Result<()> {
    let whole = slice.offset.is_multiple_of(4) && slice.bytes.is_multiple_of(4) && slice.bytes > 0;
    let end = slice.offset.checked_add(slice.bytes);
    if whole && end.is_some_and(|end| end <= size) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Shape,
        format!("{}: bytes {}..+{} of {label:?}, a buffer of {size}", what(), slice.offset, slice.bytes),
        "slices are in bounds, not empty, and of whole 4-byte words",
    ))
}

//! Commands for a backend, in order: what a step is made of.

use super::{BufferId, PipelineId};
use crate::error::{Error, ErrorKind, Result};

/// A range of a buffer, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferSlice {
    /// The buffer.
    pub buffer: BufferId,
    /// First byte; a multiple of the adapter's offset alignment (256 serves all).
    pub offset: u64,
    /// Length in bytes, above zero, a multiple of 4.
    pub bytes: u64,
}

impl BufferSlice {
    /// The first `bytes` bytes of `buffer`.
    pub fn whole(buffer: BufferId, bytes: u64) -> Self {
        BufferSlice { buffer, offset: 0, bytes }
    }
}

/// One dispatch of a prepared kernel.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// The kernel.
    pub pipeline: PipelineId,
    /// Workgroups; a dispatch of none is dropped when recorded.
    pub groups: u32,
    /// Parameter words, without the leading `groups`.
    pub params: Vec<u32>,
    /// Storage buffers in the declaration's order.
    pub bindings: Vec<BufferSlice>,
}

/// A command of a recording.
#[derive(Clone, Debug)]
pub enum Command {
    /// Run a kernel.
    Dispatch(Dispatch),
    /// Copy `src` over `dst` (equal lengths, different buffers); ends a pass on a GPU.
    Copy {
        /// From.
        src: BufferSlice,
        /// To.
        dst: BufferSlice,
    },
    /// A place where a long recording may be split into submissions.
    Boundary,
    /// The next dispatch may run while the one ahead still does: neither reads what the other writes, nor do they write
    /// the same words. What comes after them waits for both.
    Beside,
}

/// Commands in order, to be executed as one submission.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    commands: Vec<Command>,
}

impl Recording {
    /// An empty recording.
    pub fn new() -> Self {
        Recording::default()
    }

    /// Adds a dispatch; one of no workgroups is nothing to do.
    pub fn dispatch(&mut self, dispatch: Dispatch) {
        if dispatch.groups > 0 {
            self.commands.push(Command::Dispatch(dispatch));
        }
    }

    /// Adds a copy.
    ///
    /// # Errors
    /// `Shape` for unequal lengths or a copy within one buffer.
    pub fn copy(&mut self, src: BufferSlice, dst: BufferSlice) -> Result<()> {
        if src.bytes != dst.bytes || src.buffer == dst.buffer {
            return Err(Error::new(
                ErrorKind::Shape,
                format!(
                    "a copy of {} bytes onto {} bytes between {:?} and {:?}",
                    src.bytes, dst.bytes, src.buffer, dst.buffer
                ),
                "copies need equal lengths and two buffers",
            ));
        }
        if src.bytes > 0 {
            self.commands.push(Command::Copy { src, dst });
        }
        Ok(())
    }

    /// Marks a place where the work may be split into submissions: between dispatches that may take long. It costs
    /// nothing where no split is due.
    pub fn boundary(&mut self) {
        self.commands.push(Command::Boundary);
    }

    /// Says that the next dispatch may run while the one ahead still does: neither reads what the other writes, nor do
    /// they write the same words. A backend may use it or not.
    pub fn beside(&mut self) {
        self.commands.push(Command::Beside);
    }

    /// Appends another recording.
    pub fn append(&mut self, mut other: Recording) {
        self.commands.append(&mut other.commands);
    }

    /// The commands.
    pub fn commands(&self) -> &[Command] {
        &self.commands
    }

    /// Whether there is nothing to execute.
    pub fn is_empty(&self) -> bool {
        !self.commands.iter().any(|c| !matches!(c, Command::Boundary | Command::Beside))
    }
}

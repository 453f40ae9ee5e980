//! Where a trace is written.

use super::header::MAGIC;
use crate::error::{Error, ErrorKind, Result};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Where a trace goes.
pub enum Target {
    /// A file, which is cut back to its last whole chunk when no more can be written.
    File(TraceFile),
    /// Anything else.
    Writer(Box<dyn Write + Send>),
}

/// A file that was opened for a trace. What it holds stays until recording begins, and one that had to be made is gone
/// again if none does.
pub struct TraceFile {
    file: File,
    path: PathBuf,
    /// A file on a disk; pipes and devices cannot be cut.
    regular: bool,
    /// Made here, and nothing was recorded.
    unused: bool,
}

impl Target {
    /// Opens a file, a pipe or a device, and leaves what it holds until [`super::Recorder::start`]. Does not wait.
    ///
    /// # Errors
    /// `File` with what the system says, for a file that holds something else than a trace, and for a named pipe that
    /// nobody reads.
    pub fn open(path: &Path) -> Result<Self> {
        let remedy = "name a file in a folder that can be written to";
        let fault = |e: std::io::Error| {
            if is_pipe(path) && nobody_reads(&e) {
                let message =
                    format!("the trace {} cannot be written: it is a pipe that has no reader", path.display());
                return Error::new(ErrorKind::File, message, "start the program that reads it first");
            }
            Error::new(ErrorKind::File, format!("the trace {} cannot be made: {e}", path.display()), remedy)
        };
        let there = std::fs::metadata(path).is_ok();
        let file = open_at_once(path).map_err(fault)?;
        let about = file.metadata().map_err(fault)?;
        if about.is_file() && about.len() > 0 {
            refuse_others(path)?;
        }
        let path = path.canonicalize().unwrap_or_else(|_| path.into());
        Ok(Target::File(TraceFile { file, path, regular: about.is_file(), unused: !there }))
    }

    /// Empties what was there: from now on it is this trace's.
    pub(super) fn begin(&mut self) -> std::io::Result<()> {
        let Target::File(to) = self else { return Ok(()) };
        if to.regular {
            to.file.set_len(0)?;
        }
        to.unused = false;
        Ok(())
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Target::File(to) => to.file.write_all(bytes),
            Target::Writer(to) => to.write_all(bytes).and_then(|()| to.flush()),
        }
    }

    /// Takes back what was written of a chunk that did not get whole. Where that fails, a reader sees a chunk cut short.
    pub(super) fn cut(&mut self, bytes: u64) {
        if let Target::File(TraceFile { file, regular: true, .. }) = self {
            let _ = file.set_len(bytes).and_then(|()| file.seek(SeekFrom::Start(bytes)).map(drop));
        }
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        if self.unused && self.regular && self.file.metadata().is_ok_and(|about| about.len() == 0) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Opens to write, made if it is not there. A pipe without a reader is an error, where it would be waited for.
#[cfg(unix)]
fn open_at_once(path: &Path) -> std::io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::from_raw_mode(0o666))?);
    // Only to open it must not wait: a reader that is slow is waited for.
    rustix::fs::fcntl_setfl(&file, rustix::fs::fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Opens to write, made if it is not there.
#[cfg(not(unix))]
fn open_at_once(path: &Path) -> std::io::Result<File> {
    std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(path)
}

#[cfg(unix)]
fn is_pipe(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::metadata(path).is_ok_and(|about| about.file_type().is_fifo())
}

#[cfg(unix)]
fn nobody_reads(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error())
}

#[cfg(not(unix))]
fn is_pipe(_: &Path) -> bool {
    false
}

#[cfg(not(unix))]
fn nobody_reads(_: &std::io::Error) -> bool {
    false
}

/// A model or a text that a slip of the hand names is not overwritten.
fn refuse_others(path: &Path) -> Result<()> {
    let refused = |what: String| {
        let message = format!("the trace {} would replace a file that {what}", path.display());
        Error::new(ErrorKind::File, message, "give the trace another name, or remove that file")
    };
    let mut begins = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut begins));
    read.map_err(|e| refused(format!("cannot be read, so that nobody knows what it is: {e}")))?;
    if begins == MAGIC {
        return Ok(());
    }
    Err(refused(format!("is no trace: it begins with \"{}\", a trace with \"KVTR\"", begins.escape_ascii())))
}

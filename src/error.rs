//! The one error type of the library: what went wrong, and what to do about it.

use std::fmt;

/// What kind of fault an [`Error`] reports. Programs map it to an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument, flag or profile that cannot be meant as written.
    Usage,
    /// A file that is missing, unreadable, damaged or of an unknown kind.
    File,
    /// A sequence, page table, tensor or shape that does not fit what was declared.
    Shape,
    /// The page budget is spent; every sequence stays usable.
    OutOfPages,
    /// The device or the host refused an allocation; every sequence stays usable.
    OutOfMemory,
    /// A format, kernel or model that this build or this hardware cannot serve.
    Unsupported,
    /// The device reported an error; results since the last completed step are void.
    Device,
    /// The device is gone; the engine must be built anew.
    DeviceLost,
    /// The user asked to stop.
    Interrupted,
}

impl ErrorKind {
    /// The word used in JSON output.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Usage => "usage",
            ErrorKind::File => "file",
            ErrorKind::Shape => "shape",
            ErrorKind::OutOfPages => "out_of_pages",
            ErrorKind::OutOfMemory => "out_of_memory",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Device => "device",
            ErrorKind::DeviceLost => "device_lost",
            ErrorKind::Interrupted => "interrupted",
        }
    }
}

/// An error with its kind, a message that states the limit and the actual value, and a remedy.
#[derive(Clone, Debug, thiserror::Error)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    remedy: String,
}

/// The library's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of `kind`; `message` says what is wrong, `remedy` (may be empty) what helps.
    pub fn new(kind: ErrorKind, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Error { kind, message: message.into(), remedy: remedy.into() }
    }

    /// What kind of fault this is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What is wrong, with the limit and the actual value.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What would help; empty when nothing is known to.
    pub fn remedy(&self) -> &str {
        &self.remedy
    }

    /// The same error, its message led by `context` ("loading model.gguf").
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if !self.remedy.is_empty() {
            write!(f, " ({})", self.remedy)?;
        }
        Ok(())
    }
}

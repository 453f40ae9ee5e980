//! Standard output and standard error: every write is checked, and no text that came from elsewhere steers a terminal.

use kvarto::{Error, ErrorKind, Result};
use serde_json::Value;
use std::io::{self, ErrorKind as IoKind, IsTerminal, Write};

/// Standard output. The first failure is kept and ends the writing; a reader that has had enough (`| head`) ends it
/// too, and is no error.
pub struct Out {
    target: Box<dyn Write>,
    terminal: bool,
    fault: Option<io::Error>,
}

impl Out {
    /// The process's own.
    pub fn stdout() -> Self {
        let terminal = io::stdout().is_terminal();
        match unbuffered() {
            Ok(target) => Out { target, terminal, fault: None },
            Err(fault) => Out { target: Box::new(io::sink()), terminal, fault: Some(fault) },
        }
    }

    /// Writes `text` as it is, at once; nothing after a failure.
    pub fn write(&mut self, text: &str) {
        self.write_bytes(text.as_bytes());
    }

    /// Writes bytes as they are; nothing after a failure.
    pub fn write_bytes(&mut self, bytes: &[u8]) {
        if self.fault.is_none() {
            self.fault = self.target.write_all(bytes).and_then(|()| self.target.flush()).err();
        }
    }

    /// Writes what a model said: as it is to a file or a pipe, escaped to a terminal.
    pub fn speak(&mut self, text: &str) {
        match self.terminal {
            true => self.write(&escaped_lines(text)),
            false => self.write(text),
        }
    }

    /// Whether nothing can be written any more.
    pub fn ended(&self) -> bool {
        self.fault.is_some()
    }

    /// Whether the reader has gone.
    pub fn closed(&self) -> bool {
        self.fault.as_ref().is_some_and(|e| e.kind() == IoKind::BrokenPipe)
    }

    /// Whether all was written that somebody still reads.
    ///
    /// # Errors
    /// `File` with what the system said of the first write that failed.
    pub fn result(&self) -> Result<()> {
        match &self.fault {
            Some(fault) if fault.kind() != IoKind::BrokenPipe => Err(Error::new(
                ErrorKind::File,
                format!("standard output: {fault}; what was to be written is lost or cut short"),
                "make room where the output goes, or send it elsewhere",
            )),
            _ => Ok(()),
        }
    }
}

/// Standard output without a buffer whose last write could fail unseen.
#[cfg(unix)]
fn unbuffered() -> io::Result<Box<dyn Write>> {
    use std::os::fd::AsFd;
    // The library's own handle takes a descriptor that cannot be written to for success.
    Ok(Box::new(std::fs::File::from(io::stdout().as_fd().try_clone_to_owned()?)))
}

/// Standard output; a console takes text, not bytes, and the library's handle knows that.
#[cfg(not(unix))]
fn unbuffered() -> io::Result<Box<dyn Write>> {
    Ok(Box::new(io::stdout()))
}

/// Writes a whole result to standard output.
///
/// # Errors
/// As [`Out::result`].
pub fn write(text: &str) -> Result<()> {
    let mut out = Out::stdout();
    out.write(text);
    out.result()
}

/// Writes to standard error, escaped. Where that fails there is nobody left to tell.
pub fn say(text: &str) {
    let _ = io::stderr().write_all((escaped_lines(text) + "\n").as_bytes());
}

/// `value` as text for programs, one line or many, ending in a line break. What could steer a terminal is written as
/// JSON's own escapes.
pub fn json(value: &Value, pretty: bool) -> String {
    let text = if pretty { format!("{value:#}\n") } else { format!("{value}\n") };
    // Outside strings JSON holds nothing that steers but line breaks, and inside them an escape by number says the same.
    let escape = |c: char| if steers(c) && c != '\n' { format!("\\u{:04x}", u32::from(c)) } else { c.into() };
    text.chars().map(escape).collect()
}

/// `text` on one line, with what could steer a terminal spelled out.
pub fn escaped(text: &str) -> String {
    text.chars().map(|c| if steers(c) { spelled(c) } else { c.into() }).collect()
}

/// The same, but line breaks and tabs stay.
pub fn escaped_lines(text: &str) -> String {
    let stays = |c: char| matches!(c, '\n' | '\t') || !steers(c);
    text.chars().map(|c| if stays(c) { c.into() } else { spelled(c) }).collect()
}

/// Whether a terminal may do something else at `c` than show it: control characters, and those that turn the
/// direction of writing or begin a line. All are below 2^16.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `\n`, `\t`, `\r` or `\u{1b}`.
fn spelled(c: char) -> String {
    c.escape_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes `room` bytes, then fails.
    struct Full(usize, IoKind);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            if taken == 0 { Err(self.1.into()) } else { Ok(taken) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn out(room: usize, kind: IoKind) -> Out {
        Out { target: Box::new(Full(room, kind)), terminal: false, fault: None }
    }

    #[test]
    fn every_failure_but_a_closed_pipe_is_an_error() {
        for kind in [IoKind::StorageFull, IoKind::Other, IoKind::PermissionDenied, IoKind::BrokenPipe] {
            for room in 0..12 {
                let mut out = out(room, kind);
                out.write("five ");
                out.speak("more");
                let closed = kind == IoKind::BrokenPipe;
                let full = room < 9;
                assert_eq!((out.ended(), out.closed(), out.result().is_err()), (full, full && closed, full && !closed));
                if let Err(error) = out.result() {
                    assert_eq!(error.kind(), ErrorKind::File);
                    assert!(!error.remedy().is_empty());
                }
            }
        }
    }

    #[test]
    fn nothing_that_is_escaped_steers() {
        let all: String = (0..=0x2fff).filter_map(char::from_u32).collect();
        assert!(!escaped(&all).chars().any(steers));
        assert!(escaped_lines(&all).chars().all(|c| !steers(c) || c == '\n' || c == '\t'));
        assert_eq!(escaped("a\u{1b}[31mé\u{9b}\n"), "a\\u{1b}[31mé\\u{9b}\\n");
        let text = json(&Value::from(all.as_str()), true);
        assert!(text.chars().all(|c| !steers(c) || c == '\n'));
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), all);
        let mut out = out(100, IoKind::Other);
        out.terminal = true;
        out.speak("\u{1b}]0;x\u{7}");
        out.write("");
        assert!(!out.ended());
    }
}

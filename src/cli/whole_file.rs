//! Files that are written whole or not at all.

use kvarto::{Error, ErrorKind, Result};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file in the making. What had its name stays until [`WholeFile::keep`]; dropped before, nothing of it is left.
pub struct WholeFile {
    to: BufWriter<To>,
    path: PathBuf,
}

enum To {
    /// A file beside the one that it will be, and that one.
    Beside(NamedTempFile, PathBuf),
    /// A pipe or a device, which takes what it is given.
    Direct(File),
}

impl WholeFile {
    /// Makes a file that `input` is to be turned into.
    ///
    /// # Errors
    /// `Usage` where both are the same file, by whatever name, and `File` for one that cannot be written.
    pub fn create(path: &Path, input: &Path) -> Result<Self> {
        let fault = |e: io::Error| {
            let message = format!("{} cannot be made: {e}", path.display());
            Error::new(ErrorKind::File, message, "name a file in a folder that can be written to")
        };
        let there = std::fs::metadata(path).ok();
        if let (Some(there), Ok(read)) = (&there, std::fs::metadata(input))
            && same((path, there), (input, &read))
        {
            let message = format!("{} is the file that is read: writing to it would end it", path.display());
            return Err(Error::new(ErrorKind::Usage, message, "name another file to write to"));
        }
        let to = match there {
            None => To::Beside(beside(path).map_err(fault)?, path.into()),
            Some(there) if there.is_file() => {
                // Behind links, so that they stay; and one that must not be written to is not replaced either.
                let real = path.canonicalize().map_err(fault)?;
                OpenOptions::new().write(true).open(&real).map_err(fault)?;
                let made = beside(&real).map_err(fault)?;
                made.as_file().set_permissions(there.permissions()).map_err(fault)?;
                To::Beside(made, real)
            }
            Some(_) => To::Direct(OpenOptions::new().write(true).open(path).map_err(fault)?),
        };
        Ok(WholeFile { to: BufWriter::new(to), path: path.into() })
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// `File` with what the system says; what had the name is there still.
    pub fn keep(self) -> Result<()> {
        let WholeFile { to, path } = self;
        let fault = |e: io::Error| {
            let message = format!("{} cannot be written: {e}", path.display());
            Error::new(ErrorKind::File, message, "make room where it goes, or name another file")
        };
        match to.into_inner().map_err(|e| fault(e.into_error()))? {
            To::Beside(made, real) => made.persist(real).map(drop).map_err(|e| fault(e.error)),
            To::Direct(_) => Ok(()),
        }
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl Write for To {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            To::Beside(made, _) => made.write(bytes),
            To::Direct(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            To::Beside(made, _) => made.flush(),
            To::Direct(file) => file.flush(),
        }
    }
}

/// A new file in the folder of `path`, with the rights of any new file.
fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::IsADirectory))?);
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.prefix(&name).suffix(".part").tempfile_in(folder)
}

/// Whether two names lead to one file.
#[cfg(unix)]
fn same((_, a): (&Path, &Metadata), (_, b): (&Path, &Metadata)) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Whether two names lead to one file.
#[cfg(not(unix))]
fn same((a, _): (&Path, &Metadata), (b, _): (&Path, &Metadata)) -> bool {
    a.canonicalize().ok().is_some_and(|a| b.canonicalize().is_ok_and(|b| a == b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_kept_leaves_all_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new, input] = ["old", "new", "input"].map(|name| folder.path().join(name));
        std::fs::write(&old, b"an earlier one").unwrap();
        std::fs::write(&input, b"read").unwrap();
        for path in [&old, &new] {
            let mut made = WholeFile::create(path, &input).unwrap();
            made.write_all(&[7; 100_000]).unwrap();
            made.flush().unwrap();
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3, "one more while it is written");
            drop(made);
        }
        assert_eq!(std::fs::read(&old).unwrap(), b"an earlier one");
        assert!(!new.exists());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        let mut made = WholeFile::create(&new, &input).unwrap();
        made.write_all(b"whole").unwrap();
        made.keep().unwrap();
        assert_eq!(std::fs::read(&new).unwrap(), b"whole");
    }
}

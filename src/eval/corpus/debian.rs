//! A text out of a Debian package, with the system's own programs.

use super::{Entry, Packing};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Downloads and unpacks in `work`, an empty folder; the error is what went wrong, in one line.
pub(super) fn text(entry: &Entry, work: &Path) -> Result<Vec<u8>, String> {
    call("apt-get", Command::new("apt-get").args(["download", entry.package]).current_dir(work))?;
    let package = std::fs::read_dir(work)
        .map_err(|e| format!("{}: {e}", work.display()))?
        .flatten()
        .map(|found| found.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .ok_or("apt-get ended well and left no .deb file")?;
    let tree = work.join("tree");
    call("dpkg-deb", Command::new("dpkg-deb").arg("-x").arg(package).arg(&tree))?;
    let file = tree.join(entry.member);
    let packed = std::fs::read(&file).map_err(|e| format!("{} holds no {}: {e}", entry.package, entry.member))?;
    match entry.packing {
        Packing::Gzip => gunzip(&packed, work),
        Packing::Windows => {
            let mut text = Vec::with_capacity(entry.bytes as usize);
            for run in windows(&packed)? {
                text.extend(gunzip(&run, work)?);
            }
            Ok(text)
        }
    }
}

/// The file's runs, each with the bytes that begin one for `gzip`.
fn windows(file: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    const COUNT_AT: usize = 0x58;
    const MAGIC: [u8; 3] = [0x1f, 0x9d, 0x90];
    let word = |at: usize| {
        let bytes = file.get(at..at + 4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
        bytes.map(|bytes| u32::from_be_bytes(bytes) as usize).ok_or("the file ends within its table")
    };
    let count = word(COUNT_AT)?;
    if !file.starts_with(b"EC02") || count > file.len() / 4 {
        return Err("the file is of another kind".into());
    }
    let run = |at: usize| {
        let place = COUNT_AT + 4 + at * 4;
        let bytes = file.get(word(place)?..word(place + 4)?).ok_or("the file's table points outside")?;
        Ok([&MAGIC, bytes].concat())
    };
    (0..count).map(run).collect()
}

fn gunzip(packed: &[u8], work: &Path) -> Result<Vec<u8>, String> {
    // A file and no pipe: the program may write before it has read all.
    let path = work.join("packed");
    let fault = |e: std::io::Error| format!("{}: {e}", path.display());
    let mut file = File::options().read(true).write(true).create(true).truncate(true).open(&path).map_err(fault)?;
    file.write_all(packed).and_then(|()| file.seek(SeekFrom::Start(0))).map_err(fault)?;
    call("gzip", Command::new("gzip").arg("-dc").stdin(file))
}

/// What a program writes, if it ends well.
fn call(name: &str, command: &mut Command) -> Result<Vec<u8>, String> {
    if name != "gzip" {
        command.stdin(Stdio::null());
    }
    let output = command.output().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => format!("this system has no {name}"),
        _ => format!("{name} cannot be started: {e}"),
    })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it said nothing");
    Err(format!("{name} failed ({}): {last}", output.status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_cut_where_the_table_says_and_nowhere_else() {
        let mut file = vec![0u8; 0x58];
        file[..4].copy_from_slice(b"EC02");
        for word in [2u32, 0x70, 0x72, 0x75] {
            file.extend(word.to_be_bytes());
        }
        file.resize(0x70, 0);
        file.extend(b"abcde");
        let runs = windows(&file).unwrap();
        assert_eq!(runs, [b"\x1f\x9d\x90ab".to_vec(), b"\x1f\x9d\x90cde".to_vec()]);
        for length in 0..file.len() {
            assert!(windows(&file[..length]).is_err(), "cut to {length} bytes");
        }
        file[0x5b] = 200;
        assert!(windows(&file).is_err());
    }
}

//! Small files read whole, whatever is behind the path: its length is what was read, not what it says of itself.

use std::io::Read;
use std::path::Path;

/// The bytes of the file at `path`; in words what is wrong with it, more than `most` bytes included.
pub(crate) fn read(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|e| e.to_string())?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    match bytes.len() as u64 > most {
        true => Err(format!("it has more than {most} bytes, the most that is read")),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit_and_no_further() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("f");
        std::fs::write(&path, b"12345").expect("written");
        assert_eq!(read(&path, 5).as_deref(), Ok(&b"12345"[..]));
        assert!(read(&path, 4).unwrap_err().contains("more than 4 bytes"));
        assert!(read(&folder.path().join("none"), 4).is_err());
        #[cfg(unix)]
        assert!(read(Path::new("/dev/zero"), 1000).unwrap_err().contains("more than 1000 bytes"));
    }
}

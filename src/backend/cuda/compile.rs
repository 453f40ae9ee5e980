//! From CUDA text to machine code: kept on disk by what it was made from, made by NVRTC where it is found.

#![allow(unsafe_code)]

use super::probe::DeviceReport;
use super::source::Source;
use crate::error::{Error, ErrorKind, Result};
use cudarc::nvrtc::{result, sys};
use std::ffi::{CStr, CString, c_char};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// What every kernel is compiled with.
const OPTIONS: &[&str] = &["--std=c++17", "--device-as-default-execution-space", "--extra-device-vectorization"];

const REMEDY: &str =
    "install CUDA's run-time compiler (libnvrtc, 12 or 13) where the loader finds it, or use --backend vulkan";

/// Makes machine code for one architecture.
pub struct Compiler {
    target: String,
    folder: Option<PathBuf>,
    /// NVRTC's version; none where it is not found.
    version: Option<(i32, i32)>,
}

impl Compiler {
    /// For a compute capability; made code is kept in `folder`, if any.
    pub fn new(capability: (u32, u32), folder: Option<PathBuf>) -> Self {
        Compiler { target: target(capability), folder, version: version() }
    }

    /// `cuda` in the folder that the variable `KVARTO_CACHE` names, or in `kvarto` of the user's cache folder.
    pub fn usual_folder() -> Option<PathBuf> {
        let named = std::env::var_os("KVARTO_CACHE").filter(|folder| !folder.is_empty()).map(PathBuf::from);
        named.or_else(|| Some(dirs::cache_dir()?.join("kvarto"))).map(|folder| folder.join("cuda"))
    }

    /// `sm_90a`.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// NVRTC's version, `13.0`; none where it is not found.
    pub fn compiler(&self) -> Option<String> {
        self.version.map(|(major, minor)| format!("{major}.{minor}"))
    }

    /// The cubin of `source` that is kept, if there is one.
    pub fn kept(&self, source: &Source) -> Option<Vec<u8>> {
        self.file(source).and_then(|file| kept(&file))
    }

    /// A cubin of `source`, made anew and kept; it is called `key` in errors.
    ///
    /// # Errors
    /// `Unsupported` where NVRTC is not found or refuses the text.
    pub fn cubin(&self, source: &Source, key: &str) -> Result<Vec<u8>> {
        if self.version.is_none() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("kernel {key} is not kept for {}, and NVRTC is not found", self.target),
                REMEDY,
            ));
        }
        let cubin = compile(source, &self.target, key)?;
        if let Some(file) = self.file(source) {
            // A folder that cannot be written costs the next start its time, and nothing else.
            let _ = keep(&file, &cubin).inspect_err(|e| log::debug!("not kept: {}: {e}", file.display()));
        }
        Ok(cubin)
    }

    /// Named by what it is made from, whichever compiler makes it.
    fn file(&self, source: &Source) -> Option<PathBuf> {
        let whole = format!("{} {:?} {}", self.target, options(source), source.text);
        Some(self.folder.as_ref()?.join(format!("{:032x}.cubin", xxh3_128(whole.as_bytes()))))
    }
}

/// Whether kernels can be compiled for a device here, and will be taken by its driver.
///
/// # Errors
/// `Unsupported` where NVRTC is not found, is older than CUDA 12 or does not know the architecture, or is of a later major
/// version than the driver.
pub fn compiles_for(device: &DeviceReport) -> Result<()> {
    compiles()?;
    let (major, minor) = version().unwrap_or_default();
    let own = device.capability.0 * 10 + device.capability.1;
    let driver = device.driver.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
    serves((major, minor), &architectures(), own, driver)
        .map_err(|why| Error::new(ErrorKind::Unsupported, format!("no CUDA on {}: {why}", device.name), REMEDY))
}

/// Whether NVRTC of this version, which knows these architectures, makes code of architecture `own` that a driver of
/// CUDA `driver` loads; or why not.
fn serves(version: (i32, i32), known: &[i32], own: u32, driver: i32) -> std::result::Result<(), String> {
    let (major, minor) = version;
    if major < 12 {
        return Err(format!("NVRTC {major}.{minor} is older than 12.0"));
    }
    if major > driver {
        return Err(format!("NVRTC {major}.{minor} is newer than the driver, which speaks CUDA {driver}"));
    }
    if !known.contains(&(own as i32)) {
        return Err(format!("NVRTC {major}.{minor} does not know sm_{own}"));
    }
    Ok(())
}

fn architectures() -> Vec<i32> {
    let mut count = 0;
    // SAFETY: NVRTC is found; writes one number.
    if unsafe { sys::nvrtcGetNumSupportedArchs(&mut count) }.result().is_err() {
        return Vec::new();
    }
    let mut known = vec![0; count.max(0) as usize];
    // SAFETY: the list is as long as NVRTC said.
    let listed = unsafe { sys::nvrtcGetSupportedArchs(known.as_mut_ptr()) }.result();
    if listed.is_ok() { known } else { Vec::new() }
}

/// Whether kernels can be compiled here.
///
/// # Errors
/// `Unsupported` where NVRTC is not found.
pub fn compiles() -> Result<()> {
    match version() {
        Some(_) => Ok(()),
        None => {
            Err(Error::new(ErrorKind::Unsupported, "no CUDA: its run-time compiler (libnvrtc) is not found", REMEDY))
        }
    }
}

/// The target of a compute capability: with its own instructions where it has some.
fn target((major, minor): (u32, u32)) -> String {
    let own = if matches!((major, minor), (9, 0) | (10.., _)) { "a" } else { "" };
    format!("sm_{major}{minor}{own}")
}

/// Machine code that was kept, if it is what was written: a hash of it stands before it.
fn kept(file: &Path) -> Option<Vec<u8>> {
    let bytes = std::fs::read(file).ok()?;
    let (hash, cubin) = bytes.split_first_chunk::<8>()?;
    (xxh3_64(cubin).to_le_bytes() == *hash).then(|| cubin.to_vec())
}

fn keep(file: &Path, cubin: &[u8]) -> std::io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    // Whole or not at all, also beside a process or thread that keeps the same.
    let own = COUNT.fetch_add(1, Ordering::Relaxed);
    let part = file.with_extension(format!("{}-{own}.part", std::process::id()));
    std::fs::write(&part, [&xxh3_64(cubin).to_le_bytes(), cubin].concat())?;
    std::fs::rename(&part, file)
}

fn version() -> Option<(i32, i32)> {
    // SAFETY: loads and unloads the library.
    if !unsafe { sys::is_culib_present() } {
        return None;
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: writes two integers.
    unsafe { sys::nvrtcVersion(&mut major, &mut minor) }.result().ok()?;
    Some((major, minor))
}

/// A program of NVRTC's, destroyed when dropped.
struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: made here, once.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}

fn compile(source: &Source, target: &str, key: &str) -> Result<Vec<u8>> {
    let refused =
        |what: String| Error::new(ErrorKind::Unsupported, format!("kernel {key} for {target}: {what}"), REMEDY);
    let text = CString::new(source.text.as_str()).map_err(|_| refused("its text holds a zero".into()))?;
    let program =
        Program(result::create_program(&text, Some(c"kvarto.cu")).map_err(|e| refused(format!("NVRTC: {e:?}")))?);
    let mut options = options(source);
    options.push(format!("--gpu-architecture={target}"));
    // SAFETY: the program lives.
    if unsafe { result::compile_program(program.0, &options) }.is_err() {
        // SAFETY: as above.
        let log = unsafe { result::get_program_log(program.0) }.unwrap_or_default();
        return Err(refused(format!("does not compile: {}", first_errors(&log))));
    }
    let mut bytes = 0;
    // SAFETY: the program is compiled for a real architecture; writes one number.
    unsafe { sys::nvrtcGetCUBINSize(program.0, &mut bytes) }.result().map_err(|e| refused(format!("NVRTC: {e:?}")))?;
    let mut cubin = vec![0u8; bytes];
    // SAFETY: the buffer is as long as NVRTC said.
    unsafe { sys::nvrtcGetCUBIN(program.0, cubin.as_mut_ptr().cast()) }
        .result()
        .map_err(|e| refused(format!("NVRTC: {e:?}")))?;
    Ok(cubin)
}

fn options(source: &Source) -> Vec<String> {
    let each = source.rounds_each.then_some("--fmad=false");
    OPTIONS.iter().copied().chain(each).map(str::to_string).collect()
}

/// The first lines of a log that speak of errors.
fn first_errors(log: &[c_char]) -> String {
    let bytes: Vec<u8> = log.iter().map(|c| *c as u8).chain([0]).collect();
    let text = CStr::from_bytes_until_nul(&bytes).map(|t| t.to_string_lossy().into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|l| l.contains("error")).take(3).collect();
    if lines.is_empty() { text.lines().take(3).collect::<Vec<_>>().join("; ") } else { lines.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::{architectures, compiles, keep, kept, serves, target};

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

    #[test]
    fn a_compiler_that_does_not_serve_is_named() {
        let known = [80, 89, 90, 100, 120];
        assert_eq!(serves((13, 0), &known, 90, 13), Ok(()));
        assert_eq!(serves((12, 4), &known, 90, 13), Ok(()));
        for (version, own, driver, word) in
            [((11, 8), 90, 13, "older"), ((13, 0), 90, 12, "newer than the driver"), ((12, 4), 121, 13, "sm_121")]
        {
            let said = serves(version, &known, own, driver).expect_err("it does not serve");
            assert!(said.contains(word), "{said}");
        }
        // Where NVRTC is, it knows what this file asks it for.
        if compiles().is_ok() {
            assert!(architectures().contains(&90), "{:?}", architectures());
        }
        assert_eq!(
            [(8, 0), (8, 9), (9, 0), (10, 0), (12, 0)].map(target),
            ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"]
        );
    }
}

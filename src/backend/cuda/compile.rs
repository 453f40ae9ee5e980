//! From CUDA text to machine code: that which comes with the crate, else what is kept on disk, else what NVRTC makes, else
//! PTX that comes with the crate, which the driver compiles.

use super::kept::{keep, kept};
use super::nvrtc::{self, OPTIONS, REMEDY, compiles_for};
use super::prebuilt::Prebuilt;
use super::probe::DeviceReport;
use super::source::{Source, source};
use crate::backend::Specialisation;
use crate::error::{Error, ErrorKind, Result};
use std::path::PathBuf;
use xxhash_rust::xxh3::xxh3_128;

/// Finds or makes machine code for one architecture.
pub struct Compiler {
    target: String,
    folder: Option<PathBuf>,
    prebuilt: Prebuilt,
    /// NVRTC's version, or why there is none that serves.
    nvrtc: std::result::Result<(i32, i32), String>,
}

/// Whether a device's kernels can be had here: at least some of them come with the crate, or NVRTC makes them.
///
/// # Errors
/// `Unsupported`: as [`compiles_for`], where none come with the crate either.
pub fn serves(device: &DeviceReport) -> Result<()> {
    match Prebuilt::of(device.capability, device.driver_version()).held() {
        Some(_) => Ok(()),
        None => compiles_for(device),
    }
}

/// What machine code is found by: a hash of all that it is made from but the architecture and the compiler.
pub fn identity(source: &Source) -> u128 {
    xxh3_128(format!("{OPTIONS:?} {}", source.text).as_bytes())
}

impl Compiler {
    /// Of NVRTC alone, for a compute capability; made code is kept in `folder`, if any.
    pub fn new(capability: (u32, u32), folder: Option<PathBuf>) -> Self {
        Compiler::for_target(&target(capability), folder)
    }

    /// Of NVRTC alone, for a target by its name: `sm_100f`, or `compute_80`, whose code is PTX.
    pub fn for_target(target: &str, folder: Option<PathBuf>) -> Self {
        let nvrtc = nvrtc::version().ok_or_else(|| "NVRTC is not found".to_string());
        Compiler { target: target.into(), folder, prebuilt: Prebuilt::default(), nvrtc }
    }

    /// For a device: with what comes with the crate, and with NVRTC if it serves the device.
    ///
    /// # Errors
    /// `Unsupported` where there is an NVRTC that does not serve it, and nothing comes with the crate. Without any NVRTC,
    /// what is kept may do.
    pub fn for_device(device: &DeviceReport, folder: Option<PathBuf>) -> Result<Self> {
        let mut compiler = Compiler::new(device.capability, folder);
        compiler.prebuilt = Prebuilt::of(device.capability, device.driver_version());
        if compiler.nvrtc.is_ok()
            && let Err(error) = compiles_for(device)
        {
            if compiler.prebuilt.held().is_none() {
                return Err(error);
            }
            compiler.nvrtc = Err(error.message().into());
        }
        Ok(compiler)
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

    /// The version of the NVRTC that serves, `13.0`; none without.
    pub fn compiler(&self) -> Option<String> {
        self.nvrtc.as_ref().ok().map(|(major, minor)| format!("{major}.{minor}"))
    }

    /// Where machine code comes from: `212 kernels for sm_90a built in, NVRTC 13.0`.
    pub fn describe(&self) -> String {
        let built_in = match self.prebuilt.held() {
            Some((target, count)) => format!("{count} kernels for {target} built in"),
            None => "no kernels built in".into(),
        };
        let compiled = self.compiler().map_or("no NVRTC".to_string(), |version| format!("NVRTC {version}"));
        format!("{built_in}, {compiled}")
    }

    /// The first machine code of `source` that `load` takes. It is told the source as the code is: PTX is of an
    /// architecture whose kernels do not overlap. The kernel is called `key` in errors.
    ///
    /// # Errors
    /// `Unsupported` where no machine code is found and none can be made; what `load` says of code made anew.
    pub fn load<T>(&self, source: &Source, key: &str, load: impl Fn(&[u8], &Source) -> Result<T>) -> Result<T> {
        let identity = identity(source);
        // A driver may refuse what came with the crate or was kept: made by a newer compiler, or for another driver.
        let mut refused = None;
        let mut tried = |whence: &str, code: &[u8]| match load(code, source) {
            Ok(made) => {
                log::debug!("{whence}: {key}");
                Some(made)
            }
            Err(error) => {
                refused = Some(format!("what is {whence} is refused ({})", error.message()));
                None
            }
        };
        if let Some(made) = self.prebuilt.cubin(identity).and_then(|code| tried("built in", code)) {
            return Ok(made);
        }
        if let Some(made) = self.kept(source).and_then(|code| tried("kept", &code)) {
            return Ok(made);
        }
        let missing = match self.cubin(source, key) {
            Ok(cubin) => return load(&cubin, source).map_err(|e| e.context(key)),
            Err(error) => error,
        };
        match (self.prebuilt.ptx(identity), refused) {
            (Some(ptx), _) => load(ptx, &Source { overlaps: false, ..source.clone() }).map_err(|e| e.context(key)),
            (None, Some(refused)) => Err(missing.context(refused)),
            (None, None) => Err(missing),
        }
    }

    /// Whether machine code of all these kernels is there or can be made.
    ///
    /// # Errors
    /// `Unsupported`, naming the first that comes neither with the crate nor from NVRTC, nor is kept; as [`source`].
    pub fn serves_all(&self, kernels: &[Specialisation]) -> Result<()> {
        let Err(why) = &self.nvrtc else { return Ok(()) };
        for kernel in kernels {
            let source = source(kernel)?;
            let id = identity(&source);
            if self.prebuilt.cubin(id).is_none() && self.prebuilt.ptx(id).is_none() && self.kept(&source).is_none() {
                return Err(self.missing(kernel.key(), why));
            }
        }
        Ok(())
    }

    fn missing(&self, key: &str, why: &str) -> Error {
        let (target, count) = (&self.target, self.prebuilt.held().map_or(0, |(_, count)| count));
        let message = format!(
            "no machine code of kernel {key} for {target}: none of the {count} that are built in serves, none is kept, and {why}"
        );
        Error::new(ErrorKind::Unsupported, message, REMEDY)
    }

    /// The cubin of `source` that is kept, if there is one.
    pub fn kept(&self, source: &Source) -> Option<Vec<u8>> {
        self.file(source).and_then(|file| kept(&file))
    }

    /// A cubin of `source`, made anew and kept; it is called `key` in errors.
    ///
    /// # Errors
    /// `Unsupported` where NVRTC does not serve or refuses the text.
    pub fn cubin(&self, source: &Source, key: &str) -> Result<Vec<u8>> {
        if let Err(why) = &self.nvrtc {
            return Err(self.missing(key, why));
        }
        let cubin = nvrtc::compile(source, &self.target, key)?;
        if let Some(file) = self.file(source) {
            // A folder that cannot be written costs the next start its time, and nothing else.
            let _ = keep(&file, &cubin).inspect_err(|e| log::debug!("not kept: {}: {e}", file.display()));
        }
        Ok(cubin)
    }

    /// Named by what it is made from, whichever compiler makes it.
    fn file(&self, source: &Source) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(format!("{}-{:032x}.cubin", self.target, identity(source))))
    }
}

/// The target of a compute capability: with its own instructions where it has some.
fn target((major, minor): (u32, u32)) -> String {
    let own = if matches!((major, minor), (9, 0) | (10.., _)) { "a" } else { "" };
    format!("sm_{major}{minor}{own}")
}

#[cfg(test)]
mod tests {
    use super::{Compiler, Prebuilt, identity, keep, target};
    use crate::backend::cuda::Source;
    use crate::error::{Error, ErrorKind};

    fn text(text: &str) -> Source {
        Source { text: text.into(), threads: 32, shared_bytes: 0, overlaps: true }
    }

    fn without_nvrtc(folder: Option<std::path::PathBuf>) -> Compiler {
        let nvrtc = Err("NVRTC is not found".to_string());
        Compiler { target: "sm_90a".into(), folder, prebuilt: Prebuilt::default(), nvrtc }
    }

    #[test]
    fn targets_have_their_own_instructions() {
        assert_eq!(
            [(8, 0), (8, 9), (9, 0), (10, 0), (12, 0)].map(target),
            ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"]
        );
    }

    #[test]
    fn texts_are_told_apart() {
        assert_ne!(identity(&text("a")), identity(&text("b")));
        // Threads and shared memory are asked for by the launch.
        assert_eq!(identity(&text("a")), identity(&Source { threads: 64, ..text("a") }));
    }

    #[test]
    fn what_is_kept_serves_without_a_compiler() {
        let folder = tempfile::tempdir().expect("a folder");
        let compiler = without_nvrtc(Some(folder.path().into()));
        let load = |code: &[u8], _: &Source| Ok(code.to_vec());
        let error = compiler.load(&text("a"), "copy_slots PAGE_WORDS=8", load).expect_err("nothing is kept");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        for word in ["copy_slots PAGE_WORDS=8", "sm_90a", "NVRTC is not found"] {
            assert!(error.message().contains(word), "{error}");
        }
        assert!(error.remedy().contains("nvidia-cuda-nvrtc"), "{error}");
        keep(&compiler.file(&text("a")).expect("a name"), b"code").expect("kept");
        assert_eq!(compiler.load(&text("a"), "a", load).expect("kept"), b"code");
        // A driver that refuses it: as if it were not there.
        let refuse = |_: &[u8], _: &Source| Err::<(), _>(Error::new(ErrorKind::Device, "an invalid image", ""));
        let error = compiler.load(&text("a"), "a", refuse).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
}

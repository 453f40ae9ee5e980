//! CUDA's run-time compiler, which is looked for when the program runs.

#![allow(unsafe_code)]

use super::probe::DeviceReport;
use super::source::Source;
use crate::error::{Error, ErrorKind, Result};
use cudarc::nvrtc::{result, sys};
use std::ffi::{CStr, CString, c_char};

/// What every kernel is compiled with, beside the architecture.
pub(super) const OPTIONS: &[&str] =
    &["--std=c++17", "--device-as-default-execution-space", "--extra-device-vectorization"];

/// What helps where no machine code is found.
pub(super) const REMEDY: &str = "install CUDA's run-time compiler (libnvrtc, 12 or 13) where the loader finds it: the package \
     nvidia-cuda-nvrtc by pip, its lib folder in LD_LIBRARY_PATH; or use --backend vulkan";

/// Whether kernels can be compiled for a device here, and will be taken by its driver.
///
/// # Errors
/// `Unsupported` where NVRTC is not found, is older than CUDA 12 or does not know the architecture, or is of a later major
/// version than the driver.
pub fn compiles_for(device: &DeviceReport) -> Result<()> {
    compiles()?;
    let own = device.capability.0 * 10 + device.capability.1;
    serves(version().unwrap_or_default(), &architectures(), own, device.driver_version().0 as i32)
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

/// NVRTC's version; none where it is not found.
pub(super) fn version() -> Option<(i32, i32)> {
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

/// Machine code for `target`: a cubin, or PTX with a zero at its end for a target `compute_..`. NVRTC must be there.
///
/// # Errors
/// `Unsupported` for a text that does not compile; the kernel is called `key`.
pub(super) fn compile(source: &Source, target: &str, key: &str) -> Result<Vec<u8>> {
    let refused =
        |what: String| Error::new(ErrorKind::Unsupported, format!("kernel {key} for {target}: {what}"), REMEDY);
    let text = CString::new(source.text.as_str()).map_err(|_| refused("its text holds a zero".into()))?;
    let program =
        Program(result::create_program(&text, Some(c"kvarto.cu")).map_err(|e| refused(format!("NVRTC: {e:?}")))?);
    let mut options: Vec<String> = OPTIONS.iter().map(|o| o.to_string()).collect();
    options.push(format!("--gpu-architecture={target}"));
    // SAFETY: the program lives.
    if unsafe { result::compile_program(program.0, &options) }.is_err() {
        // SAFETY: as above.
        let log = unsafe { result::get_program_log(program.0) }.unwrap_or_default();
        return Err(refused(format!("does not compile: {}", first_errors(&log))));
    }
    let (virtual_target, mut bytes) = (target.starts_with("compute"), 0);
    // SAFETY: the program is compiled, for a real architecture or a virtual one; writes one number.
    let size = unsafe {
        match virtual_target {
            true => sys::nvrtcGetPTXSize(program.0, &mut bytes),
            false => sys::nvrtcGetCUBINSize(program.0, &mut bytes),
        }
    };
    size.result().map_err(|e| refused(format!("NVRTC: {e:?}")))?;
    let mut code = vec![0u8; bytes];
    // SAFETY: the buffer is as long as NVRTC said.
    let got = unsafe {
        match virtual_target {
            true => sys::nvrtcGetPTX(program.0, code.as_mut_ptr().cast()),
            false => sys::nvrtcGetCUBIN(program.0, code.as_mut_ptr().cast()),
        }
    };
    got.result().map_err(|e| refused(format!("NVRTC: {e:?}")))?;
    Ok(code)
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
    use super::{architectures, compiles, serves};

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
    }
}

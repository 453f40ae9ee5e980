//! Which devices there are, without a panic where there is no driver.

#![allow(unsafe_code)]

use super::compile::serves;
use super::driver::{fault, name_of};
use crate::error::{Error, ErrorKind, Result};
use cudarc::driver::result;
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};

/// The oldest driver whose functions this calls: CUDA 12.8, that is 570.
const OLDEST: i32 = 12_080;

/// What the driver says of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceReport {
    /// Its number, as `--backend cuda:N` takes it.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// The CUDA version that the driver speaks, `13.0`.
    pub driver: String,
    /// Bytes of its memory.
    pub memory_bytes: u64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Most shared memory of a block that asks for it, bytes.
    pub shared_bytes: u32,
    /// Bytes of the level-2 cache.
    pub l2_bytes: u64,
    /// Whether it shares the host's memory.
    pub integrated: bool,
    /// Why the kernels cannot run on it; none where they can.
    pub refusal: Option<String>,
}

impl DeviceReport {
    /// The CUDA version that the driver speaks: major and minor.
    pub fn driver_version(&self) -> (u32, u32) {
        let mut numbers = self.driver.split('.').map(|number| number.parse().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
    }
}

/// The devices, or the one line that says why there are none.
///
/// # Errors
/// `Unsupported`: no driver, one that is too old, or no device that it shows.
pub fn devices() -> Result<Vec<DeviceReport>> {
    let none = |why: String, remedy: &str| Err(Error::new(ErrorKind::Unsupported, format!("no CUDA: {why}"), remedy));
    // SAFETY: loads and unloads the driver's library, which has no constructor that matters here.
    if !unsafe { sys::is_culib_present() } {
        return none("the driver's library (libcuda) is not found".into(), "install NVIDIA's driver, 570 or newer");
    }
    let mut version = 0;
    // SAFETY: writes one integer; it needs no initialisation.
    let asked = unsafe { sys::cuDriverGetVersion(&mut version) }.result();
    if asked.is_err() || version < OLDEST {
        let (major, minor) = (version / 1000, version % 1000 / 10);
        return none(
            format!("the driver speaks CUDA {major}.{minor}; 12.8 is the oldest that serves"),
            "install NVIDIA's driver 570 or newer",
        );
    }
    if let Err(error) = result::init() {
        let why = name_of(error);
        return none(
            format!("the driver does not start: {why}"),
            "see whether nvidia-smi lists a device, and whether CUDA_VISIBLE_DEVICES hides it",
        );
    }
    let count = result::device::get_count().map_err(|e| fault(e, "counting devices"))?;
    if count == 0 {
        return none("the driver shows no device".into(), "see whether CUDA_VISIBLE_DEVICES hides it");
    }
    (0..count as usize).map(|index| report(index, version)).collect()
}

/// The first device whose kernels can be had and run.
///
/// # Errors
/// `Unsupported`: as [`devices`] and [`super::serves()`], of the first device where none serves.
pub fn best() -> Result<DeviceReport> {
    let mut why = None;
    for report in devices()? {
        match serving(report).and_then(|report| serves(&report).map(|()| report)) {
            Ok(report) => return Ok(report),
            Err(error) => why = why.or(Some(error)),
        }
    }
    Err(why.unwrap_or_else(|| Error::new(ErrorKind::Unsupported, "no CUDA: the driver shows no device", "")))
}

/// The device of this number.
///
/// # Errors
/// `Unsupported`: as [`devices`], where there is no such number, and below compute capability 8.0.
pub fn device(index: usize) -> Result<DeviceReport> {
    let mut all = devices()?;
    if index >= all.len() {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!("no CUDA device {index}: the driver shows {}", all.len()),
            "count from 0; CUDA_VISIBLE_DEVICES hides devices",
        ));
    }
    serving(all.swap_remove(index))
}

/// The device, unless kernels cannot run on it.
fn serving(report: DeviceReport) -> Result<DeviceReport> {
    match &report.refusal {
        Some(reason) => Err(Error::new(
            ErrorKind::Unsupported,
            format!("no CUDA on {}: {reason}", report.name),
            "use --backend vulkan",
        )),
        None => Ok(report),
    }
}

fn report(index: usize, version: i32) -> Result<DeviceReport> {
    let faulty = |e| fault(e, "asking for a device");
    let device = result::device::get(index as i32).map_err(faulty)?;
    // SAFETY: the device is one that the driver gave.
    let attribute = |what| unsafe { result::device::get_attribute(device, what) }.map_err(faulty);
    let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)? as u32;
    let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)? as u32;
    let low = (major, minor) < (8, 0);
    Ok(DeviceReport {
        index,
        refusal: low.then(|| format!("compute capability {major}.{minor}; 8.0 is the lowest that serves")),
        name: result::device::get_name(device).map_err(faulty)?,
        capability: (major, minor),
        driver: format!("{}.{}", version / 1000, version % 1000 / 10),
        // SAFETY: as above.
        memory_bytes: unsafe { result::device::total_mem(device) }.map_err(faulty)? as u64,
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32,
        shared_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as u32,
        l2_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)? as u64,
        integrated: attribute(Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED)? != 0,
    })
}

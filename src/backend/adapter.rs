//! Everything on this machine that can run kernels, and how to open it.

use super::cuda::{self, CudaBackend, DeviceReport};
use super::wgpu::{AdapterChoice, AdapterReport, OpenOptions, WgpuBackend, adapters};
use super::{Backend, CpuBackend};
use crate::error::Result;

/// What can be opened.
#[derive(Clone, Debug)]
pub enum Adapter {
    /// This machine's cores.
    Cpu,
    /// An adapter that wgpu sees, and what its driver says.
    Wgpu(Box<AdapterReport>),
    /// A device of CUDA's.
    Cuda(DeviceReport),
}

impl Adapter {
    /// The CPU, every adapter of wgpu's, and CUDA's devices where some kernels come with the crate or there is a compiler
    /// for them.
    pub fn all() -> Vec<Adapter> {
        let mut cuda = cuda::devices().unwrap_or_default();
        // Without a compiler, a device that needs one is not listed; one that the compiler does not serve is refused.
        let compiles = cuda::compiles().is_ok();
        cuda.retain_mut(|report| match cuda::serves(report) {
            Ok(()) => true,
            Err(error) => {
                report.refusal.get_or_insert(error.message().into());
                compiles
            }
        });
        let wgpu = adapters().into_iter().map(|report| Adapter::Wgpu(Box::new(report)));
        [Adapter::Cpu].into_iter().chain(wgpu).chain(cuda.into_iter().map(Adapter::Cuda)).collect()
    }

    /// The word for `--backend`: `cpu`, `vulkan:0`, `cuda:0`.
    pub fn word(&self) -> String {
        match self {
            Adapter::Cpu => "cpu".into(),
            Adapter::Wgpu(report) => format!("{}:{}", report.api, report.index),
            Adapter::Cuda(report) => format!("cuda:{}", report.index),
        }
    }

    /// What the driver says through wgpu.
    pub fn report(&self) -> Option<&AdapterReport> {
        match self {
            Adapter::Wgpu(report) => Some(report),
            _ => None,
        }
    }

    /// Why it is known beforehand that the kernels cannot run on it.
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Adapter::Cpu => None,
            Adapter::Wgpu(report) => report.refusal.as_deref(),
            Adapter::Cuda(report) => report.refusal.as_deref(),
        }
    }

    /// Its name; `None` for the CPU, which has one once it is opened.
    pub fn name(&self) -> Option<&str> {
        match self {
            Adapter::Cpu => None,
            Adapter::Wgpu(report) => Some(&report.name),
            Adapter::Cuda(report) => Some(&report.name),
        }
    }

    /// Its type, as [`super::Caps::device_type`].
    pub fn device_type(&self) -> &str {
        match self {
            Adapter::Cpu => "cpu",
            Adapter::Wgpu(report) => &report.device_type,
            Adapter::Cuda(report) if report.integrated => "integrated",
            Adapter::Cuda(_) => "discrete",
        }
    }

    /// Its driver; `None` for the CPU.
    pub fn driver(&self) -> Option<String> {
        match self {
            Adapter::Cpu => None,
            Adapter::Wgpu(report) => Some(report.driver.clone()),
            Adapter::Cuda(report) => Some(format!("CUDA {}", report.driver)),
        }
    }

    /// Its backend; `options` are for wgpu's.
    ///
    /// # Errors
    /// As [`WgpuBackend::open_with`], [`CudaBackend::open`] and [`CpuBackend::new`].
    pub fn open(&self, options: &OpenOptions) -> Result<Box<dyn Backend>> {
        Ok(match self {
            Adapter::Cpu => Box::new(CpuBackend::new(0)?),
            Adapter::Wgpu(report) => {
                let choice = AdapterChoice::Api { api: report.api.clone(), index: report.index };
                Box::new(WgpuBackend::open_with(&choice, options)?)
            }
            Adapter::Cuda(report) => Box::new(CudaBackend::open(report.index)?),
        })
    }
}

//! `--backend`: which one, and why.

use super::arguments;
use super::mask_flags::MaskFlags;
use clap::Args;
use kvarto::backend::cuda::{self, Compiler, CudaBackend};
use kvarto::backend::wgpu::{AdapterChoice, OpenOptions, WgpuBackend};
use kvarto::backend::{Backend, CpuBackend, Listed, ListingBackend};
use kvarto::{Error, ErrorKind, Result};

/// Which backend, and how it is driven.
#[derive(Clone, Debug, Default, Args)]
pub struct BackendFlags {
    #[arg(long, default_value = "auto", help = help())]
    pub backend: String,
    /// Threads of the CPU backend; 0 for all cores
    #[arg(long, allow_negative_numbers = true, value_parser = arguments::count, default_value_t = 0, value_name = "N")]
    pub threads: usize,
    /// Split work for a GPU that is predicted to take longer than this many milliseconds; 0 for never [default: 50, and
    /// never on a software adapter]
    #[arg(long, allow_negative_numbers = true, value_parser = arguments::milliseconds, value_name = "MS")]
    pub max_submission_ms: Option<u32>,
    #[command(flatten)]
    pub masks: MaskFlags,
}

impl BackendFlags {
    /// What `--backend` asks for.
    ///
    /// # Errors
    /// As [`parse`].
    pub fn wanted(&self) -> Result<Wanted> {
        parse(&self.backend, &self.masks)
    }
}

/// An opened backend and the reason for it.
pub struct Chosen {
    pub backend: Box<dyn Backend>,
    pub why: String,
}

/// What `--backend` asks for. Known before a model is looked for, so that a slip costs no download.
#[derive(Clone, Debug, PartialEq)]
pub enum Wanted {
    /// The best there is.
    Auto,
    /// The host's cores.
    Cpu,
    /// An adapter that wgpu sees.
    Gpu(AdapterChoice),
    /// A device of CUDA's.
    Cuda(usize),
}

const WORDS: &str = "auto, cpu, wgpu, vulkan[:N], metal[:N], dx12[:N], gl[:N], cuda[:N]";

/// The flag's line of help.
pub fn help() -> String {
    format!("{WORDS}; N counts an API's adapters from 0 as `kvarto doctor` lists them")
}

/// Reads the flag's word, and looks at the masks that go with it.
///
/// # Errors
/// `Usage` for a word that is not known, and for masks of the CPU; `Unsupported` for one that this build cannot serve.
pub fn parse(word: &str, masks: &MaskFlags) -> Result<Wanted> {
    masks.options()?;
    let wanted = named(word)?;
    match wanted {
        Wanted::Cpu => masks.refuse_on("the CPU (asked for)")?,
        Wanted::Cuda(index) => {
            masks.refuse_on("CUDA (asked for)")?;
            cuda::device(index)?;
        }
        _ => {}
    }
    Ok(wanted)
}

fn named(word: &str) -> Result<Wanted> {
    let (name, number) = match word.split_once(':') {
        None => (word, None),
        Some((name, number)) => (name, Some(number.parse::<usize>().map_err(|_| unknown(word))?)),
    };
    match (name, number) {
        ("auto", None) => Ok(Wanted::Auto),
        ("cpu", None) => Ok(Wanted::Cpu),
        ("wgpu", None) => Ok(Wanted::Gpu(AdapterChoice::Auto { allow_software: true })),
        ("vulkan" | "metal" | "dx12" | "gl", _) => {
            Ok(Wanted::Gpu(AdapterChoice::Api { api: name.into(), index: number.unwrap_or(0) }))
        }
        ("cuda", _) => Ok(Wanted::Cuda(number.unwrap_or(0))),
        _ => Err(unknown(word)),
    }
}

/// Opens what is wanted, to be driven as `flags` say. `auto` takes CUDA where its kernels can be compiled.
///
/// # Errors
/// `Unsupported` when no such adapter serves, or none has what masks ask for; `Usage` for masks of the CPU.
pub fn open(wanted: &Wanted, flags: &BackendFlags) -> Result<Chosen> {
    open_for(wanted, flags, |_| Err(Error::new(ErrorKind::Unsupported, "NVRTC does not serve", "")))
}

/// As [`open`]; `auto` also takes CUDA without a compiler, where all kernels that `rehearse` asks a backend for are built in.
///
/// # Errors
/// As [`open`].
pub fn open_for(
    wanted: &Wanted,
    flags: &BackendFlags,
    rehearse: impl FnOnce(Box<dyn Backend>) -> Result<()>,
) -> Result<Chosen> {
    match wanted {
        Wanted::Auto => auto(flags, rehearse),
        Wanted::Cpu => cpu(flags, "asked for".into()),
        Wanted::Gpu(choice @ AdapterChoice::Auto { .. }) => {
            gpu(choice, flags, "asked for: the best adapter that wgpu sees".into())
        }
        Wanted::Gpu(choice) => gpu(choice, flags, "asked for".into()),
        Wanted::Cuda(index) => Ok(Chosen { backend: Box::new(CudaBackend::open(*index)?), why: "asked for".into() }),
    }
}

/// CUDA, then a discrete adapter of wgpu's, an integrated one, the CPU; `why` names what was passed over.
fn auto(flags: &BackendFlags, rehearse: impl FnOnce(Box<dyn Backend>) -> Result<()>) -> Result<Chosen> {
    let no_cuda = match flags.masks.empty() {
        true => match auto_cuda(rehearse) {
            Ok(chosen) => return Ok(chosen),
            Err(error) if error.kind() == ErrorKind::Unsupported => error.message().to_string(),
            Err(error) => return Err(error),
        },
        false => "no CUDA beside --limits and --without".into(),
    };
    let why = format!("auto: the first hardware adapter ({no_cuda})");
    match gpu(&AdapterChoice::Auto { allow_software: false }, flags, why) {
        // A limit that the adapter lacks is no reason to take another backend.
        Err(error) if error.kind() == ErrorKind::Unsupported && flags.masks.empty() => {
            log::debug!("auto: {error}");
            cpu(flags, format!("auto: no hardware adapter that runs the kernels ({no_cuda})"))
        }
        Err(error) if error.kind() == ErrorKind::Unsupported => Err(Error::new(
            ErrorKind::Unsupported,
            format!("--limits and --without are for a GPU, and auto finds none that serves: {error}"),
            "name an adapter, such as --backend vulkan (software adapters too), or leave the masks out",
        )),
        other => other,
    }
}

/// The first device of CUDA's, where kernels can be compiled for it, or those that are wanted are built in.
fn auto_cuda(rehearse: impl FnOnce(Box<dyn Backend>) -> Result<()>) -> Result<Chosen> {
    let device = cuda::best()?;
    if let Err(no_compiler) = cuda::compiles_for(&device) {
        let compiler = Compiler::for_device(&device, Compiler::usual_folder())?;
        let listed = Listed::default();
        rehearse(Box::new(ListingBackend::new(cuda::caps(&device, &compiler), &listed)))
            .and_then(|()| compiler.serves_all(&listed.kernels()))
            .map_err(|e| {
                log::info!("auto: {e}");
                no_compiler
            })?;
    }
    Ok(Chosen { backend: Box::new(CudaBackend::open(device.index)?), why: "auto: the first CUDA device".into() })
}

fn gpu(choice: &AdapterChoice, flags: &BackendFlags, why: String) -> Result<Chosen> {
    let options = OpenOptions { max_submission_ms: flags.max_submission_ms, ..flags.masks.options()? };
    let backend = WgpuBackend::open_with(choice, &options)?;
    Ok(Chosen { backend: Box::new(backend), why })
}

fn cpu(flags: &BackendFlags, why: String) -> Result<Chosen> {
    flags.masks.refuse_on(&format!("the CPU ({why})"))?;
    Ok(Chosen { backend: Box::new(CpuBackend::new(flags.threads)?), why })
}

fn unknown(word: &str) -> Error {
    Error::new(ErrorKind::Usage, format!("--backend {word:?} is not known"), format!("backends: {WORDS}"))
}

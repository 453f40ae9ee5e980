//! `--backend`: which one, and why.

use super::mask_flags::MaskFlags;
use kvarto::backend::wgpu::{AdapterChoice, OpenOptions, WgpuBackend};
use kvarto::backend::{Backend, CpuBackend};
use kvarto::{Error, ErrorKind, Result};

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
}

const WORDS: &str = "auto, cpu, wgpu, vulkan[:N], metal[:N], dx12[:N], gl[:N], cuda[:N] (not built yet)";

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
    if wanted == Wanted::Cpu {
        masks.refuse_on_cpu("asked for")?;
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
        ("cuda", _) => Err(Error::new(
            ErrorKind::Unsupported,
            "the CUDA backend is not built yet",
            "an NVIDIA card is also reached through --backend vulkan; `kvarto doctor` lists what there is",
        )),
        _ => Err(unknown(word)),
    }
}

/// Opens what is wanted, a GPU under the masks; `threads` is for the CPU, 0 for all.
///
/// # Errors
/// `Unsupported` when no such adapter serves, or none has what `masks` asks for; `Usage` for masks of the CPU.
pub fn open(wanted: &Wanted, masks: &MaskFlags, threads: usize) -> Result<Chosen> {
    let options = masks.options()?;
    let cpu = |why: String| {
        masks.refuse_on_cpu(&why)?;
        Ok(Chosen { backend: Box::new(CpuBackend::new(threads)?), why })
    };
    match wanted {
        Wanted::Auto => {
            let why = "auto: the first hardware adapter (CUDA is not built yet)";
            match gpu(&AdapterChoice::Auto { allow_software: false }, &options, why.into()) {
                // A limit that the adapter lacks is no reason to take another backend.
                Err(error) if error.kind() == ErrorKind::Unsupported && masks.empty() => {
                    log::debug!("auto: {error}");
                    cpu("auto: no hardware adapter that runs the kernels (CUDA is not built yet)".into())
                }
                other => other,
            }
        }
        Wanted::Cpu => cpu("asked for".into()),
        Wanted::Gpu(choice @ AdapterChoice::Auto { .. }) => {
            gpu(choice, &options, "asked for: the best adapter that wgpu sees".into())
        }
        Wanted::Gpu(choice) => gpu(choice, &options, "asked for".into()),
    }
}

fn gpu(choice: &AdapterChoice, options: &OpenOptions, why: String) -> Result<Chosen> {
    Ok(Chosen { backend: Box::new(WgpuBackend::open_with(choice, options)?), why })
}

fn unknown(word: &str) -> Error {
    Error::new(ErrorKind::Usage, format!("--backend {word:?} is not known"), format!("backends: {WORDS}"))
}

//! `--backend`: which one, and why.

use kvarto::backend::wgpu::{AdapterChoice, OpenOptions, WgpuBackend};
use kvarto::backend::{Backend, CpuBackend};
use kvarto::{Error, ErrorKind, Result};

/// An opened backend and the reason for it.
pub struct Chosen {
    pub backend: Box<dyn Backend>,
    pub why: String,
}

const WORDS: &str = "auto, cpu, vulkan[:N], metal[:N], dx12[:N], gl[:N], wgpu, cuda[:N]";

/// Opens what `word` names; `threads` is for the CPU, 0 for all.
///
/// # Errors
/// `Usage` for another word; `Unsupported` when no such adapter serves.
pub fn open(word: &str, threads: usize) -> Result<Chosen> {
    let (name, index) = match word.split_once(':') {
        None => (word, 0),
        Some((name, number)) => {
            let index = number.parse::<usize>().map_err(|_| unknown(word))?;
            (name, index)
        }
    };
    match name {
        "auto" if !word.contains(':') => auto(threads),
        "cpu" if !word.contains(':') => cpu(threads, "asked for".into()),
        "wgpu" if !word.contains(':') => {
            gpu(&AdapterChoice::Auto { allow_software: true }, "asked for: the best adapter that wgpu sees".into())
        }
        "vulkan" | "metal" | "dx12" | "gl" => gpu(&AdapterChoice::Api { api: name.into(), index }, "asked for".into()),
        "cuda" => Err(Error::new(
            ErrorKind::Unsupported,
            "the CUDA backend is not built yet",
            "use --backend vulkan on this card",
        )),
        _ => Err(unknown(word)),
    }
}

fn auto(threads: usize) -> Result<Chosen> {
    let why = "auto: the first hardware adapter (CUDA is not built yet)";
    match gpu(&AdapterChoice::Auto { allow_software: false }, why.into()) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            log::debug!("auto: {error}");
            cpu(threads, "auto: no hardware adapter that runs the kernels (CUDA is not built yet)".into())
        }
        other => other,
    }
}

fn gpu(choice: &AdapterChoice, why: String) -> Result<Chosen> {
    let backend = WgpuBackend::open_with(choice, &OpenOptions::default())?;
    Ok(Chosen { backend: Box::new(backend), why })
}

fn cpu(threads: usize, why: String) -> Result<Chosen> {
    Ok(Chosen { backend: Box::new(CpuBackend::new(threads)?), why })
}

fn unknown(word: &str) -> Error {
    Error::new(ErrorKind::Usage, format!("--backend {word:?} is not known"), format!("backends: {WORDS}"))
}

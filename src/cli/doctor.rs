//! `kvarto doctor`: what this machine can run, and a self-test of it.

mod json;
mod text;

use super::mask_flags::MaskFlags;
use super::output;
use clap::Args;
use kvarto::backend::wgpu::OpenOptions;
use kvarto::backend::{Adapter, Caps, cuda};
use kvarto::selftest::{self, FORMATS, HEAD_SIZES, KernelReport, SelfTest, Support, Verdict};
use kvarto::{Error, ErrorKind, Result};
use std::process::ExitCode;
use std::time::{Duration, Instant};
pub(super) use text::aligned;

/// What this machine can run.
#[derive(Debug, Args)]
pub struct DoctorCommand {
    /// Look at one adapter only: cpu, or the API with its number (vulkan, vulkan:1, gl:0)
    #[arg(long, value_name = "WORD")]
    pub adapter: Option<String>,
    #[command(flatten)]
    masks: MaskFlags,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// An adapter, and what was found of it.
pub(super) struct Examined {
    /// `cpu`, `vulkan:0`: the word for `--backend`.
    word: String,
    adapter: Adapter,
    /// What the backend makes of it, once opened.
    caps: Option<Caps>,
    /// Why its kernels were not put to the test.
    untested: Option<Error>,
    /// Why it could not be opened; a refusal known beforehand is the adapter's.
    fault: Option<Error>,
    kernels: Vec<KernelReport>,
    formats: Vec<Support>,
    verdicts: Vec<Verdict>,
    time: Duration,
}

impl Examined {
    fn refusal(&self) -> Option<&str> {
        self.adapter.refusal()
    }

    /// Whether everything that was tried passed; an adapter that is refused by name is no failure.
    fn passed(&self) -> bool {
        self.refusal().is_some() || (self.fault.is_none() && self.verdicts.iter().all(Verdict::passed))
    }
}

/// Runs the command.
pub fn run(command: &DoctorCommand) -> anyhow::Result<ExitCode> {
    let options = command.masks.options()?;
    if command.adapter.as_deref() == Some("cpu") {
        command.masks.refuse_on("the CPU (asked for)")?;
    }
    let test = SelfTest::new();
    let mut examined = Vec::new();
    for candidate in candidates(command.adapter.as_deref())? {
        log::info!("looking at {}", candidate.word());
        examined.push(examine(candidate, &options, &test));
    }
    // Why there is no CUDA device, where all adapters are looked at.
    let no_cuda = match command.adapter {
        None => cuda::best().err(),
        Some(_) => None,
    };
    let out = match command.json {
        true => output::json(&json::of(&examined, no_cuda.as_ref()), true),
        // Names come from drivers.
        false => output::escaped_lines(&text::of(&examined, no_cuda.as_ref())),
    };
    output::write(&out)?;
    let passed = examined.iter().all(Examined::passed);
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The CPU and every adapter, or the one that `word` names.
pub(super) fn candidates(word: Option<&str>) -> Result<Vec<Adapter>> {
    if word == Some("cpu") {
        return Ok(vec![Adapter::Cpu]);
    }
    if word.is_some_and(|word| word == "cuda" || word.starts_with("cuda:")) {
        // Named, so its reason is the answer.
        if !cuda::devices()?.iter().any(|device| cuda::serves(device).is_ok()) {
            cuda::compiles()?;
        }
    }
    let mut all = Adapter::all();
    if let Some(word) = word {
        let full = if word.contains(':') { word.to_string() } else { format!("{word}:0") };
        let words: Vec<String> = all.iter().map(Adapter::word).collect();
        all.retain(|adapter| adapter.word() == full);
        if all.is_empty() {
            return Err(Error::new(
                ErrorKind::Usage,
                format!("--adapter {word:?} names none of this machine's"),
                format!("there are: {}", words.join(", ")),
            ));
        }
    }
    Ok(all)
}

fn examine(adapter: Adapter, options: &OpenOptions, test: &SelfTest) -> Examined {
    let start = Instant::now();
    let mut found = Examined {
        word: adapter.word(),
        adapter,
        caps: None,
        untested: None,
        fault: None,
        kernels: Vec::new(),
        formats: Vec::new(),
        verdicts: Vec::new(),
        time: Duration::ZERO,
    };
    if found.refusal().is_none()
        && let Err(error) = found.look(options, test)
    {
        found.fault = Some(error);
    }
    found.time = start.elapsed();
    found
}

impl Examined {
    fn look(&mut self, options: &OpenOptions, test: &SelfTest) -> Result<()> {
        let mut backend = self.adapter.open(options)?;
        self.caps = Some(backend.caps().clone());
        // The test's own shape does not come with the program.
        if let Adapter::Cuda(report) = &self.adapter
            && let Err(error) = cuda::compiles_for(report)
        {
            self.untested = Some(error);
            return Ok(());
        }
        self.kernels = selftest::kernels(backend.as_mut())?;
        log::info!("{}: kernels after {:?}", self.word, self.kernels.iter().map(|k| k.time).sum::<Duration>());
        let mut held = Some(backend);
        for (format, known_nmse) in FORMATS {
            let backend = match held.take() {
                Some(backend) => backend,
                None => self.adapter.open(options)?,
            };
            let (back, verdict) = test.run(backend, format, known_nmse);
            // After a fault the device itself may be in trouble: the next format gets a fresh one.
            held = back.filter(|_| verdict.fault.is_none());
            log::info!("{}: {format} {:?}", self.word, verdict);
            self.verdicts.push(verdict);
        }
        let mut backend = match held {
            Some(backend) => backend,
            None => self.adapter.open(options)?,
        };
        self.formats = selftest::formats(backend.as_mut(), &HEAD_SIZES)?;
        Ok(())
    }
}

//! `kvarto doctor`: what this machine can run, and a self-test of it.

mod json;
mod text;

use super::mask_flags::MaskFlags;
use super::output;
use clap::Args;
use kvarto::backend::wgpu::{AdapterChoice, AdapterReport, OpenOptions, WgpuBackend, adapters};
use kvarto::backend::{Backend, Caps, CpuBackend};
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

/// One line on the place kept for CUDA.
const CUDA: &str = "not built in this version";

/// An adapter, and what was found of it.
pub(super) struct Examined {
    /// `cpu`, `vulkan:0`: the word for `--backend`.
    word: String,
    /// What the driver says; none for the CPU.
    report: Option<AdapterReport>,
    /// What the backend makes of it, once opened.
    caps: Option<Caps>,
    /// Why it could not be opened; a refusal known beforehand stands in the report.
    fault: Option<Error>,
    kernels: Vec<KernelReport>,
    formats: Vec<Support>,
    verdicts: Vec<Verdict>,
    time: Duration,
}

impl Examined {
    fn refusal(&self) -> Option<&str> {
        self.report.as_ref().and_then(|r| r.refusal.as_deref())
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
        command.masks.refuse_on_cpu("asked for")?;
    }
    let test = SelfTest::new();
    let mut examined = Vec::new();
    for candidate in candidates(command.adapter.as_deref())? {
        log::info!("looking at {}", candidate.0);
        examined.push(examine(candidate, &options, &test));
    }
    let cuda = command.adapter.is_none();
    let out = match command.json {
        true => output::json(&json::of(&examined, cuda), true),
        // Names come from drivers.
        false => output::escaped_lines(&text::of(&examined, cuda)),
    };
    output::write(&out)?;
    let passed = examined.iter().all(Examined::passed);
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The word of an adapter, and what the driver says; none for the CPU.
pub(super) type Candidate = (String, Option<AdapterReport>);

/// The CPU and every adapter, or the one that `word` names.
pub(super) fn candidates(word: Option<&str>) -> Result<Vec<Candidate>> {
    if word == Some("cuda") || word.is_some_and(|w| w.starts_with("cuda:")) {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!("cuda: {CUDA}"),
            "name another adapter; without --adapter all are looked at",
        ));
    }
    let cpu = ("cpu".to_string(), None);
    if word == Some("cpu") {
        return Ok(vec![cpu]);
    }
    let gpus = adapters().into_iter().map(|r| (format!("{}:{}", r.api, r.index), Some(r)));
    let mut all: Vec<Candidate> = [cpu].into_iter().chain(gpus).collect();
    if let Some(word) = word {
        let full = if word.contains(':') { word.to_string() } else { format!("{word}:0") };
        let words: Vec<String> = all.iter().map(|(w, _)| w.clone()).collect();
        all.retain(|(w, _)| *w == full);
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

/// The adapter's backend, the CPU without one.
pub(super) fn open(report: Option<&AdapterReport>, options: &OpenOptions) -> Result<Box<dyn Backend>> {
    Ok(match report {
        None => Box::new(CpuBackend::new(0)?),
        Some(r) => {
            let choice = AdapterChoice::Api { api: r.api.clone(), index: r.index };
            Box::new(WgpuBackend::open_with(&choice, options)?)
        }
    })
}

fn examine((word, report): Candidate, options: &OpenOptions, test: &SelfTest) -> Examined {
    let start = Instant::now();
    let mut found = Examined {
        word,
        report,
        caps: None,
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
        let mut backend = open(self.report.as_ref(), options)?;
        self.caps = Some(backend.caps().clone());
        self.kernels = selftest::kernels(backend.as_mut())?;
        log::info!("{}: kernels after {:?}", self.word, self.kernels.iter().map(|k| k.time).sum::<Duration>());
        let mut held = Some(backend);
        for (format, known_nmse) in FORMATS {
            let backend = match held.take() {
                Some(backend) => backend,
                None => open(self.report.as_ref(), options)?,
            };
            let (back, verdict) = test.run(backend, format, known_nmse);
            // After a fault the device itself may be in trouble: the next format gets a fresh one.
            held = back.filter(|_| verdict.fault.is_none());
            log::info!("{}: {format} {:?}", self.word, verdict);
            self.verdicts.push(verdict);
        }
        let mut backend = match held {
            Some(backend) => backend,
            None => open(self.report.as_ref(), options)?,
        };
        self.formats = selftest::formats(backend.as_mut(), &HEAD_SIZES)?;
        Ok(())
    }
}

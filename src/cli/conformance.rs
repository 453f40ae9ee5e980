//! `kvarto conformance`: the numeric suite of attention on this machine's adapters, from the program alone.

mod report;

use super::backend::BackendFlags;
use super::mask_flags::MaskFlags;
use super::{backend, doctor, output};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use kvarto::backend::Backend;
use kvarto::conformance::{self, Options, Report};
use kvarto::{Error, ErrorKind, Result};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// The numeric suite of attention.
#[derive(Debug, Args)]
pub struct ConformanceCommand {
    #[arg(long, value_name = "WORD", help = one_backend())]
    backend: Option<String>,
    #[command(flatten)]
    masks: MaskFlags,
    /// A part of the suite that meets every value of every factor at least once
    #[arg(long)]
    quick: bool,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
    /// Also write the JSON to this file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// A backend, and what became of it.
pub(super) struct Tested {
    /// `cpu`, `vulkan:0`: the word for `--backend`.
    word: String,
    /// The suite's report; why there is none otherwise.
    outcome: Outcome,
}

/// What became of a backend.
pub(super) enum Outcome {
    /// The suite ran.
    Ran(Box<Report>),
    /// The adapter does not serve, known beforehand.
    Refused(String),
    /// It could not be opened.
    Fault(Error),
}

impl Tested {
    /// Whether nothing failed; an adapter that is refused by name is no failure.
    fn passed(&self) -> bool {
        match &self.outcome {
            Outcome::Ran(report) => report.passed(),
            Outcome::Refused(_) => true,
            Outcome::Fault(_) => false,
        }
    }
}

/// Runs the command: 0 when all passed, 1 when something failed, 3 when no adapter serves.
pub fn run(command: &ConformanceCommand) -> anyhow::Result<ExitCode> {
    let start = Instant::now();
    let masks = &command.masks;
    let wanted = command.backend.as_deref().map(|word| backend::parse(word, masks)).transpose()?;
    let open = masks.options()?;
    // Before the work: a slip in the path costs no run.
    let out = command.out.as_deref().map(create).transpose()?;
    let options = Options { quick: command.quick, ..Options::default() };
    let mut tested = Vec::new();
    match (&command.backend, wanted) {
        (Some(word), Some(wanted)) => {
            let mut backend =
                backend::open(&wanted, &BackendFlags { masks: masks.clone(), ..BackendFlags::default() })?.backend;
            tested.push(suite(word, backend.as_mut(), &options));
        }
        _ => {
            for adapter in doctor::candidates(None)? {
                let word = adapter.word();
                let refusal = adapter.refusal().map(String::from);
                tested.push(match refusal {
                    Some(reason) => Tested { word, outcome: Outcome::Refused(reason) },
                    None => match adapter.open(&open) {
                        Ok(mut backend) => suite(&word, backend.as_mut(), &options),
                        Err(error) => Tested { word, outcome: Outcome::Fault(error) },
                    },
                });
            }
        }
    }
    if !tested.iter().any(|t| matches!(t.outcome, Outcome::Ran(_))) {
        let error = Error::new(ErrorKind::Unsupported, "no adapter serves", "`kvarto doctor` says why of each");
        return Err(error.into());
    }
    let json = report::json(&tested, command.quick, start.elapsed());
    if let (Some(mut file), Some(path)) = (out, &command.out) {
        file.write_all(output::json(&json, true).as_bytes()).map_err(|e| unwritable(path, &e))?;
    }
    output::write(&match command.json {
        true => output::json(&json, true),
        // Names come from drivers.
        false => output::escaped_lines(&report::text(&tested)),
    })?;
    Ok(if tested.iter().all(Tested::passed) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The quick suite on an open backend: its report, and whether it passed.
pub(super) fn quick(word: &str, backend: &mut dyn Backend) -> (serde_json::Value, bool) {
    let start = Instant::now();
    let tested = [suite(word, backend, &Options { quick: true, ..Options::default() })];
    (report::json(&tested, true, start.elapsed()), tested.iter().all(Tested::passed))
}

/// The flag's line of help.
fn one_backend() -> String {
    format!("One backend only, instead of the CPU and every adapter that serves: {}", backend::help())
}

fn suite(word: &str, backend: &mut dyn Backend, options: &Options) -> Tested {
    // Silent where standard error is no terminal.
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{prefix} {wide_bar} {pos} of {len} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar.set_prefix(output::escaped(word));
    let report = conformance::run(backend, options, &mut |progress| {
        bar.set_length(progress.total as u64);
        bar.set_position(progress.done as u64);
        bar.set_message(progress.last.id.clone());
        let last = progress.last;
        log::info!("{word}: {} {} {:?} in {:?}", last.id, last.verdict.as_str(), last.worst, last.time);
    });
    bar.finish_and_clear();
    Tested { word: word.into(), outcome: Outcome::Ran(Box::new(report)) }
}

fn create(path: &Path) -> Result<File> {
    File::create(path).map_err(|e| unwritable(path, &e))
}

fn unwritable(path: &Path, fault: &std::io::Error) -> Error {
    Error::new(
        ErrorKind::File,
        format!("--out {}: {fault}", path.display()),
        "give a file in a folder that is there and can be written to",
    )
}

//! `kvarto calibrate`: a model over a text, and the file that the bases `map` and `mean:FILE` are made from.

use super::backend::{self, BackendFlags, Chosen};
use super::interrupt;
use super::models::Bar;
use super::output::{self, say};
use super::report::bytes;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kvarto::calibration::{self, CalibrateOptions, CalibrationFile, Header, Measured};
use kvarto::engine::Registry;
use kvarto::model::gguf::Gguf;
use kvarto::model::tokenizer::Tokenizer;
use kvarto::model::{LoadOptions, Model, store};
use kvarto::profile::Profile;
use kvarto::{Error, ErrorKind};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Measure a model's keys and values over a text, for the basis `map`.
#[derive(Debug, Args)]
pub struct CalibrateCommand {
    /// A name from `kvarto models list`, or a path that ends in .gguf
    #[arg(long, default_value = "smollm2-135m", value_name = "NAME-or-FILE")]
    model: String,
    /// The text, of the kind that the model will see
    #[arg(long, value_name = "FILE")]
    text: PathBuf,
    /// Where to write, a name that ends in .kvcal; if not given, where `--basis map` looks for this model's
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Most tokens of the text to run over
    #[arg(long, default_value_t = CalibrateOptions::default().tokens, value_name = "N")]
    tokens: usize,
    /// Tokens of a window: about as long as contexts will be, since a map gains little beyond what it has seen (8192 if not
    /// given, or as many as the model has)
    #[arg(long, value_name = "N")]
    window_tokens: Option<usize>,
    /// Keep the moments in the file too: it is then three times as large
    #[arg(long)]
    moments: bool,
    #[command(flatten)]
    backend: BackendFlags,
    /// One JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

const TEMPLATE: &str = "calibrating {wide_bar} {pos:>7} of {len} tokens {eta:>4}";

/// Runs the command.
pub fn run(command: &CalibrateCommand) -> anyhow::Result<()> {
    let cancelled = interrupt::wish_to_stop()?;
    if let Some(path) = command.output.as_deref().filter(|path| !named_right(path)) {
        let message = format!("--output {} does not end in .kvcal", path.display());
        return Err(Error::new(ErrorKind::Usage, message, "name the file NAME.kvcal").into());
    }
    let fault = |e: std::io::Error| {
        let message = format!("--text {}: {e}", command.text.display());
        Error::new(ErrorKind::File, message, "give a readable UTF-8 text file")
    };
    let text = std::fs::read_to_string(&command.text).map_err(fault)?;
    let wanted = command.backend.wanted()?;

    let bar = Bar::new();
    let path = store::resolve_or_fetch(&command.model, &bar)?;
    bar.finish();
    let gguf = Gguf::open(&path)?;
    let output = match &command.output {
        Some(path) => path.clone(),
        None => calibration::path_of(&store::calibrations()?, &gguf),
    };
    let tokens = Tokenizer::from_gguf(&gguf)?.encode(&text, false)?;
    let context = kvarto::model::config::ModelConfig::from_gguf(&gguf)?.context_length;
    let window_tokens = command.window_tokens.unwrap_or(CalibrateOptions::default().window_tokens.min(context));
    if window_tokens > context {
        let message = format!("--window-tokens {window_tokens}: the model has {context} positions");
        return Err(Error::new(ErrorKind::Usage, message, format!("give {context} or fewer")).into());
    }
    let options = CalibrateOptions { tokens: command.tokens, window_tokens };
    writable(&output, &command.text)?;
    let (_, window) = calibration::windows(tokens.len(), &options)?;

    let Chosen { backend, why } = backend::open(&wanted, &command.backend)?;
    say(&format!("backend   {} ({why})", backend.caps().title()));
    let load = LoadOptions { context_tokens: window, logit_rows: 1, ..LoadOptions::default() };
    let mut model = Model::load(&gguf, backend, Profile::dense(), Registry::builtin(), &load)?;
    let progress = Progress::new();
    let measured = calibration::measure(&mut model, &tokens, &options, |done, all| {
        progress.show(done, all);
        cancelled.load(Ordering::SeqCst)
    })?;
    progress.0.finish_and_clear();

    let file = file(command, &gguf, &model, &text, &measured)?;
    let written = file.to_bytes()?;
    write(&output, &written)?;
    let header = &CalibrationFile::parse(&written)?.header;
    if command.json {
        let said = json!({
            "schema": 1, "file": output, "bytes": written.len(), "sha256": calibration::sha256(&written),
            "calibration": header,
        });
        output::write(&output::json(&said, true))?;
    } else {
        say(&format!(
            "written   {} ({}): {} windows of {} tokens",
            output.display(),
            bytes(written.len() as u64),
            header.windows,
            header.window_tokens
        ));
        let word = command.output.as_ref().map_or("map".into(), |path| path.display().to_string());
        say(&format!("use       --model {} --basis {word}", command.model));
    }
    Ok(())
}

/// Refuses, before anything takes minutes, a place where no file can be put, and the text's own.
fn writable(output: &Path, text: &Path) -> Result<(), Error> {
    let refuse = |what: String| {
        let message = format!("--output {}: {what}", output.display());
        Error::new(ErrorKind::File, message, "give a file in a folder that can be written to")
    };
    if output.is_dir() {
        return Err(refuse("it is a folder".into()));
    }
    if let (Ok(a), Ok(b)) = (output.canonicalize(), text.canonicalize())
        && a == b
    {
        return Err(refuse("it is the text".into()));
    }
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(|e| refuse(e.to_string()))?;
    let probe = folder.join(format!(".kvarto-{}", std::process::id()));
    std::fs::write(&probe, b"").and_then(|()| std::fs::remove_file(&probe)).map_err(|e| refuse(e.to_string()))
}

fn named_right(path: &Path) -> bool {
    path.to_string_lossy().ends_with(kvarto::basis::CALIBRATION_EXTENSION)
}

fn file(
    command: &CalibrateCommand,
    gguf: &Gguf,
    model: &Model,
    text: &str,
    measured: &Measured,
) -> kvarto::Result<CalibrationFile> {
    let header = Header {
        version: calibration::VERSION,
        kvarto: env!("CARGO_PKG_VERSION").into(),
        model_sha256: gguf.sha256().into(),
        model: command.model.clone(),
        architecture: model.config().architecture.name.into(),
        text_sha256: calibration::sha256(text.as_bytes()),
        tokens: measured.tokens(),
        windows: measured.starts.len(),
        window_tokens: measured.window_tokens,
        skipped_tokens: measured.skipped_tokens,
        checksum: String::new(),
    };
    let moments = command.moments.then(|| measured.calibrator.moments());
    Ok(CalibrationFile { header, layers: measured.calibrator.maps()?, moments })
}

/// Writes beside the file, then moves: one that is read is whole.
fn write(path: &Path, bytes: &[u8]) -> kvarto::Result<()> {
    let fault = |e: std::io::Error| {
        Error::new(ErrorKind::File, format!("{}: {e}", path.display()), "give --output a file that can be written")
    };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(fault)?;
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let result = std::fs::write(&beside, bytes).and_then(|()| std::fs::rename(&beside, path));
    result.map_err(|e| {
        // What is left of it is of no use; the first fault is the one to tell.
        let _ = std::fs::remove_file(&beside);
        fault(e)
    })
}

/// Tokens done and the time that is left, on a terminal.
struct Progress(ProgressBar);

impl Progress {
    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        // The template is a constant of ours; were it wrong, the default bar would serve.
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress(bar)
    }

    fn show(&self, done: usize, all: usize) {
        self.0.set_length(all as u64);
        self.0.set_position(done as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

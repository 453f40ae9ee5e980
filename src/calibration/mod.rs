//! Calibration: what a model's keys and values are like over a text, and the bases `map` and `mean:FILE` made from it.
//!
//! The model runs over disjoint windows of the text; [`Calibrator`] gathers moments of the queries, keys and values that
//! [`Model::observe`] hands over, [`solve`] makes maps from them, [`CalibrationFile`] is the file. [`provide`] gives a
//! registry the calibrations that a profile names.

mod file;
mod moments;
pub mod solve;

pub use file::{CalibrationFile, Header, VERSION};
pub use moments::{Calibrator, SecondMoments};

use crate::basis::{BasisChoice, CALIBRATION_EXTENSION, Calibration, CalibrationSource};
use crate::engine::Registry;
use crate::error::{Error, ErrorKind, Result};
use crate::model::gguf::Gguf;
use crate::model::{Answer, Model, ModelRows};
use crate::profile::Profile;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The fewest tokens that a calibration is made from.
pub const LEAST_TOKENS: usize = 64;

/// First tokens of a window that moments leave out, or a quarter of the window where that is less.
pub const SKIPPED_TOKENS: usize = 64;

/// How a model is calibrated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalibrateOptions {
    /// Most tokens of the text to run over.
    pub tokens: usize,
    /// Tokens of a window: keys are turned to their positions, so windows should be about as long as contexts will be.
    pub window_tokens: usize,
}

impl Default for CalibrateOptions {
    fn default() -> Self {
        CalibrateOptions { tokens: 32_768, window_tokens: 8192 }
    }
}

/// What a run over a text gave.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Moments of everything seen.
    pub calibrator: Calibrator,
    /// First token of each window.
    pub starts: Vec<usize>,
    /// Tokens of a window.
    pub window_tokens: usize,
    /// First tokens of each that the moments leave out.
    pub skipped_tokens: usize,
}

impl Measured {
    /// Tokens that the model ran over.
    pub fn tokens(&self) -> usize {
        self.starts.len() * self.window_tokens
    }
}

/// Disjoint windows over `tokens` tokens: their starts, and their length.
///
/// # Errors
/// `Usage` for fewer than [`LEAST_TOKENS`] tokens to run over.
pub fn windows(tokens: usize, options: &CalibrateOptions) -> Result<(Vec<usize>, usize)> {
    let wanted = options.tokens.min(tokens);
    let window = options.window_tokens.min(wanted);
    if window < LEAST_TOKENS {
        return Err(Error::new(
            ErrorKind::Usage,
            format!("{window} tokens in a window are too few to calibrate with, {LEAST_TOKENS} are the least"),
            "give a longer text, or more --tokens and --window-tokens",
        ));
    }
    let count = wanted / window;
    // The first begins with the text, the last ends with it.
    let starts = (0..count).map(|i| (tokens - window) * i / (count - 1).max(1)).collect();
    Ok((starts, window))
}

/// Runs the model over windows of `tokens` in sequences of their own. `progress` is told the tokens done, and of how
/// many; what it answers is whether to stop.
///
/// # Errors
/// As [`windows`] and [`Model::observe`]; `Interrupted` when `progress` says so.
pub fn measure(
    model: &mut Model,
    tokens: &[u32],
    options: &CalibrateOptions,
    mut progress: impl FnMut(usize, usize) -> bool,
) -> Result<Measured> {
    let (starts, window) = windows(tokens.len(), options)?;
    let skipped = SKIPPED_TOKENS.min(window / 4);
    let mut calibrator = Calibrator::new(model, skipped as u32)?;
    let (mut done, total) = (0, starts.len() * window);
    for &start in &starts {
        let seq = model.engine().create()?;
        for chunk in tokens[start..start + window].chunks(model.chunk_tokens()) {
            if progress(done, total) {
                return Err(Error::new(ErrorKind::Interrupted, "stopped while calibrating; nothing was written", ""));
            }
            let rows = [ModelRows { seq, tokens: chunk, committed: true, answer: Answer::Nothing }];
            model.observe(&rows, |seen| calibrator.add(&seen))?;
            done += chunk.len();
        }
        model.engine().release(seq)?;
    }
    progress(done, total);
    Ok(Measured { calibrator, starts, window_tokens: window, skipped_tokens: skipped })
}

/// SHA-256 in lower-case hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    file::hex(&Sha256::digest(bytes))
}

/// Where a model's own calibration lies in `folder`: the file that the basis `map` means.
pub fn path_of(folder: &Path, gguf: &Gguf) -> PathBuf {
    folder.join(format!("{}{CALIBRATION_EXTENSION}", gguf.sha256()))
}

/// The registry with every calibration that `profile` names and the registry does not have yet, each checked to be of
/// this very model; `map` is looked for in `folder`.
///
/// # Errors
/// `File` for a calibration that is missing, damaged or of another model, which says how to make one.
pub fn provide(mut registry: Registry, profile: &Profile, gguf: &Gguf, folder: Option<&Path>) -> Result<Registry> {
    for source in sources(profile)?.into_iter().filter(|source| !registry.has_calibration(source)).collect::<Vec<_>>() {
        let calibration = read(&source, gguf, folder)?;
        registry = registry.with_calibration(source, Arc::new(calibration));
    }
    Ok(registry)
}

/// What the calibrations that `profile` names are known by ([`Calibration::id`]), those of K and of V; none for bases that
/// need none.
///
/// # Errors
/// As [`provide`].
pub fn ids(profile: &Profile, gguf: &Gguf, folder: Option<&Path>) -> Result<Vec<String>> {
    sources(profile)?.iter().map(|source| Ok(read(source, gguf, folder)?.id().to_owned())).collect()
}

/// Where a profile's bases come from, those of K and of V.
fn sources(profile: &Profile) -> Result<Vec<CalibrationSource>> {
    let words = [&profile.k_basis, &profile.v_basis].into_iter().flatten();
    let choices = words.map(|word| BasisChoice::parse(word)).collect::<Result<Vec<_>>>()?;
    Ok(choices.iter().filter_map(|choice| choice.source().cloned()).collect())
}

fn read(source: &CalibrationSource, gguf: &Gguf, folder: Option<&Path>) -> Result<Calibration> {
    let path = match source {
        CalibrationSource::File(path) => PathBuf::from(path),
        CalibrationSource::OfModel => own(gguf, folder)?,
    };
    let (file, id) = CalibrationFile::read(&path)?;
    if file.header.model_sha256 != gguf.sha256() {
        return Err(Error::new(
            ErrorKind::File,
            format!(
                "{} is the calibration of {:?} with SHA-256 {}, the model's is {}",
                path.display(),
                file.header.model,
                file.header.model_sha256,
                gguf.sha256()
            ),
            "calibrate this model with `kvarto calibrate`, or run the other",
        ));
    }
    file.calibration(&id).map_err(|e| e.context(path.display().to_string()))
}

/// The model's own calibration in `folder`.
fn own(gguf: &Gguf, folder: Option<&Path>) -> Result<PathBuf> {
    let remedy = "run `kvarto calibrate --model MODEL --text FILE` first, or give --basis FILE.kvcal";
    let fault = |message: String| Error::new(ErrorKind::File, message, remedy);
    let folder =
        folder.ok_or_else(|| fault("the basis `map` needs a calibration, and no folder of them is known".into()))?;
    let path = path_of(folder, gguf);
    match path.exists() {
        true => Ok(path),
        false => Err(fault(format!("the model has no calibration yet: {} is not there", path.display()))),
    }
}

#[cfg(test)]
mod tests;

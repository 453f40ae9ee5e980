//! `--trace` of an evaluation: one trace a cache, since each profile has one of its own.

use super::super::trace_flags::{EventFlags, Opened, TraceFlags, Tracing};
use kvarto::Result;
use kvarto::backend::Backend;
use kvarto::model::Model;
use kvarto::model::gguf::Gguf;
use kvarto::model::tokenizer::Tokenizer;
use std::path::{Path, PathBuf};

/// Traces caches one after another; the last one's ends with it.
pub struct Tracer {
    flags: TraceFlags,
    /// Opened before anything took long.
    first: Option<Opened>,
    copy_bytes_per_s: Option<f64>,
    model: String,
    gguf: Gguf,
    tokenizer: Tokenizer,
    /// Traces begun so far.
    begun: usize,
    current: Option<Tracing>,
}

impl Tracer {
    /// Opens the file of the first trace, where one is wanted, and measures the backend for it.
    ///
    /// # Errors
    /// As [`TraceFlags::open`].
    pub fn open(
        flags: &TraceFlags,
        model: &str,
        (gguf, tokenizer): (&Gguf, &Tokenizer),
        backend: &mut dyn Backend,
    ) -> Result<Option<Self>> {
        let Some(mut first) = flags.open(&EventFlags::default())? else { return Ok(None) };
        first.measure(backend);
        Ok(Some(Tracer {
            flags: flags.clone(),
            copy_bytes_per_s: first.copy_rate(),
            first: Some(first),
            model: model.into(),
            gguf: gguf.clone(),
            tokenizer: tokenizer.clone(),
            begun: 0,
            current: None,
        }))
    }

    /// Ends the trace before, and records the cache that is now under the model.
    ///
    /// # Errors
    /// `File` for a file that cannot be made.
    pub fn next(&mut self, model: &mut Model, label: &str) -> Result<()> {
        self.finish();
        self.begun += 1;
        let opened = match (self.first.take(), &self.flags.trace) {
            (Some(first), _) => Some(first),
            (None, Some(path)) => {
                let flags = TraceFlags { trace: Some(numbered(path, self.begun)), ..self.flags.clone() };
                let opened = flags.open(&EventFlags::default())?;
                opened.map(|o| match self.copy_bytes_per_s {
                    Some(rate) => o.with_copy_rate(rate),
                    None => o,
                })
            }
            (None, None) => None,
        };
        let Some(opened) = opened else { return Ok(()) };
        let names = (self.model.as_str(), &self.gguf);
        self.current = Some(opened.start_model(model, &self.tokenizer, names, &format!("eval {label}"))?);
        Ok(())
    }

    fn finish(&mut self) {
        if let Some(tracing) = self.current.take() {
            tracing.finish();
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.finish();
    }
}

/// `run.kvtr` as `run-2.kvtr`.
fn numbered(path: &Path, number: usize) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = match path.extension() {
        Some(extension) => format!("{stem}-{number}.{}", extension.to_string_lossy()),
        None => format!("{stem}-{number}"),
    };
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_traces_stand_beside_the_first() {
        assert_eq!(numbered(Path::new("a/run.kvtr"), 2), Path::new("a/run-2.kvtr"));
        assert_eq!(numbered(Path::new("run"), 12), Path::new("run-12"));
    }
}

//! Flags that all evaluations share.

use super::super::arguments;
use super::super::backend::BackendFlags;
use clap::Args;
use kvarto::eval::{Folder, Mode};
use kvarto::{Error, ErrorKind, Result};
use std::path::PathBuf;

/// Model, machine, texts, windows, and where results go.
#[derive(Clone, Debug, Args)]
pub struct RunFlags {
    /// A name from `kvarto models list`, or a path that ends in .gguf
    #[arg(long, default_value = "smollm2-135m", value_name = "NAME-or-FILE")]
    pub model: String,
    #[command(flatten)]
    pub backend: BackendFlags,
    /// A text file, or a name from `kvarto data list`; may be given several times
    #[arg(long, required = true, value_name = "FILE")]
    pub text: Vec<String>,
    /// Tokens of a window; several lengths may stand with commas between
    #[arg(long, value_delimiter = ',', allow_negative_numbers = true, value_parser = arguments::count, default_value = "4096", value_name = "N")]
    pub window: Vec<usize>,
    /// Disjoint windows of each text, spread over it
    #[arg(long, allow_negative_numbers = true, value_parser = arguments::count, default_value_t = 2, value_name = "N")]
    pub windows: usize,
    /// Tokens scored at the end of each window
    #[arg(long, allow_negative_numbers = true, value_parser = arguments::count, default_value_t = 256, value_name = "N")]
    pub score_tokens: usize,
    /// Score in steps that are cut where the cache changes: the same result as one token a step, at a prefill's speed
    #[arg(long, conflicts_with = "chunked")]
    pub emulate: bool,
    /// Score in steps of that many tokens, whatever the cache does: flatters profiles with an exact tail, never compare
    #[arg(long, allow_negative_numbers = true, value_parser = arguments::count, value_name = "N")]
    pub chunked: Option<usize>,
    /// Keep results in this folder: a stopped run goes on from there
    #[arg(long, short = 'o', value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// Make results anew that the folder holds
    #[arg(long, requires = "out")]
    pub fresh: bool,
    /// MiB of logits of the dense cache held at once; windows are stepped together as far as they fit
    #[arg(long, allow_negative_numbers = true, value_parser = arguments::count, default_value_t = 6144, value_name = "MIB")]
    pub logits_mib: usize,
    /// One JSON object on standard output in place of text
    #[arg(long)]
    pub json: bool,
}

impl RunFlags {
    /// Refuses numbers that cannot be meant, before a model is looked for.
    ///
    /// # Errors
    /// `Usage` naming the flag.
    pub fn check(&self) -> Result<()> {
        let counts = [
            ("--windows", Some(self.windows)),
            ("--score-tokens", Some(self.score_tokens)),
            ("--chunked", self.chunked),
            ("--window", self.window.iter().copied().min().or(Some(0))),
        ];
        match counts.iter().find(|(_, count)| *count == Some(0)) {
            Some((flag, _)) => Err(Error::new(ErrorKind::Usage, format!("{flag} 0"), "give 1 or more")),
            None => Ok(()),
        }
    }

    /// How tokens are fed.
    pub fn mode(&self) -> Mode {
        match (self.emulate, self.chunked) {
            (true, _) => Mode::Emulated,
            (_, Some(rows)) => Mode::Chunked(rows),
            _ => Mode::Stepwise,
        }
    }

    /// The folder of results, made if it is not there.
    ///
    /// # Errors
    /// As [`Folder::open`].
    pub fn folder(&self) -> Result<Option<Folder>> {
        self.out.as_deref().map(Folder::open).transpose()
    }
}

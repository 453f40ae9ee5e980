//! Flags that evaluations share.

use super::super::arguments;
use super::super::backend::BackendFlags;
use super::super::trace_flags::TraceFlags;
use clap::Args;
use kvarto::engine::Registry;
use kvarto::eval::needle::{Grid, Task};
use kvarto::eval::{Candidate, Folder, Mode};
use kvarto::{Error, ErrorKind, Result};
use std::path::PathBuf;

/// Model, machine, and where results go.
#[derive(Clone, Debug, Args)]
pub struct CommonFlags {
    /// A name from `kvarto models list`, or a path that ends in .gguf
    #[arg(long, default_value = "smollm2-135m", value_name = "NAME-or-FILE")]
    pub model: String,
    #[command(flatten)]
    pub backend: BackendFlags,
    /// Keep results in this folder: a stopped run goes on from there
    #[arg(long, short = 'o', value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// Make results anew that the folder holds
    #[arg(long, requires = "out")]
    pub fresh: bool,
    /// One JSON object on standard output in place of text
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub trace: TraceFlags,
}

impl CommonFlags {
    /// The folder of results, made if it is not there.
    ///
    /// # Errors
    /// As [`Folder::open`].
    pub fn folder(&self) -> Result<Option<Folder>> {
        self.out.as_deref().map(Folder::open).transpose()
    }
}

/// Several profiles.
#[derive(Clone, Debug, Args)]
pub struct ProfileFlags {
    /// Profiles: a name, a file, or formats as kv:tq3 or kv:tq4/tq3; each with @BASIS and +KEY=VALUE after it
    #[arg(required = true, value_name = "PROFILE")]
    pub profiles: Vec<String>,
    /// Change a value of every profile; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

impl ProfileFlags {
    /// What the words mean.
    ///
    /// # Errors
    /// `Usage` naming a word that is not understood or stands twice; `File` for a file that cannot be read.
    pub fn candidates(&self, registry: &Registry) -> Result<Vec<Candidate>> {
        if let Some(twice) = self.profiles.iter().enumerate().find(|(at, word)| self.profiles[..*at].contains(word)) {
            let what = format!("profile {} is given twice", twice.1);
            return Err(Error::new(ErrorKind::Usage, what, "leave one of them out"));
        }
        self.profiles.iter().map(|word| Candidate::parse(word, &self.set, registry)).collect()
    }
}

/// Texts and windows.
#[derive(Clone, Debug, Args)]
pub struct WindowFlags {
    /// A text file, or a name from `kvarto data list`; may be given several times
    #[arg(long, required = true, value_name = "FILE")]
    pub text: Vec<String>,
    /// Tokens of a window; several lengths may stand with commas between
    #[arg(long, value_delimiter = ',', value_parser = arguments::count, default_value = "4096", value_name = "N")]
    pub window: Vec<usize>,
    /// Disjoint windows of each text, spread over it
    #[arg(long, allow_negative_numbers = true, value_parser = arguments::count, default_value_t = 2, value_name = "N")]
    pub windows: usize,
}

/// How windows are scored.
#[derive(Clone, Debug, Args)]
pub struct RunFlags {
    #[command(flatten)]
    pub common: CommonFlags,
    #[command(flatten)]
    pub windows: WindowFlags,
    /// Tokens scored at the end of each window
    #[arg(long, allow_negative_numbers = true, value_parser = arguments::count, default_value_t = 256, value_name = "N")]
    pub score_tokens: usize,
    /// Score in steps that are cut where the cache changes: the same result as one token a step, at a prefill's speed
    #[arg(long, conflicts_with = "chunked")]
    pub emulate: bool,
    /// Score in steps of that many tokens, whatever the cache does: flatters profiles with an exact tail
    #[arg(long, allow_negative_numbers = true, value_parser = arguments::count, value_name = "N")]
    pub chunked: Option<usize>,
    /// MiB of logits of the dense cache held at once; windows are stepped together as far as they fit
    #[arg(long, allow_negative_numbers = true, value_parser = arguments::count, default_value_t = 6144, value_name = "MIB")]
    pub logits_mib: usize,
}

impl RunFlags {
    /// Refuses numbers that cannot be meant, before a model is looked for.
    ///
    /// # Errors
    /// `Usage` naming the flag.
    pub fn check(&self) -> Result<()> {
        positive(&[
            ("--windows", Some(self.windows.windows)),
            ("--score-tokens", Some(self.score_tokens)),
            ("--chunked", self.chunked),
            ("--window", self.windows.window.iter().copied().min()),
        ])
    }

    /// How tokens are fed.
    pub fn mode(&self) -> Mode {
        match (self.emulate, self.chunked) {
            (true, _) => Mode::Emulated,
            (_, Some(rows)) => Mode::Chunked(rows),
            _ => Mode::Stepwise,
        }
    }
}

/// Which needles to hide where.
#[derive(Clone, Debug, Args)]
pub struct NeedleFlags {
    #[command(flatten)]
    pub common: CommonFlags,
    #[command(flatten)]
    pub profiles: ProfileFlags,
    /// Tokens of a case, with commas between
    #[arg(long, value_delimiter = ',', value_parser = arguments::count, default_value = "512,1024,2048", value_name = "N")]
    pub lengths: Vec<usize>,
    /// Percent of the context before what is asked for, with commas between
    #[arg(long, value_delimiter = ',', value_parser = arguments::count, default_value = "0,25,50,75,100", value_name = "N")]
    pub depths: Vec<usize>,
    /// Cases of each task, length and depth
    #[arg(long, allow_negative_numbers = true, value_parser = arguments::count, default_value_t = 3, value_name = "N")]
    pub cases: usize,
    /// Tasks, with commas between: single, multi-key, multi-value, multi-query, variables, frequent-words (all by default)
    #[arg(long, value_delimiter = ',', value_name = "TASK")]
    pub tasks: Vec<String>,
    /// Where the random choices of the cases begin
    #[arg(long, allow_negative_numbers = true, value_parser = arguments::seed, default_value_t = 1, value_name = "N")]
    pub seed: u64,
}

impl NeedleFlags {
    /// The cases asked for.
    ///
    /// # Errors
    /// `Usage` for a task that is none.
    pub fn grid(&self) -> Result<Grid> {
        let known = || Task::ALL.map(Task::as_str).join(", ");
        let task = |word: &String| {
            Task::ALL.into_iter().find(|task| task.as_str() == word).ok_or_else(|| {
                Error::new(ErrorKind::Usage, format!("--tasks {word}: no such task"), format!("tasks: {}", known()))
            })
        };
        let mut tasks = self.tasks.iter().map(task).collect::<Result<Vec<_>>>()?;
        if tasks.is_empty() {
            tasks = Task::ALL.to_vec();
        }
        let sorted = |list: &[usize]| {
            let mut list = list.to_vec();
            list.sort_unstable();
            list.dedup();
            list
        };
        tasks.sort_unstable();
        tasks.dedup();
        Ok(Grid {
            tasks,
            lengths: sorted(&self.lengths),
            depths: sorted(&self.depths),
            cases: self.cases,
            seed: self.seed,
        })
    }
}

/// Attention's errors on which windows.
#[derive(Clone, Debug, Args)]
pub struct AttentionFlags {
    #[command(flatten)]
    pub common: CommonFlags,
    #[command(flatten)]
    pub profiles: ProfileFlags,
    #[command(flatten)]
    pub windows: WindowFlags,
    /// Queries asked at the end of each window
    #[arg(long, allow_negative_numbers = true, value_parser = arguments::count, default_value_t = 16, value_name = "N")]
    pub rows: usize,
}

impl AttentionFlags {
    /// Refuses numbers that cannot be meant, before a model is looked for.
    ///
    /// # Errors
    /// `Usage` naming the flag.
    pub fn check(&self) -> Result<()> {
        positive(&[
            ("--windows", Some(self.windows.windows)),
            ("--rows", Some(self.rows)),
            ("--window", self.windows.window.iter().copied().min()),
        ])
    }
}

fn positive(counts: &[(&str, Option<usize>)]) -> Result<()> {
    match counts.iter().find(|(_, count)| *count == Some(0)) {
        Some((flag, _)) => Err(Error::new(ErrorKind::Usage, format!("{flag} 0"), "give 1 or more")),
        None => Ok(()),
    }
}

//! `kvarto eval`: what a cache costs in quality, bits and time.

mod flags;
mod progress;
mod report;
mod session;

use super::cache_flags::CacheFlags;
use super::output::{self, say};
use clap::{Args, Subcommand};
use flags::RunFlags;
use kvarto::engine::Registry;
use kvarto::eval::{Candidate, Record};
use kvarto::{ErrorKind, Result};
use progress::Meter;
use session::Session;
use std::process::ExitCode;

/// Judge caches on a model and a text.
#[derive(Debug, Args)]
pub struct EvalCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Perplexity of a text's windows beside dense, token by token the same
    Ppl(One),
    /// Divergence from dense and agreement with it, by position
    Kl(One),
    /// A table and a plot of many profiles: quality against bits, speed beside it
    Compare(Many),
}

/// One profile.
#[derive(Debug, Args)]
struct One {
    #[command(flatten)]
    cache: CacheFlags,
    #[command(flatten)]
    run: RunFlags,
}

/// Several profiles.
#[derive(Debug, Args)]
struct Many {
    /// Profiles: a name, a file, or formats as kv:tq3 or kv:tq4/tq3; each with @BASIS and +KEY=VALUE after it
    #[arg(required = true, value_name = "PROFILE")]
    profiles: Vec<String>,
    /// Change a value of every profile; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    run: RunFlags,
}

impl EvalCommand {
    /// Whether the answer is wanted as JSON.
    pub fn json(&self) -> bool {
        match &self.action {
            Action::Ppl(one) | Action::Kl(one) => one.run.json,
            Action::Compare(many) => many.run.json,
        }
    }
}

/// Runs the command.
pub fn run(command: &EvalCommand) -> anyhow::Result<ExitCode> {
    let registry = Registry::builtin();
    match &command.action {
        Action::Ppl(one) | Action::Kl(one) => {
            let profile = one.cache.profile(&registry)?;
            let candidates = [Candidate { label: one.cache.asked().into(), profile }];
            let records = score(&one.run, &candidates, registry)?;
            let text = match (&command.action, one.run.json) {
                (_, true) => report::json(&records),
                (Action::Ppl(_), _) => report::ppl(&records),
                _ => report::kl(&records),
            };
            output::write(&text)?;
        }
        Action::Compare(many) => {
            let read = |word: &String| Candidate::parse(word, &many.set, &registry);
            let candidates = many.profiles.iter().map(read).collect::<Result<Vec<_>>>()?;
            let records = score(&many.run, &candidates, registry)?;
            let folder = many.run.folder()?;
            report::write(&records, folder.as_ref())?;
            let text = if many.run.json { report::json(&records) } else { report::table(&records) };
            output::write(&text)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// All records of the candidates on the flags' windows: those kept from an earlier run, and the rest now.
fn score(flags: &RunFlags, candidates: &[Candidate], registry: Registry) -> anyhow::Result<Vec<Record>> {
    flags.check()?;
    let mut meter = Meter::new()?;
    let mut session = Session::open(flags, registry)?;
    if flags.mode() != kvarto::eval::Mode::Stepwise {
        say(&format!("mode      {}", session::explain(flags.mode())));
    }
    let result = session.score(candidates, &mut meter);
    meter.finish();
    match result {
        Ok(records) => Ok(records),
        Err(error) if error.kind() == ErrorKind::Interrupted => {
            if let Some(folder) = &flags.out {
                say(&format!("what was done is kept in {}; the same command goes on from there", folder.display()));
            }
            Err(error.into())
        }
        Err(error) => Err(error.into()),
    }
}

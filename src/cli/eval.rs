//! `kvarto eval`: what a cache costs in quality, bits and time.

mod attention;
mod flags;
mod needle;
mod progress;
mod report;
mod score;
mod session;
mod tracer;

use super::cache_flags::CacheFlags;
use super::output::{self, say};
use clap::{Args, Subcommand};
use flags::{AttentionFlags, CommonFlags, NeedleFlags, ProfileFlags, RunFlags};
use kvarto::engine::Registry;
use kvarto::eval::{Candidate, Mode, Record};
use kvarto::{ErrorKind, Result};
use progress::Meter;
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
    Ppl(Box<One>),
    /// Divergence from dense and agreement with it, by position
    Kl(Box<One>),
    /// A table and a plot of many profiles: quality against bits, speed beside it
    Compare(Box<Many>),
    /// Retrieval from long contexts, beside dense: six tasks by length and depth
    Needle(Box<NeedleFlags>),
    /// The error of attention itself by layer and head, on the model's own queries, keys and values
    Attention(Box<AttentionFlags>),
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
    #[command(flatten)]
    profiles: ProfileFlags,
    #[command(flatten)]
    run: RunFlags,
}

impl EvalCommand {
    fn common(&self) -> &CommonFlags {
        match &self.action {
            Action::Ppl(one) | Action::Kl(one) => &one.run.common,
            Action::Compare(many) => &many.run.common,
            Action::Needle(flags) => &flags.common,
            Action::Attention(flags) => &flags.common,
        }
    }

    /// Whether the answer is wanted as JSON.
    pub fn json(&self) -> bool {
        self.common().json
    }
}

/// Runs the command.
pub fn run(command: &EvalCommand) -> anyhow::Result<ExitCode> {
    let registry = Registry::builtin();
    let mut meter = Meter::new()?;
    let said = answer(command, registry, &mut meter);
    meter.finish();
    match said {
        Ok(text) => output::write(&text)?,
        Err(error) => {
            if let Some(folder) = command.common().out.as_ref().filter(|_| error.kind() == ErrorKind::Interrupted) {
                say(&format!(
                    "the profiles that were done are kept in {}; the same command goes on from there",
                    folder.display()
                ));
            }
            return Err(error.into());
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn answer(command: &EvalCommand, registry: Registry, meter: &mut Meter) -> Result<String> {
    match &command.action {
        Action::Ppl(one) | Action::Kl(one) => {
            let profile = one.cache.profile(&registry)?;
            let candidate = Candidate { label: one.cache.asked().into(), profile, calibrations: Vec::new() };
            let records = scores(&one.run, vec![candidate], registry, meter)?;
            Ok(match (&command.action, one.run.common.json) {
                (_, true) => report::json(&records),
                (Action::Ppl(_), _) => report::ppl(&records),
                _ => report::kl(&records),
            })
        }
        Action::Compare(many) => {
            let candidates = many.profiles.candidates(&registry)?;
            let records = scores(&many.run, candidates, registry, meter)?;
            report::write(&records, many.run.common.folder()?.as_ref())?;
            Ok(if many.run.common.json { report::json(&records) } else { report::table(&records) })
        }
        Action::Needle(flags) => needle::run(flags, registry, meter),
        Action::Attention(flags) => attention::run(flags, registry, meter),
    }
}

/// All records of the candidates on the flags' windows: those kept from an earlier run, and the rest now.
fn scores(
    flags: &RunFlags,
    mut candidates: Vec<Candidate>,
    registry: Registry,
    meter: &mut Meter,
) -> Result<Vec<Record>> {
    flags.check()?;
    let scoring = score::Scoring::open(flags, &mut candidates, registry)?;
    if flags.mode() != Mode::Stepwise {
        say(&format!("mode      {}", score::explain(flags.mode())));
    }
    scoring.run(&candidates, meter)
}

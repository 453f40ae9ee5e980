//! `kvarto doctor`: what this machine can run, and a self-test of it.

use clap::Args;
use std::process::ExitCode;

/// What this machine can run.
#[derive(Debug, Args)]
pub struct DoctorCommand {
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(_: &DoctorCommand) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}

//! The `kvarto` program: one file a command.

mod arguments;
mod backend;
mod bench;
mod cache_flags;
mod calibrate;
mod chat;
mod conformance;
mod data;
mod doctor;
mod eval;
mod generate;
mod interrupt;
mod mask_flags;
pub mod models;
mod output;
mod plan;
mod profiles;
mod report;
mod sampling_flags;
mod trace;
mod trace_flags;
mod whole_file;

use clap::{Parser, Subcommand};
use kvarto::ErrorKind;
use std::io::Write;
use std::process::ExitCode;

/// Answers from a language model over a key-value cache of mixed-precision pages.
#[derive(Debug, Parser)]
#[command(name = "kvarto", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// More on standard error: -v for what was decided, -vv for everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Generate text from a prompt
    Generate(Box<generate::GenerateCommand>),
    /// Talk with a model; the past stays in the cache
    Chat(Box<chat::ChatCommand>),
    /// List, fetch and look into models
    Models(models::ModelsCommand),
    /// List and fetch public texts to evaluate on
    Data(data::DataCommand),
    /// List what a cache can do by name, and print one of them
    Profiles(profiles::ProfilesCommand),
    /// Measure a model's keys and values over a text, for the basis `map`
    Calibrate(calibrate::CalibrateCommand),
    /// What a cache takes by context, and the context that a budget holds
    Plan(plan::PlanCommand),
    /// Look into traces of what a cache did, check them, and write them for other tools
    Trace(trace::TraceCommand),
    /// Measure attention (checked first) and generation (timed only)
    Bench(bench::BenchCommand),
    /// Judge caches: perplexity, divergence from dense, many profiles in one table
    Eval(eval::EvalCommand),
    /// What this machine can run: adapters, limits, kernels and formats, with a self-test of each
    Doctor(doctor::DoctorCommand),
    /// The numeric suite of attention on every adapter: each kernel and format against f64, codes to the bit
    Conformance(conformance::ConformanceCommand),
}

/// Runs the program.
pub fn main() -> ExitCode {
    let cli: Cli = match arguments::parse(std::env::args_os().collect()) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let level = match cli.verbose {
        0 => log::LevelFilter::Error,
        1 => log::LevelFilter::Info,
        _ => log::LevelFilter::Debug,
    };
    env_logger::Builder::new()
        .filter_level(log::LevelFilter::Error)
        .filter_module("kvarto", level)
        .parse_default_env()
        .format(|to, record| {
            let text = output::escaped_lines(&record.args().to_string());
            writeln!(to, "[{} {}] {text}", record.level(), record.target())
        })
        .init();
    let (json, result) = match cli.command {
        Command::Generate(command) => (command.json, generate::run(&command, cli.verbose)),
        Command::Chat(command) => (false, chat::run(&command, cli.verbose)),
        Command::Models(command) => (command.json(), models::run(command).map(|()| ExitCode::SUCCESS)),
        Command::Data(command) => (command.json(), data::run(&command).map(|()| ExitCode::SUCCESS)),
        Command::Profiles(command) => (command.json(), profiles::run(&command).map(|()| ExitCode::SUCCESS)),
        Command::Calibrate(command) => (command.json, calibrate::run(&command).map(|()| ExitCode::SUCCESS)),
        Command::Plan(command) => (command.json, plan::run(&command).map(|()| ExitCode::SUCCESS)),
        Command::Trace(command) => (command.json(), trace::run(&command)),
        Command::Bench(command) => (command.json(), bench::run(&command)),
        Command::Eval(command) => (command.json(), eval::run(&command)),
        Command::Doctor(command) => (command.json, doctor::run(&command)),
        Command::Conformance(command) => (command.json, conformance::run(&command)),
    };
    result.unwrap_or_else(|error| {
        let code = exit_code(&error);
        report::fault(&error, json);
        code
    })
}

/// 1 error, 2 usage, 3 refused by the hardware, 130 interrupted.
fn exit_code(error: &anyhow::Error) -> ExitCode {
    let kind = error.chain().find_map(|e| e.downcast_ref::<kvarto::Error>()).map(kvarto::Error::kind);
    ExitCode::from(match kind {
        Some(ErrorKind::Usage) => 2,
        Some(ErrorKind::Unsupported | ErrorKind::OutOfMemory | ErrorKind::DeviceLost) => 3,
        Some(ErrorKind::Interrupted) => 130,
        _ => 1,
    })
}

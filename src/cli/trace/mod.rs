//! `kvarto trace`: what is in a trace, whether it is whole, and its events for people and other tools.

mod info;

use super::output::{self, Out, say};
use super::whole_file::WholeFile;
use clap::{Args, Subcommand, ValueEnum};
use kvarto::engine::SeqId;
use kvarto::trace::{Ending, Export, Filter, Gap, Step, Trace, export, json_of, verify};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Look into traces.
#[derive(Clone, Debug, Args)]
pub struct TraceCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// What was traced, how much of what there is, and how it ends
    Info {
        /// A file that --trace wrote
        file: PathBuf,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Read all of it: checksums, events that fit each other, bytes that add up to the allocator's. Ends with 1 if
    /// anything is wrong
    Verify {
        /// A file that --trace wrote
        file: PathBuf,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Print events, one a line, those behind damaged chunks too; ends with 1 if there are any
    Events {
        /// A file that --trace wrote
        file: PathBuf,
        #[command(flatten)]
        filter: FilterFlags,
        /// Write JSON, an object a line
        #[arg(long)]
        json: bool,
    },
    /// Write events for other tools, to standard output or a file, as `events` does if chunks are damaged
    Export {
        /// json: one object; csv: a table; perfetto: for ui.perfetto.dev and chrome://tracing
        #[arg(long, value_enum)]
        to: To,
        /// A file that --trace wrote
        file: PathBuf,
        #[command(flatten)]
        filter: FilterFlags,
        /// Where to write, whole or not at all; standard output if not given
        #[arg(short, long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum To {
    Json,
    Csv,
    Perfetto,
}

#[derive(Clone, Debug, Args)]
struct FilterFlags {
    /// Only events of this kind, such as page_converted; may be given several times
    #[arg(long, value_name = "KIND")]
    kind: Vec<String>,
    /// Only events of this sequence
    #[arg(long, value_name = "N")]
    sequence: Option<u64>,
    /// Only events of this model layer
    #[arg(long, value_name = "N")]
    layer: Option<u32>,
    /// Only events from this number on
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: u64,
    /// At most so many events
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
}

impl FilterFlags {
    /// # Errors
    /// `Usage` for a kind that there is not.
    fn filter(&self) -> kvarto::Result<Filter> {
        let mut filter = Filter::new(&self.kind)?;
        filter.sequence = self.sequence.map(SeqId);
        filter.layer = self.layer;
        filter.from = self.from;
        filter.limit = self.limit;
        Ok(filter)
    }
}

impl TraceCommand {
    /// Whether errors are wanted as JSON.
    pub fn json(&self) -> bool {
        match &self.action {
            Action::Info { json, .. } | Action::Verify { json, .. } | Action::Events { json, .. } => *json,
            Action::Export { .. } => false,
        }
    }
}

/// Runs the command.
pub fn run(command: &TraceCommand) -> anyhow::Result<ExitCode> {
    match &command.action {
        Action::Info { file, json } => {
            let mut trace = Trace::open(file)?;
            let info = info::Info::of(&mut trace);
            output::write(&if *json { output::json(&info.json(), true) } else { output::escaped_lines(&info.text()) })?;
            Ok(ExitCode::SUCCESS)
        }
        Action::Verify { file, json } => {
            let mut trace = Trace::open(file)?;
            let verdict = verify(&mut trace)?;
            let text = match json {
                true => output::json(&serde_json::to_value(&verdict)?, true),
                false => output::escaped_lines(&info::verdict(&verdict)),
            };
            output::write(&text)?;
            Ok(if verdict.sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Action::Events { file, filter, json } => {
            let mut filter = filter.filter()?;
            let mut trace = Trace::open(file)?;
            let mut out = Out::stdout();
            let mut lines = String::new();
            let gaps = trace.each_readable(|step| {
                if let Step::Event(record) = step
                    && filter.passes(record)
                {
                    lines += &if *json { output::json(&json_of(record), false) } else { info::line(record) };
                }
                if lines.len() > 1 << 16 {
                    out.write(&std::mem::take(&mut lines));
                }
                !filter.done() && !out.ended()
            });
            out.write(&lines);
            out.result()?;
            Ok(note(&trace, &gaps))
        }
        Action::Export { to, file, filter, out } => {
            let mut filter = filter.filter()?;
            let mut trace = Trace::open(file)?;
            let to = match to {
                To::Json => Export::Json,
                To::Csv => Export::Csv,
                To::Perfetto => Export::Perfetto,
            };
            let result = match out {
                Some(path) => {
                    let mut made = WholeFile::create(path, file)?;
                    export(&mut trace, to, |record| filter.passes(record), &mut made)
                        .and_then(|gaps| made.keep().map(|()| gaps))
                }
                None => {
                    let mut plain = Plain(Out::stdout());
                    let mut buffered = std::io::BufWriter::with_capacity(1 << 16, &mut plain);
                    let written = export(&mut trace, to, |record| filter.passes(record), &mut buffered);
                    let _ = buffered.flush();
                    drop(buffered);
                    // A reader that has had enough ends it, and is no error.
                    if plain.0.closed() { Ok(Vec::new()) } else { plain.0.result().and(written) }
                }
            };
            Ok(note(&trace, &result?))
        }
    }
}

/// Says once on standard error what of a trace could not be read; the exit status. A trace that was cut short, as by a
/// program that was ended, is no failure.
fn note(trace: &Trace, gaps: &[Gap]) -> ExitCode {
    let damaged = match (gaps, trace.ending()) {
        ([], Ending::Finished | Ending::Unfinished) => return ExitCode::SUCCESS,
        ([], Ending::Cut(why)) => {
            say(&format!("warning: the trace ends early: {why}"));
            return ExitCode::SUCCESS;
        }
        ([], Ending::Damaged(why)) => format!("{why}; what may be behind it is missing"),
        ([first, rest @ ..], _) => {
            let more = match rest.len() {
                0 => String::new(),
                1 => ", and so is one more stretch: `kvarto trace verify` lists all".into(),
                more => format!(", and so are {more} more stretches: `kvarto trace verify` lists all"),
            };
            format!("{}; {}{more}", first.why, first.missing())
        }
    };
    say(&format!("warning: {damaged}; all else is there"));
    ExitCode::FAILURE
}

/// Standard output as a writer; what was not taken is known to `Out`.
struct Plain(Out);

impl Write for Plain {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write_bytes(bytes);
        if self.0.ended() { Err(std::io::ErrorKind::BrokenPipe.into()) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

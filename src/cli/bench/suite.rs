//! `kvarto bench suite`: a named list of benches, each verified, in one file that can be sent in.

use super::{AttentionFlags, CommonFlags, attention_on, report};
use crate::cli::backend::{self, BackendFlags, Wanted};
use crate::cli::cache_flags::CacheFlags;
use crate::cli::conformance;
use crate::cli::output::{self, say};
use crate::cli::trace_flags::TraceFlags;
use bytesize::ByteSize;
use clap::Args;
use kvarto::backend::cuda::{self, CudaBackend, Standing};
use kvarto::backend::{Backend, BackendKind, Caps};
use kvarto::bench::{Row, Suite, Work};
use kvarto::{Error, ErrorKind, Result};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

#[derive(Debug, Args)]
pub struct SuiteFlags {
    #[arg(value_name = "NAME", help = help())]
    name: String,
    #[command(flatten)]
    backend: BackendFlags,
    /// List what would run, and run nothing
    #[arg(long)]
    dry_run: bool,
    /// Only the parts whose line of --dry-run holds this: a trial, not the suite
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Tokens of each sequence, instead of the suite's own: a trial, not the suite
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    context: Option<u32>,
    /// Repetitions of each row that count
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    repetitions: u32,
    /// A new file for the results [default: kvarto-suite-NAME.json in this folder]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write JSON to standard output as well
    #[arg(long)]
    pub json: bool,
}

fn help() -> String {
    let lines: Vec<String> = Suite::all().iter().map(|suite| format!("{}: {}", suite.name, suite.summary)).collect();
    format!("Which suite. {}", lines.join("; "))
}

/// Conformance first, then the suite's rows; the file is written anew after each of them.
pub fn run(flags: &SuiteFlags) -> anyhow::Result<ExitCode> {
    let suite = Suite::named(&flags.name)?;
    let mut rows = suite.rows();
    rows.iter_mut().for_each(|row| row.context = flags.context.unwrap_or(row.context));
    let only = |line: &str| flags.only.as_ref().is_none_or(|only| line.contains(only));
    let line = |row: &Row| format!("{} ({}{})", row.id(), row.kv, with(row.e4m3));
    rows.retain(|row| only(&line(row)));
    let suites = |choice: bool| products(&suite.rows(), choice).into_iter().map(|e4m3| (suite_id(e4m3), e4m3));
    if flags.dry_run {
        let lines = suites(true).map(|(id, _)| id).filter(|id| only(id)).chain(rows.iter().map(line));
        output::write(&lines.map(|line| line + "\n").collect::<String>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = flags.backend.wanted()?;
    let (opened, caps) = open(&wanted, &flags.backend, None)?;
    drop(opened);
    let path = flags.out.clone().unwrap_or_else(|| format!("kvarto-suite-{}.json", suite.name).into());
    let mut file = Kept::create(&path)?;
    let mut all = json!({
        "schema": 1,
        "version": env!("CARGO_PKG_VERSION"),
        "suite": suite.name,
        "context_tokens": flags.context,
        "only": flags.only,
        "repetitions": flags.repetitions,
        "started": utc(SystemTime::now()),
        "finished": Value::Null,
        "machine": machine(&caps),
        "conformance": [],
        "rows": [],
    });
    let mut right = true;
    let mut note = |all: &mut Value, part: &str, id: &str, outcome: Result<(Value, bool)>| -> Result<()> {
        let entry = entry(id, outcome, &mut right);
        say(&format!("{id}: {}", entry["outcome"].as_str().unwrap_or_default()));
        if let Some(list) = all[part].as_array_mut() {
            list.push(entry);
        }
        file.write(all)
    };
    for (id, e4m3) in suites(caps.kind == BackendKind::Cuda).filter(|(id, _)| only(id)) {
        let tested = open(&wanted, &flags.backend, e4m3)
            .map(|(mut backend, caps)| conformance::quick(&caps.title(), backend.as_mut()));
        note(&mut all, "conformance", &id, tested)?;
    }
    for row in &rows {
        say(&row.id());
        note(&mut all, "rows", &row.id(), measure(row, flags, &wanted, caps.software))?;
    }
    all["finished"] = utc(SystemTime::now()).into();
    all["passed"] = right.into();
    file.write(&all)?;
    say(&format!("kept in {}", path.display()));
    output::write(&if flags.json { output::json(&all, true) } else { output::escaped_lines(&text(&all)) })?;
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The ways of multiplying e4m3 that rows ask for, where a backend has the choice: conformance is run once for each.
fn products(rows: &[Row], choice: bool) -> BTreeSet<Option<bool>> {
    let of = |row: &Row| if choice { row.e4m3 } else { row.e4m3.filter(|native| *native) };
    let mut all: BTreeSet<Option<bool>> = rows.iter().map(of).collect();
    // What a device does by itself is one of the two.
    if all.len() > 2 {
        all.remove(&None);
    }
    all
}

fn suite_id(e4m3: Option<bool>) -> String {
    format!("conformance --quick{}", with(e4m3))
}

fn with(e4m3: Option<bool>) -> &'static str {
    match e4m3 {
        None => "",
        Some(false) => ", e4m3 as 16 bits",
        Some(true) => ", e4m3 as it is",
    }
}

/// What a part of the suite came to: `done`, `failed`, or `skipped` where the machine has no such thing.
fn entry(id: &str, outcome: Result<(Value, bool)>, right: &mut bool) -> Value {
    match outcome {
        Ok((result, passed)) => {
            *right &= passed;
            json!({"id": id, "outcome": if passed { "done" } else { "failed" }, "result": result})
        }
        Err(error) => {
            let skipped = error.kind() == ErrorKind::Unsupported;
            *right &= skipped;
            let word = if skipped { "skipped" } else { "failed" };
            let why = json!({"kind": error.kind().as_str(), "message": error.message(), "remedy": error.remedy()});
            json!({"id": id, "outcome": word, "error": why})
        }
    }
}

fn measure(row: &Row, flags: &SuiteFlags, wanted: &Wanted, software: bool) -> Result<(Value, bool)> {
    let common = CommonFlags { backend: flags.backend.clone(), trace: TraceFlags::default(), json: false, out: None };
    let attention = AttentionFlags {
        shape: row.shape.into(),
        batch: row.batch,
        context: row.context,
        cache: CacheFlags { kv: Some(row.kv.into()), ..CacheFlags::default() },
        repetitions: flags.repetitions,
        // A processor's caches are not what is asked for there.
        cold: ByteSize::mib(if software { 0 } else { 512 }),
        page_items: false,
        common,
    };
    let (json, _) =
        attention_on(&attention, Work::Decode, || open(wanted, &flags.backend, row.e4m3)).map_err(|error| {
            error.downcast::<Error>().unwrap_or_else(|e| Error::new(ErrorKind::Device, e.to_string(), ""))
        })?;
    Ok((json, true))
}

/// The backend that the flags want, with the row's products of e4m3 where it is CUDA's.
fn open(wanted: &Wanted, flags: &BackendFlags, e4m3: Option<bool>) -> Result<(Box<dyn Backend>, Caps)> {
    let device = match wanted {
        Wanted::Cuda(index) => Some(*index),
        Wanted::Auto if flags.masks.empty() => cuda::best().ok().map(|device| device.index),
        _ => None,
    };
    let backend: Box<dyn Backend> = match (e4m3, device) {
        (Some(e4m3), Some(index)) => Box::new(CudaBackend::open(index)?.with_e4m3_products(e4m3)?),
        (Some(true), None) => {
            let message = "products of e4m3 as they are: only CUDA's devices have them";
            return Err(Error::new(ErrorKind::Unsupported, message, "run the suite with --backend cuda"));
        }
        _ => backend::open(wanted, flags)?.backend,
    };
    let caps = backend.caps().clone();
    Ok((backend, caps))
}

/// What a reader of the file has to know of the machine; nothing of whose it is.
fn machine(caps: &Caps) -> Value {
    let mut machine = report::machine(caps);
    let device = cuda::devices().unwrap_or_default().into_iter().find(|device| device.name == caps.adapter);
    let device = device.filter(|_| caps.kind == BackendKind::Cuda);
    let driver = std::fs::read_to_string("/proc/driver/nvidia/version").ok();
    machine["os"] = std::env::consts::OS.into();
    machine["processor"] = std::env::consts::ARCH.into();
    machine["cores"] = std::thread::available_parallelism().map_or(0, usize::from).into();
    machine["features"] = caps.features.clone().into();
    machine["multiprocessors"] = caps.multiprocessors.into();
    machine["workgroup_bytes"] = caps.max_workgroup_bytes.into();
    machine["kernel_driver"] = driver.as_deref().and_then(|text| text.lines().next()).into();
    if let Some(device) = device {
        machine["capability"] = format!("{}.{}", device.capability.0, device.capability.1).into();
        machine["memory_bytes"] = device.memory_bytes.into();
        machine["l2_bytes"] = device.l2_bytes.into();
        machine["standing"] = Standing::of(device.capability).to_string().into();
    }
    machine
}

/// A line a part.
fn text(all: &Value) -> String {
    let mut out = String::new();
    for entry in ["conformance", "rows"].iter().filter_map(|part| all[part].as_array()).flatten() {
        let id = entry["id"].as_str().unwrap_or_default();
        let outcome = entry["outcome"].as_str().unwrap_or_default();
        let result = &entry["result"];
        let _ = match result["wall_us"]["median"].as_f64() {
            Some(wall) => {
                let us = result["kernels_us"]["median"].as_f64();
                let rate = result["bytes_per_s"].as_f64().unwrap_or(0.0) / 1e9;
                let error = result["error_of_exact"]["rms"].as_f64().unwrap_or(f64::NAN);
                let (us, clock) = us.map_or((wall, "wall"), |us| (us, "kernels"));
                writeln!(out, "{id}: {us:.1} us ({clock}), {rate:.0} GB/s, error {error:.1e} of exact values")
            }
            None => writeln!(out, "{id}: {outcome} {}", entry["error"]["message"].as_str().unwrap_or_default()),
        };
    }
    out
}

/// A new file that is written anew as results come.
struct Kept(PathBuf);

impl Kept {
    fn create(path: &Path) -> Result<Self> {
        std::fs::File::create_new(path).map_err(|e| unwritable(path, &e))?;
        Ok(Kept(path.into()))
    }

    fn write(&mut self, all: &Value) -> Result<()> {
        std::fs::write(&self.0, format!("{all:#}\n")).map_err(|e| unwritable(&self.0, &e))
    }
}

fn unwritable(path: &Path, fault: &std::io::Error) -> Error {
    let message = format!("--out {}: {fault}", path.display());
    Error::new(ErrorKind::File, message, "name a file that is not there yet, in a folder that can be written to")
}

/// `2026-12-01T12:30:00Z`.
fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut days, mut year, mut month) = (seconds / 86_400, 1970, 0);
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    let [hour, minute, second] = [seconds / 3600 % 24, seconds / 60 % 60, seconds % 60];
    format!("{year}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", month + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use super::utc;
    use std::time::{Duration, SystemTime};

    #[test]
    fn dates_are_of_the_calendar() {
        let at = |seconds| utc(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_796_128_496), "2026-12-01T12:34:56Z");
        assert_eq!(at(4_107_542_399), "2100-02-28T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}

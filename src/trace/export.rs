//! Traces for other tools: JSON, CSV, and the JSON that Perfetto and Chrome draw.

use super::codec::{Record, event_name, json_of};
use super::parts::{Gap, Step};
use super::reader::Trace;
use super::writer::unwritten;
use crate::engine::{Event, PageFacts};
use crate::error::{Error, Result};
use serde_json::{Value, json};
use std::io::{Read, Seek, Write};

/// What to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Export {
    /// One object: the header, all events in full, and which could not be read (`missing`).
    Json,
    /// A line an event, with what most events have in columns and all of it as JSON in the last.
    Csv,
    /// The Chrome trace format: steps, kernels and moves as slices, memory as counters. For ui.perfetto.dev.
    Perfetto,
}

/// Writes the events of a trace that `wanted` lets through, those behind damaged chunks too. What could not be read.
///
/// # Errors
/// `File` for what cannot be written. A trace that is damaged is none: the output is whole in its own format.
pub fn export<R: Read + Seek, W: Write>(
    trace: &mut Trace<R>,
    to: Export,
    mut wanted: impl FnMut(&Record) -> bool,
    out: W,
) -> Result<Vec<Gap>> {
    let mut sink: Box<dyn Sink + '_> = match to {
        Export::Json => Box::new(Json::new(out, &serde_json::to_value(trace.header()).unwrap_or_default())?),
        Export::Csv => Box::new(Csv(csv::Writer::from_writer(out))),
        Export::Perfetto => Box::new(Perfetto::new(out)?),
    };
    sink.begin()?;
    let mut fault = None;
    let gaps = trace.each_readable(|step| {
        match step {
            Step::Event(record) if wanted(record) => fault = sink.put(record).err(),
            Step::Event(_) => {}
            Step::Missing(_) => sink.gap(),
        }
        fault.is_none()
    });
    match fault {
        Some(error) => Err(error),
        None => sink.end(&gaps).map(|()| gaps),
    }
}

trait Sink {
    fn begin(&mut self) -> Result<()> {
        Ok(())
    }
    fn put(&mut self, record: &Record) -> Result<()>;
    /// Events are missing here.
    fn gap(&mut self) {}
    fn end(&mut self, gaps: &[Gap]) -> Result<()>;
}

/// `{"header": …, "events": [` and events, one a line, and `"missing"`: what is wrong, and from which event to before
/// which (null where it is the end).
struct Json<W> {
    out: W,
    any: bool,
}

impl<W: Write> Json<W> {
    fn new(mut out: W, header: &Value) -> Result<Self> {
        write!(out, "{{\"header\": {header},\n\"events\": [").map_err(unwritten)?;
        Ok(Json { out, any: false })
    }
}

impl<W: Write> Sink for Json<W> {
    fn put(&mut self, record: &Record) -> Result<()> {
        let comma = if std::mem::replace(&mut self.any, true) { "," } else { "" };
        write!(self.out, "{comma}\n{}", json_of(record)).map_err(unwritten)
    }

    fn end(&mut self, gaps: &[Gap]) -> Result<()> {
        let missing = gaps.iter().map(|gap| json!({"why": gap.why, "from": gap.from, "to": gap.to}));
        let missing = Value::Array(missing.collect());
        write!(self.out, "\n],\n\"missing\": {missing}}}\n").and_then(|()| self.out.flush()).map_err(unwritten)
    }
}

struct Csv<W: Write>(csv::Writer<W>);

/// Columns of [`Export::Csv`].
const COLUMNS: [&str; 13] =
    ["n", "ns", "event", "sequence", "group", "layer", "kv_head", "number", "page", "k", "v", "bytes", "fields"];

impl<W: Write> Sink for Csv<W> {
    fn begin(&mut self) -> Result<()> {
        self.0.write_record(COLUMNS).map_err(of_csv)
    }

    fn put(&mut self, record: &Record) -> Result<()> {
        let value = json_of(record);
        let page = value.get("page").filter(|page| page.is_object());
        let cell = |name: &str| {
            let found = page.and_then(|page| page.get(name)).or_else(|| value.get(name));
            match found {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Number(number)) => number.to_string(),
                _ => String::new(),
            }
        };
        let format = |side: usize| {
            let name = page.and_then(|page| page.get("formats")?.get(side)?.as_str());
            name.unwrap_or_default().to_string()
        };
        let fields = value.as_object().map(|object| {
            let own = object.iter().filter(|(name, _)| !matches!(name.as_str(), "n" | "ns" | "event"));
            Value::Object(own.map(|(name, value)| (name.clone(), value.clone())).collect()).to_string()
        });
        let row = COLUMNS.map(|column| match column {
            "k" => format(0),
            "v" => format(1),
            "fields" => fields.clone().unwrap_or_default(),
            other => cell(other),
        });
        self.0.write_record(row).map_err(of_csv)
    }

    fn end(&mut self, _: &[Gap]) -> Result<()> {
        self.0.flush().map_err(unwritten)
    }
}

fn of_csv(error: csv::Error) -> Error {
    unwritten(std::io::Error::other(error))
}

/// Tracks of the Perfetto export: steps, kernels, moves, sequences.
const TRACKS: [(u32, &str); 4] = [(1, "steps"), (2, "kernels"), (3, "moves"), (4, "sequences")];

/// Slices and counters. Kernel times are sums of a step: they stand one after the other from the step's beginning.
struct Perfetto<W> {
    out: W,
    any: bool,
    /// Beginning of the newest step.
    step_ns: u64,
    /// Conversions since the last step: pages, bytes before and after, by reason.
    moves: std::collections::BTreeMap<String, (u64, u64, u64)>,
}

impl<W: Write> Perfetto<W> {
    fn new(mut out: W) -> Result<Self> {
        out.write_all(b"{\"displayTimeUnit\": \"ms\",\n\"traceEvents\": [").map_err(unwritten)?;
        Ok(Perfetto { out, any: false, step_ns: 0, moves: Default::default() })
    }

    fn emit(&mut self, event: &Value) -> Result<()> {
        let comma = if std::mem::replace(&mut self.any, true) { "," } else { "" };
        write!(self.out, "{comma}\n{event}").map_err(unwritten)
    }

    fn slice(&mut self, track: u32, name: &str, (from, ns): (u64, u64), args: &Value) -> Result<()> {
        let (ts, dur) = (from as f64 / 1e3, ns as f64 / 1e3);
        self.emit(&json!({"ph": "X", "pid": 1, "tid": track, "name": name, "ts": ts, "dur": dur, "args": args}))
    }

    fn counter(&mut self, name: &str, ns: u64, values: &Value) -> Result<()> {
        self.emit(&json!({"ph": "C", "pid": 1, "name": name, "ts": ns as f64 / 1e3, "args": values}))
    }

    fn moved(&mut self, reason: &str, from_bytes: u64, page: &PageFacts) {
        let sum = self.moves.entry(reason.to_string()).or_default();
        *sum = (sum.0 + 1, sum.1.saturating_add(from_bytes), sum.2.saturating_add(page.bytes));
    }
}

impl<W: Write> Sink for Perfetto<W> {
    fn begin(&mut self) -> Result<()> {
        self.emit(&json!({"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "kvarto"}}))?;
        for (tid, name) in TRACKS {
            self.emit(&json!({"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": {"name": name}}))?;
        }
        Ok(())
    }

    fn put(&mut self, record: &Record) -> Result<()> {
        let Some(event) = &record.event else { return Ok(()) };
        match event {
            Event::PageConverted { page, from_bytes, reason, .. } => self.moved(reason, *from_bytes, page),
            Event::PageAllocated { page, copy_of: Some(_), reason, .. } => self.moved(reason, page.bytes, page),
            Event::PageEvicted { page, reason, .. } => self.moved(reason, page.bytes, page),
            Event::StepDone(step) => {
                self.step_ns = record.ns.saturating_sub(step.host_ns);
                let args =
                    json!({"step": step.step, "rows": step.rows, "read_bytes": step.read_bytes, "splits": step.splits});
                let name = if step.sequences.iter().any(|s| s.rows > 16) { "prefill" } else { "decode" };
                self.slice(1, name, (self.step_ns, step.host_ns), &args)?;
                for (reason, (pages, from, to)) in std::mem::take(&mut self.moves) {
                    let args = json!({"pages": pages, "bytes_before": from, "bytes_after": to, "step_moved_bytes": step.moved_bytes});
                    self.slice(3, &reason, (self.step_ns, step.host_ns), &args)?;
                }
                self.counter("bytes read by a step", record.ns, &json!({"bytes": step.read_bytes}))?;
            }
            Event::KernelTimes { kernels, .. } => {
                let mut from = self.step_ns;
                for share in kernels {
                    let args = json!({"dispatches": share.dispatches});
                    self.slice(2, &share.kernel, (from, share.nanoseconds), &args)?;
                    from = from.saturating_add(share.nanoseconds);
                }
            }
            Event::MemoryUsed(memory) => {
                let mut classes = serde_json::Map::new();
                for side in &memory.pages {
                    classes.insert(format!("{} {}", side.side.as_str(), side.format), side.bytes.into());
                }
                let rest = [
                    ("free slots", memory.free_slot_bytes()),
                    ("tables", memory.table_bytes),
                    ("descriptors", memory.descriptor_bytes),
                    ("bases", memory.basis_bytes),
                    ("side planes", memory.side_bytes),
                    ("scratch", memory.scratch_bytes),
                ];
                classes.extend(rest.map(|(name, bytes)| (name.to_string(), bytes.into())));
                self.counter("bytes of the cache", record.ns, &classes.into())?;
                self.counter("bytes of the rest", record.ns, &json!({"weights and activations": memory.other_bytes}))?;
            }
            Event::SequenceCreated { .. }
            | Event::SequenceForked { .. }
            | Event::SequenceTruncated { .. }
            | Event::SequenceReleased { .. } => {
                let args = json_of(record);
                let name = event_name(event);
                let ts = record.ns as f64 / 1e3;
                self.emit(&json!({"ph": "i", "pid": 1, "tid": 4, "s": "t", "name": name, "ts": ts, "args": args}))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn gap(&mut self) {
        // Of a step that is not there: they would be drawn as another's.
        self.moves.clear();
    }

    fn end(&mut self, _: &[Gap]) -> Result<()> {
        self.out.write_all(b"\n]}\n").and_then(|()| self.out.flush()).map_err(unwritten)
    }
}

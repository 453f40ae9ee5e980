//! What a trace holds, in words.

use super::super::report::bytes;
use kvarto::engine::{Event, StepFacts};
use kvarto::trace::{ChunkKind, Ending, Gap, Header, Record, Step, Trace, Verdict, event_name, json_of};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Sums over a trace.
pub struct Info {
    header: Header,
    kinds: BTreeMap<&'static str, u64>,
    events: u64,
    ns: u64,
    steps: u64,
    tokens: u64,
    dropped: u64,
    conversions: BTreeMap<String, u64>,
    chunks: usize,
    snapshots: usize,
    /// Pages at the end and their bytes, or why nobody knows.
    pages: Result<(u64, u64), String>,
    ending: Ending,
    /// What could not be read.
    gaps: Vec<Gap>,
}

impl Info {
    /// Reads all of it that can be read.
    pub fn of(trace: &mut Trace) -> Self {
        let mut info = Info {
            header: trace.header().clone(),
            kinds: BTreeMap::new(),
            events: 0,
            ns: 0,
            steps: 0,
            tokens: 0,
            dropped: 0,
            conversions: BTreeMap::new(),
            chunks: trace.chunks().len(),
            snapshots: trace.chunks().iter().filter(|c| c.kind == ChunkKind::Snapshot).count(),
            pages: Ok((0, 0)),
            ending: trace.ending().clone(),
            gaps: Vec::new(),
        };
        info.gaps = trace.each_readable(|step| {
            let Step::Event(record) = step else { return true };
            info.events += 1;
            info.ns = record.ns;
            let name = record.event.as_ref().map_or("unknown", event_name);
            *info.kinds.entry(name).or_default() += 1;
            match &record.event {
                Some(Event::StepDone(StepFacts { step, .. })) => info.steps = *step,
                Some(Event::Tokens { tokens, .. }) => info.tokens += tokens.len() as u64,
                Some(Event::Resync { dropped, .. }) => info.dropped += dropped,
                Some(Event::PageConverted { from, page, .. }) => {
                    let way = format!("{}/{} to {}/{}", from.0, from.1, page.formats.0, page.formats.1);
                    *info.conversions.entry(way).or_default() += 1;
                }
                _ => {}
            }
            true
        });
        let state = trace.last_state();
        info.pages = state.map(|s| (s.pages.len() as u64, s.page_bytes())).map_err(|e| e.message().to_string());
        info
    }

    /// Whether the sums are of the whole trace, as far as it goes.
    fn complete(&self) -> bool {
        self.gaps.is_empty() && self.pages.is_ok() && !matches!(self.ending, Ending::Damaged(_))
    }

    fn ending(&self) -> String {
        match (self.gaps.first(), &self.ending) {
            (Some(gap), _) => format!("damaged: {}", gap.why),
            (None, Ending::Finished) => "finished".into(),
            (None, Ending::Unfinished) => "no index: still being written, or the program ended first".into(),
            (None, Ending::Cut(why)) => format!("cut: {why}"),
            (None, Ending::Damaged(why)) => format!("damaged: {why}"),
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let h = &self.header;
        let model = h.model.as_ref().map_or("none".into(), |m| {
            format!("{} ({}), {} of weights", m.name, m.architecture, bytes(m.weight_bytes))
        });
        let mut out = format!("trace     by kvarto {}, {}\n", h.version, h.command);
        out += &format!("model     {model}\n");
        for (index, group) in h.groups.iter().enumerate() {
            out += &format!(
                "group {index}   {} layers, {} query and {} KV heads, K of {}, V of {} channels, pages of {} tokens, {}\n",
                group.layers.len(),
                group.q_heads,
                group.kv_heads,
                group.k_dim,
                group.v_dim,
                group.page_tokens,
                group.window.map_or_else(|| group.kind.clone(), |w| format!("window of {w}")),
            );
        }
        out += &format!("profile   {}\n", h.profile);
        out += &format!("backend   {}: {}, {} tier, timing {}\n", h.backend, h.adapter, h.tier, h.timing);
        if !self.complete() {
            out += "DAMAGED   the figures below are of what could be read, not of the whole trace\n";
            for gap in self.gaps.iter().take(20) {
                out += &format!("          {}; {}\n", gap.why, gap.missing());
            }
            if self.gaps.len() > 20 {
                out += &format!("          and {} more: `kvarto trace verify` lists all\n", self.gaps.len() - 20);
            }
        }
        out += &format!(
            "events    {} in {} chunks, {} snapshots, {:.3} s, {} steps, {} tokens, {} lost\n",
            self.events,
            self.chunks,
            self.snapshots,
            self.ns as f64 / 1e9,
            self.steps,
            self.tokens,
            self.dropped
        );
        for (kind, count) in &self.kinds {
            out += &format!("          {count:>8} {kind}\n");
        }
        for (way, count) in &self.conversions {
            out += &format!("converted {count:>8} {way}\n");
        }
        out += &match &self.pages {
            Ok((pages, size)) => format!("pages     {pages} alive at the end, {}\n", bytes(*size)),
            Err(why) => format!("pages     unknown at the end: {why}\n"),
        };
        out + &format!("ending    {}\n", self.ending())
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let missing = self.gaps.iter().map(|gap| json!({"why": gap.why, "from": gap.from, "to": gap.to}));
        json!({
            "schema": 1,
            "header": self.header,
            "events": self.events,
            "kinds": self.kinds,
            "seconds": self.ns as f64 / 1e9,
            "steps": self.steps,
            "tokens": self.tokens,
            "dropped": self.dropped,
            "conversions": self.conversions,
            "chunks": self.chunks,
            "snapshots": self.snapshots,
            "pages": self.pages.as_ref().ok().map(|pages| pages.0),
            "page_bytes": self.pages.as_ref().ok().map(|pages| pages.1),
            "finished": self.ending == Ending::Finished && self.gaps.is_empty(),
            "complete": self.complete(),
            "missing": missing.collect::<Vec<_>>(),
            "ending": self.ending(),
        })
    }
}

/// A verdict for people.
pub fn verdict(v: &Verdict) -> String {
    let mut out: String = v.faults.iter().map(|fault| format!("wrong     {fault}\n")).collect();
    if v.fault_count > v.faults.len() as u64 {
        out += &format!("          and {} more\n", v.fault_count - v.faults.len() as u64);
    }
    out += &format!(
        "read      {} events in {} chunks, {} snapshots; {} unknown, {} lost\n",
        v.events, v.chunks, v.snapshots, v.unknown, v.dropped
    );
    out += &format!("pages     {} alive after {} steps, {}\n", v.pages, v.steps, bytes(v.page_bytes));
    let ending = if v.finished { "with its index" } else { "without an index" };
    out + &format!("{}     ends {ending}\n", if v.sound() { "sound" } else { "WRONG" })
}

/// An event on one line: time, kind, and its fields as JSON.
pub fn line(record: &Record) -> String {
    let mut value = json_of(record);
    let name = record.event.as_ref().map_or("unknown", event_name);
    if let Some(object) = value.as_object_mut() {
        for known in ["n", "ns", "event"] {
            object.remove(known);
        }
    }
    let text = super::output::json(&value, false);
    format!("{:>8} {:>12.3} ms  {name:<20} {text}", record.number, record.ns as f64 / 1e6)
}

//! Whether a trace is whole, and whether what it tells adds up.

use super::chunk::ChunkKind;
use super::parts::Ending;
use super::reader::Trace;
use super::state::State;
use crate::engine::Event;
use crate::error::Result;
use serde::Serialize;
use std::io::{Read, Seek};

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// Chunks of events and snapshots.
    pub chunks: u64,
    /// Of those, snapshots.
    pub snapshots: u64,
    /// Events that were read.
    pub events: u64,
    /// Of those, events that this version does not know.
    pub unknown: u64,
    /// Events that were lost while it was written: the listener was slow.
    pub dropped: u64,
    /// Steps at the end.
    pub steps: u64,
    /// Pages alive at the end.
    pub pages: u64,
    /// Bytes of their slots.
    pub page_bytes: u64,
    /// Whether it ends with an index.
    pub finished: bool,
    /// What is wrong, in the order of the file; the first hundred.
    pub faults: Vec<String>,
    /// How many things are wrong.
    pub fault_count: u64,
}

impl Verdict {
    fn fault(&mut self, what: String) {
        self.fault_count += 1;
        if self.faults.len() < 100 {
            self.faults.push(what);
        }
    }

    /// Whether nothing is wrong. A trace without an index is not whole, but not wrong.
    pub fn sound(&self) -> bool {
        self.fault_count == 0
    }
}

/// Reads every chunk of a trace: checksums, events that fit the state, snapshots that equal it, bytes of live pages that
/// equal the allocator's.
///
/// # Errors
/// None today: what is wrong is in the verdict.
pub fn verify<R: Read + Seek>(trace: &mut Trace<R>) -> Result<Verdict> {
    let mut verdict = Verdict { chunks: trace.chunks().len() as u64, ..Verdict::default() };
    let (mut state, mut known, mut last) = (State::default(), false, (0u64, 0u64));
    for number in 0..trace.chunks().len() {
        let chunk = trace.chunks()[number];
        let records = match trace.records(number) {
            Ok(records) => records,
            Err(error) => {
                verdict.fault(error.message().to_string());
                // Events are missing: the next snapshot says how things are.
                known = false;
                continue;
            }
        };
        let at = format!("chunk {number} at offset {}", chunk.offset);
        if chunk.kind == ChunkKind::Snapshot {
            verdict.snapshots += 1;
            for record in &records {
                let Some(Event::Resync { snapshot, .. }) = &record.event else {
                    verdict.fault(format!("{at} is a snapshot and holds another event"));
                    continue;
                };
                let there = State::of(snapshot);
                if known && there != state {
                    verdict.fault(format!("{at}: the snapshot is not what the events before it lead to"));
                }
                (state, known) = (there, true);
            }
            continue;
        }
        for record in &records {
            verdict.events += 1;
            if record.number < last.0 || record.ns < last.1 {
                verdict.fault(format!("{at}: event {} comes after a later one", record.number));
            }
            last = (record.number, record.ns);
            match &record.event {
                None => verdict.unknown += 1,
                Some(event) => {
                    if let Event::Resync { dropped, .. } = event {
                        verdict.dropped += dropped;
                        known = true;
                    }
                    if let Err(why) = state.apply(event)
                        && known
                    {
                        verdict.fault(format!("{at}: event {}: {why}", record.number));
                    }
                }
            }
        }
    }
    if let Ending::Cut(why) | Ending::Damaged(why) = trace.ending() {
        verdict.fault(why.clone());
    }
    verdict.finished = *trace.ending() == Ending::Finished;
    verdict.steps = state.step;
    verdict.pages = state.pages.len() as u64;
    verdict.page_bytes = state.page_bytes();
    Ok(verdict)
}

//! What a reader says of a trace: its chunks, its end, what is missing.

use super::chunk::ChunkKind;
use super::codec::Record;
use super::writer::IndexEntry;

/// Where a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkEntry {
    /// What it holds.
    pub kind: ChunkKind,
    /// Its first byte.
    pub offset: u64,
    /// Events before it.
    pub first_event: u64,
    /// Time of its first event, nanoseconds.
    pub first_ns: u64,
}

impl ChunkEntry {
    pub(super) fn of(entry: &IndexEntry) -> Self {
        let IndexEntry { offset, kind, first_event, first_ns } = *entry;
        let kind = match kind {
            1 => ChunkKind::Events,
            2 => ChunkKind::Snapshot,
            3 => ChunkKind::Index,
            other => ChunkKind::Other(other),
        };
        ChunkEntry { kind, offset, first_event, first_ns }
    }
}

/// How a trace ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With its index.
    Finished,
    /// After a whole chunk, without an index: it is still being written, or the program ended first.
    Unfinished,
    /// Within a chunk: what is wrong, naming chunk and offset. All chunks before it can be read.
    Cut(String),
    /// With bytes that are no chunk, or an index that is damaged: the same.
    Damaged(String),
}

/// A stretch of a trace that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// What is wrong with its first chunk, naming chunk and offset.
    pub why: String,
    /// Damaged chunks, one after the other.
    pub chunks: u64,
    /// Number of the first event that is missing.
    pub from: u64,
    /// Number of the one after the last that is missing; `None` where nothing tells how many there were.
    pub to: Option<u64>,
}

impl Gap {
    /// Which events are missing, in words.
    pub fn missing(&self) -> String {
        match self.to {
            Some(to) if to > self.from + 1 => format!("events {} to {} are missing", self.from, to - 1),
            Some(to) if to == self.from + 1 => format!("event {} is missing", self.from),
            Some(_) => "no event is missing".into(),
            None => format!("events from {} on are missing", self.from),
        }
    }
}

/// What [`super::Trace::each_readable`] tells.
pub enum Step<'a> {
    /// An event.
    Event(&'a Record),
    /// Events are missing here.
    Missing(&'a Gap),
}

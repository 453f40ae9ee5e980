//! From events to chunks.

use super::chunk::{self, ChunkKind, MAX_RAW_BYTES};
use super::codec;
use super::header::Header;
use super::parts::ChunkEntry;
use super::state::State;
use crate::engine::{Event, Timed};
use crate::error::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::io::Write;

/// Ends a finished trace, after the offset of its index.
pub(super) const FOOTER: [u8; 8] = *b"KVTRINDX";

/// Raw bytes that make a chunk.
pub(super) const CHUNK_BYTES: usize = 256 << 10;

/// Raw bytes of events between two snapshots, where snapshots are no larger.
const SNAPSHOT_BYTES: u64 = 4 << 20;

/// Chunks that an index holds; a longer trace has none and is walked.
const MOST_CHUNKS: usize = 1 << 17;

/// An entry of the index.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct IndexEntry {
    pub offset: u64,
    pub kind: u32,
    pub first_event: u64,
    pub first_ns: u64,
}

/// Makes chunks of events, and keeps the state for snapshots: memory in proportion to the cache's page table.
pub(super) struct Packer {
    state: State,
    raw: Vec<u8>,
    /// Number of the next event, and of the first one in `raw` with its time.
    next: u64,
    first: (u64, u64),
    last_ns: u64,
    /// Raw bytes of events since the last snapshot, and that one's raw bytes.
    since_snapshot: u64,
    snapshot_bytes: u64,
    /// Chunks that are done and were not taken.
    done: Vec<(IndexEntry, Vec<u8>)>,
    /// Events whose bytes found no place, such as a snapshot above the largest chunk.
    unwritable: u64,
}

impl Packer {
    pub fn new() -> Self {
        Packer {
            state: State::default(),
            raw: Vec::new(),
            next: 0,
            first: (0, 0),
            last_ns: 0,
            since_snapshot: 0,
            snapshot_bytes: 0,
            done: Vec::new(),
            unwritable: 0,
        }
    }

    /// Takes in an event. The state that a listener begins with is no event: a snapshot holds it.
    pub fn push(&mut self, ns: u64, event: &Event) {
        // A state that events do not fit is mended by the next snapshot from the engine.
        if let Err(why) = self.state.apply(event) {
            log::debug!("the trace's state: {why}");
        }
        self.last_ns = ns;
        if matches!(event, Event::Resync { dropped: 0, .. }) {
            let begun = self.close().and_then(|()| self.snapshot());
            match begun {
                Ok(chunk) => self.done.extend(chunk),
                Err(_) => self.unwritable += 1,
            }
            return;
        }
        if self.raw.is_empty() {
            self.first = (self.next, ns);
        }
        let before = self.raw.len();
        let encoded = codec::encode(event, ns.saturating_sub(self.first.1), &mut self.raw);
        if encoded.is_err() || self.raw.len() > MAX_RAW_BYTES as usize {
            self.raw.truncate(before);
            self.unwritable += 1;
            return;
        }
        self.next += 1;
        self.since_snapshot = self.since_snapshot.saturating_add((self.raw.len() - before) as u64);
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.next
    }

    /// Time of the newest event.
    pub fn last_ns(&self) -> u64 {
        self.last_ns
    }

    pub fn unwritable(&self) -> u64 {
        self.unwritable
    }

    /// Whether there is enough for a chunk.
    pub fn full(&self) -> bool {
        self.raw.len() >= CHUNK_BYTES
    }

    pub fn is_empty(&self) -> bool {
        self.raw.is_empty() && self.done.is_empty()
    }

    /// The chunks that are due: events so far, then a snapshot where the last one is long ago.
    pub fn take(&mut self) -> Result<Vec<(IndexEntry, Vec<u8>)>> {
        self.close()?;
        if self.since_snapshot >= SNAPSHOT_BYTES.max(self.snapshot_bytes.saturating_mul(4)) {
            let snapshot = self.snapshot()?;
            self.done.extend(snapshot);
        }
        Ok(std::mem::take(&mut self.done))
    }

    /// Makes a chunk of the events so far.
    fn close(&mut self) -> Result<()> {
        if !self.raw.is_empty() {
            let raw = std::mem::take(&mut self.raw);
            let (first_event, first_ns) = self.first;
            let bytes = chunk::pack(ChunkKind::Events, first_event, first_ns, &raw)?;
            self.done.push((entry(ChunkKind::Events, first_event, first_ns), bytes));
        }
        Ok(())
    }

    /// The state as a chunk; `None` when it is above the largest one. Events so far must have been taken.
    pub fn snapshot(&mut self) -> Result<Option<(IndexEntry, Vec<u8>)>> {
        self.since_snapshot = 0;
        let event = Event::Resync { dropped: 0, snapshot: Box::new(self.state.snapshot()) };
        let mut raw = Vec::new();
        codec::encode(&event, 0, &mut raw)?;
        self.snapshot_bytes = raw.len() as u64;
        if raw.len() > MAX_RAW_BYTES as usize {
            log::info!("a snapshot of {} bytes is left out of the trace; {MAX_RAW_BYTES} at most", raw.len());
            return Ok(None);
        }
        let bytes = chunk::pack(ChunkKind::Snapshot, self.next, self.last_ns, &raw)?;
        Ok(Some((entry(ChunkKind::Snapshot, self.next, self.last_ns), bytes)))
    }

    /// A chunk that says how many events a reader missed, and the state.
    pub fn resync(&self, dropped: u64) -> Result<Vec<u8>> {
        let event = Event::Resync { dropped, snapshot: Box::new(self.state.snapshot()) };
        let mut raw = Vec::new();
        codec::encode(&event, 0, &mut raw)?;
        chunk::pack(ChunkKind::Events, self.next, self.last_ns, &raw)
    }
}

fn entry(kind: ChunkKind, first_event: u64, first_ns: u64) -> IndexEntry {
    IndexEntry { offset: 0, kind: kind.word(), first_event, first_ns }
}

/// Where chunks of a file are.
pub(super) struct Places {
    offset: u64,
    /// `None` once there are too many.
    entries: Option<Vec<IndexEntry>>,
}

impl Places {
    /// After a header of `offset` bytes.
    pub fn new(offset: u64) -> Self {
        Places { offset, entries: Some(Vec::new()) }
    }

    /// Bytes so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// A chunk of `bytes` bytes was written.
    pub fn add(&mut self, entry: IndexEntry, bytes: usize) {
        self.entries = self.entries.take().filter(|entries| entries.len() < MOST_CHUNKS);
        if let Some(entries) = &mut self.entries {
            entries.push(IndexEntry { offset: self.offset, ..entry });
        }
        self.offset += bytes as u64;
    }

    /// The trace's end: index and footer; nothing where there are too many chunks.
    pub fn index(&self, events: u64, ns: u64) -> Result<Vec<u8>> {
        let Some(entries) = &self.entries else { return Ok(Vec::new()) };
        let raw = postcard::to_stdvec(entries)
            .map_err(|e| Error::new(ErrorKind::File, format!("the trace's index cannot be written: {e}"), ""))?;
        let mut bytes = chunk::pack(ChunkKind::Index, events, ns, &raw)?;
        bytes.extend(self.offset.to_le_bytes());
        bytes.extend(FOOTER);
        Ok(bytes)
    }
}

/// The entries of an index.
pub(super) fn read_index(raw: &[u8]) -> Option<Vec<ChunkEntry>> {
    let entries: Vec<IndexEntry> = postcard::from_bytes(raw).ok()?;
    let ascending = entries.windows(2).all(|pair| pair[0].offset < pair[1].offset);
    ascending.then(|| entries.iter().map(ChunkEntry::of).collect())
}

/// Writes a trace on the caller's own thread: for tools, and traces that are made up.
pub struct TraceWriter<W: Write> {
    to: W,
    packer: Packer,
    places: Places,
}

impl<W: Write> TraceWriter<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// `File` with what the system says.
    pub fn new(mut to: W, header: &Header) -> Result<Self> {
        let head = header.to_bytes()?;
        to.write_all(&head).map_err(unwritten)?;
        Ok(TraceWriter { to, packer: Packer::new(), places: Places::new(head.len() as u64) })
    }

    /// Adds an event, which comes no earlier than the one before it.
    ///
    /// # Errors
    /// `File` with what the system says.
    pub fn push(&mut self, timed: &Timed) -> Result<()> {
        self.packer.push(timed.ns, &timed.event);
        if self.packer.full() { self.flush() } else { Ok(()) }
    }

    /// Writes the events so far as whole chunks.
    ///
    /// # Errors
    /// `File` with what the system says.
    pub fn flush(&mut self) -> Result<()> {
        for (entry, bytes) in self.packer.take()? {
            self.to.write_all(&bytes).map_err(unwritten)?;
            self.places.add(entry, bytes.len());
        }
        self.to.flush().map_err(unwritten)
    }

    /// Writes the rest and the index.
    ///
    /// # Errors
    /// `File` with what the system says.
    pub fn finish(mut self) -> Result<W> {
        self.flush()?;
        let end = self.places.index(self.packer.events(), self.packer.last_ns)?;
        self.to.write_all(&end).map_err(unwritten)?;
        self.to.flush().map_err(unwritten)?;
        Ok(self.to)
    }
}

/// What the system said of a write.
pub(super) fn unwritten(error: std::io::Error) -> Error {
    Error::new(
        ErrorKind::File,
        format!("the trace cannot be written: {error}"),
        "make room where it goes, or send it elsewhere",
    )
}

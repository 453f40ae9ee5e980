//! What is asked of a reader, and what it answers.

use crate::store::Moment;
use kvarto::engine::Event;
use kvarto::trace::{ChunkEntry, Ending, Header, Record, State};
use std::sync::Arc;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The records of a chunk.
    Chunk(usize),
    /// The state before an event: all newer such requests make this one void.
    State(u64),
    /// The newest bytes of a page in a chunk, of one generation.
    PageData {
        /// The chunk.
        chunk: usize,
        /// Number of the event.
        event: u64,
    },
}

/// A state to go on from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The state.
    pub state: State,
    /// The newest event in it.
    pub cursor: Option<Moment>,
    /// The chunk and the record in it that come next.
    pub next: (usize, usize),
    /// The first event that did not fit the state before it, and why.
    pub fault: Option<String>,
}

/// What is answered, in the order in which it came to pass.
#[derive(Debug)]
pub enum Reply {
    /// The file is a trace.
    Opened(Box<Header>),
    /// Chunks that came since, and how the file ends now.
    Grown {
        /// New chunks.
        chunks: Vec<ChunkEntry>,
        /// The ending.
        ending: Ending,
    },
    /// Records for the chronicle, chunk by chunk in order.
    Scanned {
        /// The chunk.
        chunk: usize,
        /// Its events.
        records: Vec<Record>,
        /// Share of the chunks known that are scanned with it.
        share: f32,
    },
    /// All that is there by now is scanned.
    UpToDate,
    /// A chunk's records.
    Chunk(usize, Result<Arc<Vec<Record>>, String>),
    /// A state that was asked for.
    State(u64, Result<Box<Loaded>, String>),
    /// An event that was asked for.
    PageData(u64, Result<Box<Event>, String>),
    /// Something is wrong with the file. It is not read any further.
    Fault(String),
    /// Something is wrong with a part of it.
    Damage(String),
}

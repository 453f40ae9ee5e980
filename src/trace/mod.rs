//! Traces: what a cache did, in a file or a stream, written as it happens.
//!
//! A trace is [`MAGIC`], a version (u16), the length of the JSON header (u32), that header ([`Header`]), the xxh3-64 of
//! all this, and chunks. A chunk is 36 bytes of head (kind, raw and packed length, number and time of its first event,
//! xxh3-64 of the rest of the head and of the payload) and a zstd payload of events; all numbers are little endian. An
//! event is its length, the nanoseconds since the chunk's first one, and a
//! [postcard](https://postcard.jamesmunns.com/wire-format) value of [`crate::engine::Event`], which begins with the
//! event's number: events with numbers that a reader does not know are skipped by their length. Snapshot chunks hold one
//! [`crate::engine::Event::Resync`], from which a reader can begin. A finished file ends with an index chunk and where
//! that begins; without it the heads are walked.
//!
//! [`Recorder`] writes, on a thread of its own and behind a bounded queue; [`Trace`] reads files, [`Stream`] what a
//! program serves; [`State`] is what the cache held after the events so far.

mod chunk;
mod codec;
mod export;
mod filter;
pub(crate) mod forms;
mod header;
mod pages;
mod parts;
mod reader;
mod recorder;
mod serve;
mod state;
mod stream;
mod target;
mod verify;
mod writer;

pub use chunk::{ChunkKind, MAX_PACKED_BYTES, MAX_RAW_BYTES};
pub use codec::{EVENT_NAMES, Record, event_name, json_of};
pub use export::{Export, export};
pub use filter::Filter;
pub use header::{GroupHeader, Header, MAGIC, ModelHeader, VERSION};
pub use pages::{PageTable, StoredPage};
pub use parts::{ChunkEntry, Ending, Gap, Step};
pub use reader::Trace;
pub use recorder::{OnFault, Recorder, RecorderOptions, Summary};
pub use state::State;
pub use stream::Stream;
pub use target::{Target, TraceFile};
pub use verify::{Verdict, verify};
pub use writer::TraceWriter;

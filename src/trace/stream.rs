//! Traces as they come: from a program that serves its events.

use super::chunk::{ChunkKind, HEAD_BYTES, Head};
use super::codec::{Events, Record};
use super::header::{Header, read_all};
use super::reader::MOST_RECORDS;
use crate::error::{Error, ErrorKind, Result};
use std::io::Read;

/// A trace that is read once, from its header on.
pub struct Stream<R> {
    from: R,
    header: Header,
    chunks: u64,
    offset: u64,
}

impl<R: Read> Stream<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// `File` for something else than a trace, or a newer one.
    pub fn new(mut from: R) -> Result<Self> {
        let (header, offset) = Header::read(&mut from)?;
        Ok(Stream { from, header, chunks: 0, offset })
    }

    /// What is traced.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The next chunk's events; a snapshot's is an [`crate::engine::Event::Resync`]. `None` at the end: after an index,
    /// or where no further chunk begins. Waits for what is yet to come.
    ///
    /// # Errors
    /// `File` naming the chunk and its offset when it is damaged or cut short: nothing after it can be read.
    pub fn next_chunk(&mut self) -> Result<Option<(ChunkKind, Vec<Record>)>> {
        let (number, offset) = (self.chunks, self.offset);
        let fault = |why: String| Error::new(ErrorKind::File, format!("chunk {number} at offset {offset} {why}"), "");
        let mut bytes = [0; HEAD_BYTES];
        match read_all(&mut self.from, &mut bytes) {
            Ok(()) => {}
            Err((0, e)) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
            Err((got, e)) => return Err(fault(format!("is cut short: {got} of {HEAD_BYTES} bytes of its head ({e})"))),
        }
        let head = Head::parse(&bytes).map_err(fault)?;
        let mut packed = Vec::new();
        let read = (&mut self.from).take(u64::from(head.packed_bytes)).read_to_end(&mut packed);
        read.map_err(|e| fault(format!("cannot be read: {e}")))?;
        let payload = head.unpack(&packed).map_err(fault)?;
        self.chunks += 1;
        self.offset += head.bytes();
        match head.kind {
            ChunkKind::Index => Ok(None),
            ChunkKind::Other(_) => Ok(Some((head.kind, Vec::new()))),
            ChunkKind::Events | ChunkKind::Snapshot => {
                let events = Events::new(&payload, head.first_event, head.first_ns).take(MOST_RECORDS + 1);
                let records = events.map(|r| r.map_err(fault)).collect::<Result<Vec<_>>>()?;
                if records.len() > MOST_RECORDS {
                    return Err(fault(format!("holds more than {MOST_RECORDS} events")));
                }
                Ok(Some((head.kind, records)))
            }
        }
    }
}

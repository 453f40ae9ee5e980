//! Traces in files.

use super::chunk::{ChunkKind, HEAD_BYTES, Head};
use super::codec::{Events, Record};
use super::header::{Header, read_all};
use super::parts::{ChunkEntry, Ending, Gap, Step};
use super::state::State;
use super::writer::{FOOTER, read_index};
use crate::engine::Event;
use crate::error::{Error, ErrorKind, Result};
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

/// Most events of a chunk: writers end one after 256 KiB, of events of three bytes and more.
pub(super) const MOST_RECORDS: usize = 1 << 18;

/// A trace in a file, or in anything else that can be read from any place.
pub struct Trace<R = BufReader<File>> {
    from: R,
    header: Header,
    chunks: Vec<ChunkEntry>,
    ending: Ending,
    /// Where the next chunk would begin.
    end: u64,
    /// Events in all, by the index.
    events: Option<u64>,
}

impl Trace {
    /// Opens a file.
    ///
    /// # Errors
    /// `File` for one that cannot be read, is no trace, or has a damaged header.
    pub fn open(path: &Path) -> Result<Self> {
        let fault = |e: &dyn std::fmt::Display| {
            Error::new(ErrorKind::File, format!("{}: {e}", path.display()), "give a file that --trace wrote")
        };
        // A pipe would be waited for, and cannot be read from any place.
        let about = std::fs::metadata(path).map_err(|e| fault(&e))?;
        if !about.is_file() {
            return Err(fault(&"it is no file, which a trace has to be read from"));
        }
        let file = File::open(path).map_err(|e| fault(&e))?;
        Trace::new(BufReader::new(file)).map_err(|e| e.context(path.display()))
    }
}

impl<R: Read + Seek> Trace<R> {
    /// Reads the header and finds the chunks: by the index, else from head to head.
    ///
    /// # Errors
    /// `File` as [`Trace::open`].
    pub fn new(mut from: R) -> Result<Self> {
        let (header, start) = Header::read(&mut from)?;
        let mut trace =
            Trace { from, header, chunks: Vec::new(), ending: Ending::Unfinished, end: start, events: None };
        match trace.indexed(start) {
            Some((chunks, end, events)) => {
                (trace.chunks, trace.end, trace.events) = (chunks, end, Some(events));
                trace.ending = Ending::Finished;
            }
            None => trace.walk()?,
        }
        Ok(trace)
    }

    /// What was traced.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Chunks of events and snapshots, in order.
    pub fn chunks(&self) -> &[ChunkEntry] {
        &self.chunks
    }

    /// How it ends.
    pub fn ending(&self) -> &Ending {
        &self.ending
    }

    /// Looks for chunks that came since: of a file that is still being written.
    ///
    /// # Errors
    /// `File` when it cannot be read.
    pub fn refresh(&mut self) -> Result<()> {
        if self.ending == Ending::Finished { Ok(()) } else { self.walk() }
    }

    fn length(&mut self) -> Result<u64> {
        self.from.seek(SeekFrom::End(0)).map_err(|e| unread(&e))
    }

    /// The chunks by the index, where that begins, and how many events there are; `None` without a good one.
    fn indexed(&mut self, start: u64) -> Option<(Vec<ChunkEntry>, u64, u64)> {
        let length = self.length().ok()?;
        let at = length.checked_sub(16).filter(|at| *at >= start)?;
        let footer: [u8; 16] = self.bytes(at).ok()?;
        let (offset, magic) = footer.split_at(8);
        let offset = u64::from_le_bytes(offset.try_into().ok()?);
        if magic != FOOTER || offset < start || offset >= at {
            return None;
        }
        let head = Head::parse(&self.bytes(offset).ok()?).ok()?;
        if head.kind != ChunkKind::Index || offset.checked_add(head.bytes()) != Some(at) {
            return None;
        }
        let chunks = read_index(&self.payload(&head).ok()?)?;
        // An index that leaves out the beginning or points beyond itself is another file's.
        let first = chunks.first().map_or(offset, |chunk| chunk.offset);
        let fits = first == start && chunks.last().is_none_or(|chunk| chunk.offset < offset);
        fits.then_some((chunks, offset, head.first_event))
    }

    /// Goes on from head to head after the last chunk known.
    fn walk(&mut self) -> Result<()> {
        let length = self.length()?;
        self.ending = loop {
            let (number, offset) = (self.chunks.len(), self.end);
            let named = |why: String| format!("chunk {number} at offset {offset} {why}");
            let (cut, damaged) = (|why| Ending::Cut(named(why)), |why| Ending::Damaged(named(why)));
            let left = length.saturating_sub(offset);
            if left == 0 {
                break Ending::Unfinished;
            }
            if left < HEAD_BYTES as u64 {
                break cut(format!("is cut short: {left} of {HEAD_BYTES} bytes of its head"));
            }
            let head = match Head::parse(&self.bytes(offset)?) {
                Ok(head) => head,
                Err(why) => break damaged(why),
            };
            if head.bytes() > left {
                let there = left - HEAD_BYTES as u64;
                break cut(format!("is cut short: {there} of {} bytes of its payload", head.packed_bytes));
            }
            if head.kind == ChunkKind::Index {
                // Read again where it led nowhere: then this says why.
                if let Err(why) = self.payload(&head) {
                    break damaged(why);
                }
                self.events = Some(head.first_event);
                let rest = left - head.bytes();
                break match rest {
                    16 => match self.bytes::<16>(offset + head.bytes()) {
                        Ok(footer) if footer[..8] == offset.to_le_bytes() && footer[8..] == FOOTER => Ending::Finished,
                        _ => damaged("is an index whose end is damaged".into()),
                    },
                    0..16 => cut(format!("is an index that is cut short: {rest} of 16 bytes after it")),
                    rest => damaged(format!("is an index with {rest} bytes after it, 16 are wanted")),
                };
            }
            let Head { kind, first_event, first_ns, .. } = head;
            self.chunks.push(ChunkEntry { kind, offset, first_event, first_ns });
            self.end = offset + head.bytes();
        };
        Ok(())
    }

    fn bytes<const N: usize>(&mut self, offset: u64) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.from.seek(SeekFrom::Start(offset)).map_err(|e| unread(&e))?;
        read_all(&mut self.from, &mut bytes).map_err(|(_, e)| unread(&e))?;
        Ok(bytes)
    }

    /// The payload after a head that was just read.
    fn payload(&mut self, head: &Head) -> std::result::Result<Vec<u8>, String> {
        let mut packed = Vec::new();
        let read = (&mut self.from).take(u64::from(head.packed_bytes)).read_to_end(&mut packed);
        read.map_err(|e| format!("cannot be read: {e}"))?;
        head.unpack(&packed)
    }

    /// What chunk `number` holds: events, or the one [`Event::Resync`] of a snapshot. Chunks of a kind that this version
    /// does not know hold none.
    ///
    /// # Errors
    /// `File` naming the chunk and its offset: for one that is damaged, and for numbers beyond the last.
    pub fn records(&mut self, number: usize) -> Result<Vec<Record>> {
        let Some(entry) = self.chunks.get(number).copied() else {
            let message = format!("chunk {number} of {}", self.chunks.len());
            return Err(Error::new(ErrorKind::File, message, "chunks count from 0"));
        };
        let fault = |why: String| {
            let message = format!("chunk {number} at offset {} {why}", entry.offset);
            Error::new(
                ErrorKind::File,
                message,
                "the other chunks can still be read: `kvarto trace verify` lists what is wrong",
            )
        };
        let bytes: [u8; HEAD_BYTES] = self.bytes(entry.offset).map_err(|e| fault(format!("cannot be read: {e}")))?;
        let head = Head::parse(&bytes).map_err(fault)?;
        let payload = self.payload(&head).map_err(fault)?;
        if (head.kind, head.first_event, head.first_ns) != (entry.kind, entry.first_event, entry.first_ns) {
            return Err(fault("is not what the index says".into()));
        }
        match head.kind {
            ChunkKind::Events | ChunkKind::Snapshot => {
                let events = Events::new(&payload, head.first_event, head.first_ns);
                let records: Vec<Record> =
                    events.take(MOST_RECORDS + 1).map(|record| record.map_err(fault)).collect::<Result<_>>()?;
                match records.len() > MOST_RECORDS {
                    true => Err(fault(format!("holds more than {MOST_RECORDS} events"))),
                    false => Ok(records),
                }
            }
            ChunkKind::Index | ChunkKind::Other(_) => Ok(Vec::new()),
        }
    }

    /// Calls `act` with every event, snapshots left out, until it says that it has had enough (`false`).
    ///
    /// # Errors
    /// As [`Trace::records`]; the events before the damaged chunk were told.
    pub fn each(&mut self, mut act: impl FnMut(&Record) -> bool) -> Result<()> {
        for number in 0..self.chunks.len() {
            if self.chunks[number].kind != ChunkKind::Events {
                continue;
            }
            for record in self.records(number)? {
                if !act(&record) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The same, going on behind chunks that are damaged, with the next one that can be read. What is missing, in order;
    /// nothing for a trace that was read to its end, or until `act` had enough, without a fault.
    pub fn each_readable(&mut self, mut act: impl FnMut(Step<'_>) -> bool) -> Vec<Gap> {
        let (mut gaps, mut open, mut next) = (Vec::<Gap>::new(), false, 0);
        for number in 0..self.chunks.len() {
            let entry = self.chunks[number];
            let records = match self.records(number) {
                Ok(records) => records,
                Err(error) => {
                    match gaps.last_mut().filter(|_| open) {
                        Some(gap) => gap.chunks += 1,
                        None => gaps.push(Gap { why: error.message().into(), chunks: 1, from: next, to: None }),
                    }
                    open = true;
                    continue;
                }
            };
            if let Some(gap) = gaps.last_mut().filter(|_| open) {
                // The chunk is whole, so that this is where it belongs.
                gap.to = Some(entry.first_event.max(gap.from));
                next = entry.first_event;
                open = false;
                if gap.to > Some(gap.from) && !act(Step::Missing(gap)) {
                    return gaps;
                }
            }
            if entry.kind != ChunkKind::Events {
                continue;
            }
            for record in records {
                next = record.number + 1;
                if !act(Step::Event(&record)) {
                    return gaps;
                }
            }
        }
        if let Some(gap) = gaps.last_mut().filter(|_| open) {
            gap.to = self.events.map(|events| events.max(gap.from));
        }
        gaps
    }

    /// The state before event `number`: from the last snapshot before it on.
    ///
    /// # Errors
    /// As [`Trace::records`].
    pub fn state_before(&mut self, number: u64) -> Result<State> {
        let begins = |chunk: &ChunkEntry| chunk.kind == ChunkKind::Snapshot && chunk.first_event <= number;
        let from = self.chunks.iter().rposition(begins).unwrap_or(0);
        let mut state = State::default();
        for at in from..self.chunks.len() {
            let chunk = self.chunks[at];
            if chunk.first_event > number || chunk.kind == ChunkKind::Snapshot && at > from {
                break;
            }
            for record in self.records(at)? {
                if chunk.kind == ChunkKind::Events && record.number >= number {
                    return Ok(state);
                }
                if let Some(event) = &record.event {
                    // What does not fit is `verify`'s to tell.
                    let _ = state.apply(event);
                }
            }
        }
        Ok(state)
    }

    /// The state at the end.
    ///
    /// # Errors
    /// As [`Trace::records`].
    pub fn last_state(&mut self) -> Result<State> {
        self.state_before(u64::MAX)
    }

    /// The snapshot that chunk `number` holds; `None` for a chunk of another kind.
    ///
    /// # Errors
    /// As [`Trace::records`].
    pub fn snapshot(&mut self, number: usize) -> Result<Option<State>> {
        if self.chunks.get(number).is_some_and(|chunk| chunk.kind != ChunkKind::Snapshot) {
            return Ok(None);
        }
        let records = self.records(number)?;
        Ok(records.iter().find_map(|record| match &record.event {
            Some(Event::Resync { snapshot, .. }) => Some(State::of(snapshot)),
            _ => None,
        }))
    }
}

fn unread(error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::File, format!("the trace cannot be read: {error}"), "")
}

#[cfg(test)]
mod tests {
    use super::super::chunk::pack;
    use super::super::codec::encode;
    use super::super::stream::Stream;
    use super::*;
    use crate::engine::SeqId;
    use std::io::Cursor;

    #[test]
    fn chunks_of_more_events_than_any_writer_makes_are_damaged() {
        let mut raw = Vec::new();
        for _ in 0..=MOST_RECORDS {
            encode(&Event::SequenceReleased { sequence: SeqId(1) }, 0, &mut raw).unwrap();
        }
        let mut bytes = Header::default().to_bytes().unwrap();
        bytes.extend(pack(ChunkKind::Events, 0, 0, &raw).unwrap());
        let error = Trace::new(Cursor::new(&bytes)).unwrap().records(0).unwrap_err();
        assert!(error.message().contains("more than 262144 events"), "{error}");
        let error = Stream::new(&*bytes).unwrap().next_chunk().unwrap_err();
        assert!(error.message().contains("more than 262144 events"), "{error}");
    }
}

//! Events as bytes, and as JSON.

use crate::engine::Event;
use crate::error::{Error, ErrorKind, Result};
use serde_json::Value;

/// An event of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Its number in the trace.
    pub number: u64,
    /// Nanoseconds since the engine was made.
    pub ns: u64,
    /// What happened; `None` for an event that this version does not know.
    pub event: Option<Event>,
}

/// Appends an event, `since_ns` after its chunk's first one.
///
/// # Errors
/// `File` for an event that cannot be written.
pub(super) fn encode(event: &Event, since_ns: u64, to: &mut Vec<u8>) -> Result<()> {
    let body = postcard::to_stdvec(event)
        .map_err(|e| Error::new(ErrorKind::File, format!("an event cannot be written: {e}"), ""))?;
    number(body.len() as u64, to);
    number(since_ns, to);
    to.extend(body);
    Ok(())
}

/// Appends a LEB128 number.
pub(super) fn number(mut value: u64, to: &mut Vec<u8>) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// Takes a LEB128 number off the front.
pub(super) fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for (at, &byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f).checked_shl(7 * at as u32)?;
        if byte < 0x80 {
            *bytes = &bytes[at + 1..];
            return Some(value);
        }
    }
    None
}

/// The events of a payload, one after the other; it ends with the first that cannot be read.
pub(super) struct Events<'a> {
    rest: &'a [u8],
    size: usize,
    next: u64,
    first_ns: u64,
}

impl<'a> Events<'a> {
    pub fn new(payload: &'a [u8], first_event: u64, first_ns: u64) -> Self {
        Events { rest: payload, size: payload.len(), next: first_event, first_ns }
    }

    fn take(&mut self) -> std::result::Result<Record, String> {
        let at = self.size - self.rest.len();
        let damaged = |what: &str| format!("holds no event at byte {at} of its payload: {what}");
        let mut rest = self.rest;
        let length = take_number(&mut rest).ok_or_else(|| damaged("its length is cut short"))?;
        let since = take_number(&mut rest).ok_or_else(|| damaged("its time is cut short"))?;
        let body = usize::try_from(length).ok().and_then(|length| rest.get(..length));
        let body = body.ok_or_else(|| damaged(&format!("{length} bytes are wanted, {} are there", rest.len())))?;
        self.rest = &rest[body.len()..];
        let mut tag = body;
        let tag = take_number(&mut tag).ok_or_else(|| damaged("its number is cut short"))?;
        // What newer versions append to an event is left unread.
        let event = match tag < KNOWN {
            true => match postcard::take_from_bytes::<Event>(body) {
                Ok((event, _)) => Some(event),
                Err(e) => return Err(damaged(&format!("event {tag}: {e}"))),
            },
            false => None,
        };
        let number = self.next;
        self.next = self.next.saturating_add(1);
        Ok(Record { number, ns: self.first_ns.saturating_add(since), event })
    }
}

impl Iterator for Events<'_> {
    type Item = std::result::Result<Record, String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let taken = self.take();
        if taken.is_err() {
            self.rest = &[];
        }
        Some(taken)
    }
}

/// Names of events, in the order of their numbers.
pub const EVENT_NAMES: [&str; 24] = [
    "sequence_created",
    "sequence_forked",
    "sequence_truncated",
    "sequence_committed",
    "sequence_released",
    "tokens_pinned",
    "tokens_anchored",
    "page_allocated",
    "page_converted",
    "page_evicted",
    "pages_left_behind",
    "pages_shared",
    "pages_freed",
    "step_done",
    "units_read",
    "kernel_times",
    "memory_used",
    "tokens",
    "profile_changed",
    "attention_mass",
    "page_data",
    "page_error",
    "selection_quality",
    "resync",
];

/// Events with numbers below this are known.
const KNOWN: u64 = EVENT_NAMES.len() as u64;

/// An event's name: its variant in snake case.
pub fn event_name(event: &Event) -> &'static str {
    EVENT_NAMES[event.number()]
}

/// An event as one flat JSON object: `n`, `ns`, `event` and its fields.
pub fn json_of(record: &Record) -> Value {
    let mut object = serde_json::Map::new();
    object.insert("n".into(), record.number.into());
    object.insert("ns".into(), record.ns.into());
    let Some(event) = &record.event else {
        object.insert("event".into(), "unknown".into());
        return object.into();
    };
    object.insert("event".into(), event_name(event).into());
    // NaN is null in JSON, so every event has a JSON form.
    if let Ok(Value::Object(named)) = serde_json::to_value(event) {
        for (_, fields) in named {
            if let Value::Object(fields) = fields {
                object.extend(fields);
            }
        }
    }
    object.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{
        GroupFacts, HeldPages, KernelShare, MassFacts, MemoryClasses, PageFacts, PageSet, ReadFacts, Reads, SeqId,
        SequenceFacts, SequenceRows, SideBytes, Snapshot, StepFacts, TokenPiece,
    };
    use crate::shape::Side;

    fn read(bytes: &[u8]) -> Vec<std::result::Result<Record, String>> {
        Events::new(bytes, 5, 1000).collect()
    }

    #[test]
    fn unknown_events_and_appended_fields_are_skipped() {
        let created = Event::SequenceCreated { sequence: SeqId(300) };
        let mut bytes = Vec::new();
        encode(&created, 1, &mut bytes).unwrap();
        // An event of a newer version, with a number of two bytes.
        bytes.extend([5, 2, 0xff, 0x01, 1, 2, 3]);
        // A known one with a field more.
        let body = postcard::to_stdvec(&created).unwrap();
        bytes.extend([body.len() as u8 + 2, 3]);
        bytes.extend(&body);
        bytes.extend([9, 9]);
        let records: Vec<Record> = read(&bytes).into_iter().map(|r| r.unwrap()).collect();
        let wanted = [(5, 1001, Some(created.clone())), (6, 1002, None), (7, 1003, Some(created))];
        assert_eq!(records, wanted.map(|(number, ns, event)| Record { number, ns, event }));
        assert_eq!(json_of(&records[1])["event"], "unknown");
        assert_eq!(json_of(&records[0])["sequence"], 300);
    }

    #[test]
    fn a_length_beyond_the_payload_is_a_fault() {
        for bytes in [&[9u8, 0, 0, 1][..], &[0x80], &[1, 0x80], &[0xff; 30], &[0, 0]] {
            let records = read(bytes);
            assert!(records.last().unwrap().as_ref().unwrap_err().contains("byte 0 of its payload"), "{bytes:?}");
        }
    }

    /// One of each, in the order of their numbers.
    fn one_of_each() -> Vec<Event> {
        let sequence = SeqId(300);
        let page = PageFacts {
            group: 1,
            page: 70_000,
            layer: 3,
            kv_head: 2,
            number: 9,
            formats: ("fp8".into(), "tq3".into()),
            slots: [5, u32::MAX],
            segment_group: 4095,
            generation: 7,
            flags: 1,
            bytes: 1 << 40,
        };
        let set = PageSet::of(vec![1, 2, 9]);
        let read = |read| ReadFacts { step: 4, sequence, group: 0, unit_tokens: 64, visible: 0..10, read };
        let side = |side| SideBytes { side, format: "f16".into(), bytes: 12 };
        let memory = MemoryClasses {
            pages: vec![side(Side::K), side(Side::V)],
            budget_bytes: Some(u64::MAX),
            other_bytes: 6,
            ..MemoryClasses::default()
        };
        let rows = SequenceRows { sequence, first_position: 8, rows: 2, committed: true };
        let step = StepFacts { step: 4, rows: 2, host_ns: 1 << 50, sequences: vec![rows], ..StepFacts::default() };
        let kernels = vec![KernelShare { kernel: "decode".into(), dispatches: 30, nanoseconds: 99 }];
        let tokens = vec![TokenPiece { id: 49_000, text: vec![0xf0, 0x9f, b'a'] }];
        // Shares that 16 bits hold exactly.
        let shares = vec![vec![0.5, 0.25, 0.25], vec![1.0, 0.0, 0.0]];
        let mass = MassFacts { step: 4, sequence, group: 0, layer: 3, first_page: 1, shares };
        let held = HeldPages { first: 2, rows: vec![vec![Some(70_000), None], vec![]] };
        let pins = vec![3..9, 12..40];
        let sequences =
            vec![SequenceFacts { sequence, logical: 9, committed: 8, groups: vec![held], pins, anchors: Vec::new() }];
        let groups = vec![GroupFacts { page_tokens: 64, layers: vec![0, 3], kv_heads: 3 }];
        let snapshot = Snapshot { step: 4, groups, sequences, pages: vec![page.clone()], memory: memory.clone() };
        vec![
            Event::SequenceCreated { sequence },
            Event::SequenceForked { sequence, from: SeqId(1), at_tokens: 41 },
            Event::SequenceTruncated { sequence, tokens: 5 },
            Event::SequenceCommitted { sequence, tokens: 5 },
            Event::SequenceReleased { sequence },
            Event::TokensPinned { sequence, tokens: 4..8, reason: "quoted".into() },
            Event::TokensAnchored { sequence, tokens: 0..1 },
            Event::PageAllocated { sequence, page: page.clone(), copy_of: Some(3), reason: "copied".into() },
            Event::PageConverted {
                page: page.clone(),
                from: ("f16".into(), "f16".into()),
                from_bytes: 9,
                reason: "sealed".into(),
            },
            Event::PageEvicted { sequence, page: page.clone(), reason: "old".into() },
            Event::PagesLeftBehind { sequence, group: 1, pages: 2..7 },
            Event::PagesShared { sequence, from: SeqId(1), group: 0, pages: 6, bytes: 600 },
            Event::PagesFreed { group: 0, pages: vec![1, 200, 70_000], bytes: 3, reason: "released".into() },
            Event::StepDone(step),
            Event::UnitsRead(read(Reads::Rows(vec![set.clone(), PageSet::default()]))),
            Event::KernelTimes { step: 4, kernels },
            Event::MemoryUsed(memory),
            Event::Tokens { sequence, first_position: 7, tokens },
            Event::ProfileChanged { text: "schema = 1\n".into() },
            Event::AttentionMass(mass),
            Event::PageData { page: page.clone(), sides: [vec![0, 255, 16], vec![7]] },
            Event::PageError { page, relative_rms: [0.25, 0.5], largest: [1.0, f32::INFINITY] },
            Event::SelectionQuality { step: 4, sequence, layer: 3, kv_head: 1, mass_kept: 0.75, recall: 0.5 },
            Event::Resync { dropped: 17, snapshot: Box::new(snapshot) },
            // The other forms of reads, after one of each.
            Event::UnitsRead(read(Reads::All)),
            Event::UnitsRead(read(Reads::Same(set))),
        ]
    }

    #[test]
    fn every_event_comes_back_with_its_number_and_its_name() {
        let events = one_of_each();
        let mut bytes = Vec::new();
        for (at, event) in events.iter().enumerate() {
            // The number begins the body: to change one would change the meaning of every trace there is.
            let written = usize::from(postcard::to_stdvec(event).unwrap()[0]);
            assert_eq!(written, event.number());
            assert!(at >= EVENT_NAMES.len() || written == at, "{event:?}");
            // JSON calls it what the list does.
            assert!(serde_json::to_value(event).unwrap().get(event_name(event)).is_some(), "{event:?}");
            encode(event, at as u64, &mut bytes).unwrap();
        }
        let records: Vec<Record> = read(&bytes).into_iter().map(|r| r.unwrap()).collect();
        assert_eq!(records.len(), events.len());
        for (at, (record, event)) in records.iter().zip(&events).enumerate() {
            assert_eq!((record.number, record.ns), (5 + at as u64, 1000 + at as u64));
            assert_eq!(record.event.as_ref(), Some(event));
        }
        // And cut anywhere, none is made up.
        for cut in 0..bytes.len() {
            let records = read(&bytes[..cut]);
            let whole = records.iter().filter(|r| r.is_ok()).count();
            assert!(
                records.iter().zip(&events).take(whole).all(|(r, e)| r.as_ref().unwrap().event.as_ref() == Some(e))
            );
            assert!(records.len() - whole <= 1, "{cut}");
        }
    }

    #[test]
    fn page_sets_that_are_none_are_refused() {
        let facts = one_of_each().pop().unwrap();
        let good = postcard::to_stdvec(&facts).unwrap();
        // The ranges are 1..3 and 9..10: the last four bytes.
        assert_eq!(good[good.len() - 4..], [1, 3, 9, 10]);
        for wrong in [[1, 3, 3, 10], [1, 1, 9, 10], [1, 3, 10, 9], [9, 10, 1, 3]] {
            let mut body = good.clone();
            let at = body.len() - 4;
            body[at..].copy_from_slice(&wrong);
            let mut bytes = vec![body.len() as u8, 0];
            bytes.extend(body);
            assert!(read(&bytes)[0].is_err(), "{wrong:?}");
        }
    }
}

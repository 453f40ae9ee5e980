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
    use crate::engine::SeqId;

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

    #[test]
    fn numbers_of_events_stand() {
        // The number is the first byte of the body: changing one would change the meaning of every trace there is.
        let number = |event: &Event| {
            let written = postcard::to_stdvec(event).unwrap()[0];
            assert_eq!(usize::from(written), event.number());
            // JSON calls it what the list does.
            assert!(serde_json::to_value(event).unwrap().get(event_name(event)).is_some(), "{event:?}");
            written
        };
        let sequence = SeqId(1);
        assert_eq!(number(&Event::SequenceCreated { sequence }), 0);
        assert_eq!(number(&Event::PagesLeftBehind { sequence, group: 0, pages: 0..1 }), 10);
        assert_eq!(number(&Event::StepDone(Default::default())), 13);
        assert_eq!(number(&Event::MemoryUsed(Default::default())), 16);
        let quality = Event::SelectionQuality { step: 0, sequence, layer: 0, kv_head: 0, mass_kept: 1.0, recall: 1.0 };
        assert_eq!(number(&quality), 22);
        let resync = Event::Resync { dropped: 0, snapshot: Default::default() };
        assert_eq!(u64::from(number(&resync)) + 1, KNOWN);
    }
}

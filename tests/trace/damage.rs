//! Traces that are cut, flipped, or never were any.

use super::rig::{Rng, busy, moving, recorded};
use super::{shipped, trace_parts};
use kvarto::engine::{Event, SeqId, Timed, TokenPiece};
use kvarto::trace::{Ending, Export, Gap, Header, Step, Stream, Trace, TraceWriter, export};
use std::io::Cursor;
use std::sync::Arc;

/// A trace of 64 KiB in many chunks.
fn large() -> Vec<u8> {
    let mut rng = Rng(11);
    let mut writer = TraceWriter::new(Vec::new(), &Header::default()).expect("memory");
    let mut ns = 0;
    for at in 0..60 {
        for _ in 0..8 {
            ns += 1000;
            let text = (0..124).map(|_| rng.next() as u8).collect();
            let tokens = vec![TokenPiece { id: rng.next() as u32, text }];
            let event = Arc::new(Event::Tokens { sequence: SeqId(1), first_position: at, tokens });
            writer.push(&Timed { ns, event }).expect("memory");
        }
        writer.flush().expect("memory");
    }
    writer.finish().expect("memory")
}

#[test]
fn a_trace_cut_anywhere_gives_its_whole_chunks_or_a_named_error() {
    let bytes = large();
    assert!(bytes.len() >= 1 << 16, "{}", bytes.len());
    let whole = Trace::new(Cursor::new(&bytes)).expect("a trace");
    let starts: Vec<usize> = whole.chunks().iter().map(|chunk| chunk.offset as usize).collect();
    let index = bytes.len() - 16;
    let index = u64::from_le_bytes(bytes[index..index + 8].try_into().expect("8 bytes")) as usize;
    let ends: Vec<usize> = starts[1..].iter().copied().chain([index]).collect();
    let mut read = 0;
    for cut in 0..bytes.len() {
        let mut trace = match Trace::new(Cursor::new(&bytes[..cut])) {
            Ok(trace) => trace,
            Err(error) => {
                assert!(cut < starts[0] && error.message().contains("header"), "{cut}: {error}");
                continue;
            }
        };
        let there = ends.iter().filter(|end| **end <= cut).count();
        assert_eq!(trace.chunks().len(), there, "{cut}");
        match trace.ending() {
            Ending::Unfinished => assert!(cut == starts[0] || ends.contains(&cut), "{cut}"),
            Ending::Cut(why) => {
                let offset = ends[..there].last().copied().unwrap_or(starts[0]);
                assert!(why.starts_with(&format!("chunk {there} at offset {offset} ")), "{cut}: {why}");
            }
            Ending::Finished | Ending::Damaged(_) => panic!("{cut}: it is cut"),
        }
        // The last whole chunk can be read: once each time there is one more.
        if there > read {
            assert_eq!(trace.records(there - 1).expect("a whole chunk").len(), 8, "{cut}");
            read = there;
        }
    }
    assert_eq!(read, 60);
}

/// Numbers of the events that can be read, and what is said of the others.
fn readable(bytes: &[u8]) -> (Vec<u64>, Vec<Gap>) {
    let (mut numbers, mut told) = (Vec::new(), Vec::new());
    let mut trace = Trace::new(Cursor::new(bytes)).expect("a trace");
    let gaps = trace.each_readable(|step| {
        match step {
            Step::Event(record) => numbers.push(record.number),
            Step::Missing(gap) => told.push(gap.clone()),
        }
        true
    });
    // Those that events follow are told where they are.
    assert!(gaps.starts_with(&told) && gaps.len() - told.len() <= 1, "{gaps:?}, {told:?}");
    (numbers, gaps)
}

#[test]
fn reading_goes_on_behind_damaged_chunks_and_says_what_is_missing() {
    let bytes = large();
    let chunks = Trace::new(Cursor::new(&bytes)).expect("a trace").chunks().to_vec();
    let first = |chunk: usize| chunk as u64 * 8;
    let mut rng = Rng::told();
    for _ in 0..60 {
        let from = rng.below(60) as usize;
        let (count, other) = (1 + rng.below(3) as usize, rng.below(60) as usize);
        let mut hit: Vec<usize> = (from..(from + count).min(60)).chain([other]).collect();
        hit.sort_unstable();
        hit.dedup();
        let mut damaged = bytes.clone();
        for &chunk in &hit {
            // Anywhere in it: its head, too.
            let end = chunks.get(chunk + 1).map_or(chunks[chunk].offset + 900, |next| next.offset);
            let at = chunks[chunk].offset + rng.below(end - chunks[chunk].offset);
            damaged[at as usize] ^= 1 << rng.below(8);
        }
        let (numbers, gaps) = readable(&damaged);
        let wanted: Vec<u64> = (0..480).filter(|n| !hit.contains(&(*n as usize / 8))).collect();
        assert_eq!(numbers, wanted, "{hit:?}");
        let runs: Vec<&[usize]> = hit.chunk_by(|a, b| a + 1 == *b).collect();
        assert_eq!(gaps.len(), runs.len(), "{gaps:?}, {hit:?}");
        for (gap, run) in gaps.iter().zip(runs) {
            let place = format!("chunk {} at offset {} ", run[0], chunks[run[0]].offset);
            assert!(gap.why.starts_with(&place), "{gap:?}");
            let range = (first(run[0]), Some(first(run[run.len() - 1] + 1)), run.len() as u64);
            assert_eq!((gap.from, gap.to, gap.chunks), range, "{gap:?}");
        }
        // Each format is whole in itself.
        let written = |to| {
            let mut out = Vec::new();
            let gaps = export(&mut Trace::new(Cursor::new(&damaged)).expect("a trace"), to, |_| true, &mut out);
            (String::from_utf8(out).expect("UTF-8"), gaps.expect("memory"))
        };
        let (json, told) = written(Export::Json);
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["events"].as_array().map(Vec::len), Some(wanted.len()));
        assert_eq!(json["missing"].as_array().map(Vec::len), Some(gaps.len()));
        assert_eq!(json["missing"][0]["from"], gaps[0].from);
        assert_eq!(told, gaps);
        serde_json::from_str::<serde_json::Value>(&written(Export::Perfetto).0).expect("JSON");
        let (csv, _) = written(Export::Csv);
        let rows: Result<Vec<_>, _> = csv::Reader::from_reader(csv.as_bytes()).records().collect();
        assert_eq!(rows.expect("CSV").len(), wanted.len());
    }
    // Nothing is missing of a whole one; without an index nobody knows how many events its last chunk had.
    assert_eq!(readable(&bytes), ((0..480).collect(), Vec::new()));
    let index = u64::from_le_bytes(bytes[bytes.len() - 16..][..8].try_into().expect("8 bytes")) as usize;
    let mut damaged = bytes[..index].to_vec();
    damaged[chunks[59].offset as usize + 40] ^= 1;
    let (numbers, gaps) = readable(&damaged);
    assert_eq!((numbers.len(), gaps.len(), gaps[0].from, gaps[0].to), (472, 1, 472, None), "{gaps:?}");
}

#[test]
fn shipped_traces_damaged_anywhere_name_the_chunk() {
    let mut rng = Rng::told();
    for (name, bytes) in shipped::all() {
        let whole = Trace::new(Cursor::new(&bytes)).expect("a trace");
        let chunks = whole.chunks().to_vec();
        let start = chunks[0].offset as usize;
        for _ in 0..2000 {
            let at = rng.below(bytes.len() as u64) as usize;
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 + rng.below(255) as u8;
            let mut trace = match Trace::new(Cursor::new(&damaged)) {
                Ok(trace) => trace,
                Err(error) => {
                    assert!(at < start, "{name}, byte {at}: {error}");
                    continue;
                }
            };
            if at < start {
                continue;
            }
            // The index, where that is whole, leads to all other chunks.
            let hit = chunks.iter().rposition(|chunk| chunk.offset as usize <= at).expect("after the header");
            assert!(trace.chunks().len() >= hit, "{name}, byte {at}");
            match trace.records(hit) {
                Err(error) => {
                    let place = format!("chunk {hit} at offset {} ", chunks[hit].offset);
                    let gone = format!("chunk {hit} of {hit}");
                    assert!(
                        error.message().starts_with(&place) || error.message() == gone,
                        "{name}, byte {at}: {error}"
                    );
                }
                // Only the index was hit, or its end: the chunks are found from head to head.
                Ok(_) => assert!(hit + 1 == chunks.len() && *trace.ending() != Ending::Finished, "{name}, byte {at}"),
            }
            if let Some(other) = hit.checked_sub(1) {
                trace.records(other).expect("a chunk that was not hit");
            }
        }
    }
}

#[test]
fn what_is_no_trace_is_named() {
    let error = |bytes: &[u8]| match Trace::new(Cursor::new(bytes)) {
        Ok(_) => panic!("{bytes:?} was read"),
        Err(error) => error,
    };
    assert!(error(b"GGUF\x03\0\0\0\0\0\0\0").message().contains("begins with \"GGUF\""));
    assert!(error(b"").message().contains("cut short"));
    assert!(error(b"KVT").message().contains("cut short"));
    assert!(error(b"<").message().contains("no trace"));
    let newer = error(b"KVTR\x03\0\x14\0\0\0{\"version\": \"9.8.7\"}");
    assert!(newer.message().contains("version 3") && newer.message().contains("9.8.7"), "{newer}");
    let older = error(b"KVTR\x01\0\x02\0\0\0{}");
    assert!(older.message().contains("version 1") && older.message().contains("reads version 2"), "{older}");
    assert!(error(b"KVTR\x02\0\xff\xff\xff\xffxx").message().contains("offset 6"));
    assert!(error(&trace_parts::header_of(b"{nope")).message().contains("offset 10"));
}

#[test]
fn every_bit_of_the_header_is_checked() {
    let header = Header { command: "generate".into(), profile: "minima-kv".into(), ..Header::default() };
    let bytes = TraceWriter::new(Vec::new(), &header).and_then(TraceWriter::finish).expect("memory");
    let whole = Trace::new(Cursor::new(&bytes)).expect("a trace");
    assert_eq!(*whole.header(), header);
    let end = u64::from_le_bytes(bytes[bytes.len() - 16..bytes.len() - 8].try_into().expect("8 bytes")) as usize;
    for bit in 0..end * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let error = match Trace::new(Cursor::new(&damaged)) {
            Ok(_) => panic!("bit {bit} of the header is flipped and it was read"),
            Err(error) => error,
        };
        assert!(error.message().contains("trace"), "bit {bit}: {error}");
        assert!(Stream::new(&damaged[..]).is_err(), "bit {bit}");
    }
    for cut in 0..end {
        let error = Stream::new(&bytes[..cut]).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("cut short"), "{cut}: {error}");
    }
}

#[test]
fn strangers_are_read_or_refused() {
    let mut rng = Rng::told();
    // What real payloads are like, mutated: behind a checksum that fits, every event is looked at.
    let (_, bytes, _) = recorded(moving(), |engine| busy(engine, 7));
    let mut trace = Trace::new(Cursor::new(&bytes)).expect("a trace");
    let mut payloads = Vec::new();
    for number in 0..trace.chunks().len() {
        let records = trace.records(number).expect("whole");
        let mut raw = Vec::new();
        for event in records.into_iter().take(40).filter_map(|record| record.event) {
            let body = postcard::to_stdvec(&event).expect("memory");
            raw.extend(leb(body.len()));
            raw.push(0);
            raw.extend(body);
        }
        payloads.push(raw);
    }
    for _ in 0..1500 {
        let mut raw = payloads[rng.below(payloads.len() as u64) as usize].clone();
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(raw.len() as u64) as usize;
            match rng.below(3) {
                0 => raw[at] = rng.next() as u8,
                1 => raw[at] ^= 1 << rng.below(8),
                _ => raw.truncate(at.max(1)),
            }
        }
        trace_parts::stranger(&raw);
        let mut file = bytes.clone();
        for _ in 0..1 + rng.below(3) {
            let at = rng.below(file.len() as u64) as usize;
            file[at] = rng.next() as u8;
        }
        file.truncate(rng.below(2 * file.len() as u64) as usize);
        trace_parts::read(&file);
    }
}

fn leb(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

// Traces made by hand: parts that fit together, with whatever is wanted inside.

use std::io::Cursor;

/// A chunk around `raw`, with the checksum that its bytes have.
pub fn chunk(kind: u32, first_event: u64, raw: &[u8]) -> Vec<u8> {
    let packed = zstd::bulk::compress(raw, 1).expect("memory");
    let mut bytes = Vec::new();
    for word in [kind, raw.len() as u32, packed.len() as u32] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(first_event.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    hash.update(&bytes);
    hash.update(&packed);
    bytes.extend(hash.digest().to_le_bytes());
    bytes.extend(packed);
    bytes
}

/// A header around `json`, with the checksum that its bytes have.
pub fn header_of(json: &[u8]) -> Vec<u8> {
    let mut bytes = kvarto::trace::MAGIC.to_vec();
    bytes.extend(kvarto::trace::VERSION.to_le_bytes());
    bytes.extend((json.len() as u32).to_le_bytes());
    bytes.extend(json);
    bytes.extend(xxhash_rust::xxh3::xxh3_64(&bytes).to_le_bytes());
    bytes
}

/// A header that says nothing.
pub fn header() -> Vec<u8> {
    header_of(b"{}")
}

/// Reads a trace from a stranger: as a file, as a stream, and what it says of a cache. Whether it could be opened.
pub fn read(data: &[u8]) -> bool {
    if let Ok(mut stream) = kvarto::trace::Stream::new(data) {
        let mut chunks = 0;
        while let Ok(Some((_, records))) = stream.next_chunk() {
            chunks += 1;
            assert!(records.len() <= data.len().saturating_mul(1 << 16) && chunks <= data.len());
        }
    }
    let mut trace = match kvarto::trace::Trace::new(Cursor::new(data)) {
        Ok(trace) => trace,
        Err(error) => {
            assert_eq!(error.kind(), kvarto::ErrorKind::File);
            assert!(error.message().contains("trace"), "{error}");
            return false;
        }
    };
    for number in 0..trace.chunks().len() {
        if let Err(error) = trace.records(number) {
            assert!(error.message().contains(&format!("chunk {number} at offset ")), "{error}");
        }
    }
    let verdict = kvarto::trace::verify(&mut trace).expect("what is wrong is in the verdict");
    assert_eq!(verdict.sound(), verdict.faults.is_empty());
    let _ = trace.last_state();
    let _ = kvarto::trace::export(&mut trace, kvarto::trace::Export::Perfetto, |_| true, std::io::sink());
    let _ = kvarto::trace::export(&mut trace, kvarto::trace::Export::Csv, |_| true, std::io::sink());
    true
}

/// The bytes as a trace, and as the events and the snapshot of one that is whole otherwise.
pub fn stranger(data: &[u8]) -> [bool; 2] {
    let mut whole = header();
    let (snapshot, events) = data.split_at(data.len() / 2);
    whole.extend(chunk(2, 0, snapshot));
    whole.extend(chunk(1, 0, events));
    whole.extend(chunk(1, 9, data));
    [read(data), read(&whole)]
}

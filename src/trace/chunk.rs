//! Chunks: a head, and a packed payload.

use crate::error::{Error, ErrorKind, Result};
use std::io::Read;
use xxhash_rust::xxh3::Xxh3;

/// Bytes of a chunk's head.
pub(super) const HEAD_BYTES: usize = 36;

/// Most bytes of a payload. What a reader unpacks is bounded by this.
pub const MAX_RAW_BYTES: u32 = 256 << 20;

/// Most events of a trace.
const MOST_EVENTS: u64 = 1 << 62;

/// Most bytes of a packed payload.
pub const MAX_PACKED_BYTES: u32 = MAX_RAW_BYTES + (1 << 20);

/// What a chunk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkKind {
    /// Events.
    Events,
    /// The state before the next event.
    Snapshot,
    /// Where the chunks before it are.
    Index,
    /// Something that this version does not know; it is skipped.
    Other(u32),
}

impl ChunkKind {
    fn of(word: u32) -> Self {
        match word {
            1 => ChunkKind::Events,
            2 => ChunkKind::Snapshot,
            3 => ChunkKind::Index,
            other => ChunkKind::Other(other),
        }
    }

    pub(super) fn word(self) -> u32 {
        match self {
            ChunkKind::Events => 1,
            ChunkKind::Snapshot => 2,
            ChunkKind::Index => 3,
            ChunkKind::Other(word) => word,
        }
    }
}

/// A chunk's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub kind: ChunkKind,
    pub raw_bytes: u32,
    pub packed_bytes: u32,
    /// Events before it.
    pub first_event: u64,
    /// Time of its first event.
    pub first_ns: u64,
    pub checksum: u64,
}

impl Head {
    /// Reads a head's bytes; the lengths are within their bounds then.
    pub fn parse(bytes: &[u8; HEAD_BYTES]) -> Result<Self, String> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let head = Head {
            kind: ChunkKind::of(word(0)),
            raw_bytes: word(4),
            packed_bytes: word(8),
            first_event: long(12),
            first_ns: long(20),
            checksum: long(28),
        };
        if head.first_event > MOST_EVENTS {
            return Err(format!("is damaged: it says event {}, {MOST_EVENTS} at most are counted", head.first_event));
        }
        if head.kind == ChunkKind::Other(0) {
            return Err("is damaged: it says kind 0, which no chunk has".into());
        }
        for (what, bytes, most) in
            [("raw", head.raw_bytes, MAX_RAW_BYTES), ("packed", head.packed_bytes, MAX_PACKED_BYTES)]
        {
            if bytes > most {
                return Err(format!("is damaged: it says {bytes} {what} bytes, {most} at most are read"));
            }
        }
        Ok(head)
    }

    /// Bytes of the whole chunk.
    pub fn bytes(&self) -> u64 {
        HEAD_BYTES as u64 + u64::from(self.packed_bytes)
    }

    /// Checks a packed payload and unpacks it.
    pub fn unpack(&self, packed: &[u8]) -> Result<Vec<u8>, String> {
        if packed.len() != self.packed_bytes as usize {
            return Err(format!("is cut short: {} of {} bytes of its payload", packed.len(), self.packed_bytes));
        }
        let sum = self.sum(packed);
        if sum != self.checksum {
            return Err(format!("is damaged: its checksum is {sum:016x}, {:016x} is wanted", self.checksum));
        }
        // Grows with what comes, whatever the head says.
        let mut raw = Vec::new();
        let unpacked = zstd::stream::read::Decoder::with_buffer(packed)
            .and_then(|decoder| decoder.take(u64::from(self.raw_bytes) + 1).read_to_end(&mut raw));
        match unpacked {
            Err(e) => Err(format!("cannot be unpacked: {e}")),
            Ok(_) if raw.len() != self.raw_bytes as usize => {
                let more = if raw.len() > self.raw_bytes as usize { "more than " } else { "" };
                Err(format!(
                    "unpacks to {more}{} bytes, its head says {}",
                    raw.len().min(self.raw_bytes as usize),
                    self.raw_bytes
                ))
            }
            Ok(_) => Ok(raw),
        }
    }

    fn sum(&self, packed: &[u8]) -> u64 {
        let mut hash = Xxh3::new();
        hash.update(&self.unsigned());
        hash.update(packed);
        hash.digest()
    }

    /// The head without its checksum.
    fn unsigned(&self) -> [u8; HEAD_BYTES - 8] {
        let mut bytes = [0; HEAD_BYTES - 8];
        bytes[..4].copy_from_slice(&self.kind.word().to_le_bytes());
        bytes[4..8].copy_from_slice(&self.raw_bytes.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.packed_bytes.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.first_event.to_le_bytes());
        bytes[20..].copy_from_slice(&self.first_ns.to_le_bytes());
        bytes
    }
}

/// A whole chunk.
///
/// # Errors
/// `File` for a payload above [`MAX_RAW_BYTES`].
pub(super) fn pack(kind: ChunkKind, first_event: u64, first_ns: u64, raw: &[u8]) -> Result<Vec<u8>> {
    let fault = |what: String| Error::new(ErrorKind::File, format!("a trace's chunk {what}"), "");
    let raw_bytes = u32::try_from(raw.len()).ok().filter(|&n| n <= MAX_RAW_BYTES);
    let raw_bytes = raw_bytes.ok_or_else(|| fault(format!("has {} bytes; {MAX_RAW_BYTES} at most", raw.len())))?;
    let packed = zstd::bulk::compress(raw, 3).map_err(|e| fault(format!("cannot be packed: {e}")))?;
    let packed_bytes = u32::try_from(packed.len()).ok().filter(|&n| n <= MAX_PACKED_BYTES);
    let packed_bytes = packed_bytes.ok_or_else(|| fault(format!("packs to {} bytes", packed.len())))?;
    let head = Head { kind, raw_bytes, packed_bytes, first_event, first_ns, checksum: 0 };
    let mut bytes = head.unsigned().to_vec();
    bytes.extend(head.sum(&packed).to_le_bytes());
    bytes.extend(packed);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_a_chunk_is_checked() {
        let raw: Vec<u8> = (0..4000u32).map(|i| ((i * i) >> 5) as u8).collect();
        let whole = pack(ChunkKind::Events, 7, 123, &raw).unwrap();
        let read = |bytes: &[u8]| -> Result<(Head, Vec<u8>), String> {
            let (head, packed) = bytes.split_first_chunk::<HEAD_BYTES>().unwrap();
            let head = Head::parse(head)?;
            Ok((head, head.unpack(packed)?))
        };
        let (head, back) = read(&whole).unwrap();
        assert_eq!((head.kind, head.first_event, head.first_ns, back), (ChunkKind::Events, 7, 123, raw));
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&damaged).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn heads_that_no_writer_makes_are_damaged() {
        let whole = pack(ChunkKind::Events, MOST_EVENTS + 1, 0, b"x").unwrap();
        assert!(Head::parse(whole.first_chunk().unwrap()).unwrap_err().contains("at most are counted"));
        assert!(Head::parse(&[0; HEAD_BYTES]).unwrap_err().contains("kind 0"));
    }

    #[test]
    fn a_bomb_is_bounded_by_its_head() {
        // 64 MiB of zeros behind a head that says 1,000 bytes, with a checksum that fits.
        let packed = zstd::bulk::compress(&vec![0; 64 << 20], 3).unwrap();
        let mut head = Head {
            kind: ChunkKind::Events,
            raw_bytes: 1000,
            packed_bytes: packed.len() as u32,
            first_event: 0,
            first_ns: 0,
            checksum: 0,
        };
        head.checksum = head.sum(&packed);
        let error = head.unpack(&packed).unwrap_err();
        assert!(error.contains("more than 1000 bytes"), "{error}");
    }
}

//! The file of one architecture: which texts it holds, by their identity, and their machine code in one stream.
//!
//! Little endian: [`MAGIC`], the target's name, the compiler's major and minor version, the number of entries, the
//! stream's length unpacked and its xxh3-64; the entries by ascending identity (16 bytes, offset, length); then one zstd
//! frame, since kernels are much alike. Equal code stands once. Equal entries make equal bytes.

use crate::error::{Error, ErrorKind, Result};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: &[u8; 16] = b"kvarto cubins 1\n";
/// Bytes of the target's name, filled up with zeros.
const NAME: usize = 16;
const HEAD: usize = MAGIC.len() + NAME + 4 * 4 + 8;
const ENTRY: usize = 16 + 2 * 4;
/// A stream is some megabytes; what claims more is no such file.
const MOST_BYTES: usize = 1 << 28;

/// A file, read.
#[derive(Clone, Debug)]
pub struct Archive<'a> {
    target: &'a str,
    compiler: (u32, u32),
    entries: Vec<(u128, Range<usize>)>,
    unpacked: usize,
    hash: u64,
    packed: &'a [u8],
}

impl<'a> Archive<'a> {
    /// Reads what stands before the stream.
    ///
    /// # Errors
    /// `File` for bytes that are no such file, or not all of one.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        Archive::read(bytes).ok_or_else(|| {
            let message = format!("{} bytes are no set of machine code", bytes.len());
            Error::new(ErrorKind::File, message, "run cuda/prebuild, and build the program anew")
        })
    }

    fn read(bytes: &'a [u8]) -> Option<Self> {
        let (head, rest) = bytes.split_at_checked(HEAD)?;
        let (magic, head) = head.split_at(MAGIC.len());
        let (name, head) = head.split_at(NAME);
        let target = std::str::from_utf8(name).ok()?.trim_end_matches('\0');
        let [major, minor, count, unpacked] = [0, 4, 8, 12].map(|at| word(head, at));
        let hash = u64::from(word(head, 16)) | u64::from(word(head, 20)) << 32;
        let (listed, packed) = rest.split_at_checked((count as usize).checked_mul(ENTRY)?)?;
        let entries = listed.chunks_exact(ENTRY).map(|entry| {
            let (id, place) = entry.split_first_chunk::<16>()?;
            let (start, length) = (word(place, 0) as usize, word(place, 4) as usize);
            let end = start.checked_add(length).filter(|&end| end <= unpacked as usize)?;
            Some((u128::from_le_bytes(*id), start..end))
        });
        let entries: Vec<(u128, Range<usize>)> = entries.collect::<Option<_>>()?;
        let sorted = entries.is_sorted_by(|a, b| a.0 < b.0);
        let sound = magic == MAGIC && sorted && unpacked as usize <= MOST_BYTES;
        sound.then_some(Archive {
            target,
            compiler: (major, minor),
            entries,
            unpacked: unpacked as usize,
            hash,
            packed,
        })
    }

    /// `sm_90a`, or `compute_80` for PTX.
    pub fn target(&self) -> &'a str {
        self.target
    }

    /// Version of the NVRTC that made it.
    pub fn compiler(&self) -> (u32, u32) {
        self.compiler
    }

    /// Texts whose code it holds.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Their identities, ascending.
    pub fn identities(&self) -> impl Iterator<Item = u128> {
        self.entries.iter().map(|(id, _)| *id)
    }

    /// Where the code of a text lies in the stream.
    pub fn find(&self, identity: u128) -> Option<Range<usize>> {
        let at = self.entries.binary_search_by_key(&identity, |(id, _)| *id).ok()?;
        Some(self.entries[at].1.clone())
    }

    /// The stream: it takes some milliseconds, and stays as it is.
    ///
    /// # Errors
    /// `File` for a damaged one; `Unsupported` in a build without the feature `prebuilt`.
    pub fn unpack(&self) -> Result<Vec<u8>> {
        let stream = decompress(self.packed, self.unpacked)?;
        if stream.len() != self.unpacked || xxh3_64(&stream) != self.hash {
            let message = format!("the machine code for {} is damaged", self.target);
            return Err(Error::new(ErrorKind::File, message, "run cuda/prebuild, and build the program anew"));
        }
        Ok(stream)
    }
}

/// The word at byte `at`, which is there.
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// Writes the file of a target, whose name is at most 16 bytes long. `codes` are by identity, each after the name by which
/// similar ones are put side by side in the stream.
///
/// # Errors
/// `Shape` for more than a file holds; `Unsupported` in a build without the feature `prebuilt`.
pub fn write(target: &str, compiler: (u32, u32), codes: &BTreeMap<u128, (String, Vec<u8>)>) -> Result<Vec<u8>> {
    let mut order: Vec<(&str, u128)> = codes.iter().map(|(id, (name, _))| (name.as_str(), *id)).collect();
    order.sort_unstable();
    let (mut stream, mut places) = (Vec::new(), HashMap::<&[u8], usize>::new());
    let mut entries = BTreeMap::new();
    for (_, id) in order {
        let code = codes[&id].1.as_slice();
        let start = *places.entry(code).or_insert_with(|| {
            stream.extend_from_slice(code);
            stream.len() - code.len()
        });
        entries.insert(id, (start, code.len()));
    }
    if stream.len() > MOST_BYTES || target.len() > NAME {
        let message = format!("{} bytes of machine code for {target}; a file holds {MOST_BYTES}", stream.len());
        return Err(Error::new(ErrorKind::Shape, message, "list fewer kernels in src/usual.rs"));
    }
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(target.as_bytes());
    out.resize(MAGIC.len() + NAME, 0);
    for number in [compiler.0, compiler.1, entries.len() as u32, stream.len() as u32] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&xxh3_64(&stream).to_le_bytes());
    for (id, (start, length)) in entries {
        out.extend_from_slice(&id.to_le_bytes());
        out.extend_from_slice(&(start as u32).to_le_bytes());
        out.extend_from_slice(&(length as u32).to_le_bytes());
    }
    out.extend(compress(&stream)?);
    Ok(out)
}

#[cfg(feature = "prebuilt")]
fn decompress(packed: &[u8], bytes: usize) -> Result<Vec<u8>> {
    zstd::bulk::decompress(packed, bytes)
        .map_err(|e| Error::new(ErrorKind::File, format!("machine code: {e}"), "build the program anew"))
}

#[cfg(feature = "prebuilt")]
fn compress(stream: &[u8]) -> Result<Vec<u8>> {
    zstd::bulk::compress(stream, 22)
        .map_err(|e| Error::new(ErrorKind::Shape, format!("machine code cannot be packed: {e}"), ""))
}

#[cfg(not(feature = "prebuilt"))]
fn decompress(_packed: &[u8], _bytes: usize) -> Result<Vec<u8>> {
    Err(left_out())
}

#[cfg(not(feature = "prebuilt"))]
fn compress(_stream: &[u8]) -> Result<Vec<u8>> {
    Err(left_out())
}

#[cfg(not(feature = "prebuilt"))]
fn left_out() -> Error {
    Error::new(ErrorKind::Unsupported, "this build has no machine code in it", "build with the feature prebuilt")
}

#[cfg(all(test, feature = "prebuilt"))]
mod tests {
    use super::{Archive, write};
    use std::collections::BTreeMap;

    fn codes() -> BTreeMap<u128, (String, Vec<u8>)> {
        let code = |n: u8| (format!("kernel {}", n % 3), vec![n; 100 + usize::from(n)]);
        (0..20u8).map(|n| (u128::from(n) << 99 | 5, code(n / 2))).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let codes = codes();
        let bytes = write("sm_90a", (12, 9), &codes).unwrap();
        assert_eq!(bytes, write("sm_90a", (12, 9), &codes).unwrap(), "the same bytes again");
        let archive = Archive::parse(&bytes).unwrap();
        assert_eq!((archive.target(), archive.compiler(), archive.len()), ("sm_90a", (12, 9), 20));
        let stream = archive.unpack().unwrap();
        // Each code is there twice, and stands once.
        assert_eq!(stream.len(), (0..10).map(|n| 100 + n).sum::<usize>());
        for (id, (_, code)) in &codes {
            assert_eq!(&stream[archive.find(*id).unwrap()], code);
        }
        assert_eq!(archive.find(6), None);
        assert!(archive.identities().eq(codes.keys().copied()));
    }

    #[test]
    fn damage_is_seen() {
        let bytes = write("sm_80", (12, 9), &codes()).unwrap();
        let stream = Archive::parse(&bytes).unwrap().unpack().unwrap();
        for end in 0..bytes.len() {
            let cut = Archive::parse(&bytes[..end]).and_then(|archive| archive.unpack());
            assert!(cut.is_err(), "{end} of {} bytes", bytes.len());
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x55;
            // What is not in the stream is an identity or a name: another text's code is then not found.
            if let Ok(other) = Archive::parse(&changed).and_then(|archive| archive.unpack()) {
                assert_eq!(other, stream, "byte {at}");
            }
        }
    }
}

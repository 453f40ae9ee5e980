//! From bytes to the table of contents: every count, length and offset is held against the file first.

use std::collections::HashMap;

use super::tensor::{GgmlType, TensorInfo};
use super::value::{Value, read_value};
use crate::error::{Error, ErrorKind, Result};

/// The least bytes of a metadata pair: key length, type tag, one byte of value.
const LEAST_PAIR_BYTES: usize = 8 + 4 + 1;
/// The least bytes of a tensor's entry: name length, dimension count, one dimension, type, offset.
const LEAST_TENSOR_BYTES: usize = 8 + 4 + 8 + 4 + 8;
/// What ggml allows.
const MOST_DIMENSIONS: u32 = 4;
/// Where the file says nothing.
const DEFAULT_ALIGNMENT: u64 = 32;

/// What a file's head says, checked.
pub(super) struct Contents {
    pub version: u32,
    pub alignment: u64,
    pub metadata: Vec<(String, Value)>,
    pub keys: HashMap<String, usize>,
    pub tensors: Vec<TensorInfo>,
    pub names: HashMap<String, usize>,
}

/// A place in the bytes that only moves forward and never past the end.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// The next `count` bytes; `what` names the key or tensor for the error.
    pub fn take(&mut self, count: usize, what: &str) -> Result<&'a [u8]> {
        let left = self.bytes.len() - self.at;
        if count > left {
            return Err(cut(what, count as u64, left, self.at));
        }
        let slice = &self.bytes[self.at..self.at + count];
        self.at += count;
        Ok(slice)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N, what)?);
        Ok(out)
    }

    /// A little-endian 32-bit number.
    pub fn u32(&mut self, what: &str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    /// A little-endian 64-bit number.
    pub fn u64(&mut self, what: &str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// `count` as a `usize`, once that many entries of `least_bytes` each could be in what is left.
    pub fn bounded_count(&self, count: u64, least_bytes: usize, what: &str) -> Result<usize> {
        let most = (self.bytes.len() - self.at) / least_bytes;
        usize::try_from(count).ok().filter(|&c| c <= most).ok_or_else(|| {
            Error::new(
                ErrorKind::File,
                format!("{} claims {count} entries; at most {most} fit in the rest of the file", quoted(what)),
                "the file is cut short or damaged; fetch it again",
            )
        })
    }

    /// A key or a tensor's name. These go into messages, so nothing in them may steer a terminal.
    fn name(&mut self, what: &str) -> Result<String> {
        let name = self.string(what)?;
        if name.is_empty() || name.contains(char::is_control) {
            return Err(Error::new(
                ErrorKind::File,
                format!("{what} is {name:?}; names are not empty and hold no control characters"),
                "the file is damaged; fetch it again",
            ));
        }
        Ok(name)
    }

    /// A string: its 64-bit length, then UTF-8.
    pub fn string(&mut self, what: &str) -> Result<String> {
        let length = self.u64(what)?;
        let left = self.bytes.len() - self.at;
        let length = usize::try_from(length).ok().filter(|&l| l <= left);
        let length = length.ok_or_else(|| {
            let claimed = u64::from_le_bytes(self.bytes[self.at - 8..self.at].try_into().unwrap_or_default());
            cut(what, claimed, left, self.at)
        })?;
        let bytes = self.take(length, what)?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|e| {
            Error::new(
                ErrorKind::File,
                format!("{} holds text that is not UTF-8: {e}", quoted(what)),
                "the file is damaged or was written by a faulty tool",
            )
        })
    }
}

/// Reads the head of a file: magic, version, metadata, tensor entries.
pub(super) fn parse(bytes: &[u8]) -> Result<Contents> {
    let mut cursor = Cursor { bytes, at: 0 };
    let version = read_version(&mut cursor)?;
    let tensor_count = cursor.u64("the header")?;
    let pair_count = cursor.u64("the header")?;

    let pair_count = cursor.bounded_count(pair_count, LEAST_PAIR_BYTES, "the metadata")?;
    let mut metadata: Vec<(String, Value)> = Vec::new();
    let mut keys = HashMap::new();
    for index in 0..pair_count {
        let key = cursor.name(&format!("metadata key {index}"))?;
        let value = read_value(&mut cursor, &key)?;
        if keys.insert(key.clone(), index).is_some() {
            return Err(twice("key", &key));
        }
        metadata.push((key, value));
    }
    let get = |key: &str| keys.get(key).map(|&index: &usize| &metadata[index].1);
    refuse_split(get("split.count"))?;
    let alignment = read_alignment(get("general.alignment"))?;

    let tensor_count = cursor.bounded_count(tensor_count, LEAST_TENSOR_BYTES, "the tensor table")?;
    let mut tensors: Vec<TensorInfo> = Vec::new();
    let mut names = HashMap::new();
    for index in 0..tensor_count {
        let tensor = read_tensor(&mut cursor, index)?;
        if names.insert(tensor.name.clone(), index).is_some() {
            return Err(twice("tensor", &tensor.name));
        }
        tensors.push(tensor);
    }
    // The file's length is at most isize::MAX, so rounding up by less than 2^32 cannot overflow.
    let data_start = (cursor.at as u64).next_multiple_of(alignment);
    for tensor in &mut tensors {
        tensor.place(data_start, alignment, bytes.len() as u64)?;
    }
    Ok(Contents { version, alignment, metadata, keys, tensors, names })
}

fn read_version(cursor: &mut Cursor<'_>) -> Result<u32> {
    let refuse = |message: String, remedy: &str| Err(Error::new(ErrorKind::Unsupported, message, remedy));
    match &cursor.array::<4>("the header")? {
        b"GGUF" => {}
        b"FUGG" => return refuse("a big-endian GGUF file; only little-endian is read".into(), "convert it anew"),
        b"ggml" | b"lmgg" | b"tjgg" | b"ggjt" | b"ggla" | b"fmgg" => {
            return refuse("a GGML file from before GGUF; versions 2 and 3 of GGUF are read".into(), "convert it anew");
        }
        other => {
            return Err(Error::new(
                ErrorKind::File,
                format!("not a GGUF file: it begins with {:?}, not \"GGUF\"", String::from_utf8_lossy(other)),
                "give a .gguf file",
            ));
        }
    }
    let version = cursor.u32("the header")?;
    match version {
        2 | 3 => Ok(version),
        1 => refuse("GGUF version 1; versions 2 and 3 are read".into(), "convert the model anew"),
        _ if matches!(version.swap_bytes(), 1..=3) => refuse(
            format!("a big-endian GGUF file (version {}); only little-endian is read", version.swap_bytes()),
            "convert the model for a little-endian machine",
        ),
        _ => refuse(format!("GGUF version {version}; versions 2 and 3 are read"), "convert the model anew"),
    }
}

/// A part of a split file lacks tensors of the others. Writers store the count in any integer type, and some
/// as text.
fn refuse_split(count: Option<&Value>) -> Result<()> {
    let Some(value) = count else { return Ok(()) };
    let parts = match value {
        Value::Str(text) => text.trim().parse::<i128>().ok(),
        other => other.integer(),
    };
    match parts {
        Some(0 | 1) => Ok(()),
        Some(parts) => Err(Error::new(
            ErrorKind::Unsupported,
            format!("one part of a split file (key `split.count` is {parts}); only whole files are read"),
            "join the parts with `llama-gguf-split --merge FIRST-PART.gguf WHOLE.gguf` and give WHOLE.gguf",
        )),
        None => Err(Error::new(
            ErrorKind::File,
            format!("key `split.count` is {value:?}, not a count"),
            "the file was written by a faulty tool; convert the model anew",
        )),
    }
}

fn read_alignment(value: Option<&Value>) -> Result<u64> {
    let Some(value) = value else { return Ok(DEFAULT_ALIGNMENT) };
    let valid = |a: &u64| a.is_power_of_two() && *a >= 8;
    value.integer().and_then(|a| u32::try_from(a).ok()).map(u64::from).filter(valid).ok_or_else(|| {
        let shown = value.integer().map_or_else(|| value.describe(), |a| a.to_string());
        Error::new(
            ErrorKind::File,
            format!("key `general.alignment` is {shown}; it must be a power of two from 8 to 2147483648"),
            "the file is damaged or was written by a faulty tool",
        )
    })
}

fn read_tensor(cursor: &mut Cursor<'_>, index: usize) -> Result<TensorInfo> {
    let name = cursor.name(&format!("the name of tensor {index}"))?;
    let what = format!("tensor {name}");
    let dimensions = cursor.u32(&what)?;
    if dimensions == 0 || dimensions > MOST_DIMENSIONS {
        return Err(Error::new(
            ErrorKind::File,
            format!("tensor `{name}` has {dimensions} dimensions; 1 to {MOST_DIMENSIONS} are valid"),
            "the file is damaged; fetch it again",
        ));
    }
    let mut shape = Vec::new();
    for _ in 0..dimensions {
        shape.push(cursor.u64(&what)?);
    }
    let ty = GgmlType::from_number(cursor.u32(&what)?);
    let offset = cursor.u64(&what)?;
    Ok(TensorInfo::unplaced(name, ty, shape, offset))
}

/// Puts backticks round a key; leaves phrases like "the header" alone.
fn quoted(what: &str) -> String {
    if what.contains(' ') { what.to_owned() } else { format!("key `{what}`") }
}

fn cut(what: &str, wanted: u64, left: usize, at: usize) -> Error {
    Error::new(
        ErrorKind::File,
        format!("{} needs {wanted} bytes at offset {at}; {left} are left in the file", quoted(what)),
        "the file is cut short or damaged; fetch it again",
    )
}

fn twice(what: &str, name: &str) -> Error {
    Error::new(
        ErrorKind::File,
        format!("{what} `{name}` occurs twice"),
        "the file was written by a faulty tool; convert the model anew",
    )
}

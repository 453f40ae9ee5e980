//! GGUF files, versions 2 and 3: metadata and tensors over a read-only memory map.
//!
//! A file comes from strangers. Whatever it says is checked against its own size before it is believed;
//! a wrong file is an error that names the key or the tensor.

mod dequant;
mod parse;
mod tensor;
mod value;
mod widen;

use std::fmt;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};

pub use dequant::{READ, dequantize};
pub use tensor::{GgmlType, TensorInfo};
pub use value::{Array, Value};
pub use widen::{widen, widens};

use crate::error::{Error, ErrorKind, Result};

/// An open GGUF file. Clones share the map.
#[derive(Clone)]
pub struct Gguf(Arc<Inner>);

struct Inner {
    bytes: Bytes,
    contents: parse::Contents,
    sha256: OnceLock<String>,
}

enum Bytes {
    Mapped(memmap2::Mmap),
    Owned(Arc<[u8]>),
}

impl Bytes {
    fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Owned(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Gguf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (keys, tensors) = (self.metadata().len(), self.tensors().len());
        f.debug_struct("Gguf").field("bytes", &self.file_len()).field("keys", &keys).field("tensors", &tensors).finish()
    }
}

impl Gguf {
    /// Maps the file at `path` and reads its table of contents.
    ///
    /// The file must not be cut short by another program while it is open.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let context = |e: std::io::Error| {
            Error::new(ErrorKind::File, format!("{}: {e}", path.display()), "give the path of a readable .gguf file")
        };
        let file = File::open(path).map_err(context)?;
        if !file.metadata().map_err(context)?.is_file() {
            return Err(context(std::io::Error::other("not a regular file")));
        }
        #[allow(unsafe_code)]
        // SAFETY: the map is read-only and never written through. Another program that changes the file changes
        // the bytes we read: they are plain numbers and text, copied out and checked at parsing, and tensor bytes
        // carry no invariant. Cutting the file short while it is mapped ends the process with a bus error; the
        // doc comment states that condition, and every program that maps model files shares it.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(context)?;
        Self::from_bytes(Bytes::Mapped(map)).map_err(|e| e.context(path.display()))
    }

    /// Reads a file that is already in memory (a `Vec<u8>` or an `Arc<[u8]>`).
    pub fn parse(bytes: impl Into<Arc<[u8]>>) -> Result<Self> {
        Self::from_bytes(Bytes::Owned(bytes.into()))
    }

    fn from_bytes(bytes: Bytes) -> Result<Self> {
        let contents = parse::parse(bytes.as_slice())?;
        Ok(Gguf(Arc::new(Inner { bytes, contents, sha256: OnceLock::new() })))
    }

    /// The version of the file format: 2 or 3.
    pub fn version(&self) -> u32 {
        self.0.contents.version
    }

    /// What tensor offsets are multiples of, in bytes.
    pub fn alignment(&self) -> u64 {
        self.0.contents.alignment
    }

    /// Every key and value, in the file's order.
    pub fn metadata(&self) -> &[(String, Value)] {
        &self.0.contents.metadata
    }

    /// Every tensor, in the file's order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.0.contents.tensors
    }

    /// The file's length in bytes.
    pub fn file_len(&self) -> u64 {
        self.0.bytes.as_slice().len() as u64
    }

    /// The SHA-256 of the whole file, 64 hexadecimal digits; computed once.
    pub fn sha256(&self) -> &str {
        self.0.sha256.get_or_init(|| hex(&Sha256::digest(self.0.bytes.as_slice())))
    }

    /// The value of `key`, if the file has it.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let contents = &self.0.contents;
        contents.keys.get(key).and_then(|&index| contents.metadata.get(index)).map(|(_, value)| value)
    }

    /// The value of `key` as `T`; `None` when absent, an error when present and of another kind.
    pub fn optional<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        T::from_value(value).map(Some).ok_or_else(|| {
            let shown = value.integer().map_or_else(|| value.describe(), |v| format!("{} {v}", value.describe()));
            Error::new(
                ErrorKind::File,
                format!("key `{key}` is an unfit {shown}; {} is wanted", T::WANTED),
                "convert the model anew",
            )
        })
    }

    /// The value of `key` as `T`; absence is an error that names the key.
    pub fn required<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T> {
        self.optional(key)?.ok_or_else(|| {
            Error::new(ErrorKind::File, format!("key `{key}` ({}) is missing", T::WANTED), "convert the model anew")
        })
    }

    /// An integer of any type whose value fits 32 bits unsigned.
    pub fn u32(&self, key: &str) -> Result<u32> {
        self.required(key)
    }

    /// A float of either width, or an integer.
    pub fn f32(&self, key: &str) -> Result<f32> {
        self.required(key)
    }

    /// A boolean.
    pub fn bool(&self, key: &str) -> Result<bool> {
        self.required(key)
    }

    /// A string.
    pub fn str(&self, key: &str) -> Result<&str> {
        self.required(key)
    }

    /// An array of strings.
    pub fn array_str(&self, key: &str) -> Result<&[String]> {
        self.required(key)
    }

    /// An array of floats of either width.
    pub fn array_f32(&self, key: &str) -> Result<Vec<f32>> {
        self.required(key)
    }

    /// An array of integers of any type whose values fit 32 bits signed.
    pub fn array_i32(&self, key: &str) -> Result<Vec<i32>> {
        self.required(key)
    }

    /// One number a layer: an array of `layers` integers, or one integer that holds for all.
    pub fn per_layer_u32(&self, key: &str, layers: usize) -> Result<Option<Vec<u32>>> {
        let Some(Value::Array(array)) = self.get(key) else {
            return Ok(self.optional::<u32>(key)?.map(|value| vec![value; layers]));
        };
        if array.len() != layers {
            return Err(Error::new(
                ErrorKind::File,
                format!("key `{key}` has {} values; the model has {layers} layers", array.len()),
                "convert the model anew",
            ));
        }
        self.optional::<Vec<u32>>(key)
    }

    /// The tensor called `name`; absence is an error that names it.
    pub fn tensor(&self, name: &str) -> Result<&TensorInfo> {
        self.find_tensor(name).ok_or_else(|| {
            Error::new(
                ErrorKind::File,
                format!("tensor `{name}` is missing (the file has {})", self.tensors().len()),
                "convert the model anew",
            )
        })
    }

    /// The tensor called `name`, if the file has it.
    pub fn find_tensor(&self, name: &str) -> Option<&TensorInfo> {
        let contents = &self.0.contents;
        contents.names.get(name).and_then(|&index| contents.tensors.get(index))
    }

    /// The stored bytes of `tensor`, of this file; `Unsupported` when its type is unknown.
    pub fn tensor_bytes(&self, tensor: &TensorInfo) -> Result<&[u8]> {
        if let GgmlType::Unknown(_) = tensor.ty {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("tensor `{}` is of {}", tensor.name, tensor.ty),
                "use a model file quantised to Q4_0, Q4_1 or Q8_0, or a plain F16 one",
            ));
        }
        let range = usize::try_from(tensor.file_offset()).ok().zip(usize::try_from(tensor.byte_len()).ok());
        let bytes = range.and_then(|(start, len)| self.0.bytes.as_slice().get(start..start.checked_add(len)?));
        // Only a TensorInfo of another file can fail here.
        bytes.ok_or_else(|| {
            Error::new(ErrorKind::Shape, format!("tensor `{}` is not of this file", tensor.name), "look it up here")
        })
    }
}

/// What a metadata value can be read as.
pub trait FromValue<'a>: Sized {
    /// The kind, for messages.
    const WANTED: &'static str;
    /// The value read as `Self`; `None` when it is of another kind or out of range.
    fn from_value(value: &'a Value) -> Option<Self>;
}

macro_rules! from_value {
    ($($ty:ty, $wanted:literal, $value:ident => $read:expr;)*) => {$(
        impl<'a> FromValue<'a> for $ty {
            const WANTED: &'static str = $wanted;
            fn from_value($value: &'a Value) -> Option<Self> {
                $read
            }
        }
    )*};
}

from_value! {
    u32, "an integer from 0 to 4294967295", value => u32::try_from(value.integer()?).ok();
    u64, "an integer from 0 to 2^64-1", value => u64::try_from(value.integer()?).ok();
    bool, "a boolean", value => if let Value::Bool(b) = value { Some(*b) } else { None };
    &'a str, "a string", value => if let Value::Str(s) = value { Some(s) } else { None };
    &'a [String], "an array of strings", value =>
        if let Value::Array(Array::Str(s)) = value { Some(s) } else { None };
    f32, "a float", value => match value {
        Value::F32(x) => Some(*x),
        Value::F64(x) => Some(*x as f32),
        other => other.integer().map(|x| x as f32),
    };
    Vec<f32>, "an array of floats", value => match value {
        Value::Array(Array::F32(v)) => Some(v.clone()),
        Value::Array(Array::F64(v)) => Some(v.iter().map(|&x| x as f32).collect()),
        _ => None,
    };
    Vec<i32>, "an array of 32-bit integers", value => integers(value);
    Vec<u32>, "an array of 32-bit integers", value => integers(value);
}

fn integers<T: TryFrom<i128>>(value: &Value) -> Option<Vec<T>> {
    let Value::Array(array) = value else { return None };
    array.integers()?.into_iter().map(|v| T::try_from(v).ok()).collect()
}

/// Lower-case hexadecimal digits of `bytes`.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}

//! Metadata values of a GGUF file and the typed reading of them.

use super::parse::Cursor;
use crate::error::{Error, ErrorKind, Result};

/// One metadata value, as the file types it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Any unsigned integer type (8, 16, 32 or 64 bits).
    Unsigned(u64),
    /// Any signed integer type (8, 16, 32 or 64 bits).
    Signed(i64),
    /// 32-bit float.
    F32(f32),
    /// 64-bit float.
    F64(f64),
    /// One byte that must be 0 or 1.
    Bool(bool),
    /// UTF-8 text.
    Str(String),
    /// Values of one type.
    Array(Array),
}

/// An array value. Arrays of arrays are refused when the file is read.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// Any unsigned integer type.
    Unsigned(Vec<u64>),
    /// Any signed integer type.
    Signed(Vec<i64>),
    /// 32-bit floats.
    F32(Vec<f32>),
    /// 64-bit floats.
    F64(Vec<f64>),
    /// Booleans.
    Bool(Vec<bool>),
    /// UTF-8 texts.
    Str(Vec<String>),
}

impl Array {
    /// How many elements.
    pub fn len(&self) -> usize {
        match self {
            Array::Unsigned(v) => v.len(),
            Array::Signed(v) => v.len(),
            Array::F32(v) => v.len(),
            Array::F64(v) => v.len(),
            Array::Bool(v) => v.len(),
            Array::Str(v) => v.len(),
        }
    }

    /// True for an array without elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The integers of an integer array, signed or not; `None` for other kinds.
    pub fn integers(&self) -> Option<Vec<i128>> {
        match self {
            Array::Unsigned(v) => Some(v.iter().map(|&x| x.into()).collect()),
            Array::Signed(v) => Some(v.iter().map(|&x| x.into()).collect()),
            _ => None,
        }
    }
}

impl Value {
    /// What the value is, for messages and listings: "integer", "array of 3 strings".
    pub fn describe(&self) -> String {
        let array = |n: usize, what: &str| format!("array of {n} {what}");
        match self {
            Value::Unsigned(_) | Value::Signed(_) => "integer".into(),
            Value::F32(_) | Value::F64(_) => "float".into(),
            Value::Bool(_) => "boolean".into(),
            Value::Str(_) => "string".into(),
            Value::Array(Array::Unsigned(v)) => array(v.len(), "integers"),
            Value::Array(Array::Signed(v)) => array(v.len(), "integers"),
            Value::Array(Array::F32(v)) => array(v.len(), "floats"),
            Value::Array(Array::F64(v)) => array(v.len(), "floats"),
            Value::Array(Array::Bool(v)) => array(v.len(), "booleans"),
            Value::Array(Array::Str(v)) => array(v.len(), "strings"),
        }
    }

    /// The integer, whatever its width and sign; `None` for other kinds.
    pub fn integer(&self) -> Option<i128> {
        match *self {
            Value::Unsigned(v) => Some(v.into()),
            Value::Signed(v) => Some(v.into()),
            _ => None,
        }
    }
}

/// The numbers the file format gives to value types.
mod tag {
    pub const U8: u32 = 0;
    pub const I8: u32 = 1;
    pub const U16: u32 = 2;
    pub const I16: u32 = 3;
    pub const U32: u32 = 4;
    pub const I32: u32 = 5;
    pub const F32: u32 = 6;
    pub const BOOL: u32 = 7;
    pub const STRING: u32 = 8;
    pub const ARRAY: u32 = 9;
    pub const U64: u32 = 10;
    pub const I64: u32 = 11;
    pub const F64: u32 = 12;
}

/// Reads the value of `key` at the cursor, its type tag first.
pub(super) fn read_value(cursor: &mut Cursor<'_>, key: &str) -> Result<Value> {
    match cursor.u32(key)? {
        tag::U8 => Ok(Value::Unsigned(cursor.array::<1>(key)?[0].into())),
        tag::I8 => Ok(Value::Signed(i8::from_le_bytes(cursor.array(key)?).into())),
        tag::U16 => Ok(Value::Unsigned(u16::from_le_bytes(cursor.array(key)?).into())),
        tag::I16 => Ok(Value::Signed(i16::from_le_bytes(cursor.array(key)?).into())),
        tag::U32 => Ok(Value::Unsigned(cursor.u32(key)?.into())),
        tag::I32 => Ok(Value::Signed(i32::from_le_bytes(cursor.array(key)?).into())),
        tag::U64 => Ok(Value::Unsigned(cursor.u64(key)?)),
        tag::I64 => Ok(Value::Signed(i64::from_le_bytes(cursor.array(key)?))),
        tag::F32 => Ok(Value::F32(f32::from_le_bytes(cursor.array(key)?))),
        tag::F64 => Ok(Value::F64(f64::from_le_bytes(cursor.array(key)?))),
        tag::BOOL => Ok(Value::Bool(boolean(cursor.array::<1>(key)?[0], key)?)),
        tag::STRING => Ok(Value::Str(cursor.string(key)?)),
        tag::ARRAY => read_array(cursor, key).map(Value::Array),
        other => Err(unknown_type(key, other)),
    }
}

/// Reads an array: element type, count, elements. The count is held against the bytes that are left in the
/// file before anything is allocated.
fn read_array(cursor: &mut Cursor<'_>, key: &str) -> Result<Array> {
    let element = cursor.u32(key)?;
    let count = cursor.u64(key)?;
    let width = match element {
        tag::U8 | tag::I8 | tag::BOOL => 1,
        tag::U16 | tag::I16 => 2,
        tag::U32 | tag::I32 | tag::F32 => 4,
        // A string is at least its 64-bit length.
        tag::U64 | tag::I64 | tag::F64 | tag::STRING => 8,
        tag::ARRAY => {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("key `{key}` is an array of arrays; only flat arrays are read"),
                "no known model needs one; remove the key",
            ));
        }
        other => return Err(unknown_type(key, other)),
    };
    if element == tag::STRING {
        let count = cursor.bounded_count(count, width, key)?;
        // Grown as it is read: a file of many empty strings costs no more than its own size allows.
        let mut strings = Vec::new();
        for _ in 0..count {
            strings.push(cursor.string(key)?);
        }
        return Ok(Array::Str(strings));
    }
    let count = cursor.bounded_count(count, width, key)?;
    let bytes = cursor.take(count * width, key)?;
    Ok(match element {
        tag::U8 => Array::Unsigned(bytes.iter().map(|&b| b.into()).collect()),
        tag::I8 => Array::Signed(decode(bytes, i8::from_le_bytes)),
        tag::U16 => Array::Unsigned(decode(bytes, u16::from_le_bytes)),
        tag::I16 => Array::Signed(decode(bytes, i16::from_le_bytes)),
        tag::U32 => Array::Unsigned(decode(bytes, u32::from_le_bytes)),
        tag::I32 => Array::Signed(decode(bytes, i32::from_le_bytes)),
        tag::U64 => Array::Unsigned(decode(bytes, u64::from_le_bytes)),
        tag::I64 => Array::Signed(decode(bytes, i64::from_le_bytes)),
        tag::F32 => Array::F32(decode(bytes, f32::from_le_bytes)),
        tag::F64 => Array::F64(decode(bytes, f64::from_le_bytes)),
        _ => Array::Bool(bytes.iter().map(|&b| boolean(b, key)).collect::<Result<_>>()?),
    })
}

/// Little-endian elements of `N` bytes, widened to `O`.
fn decode<const N: usize, T, O: From<T>>(bytes: &[u8], read: impl Fn([u8; N]) -> T) -> Vec<O> {
    bytes.as_chunks::<N>().0.iter().map(|&chunk| O::from(read(chunk))).collect()
}

fn boolean(byte: u8, key: &str) -> Result<bool> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Error::new(
            ErrorKind::File,
            format!("key `{key}` holds a boolean of {other}; only 0 and 1 are valid"),
            "the file is damaged or was written by a faulty tool",
        )),
    }
}

fn unknown_type(key: &str, tag: u32) -> Error {
    Error::new(
        ErrorKind::File,
        format!("key `{key}` has value type {tag}; types 0 to 12 are known"),
        "the file is damaged, or newer than this program",
    )
}

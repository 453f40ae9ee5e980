//! Tensor entries and the block sizes of ggml's types.

use std::fmt;

use crate::error::{Error, ErrorKind, Result};

/// How a tensor's numbers are stored. `K` types hold 256 values a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, non_camel_case_types, reason = "the names are ggml's own")]
pub enum GgmlType {
    F32,
    F16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    Q8_K,
    I8,
    I16,
    I32,
    I64,
    F64,
    BF16,
    /// A type number this program has no block size for. The tensor stays listed and cannot be read.
    Unknown(u32),
}

impl GgmlType {
    /// The type a file's number stands for.
    pub fn from_number(number: u32) -> Self {
        use GgmlType::*;
        match number {
            0 => F32,
            1 => F16,
            2 => Q4_0,
            3 => Q4_1,
            6 => Q5_0,
            7 => Q5_1,
            8 => Q8_0,
            10 => Q2_K,
            11 => Q3_K,
            12 => Q4_K,
            13 => Q5_K,
            14 => Q6_K,
            15 => Q8_K,
            24 => I8,
            25 => I16,
            26 => I32,
            27 => I64,
            28 => F64,
            30 => BF16,
            other => Unknown(other),
        }
    }

    /// Values a block and bytes a block; `None` for an unknown type.
    pub fn block(self) -> Option<(u64, u64)> {
        use GgmlType::*;
        Some(match self {
            F32 | I32 => (1, 4),
            F16 | BF16 | I16 => (1, 2),
            I8 => (1, 1),
            I64 | F64 => (1, 8),
            Q4_0 => (32, 18),
            Q4_1 => (32, 20),
            Q5_0 => (32, 22),
            Q5_1 => (32, 24),
            Q8_0 => (32, 34),
            Q2_K => (256, 84),
            Q3_K => (256, 110),
            Q4_K => (256, 144),
            Q5_K => (256, 176),
            Q6_K => (256, 210),
            Q8_K => (256, 292),
            Unknown(_) => return None,
        })
    }
}

impl fmt::Display for GgmlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GgmlType::Unknown(number) => f.pad(&format!("unsupported type {number}")),
            known => f.pad(&format!("{known:?}")),
        }
    }
}

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name, unique in the file.
    pub name: String,
    /// How its numbers are stored.
    pub ty: GgmlType,
    /// Sizes, the contiguous dimension first: a matrix that maps `n` inputs to `m` outputs is `[n, m]`.
    pub shape: Vec<u64>,
    /// Where the first byte lies, from the start of the *file* once placed.
    pub(super) offset: u64,
    /// How many bytes; 0 for an unknown type.
    pub(super) bytes: u64,
}

impl TensorInfo {
    /// An entry whose `offset` still counts from the start of the data.
    pub(super) fn unplaced(name: String, ty: GgmlType, shape: Vec<u64>, offset: u64) -> Self {
        TensorInfo { name, ty, shape, offset, bytes: 0 }
    }

    /// Checks size and offset against the file and turns the offset into one from the file's start.
    pub(super) fn place(&mut self, data_start: u64, alignment: u64, file_len: u64) -> Result<()> {
        let fault = |message: String| {
            Error::new(
                ErrorKind::File,
                format!("tensor `{}` {message}", self.name),
                "the file is cut short or damaged; fetch it again",
            )
        };
        if !self.offset.is_multiple_of(alignment) {
            return Err(fault(format!("lies at offset {}, no multiple of the alignment {alignment}", self.offset)));
        }
        let elements = self.shape.iter().try_fold(1u64, |product, &size| product.checked_mul(size));
        let elements = elements.filter(|&n| n > 0 && n <= i64::MAX as u64);
        let elements =
            elements.ok_or_else(|| fault(format!("has shape {:?}; its element count is not valid", self.shape)))?;
        // The size of an unknown type cannot be told, but a start past the end is wrong in any type.
        let bytes = match self.ty.block() {
            None => 0,
            Some((values, bytes)) => {
                let row = self.shape.first().copied().unwrap_or(1);
                if !row.is_multiple_of(values) {
                    return Err(fault(format!("has rows of {row}, no multiple of {}'s block of {values}", self.ty)));
                }
                (elements / values)
                    .checked_mul(bytes)
                    .ok_or_else(|| fault(format!("has shape {:?}, more bytes than 64 bits can count", self.shape)))?
            }
        };
        let start = data_start.checked_add(self.offset);
        let end = start.and_then(|start| start.checked_add(bytes));
        match (start, end) {
            (Some(start), Some(end)) if end <= file_len => {
                self.offset = start;
                self.bytes = bytes;
                Ok(())
            }
            _ => Err(fault(format!(
                "needs {bytes} bytes at offset {} of the data, which starts at {data_start}; the file has {file_len}",
                self.offset
            ))),
        }
    }

    /// How many numbers it holds.
    pub fn elements(&self) -> u64 {
        // Checked when the file was read.
        self.shape.iter().product()
    }

    /// How many bytes it takes in the file; 0 when the type is unknown.
    pub fn byte_len(&self) -> u64 {
        self.bytes
    }

    /// Where its first byte lies, counted from the start of the file.
    pub fn file_offset(&self) -> u64 {
        self.offset
    }
}

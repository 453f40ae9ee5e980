//! Weights as they are stored in GGUF files: types, sizes, and their values in f32.
//!
//! Layouts are ggml's (`ggml-common.h`): little-endian, blocks of 32 along the columns of a row.

mod blocks;
mod wide;

pub(crate) use blocks::{BF16, Block, F16, F32, Q4_0, Q4_1, Q8_0, decode_row, scales_of};
pub(crate) use wide::{WIDE_BYTES, Wide, wide_block};

use crate::error::{Error, ErrorKind, Result};

/// How the values of a weight tensor are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightType {
    /// 4 bytes a value.
    F32,
    /// IEEE half precision, 2 bytes a value.
    F16,
    /// The upper half of an f32, 2 bytes a value.
    BF16,
    /// 32 values in 18 bytes: f16 `d`, 16 bytes `q`; value `(q - 8) * d`. Low nibbles are values 0..16.
    Q4_0,
    /// 32 values in 20 bytes: f16 `d`, f16 `m`, 16 bytes `q`; value `q * d + m`. Low nibbles are values 0..16.
    Q4_1,
    /// 32 values in 34 bytes: f16 `d`, 32 signed bytes `q`; value `q * d`.
    Q8_0,
    /// Ours, made at load from Q5_0, Q5_1, Q4_K, Q5_K and Q6_K without loss: 32 values in 44 bytes, f32 `d0`, `d1`
    /// and `m`, 32 signed bytes `q`; value `q * d0 + m` in the first half, `q * d1 + m` in the second.
    Wide,
}

impl WeightType {
    /// Every type.
    pub const ALL: [WeightType; 7] = [
        WeightType::F32,
        WeightType::F16,
        WeightType::BF16,
        WeightType::Q4_0,
        WeightType::Q4_1,
        WeightType::Q8_0,
        WeightType::Wide,
    ];

    /// ggml's name, or ours.
    pub fn as_str(self) -> &'static str {
        match self {
            WeightType::F32 => "F32",
            WeightType::F16 => "F16",
            WeightType::BF16 => "BF16",
            WeightType::Q4_0 => "Q4_0",
            WeightType::Q4_1 => "Q4_1",
            WeightType::Q8_0 => "Q8_0",
            WeightType::Wide => "wide",
        }
    }

    /// ggml's number for the type, or one beyond ggml's; also the kernels' constant `WEIGHT`.
    pub const fn code(self) -> u32 {
        match self {
            WeightType::F32 => 0,
            WeightType::F16 => 1,
            WeightType::Q4_0 => 2,
            WeightType::Q4_1 => 3,
            WeightType::Q8_0 => 8,
            WeightType::BF16 => 30,
            WeightType::Wide => 1000,
        }
    }

    /// The type of a [`WeightType::code`].
    pub fn from_code(code: u32) -> Option<Self> {
        WeightType::ALL.into_iter().find(|t| t.code() == code)
    }

    /// Bytes of 32 values.
    pub const fn bytes_of_32(self) -> usize {
        match self {
            WeightType::F32 => F32::BYTES,
            WeightType::F16 => F16::BYTES,
            WeightType::BF16 => BF16::BYTES,
            WeightType::Q4_0 => Q4_0::BYTES,
            WeightType::Q4_1 => Q4_1::BYTES,
            WeightType::Q8_0 => Q8_0::BYTES,
            WeightType::Wide => WIDE_BYTES,
        }
    }

    /// What the columns of a row must be a multiple of: 32 for the block types, 8 for the plain ones, which
    /// the kernels read 8 at a time.
    pub const fn column_multiple(self) -> usize {
        match self {
            WeightType::F32 | WeightType::F16 | WeightType::BF16 => 8,
            WeightType::Q4_0 | WeightType::Q4_1 | WeightType::Q8_0 | WeightType::Wide => 32,
        }
    }

    /// Bytes of a row of `columns` values.
    ///
    /// # Errors
    /// `Unsupported` when `columns` is 0 or no multiple of [`WeightType::column_multiple`].
    pub fn row_bytes(self, columns: usize) -> Result<usize> {
        let multiple = self.column_multiple();
        if columns == 0 || !columns.is_multiple_of(multiple) || columns > u32::MAX as usize / 4 {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{} rows of {columns} values: kernels take multiples of {multiple} up to 2^30", self.as_str()),
                "",
            ));
        }
        Ok(columns / 8 * self.bytes_of_32() / 4)
    }

    /// The most rows that a segment of at most `max_bytes` bytes can hold, even so that every segment begins at
    /// a whole word.
    ///
    /// # Errors
    /// `Unsupported` for a column count that the type does not take, or when two rows do not fit.
    pub fn rows_per_segment(self, columns: usize, max_bytes: u64) -> Result<usize> {
        let row = self.row_bytes(columns)? as u64;
        let rows = (max_bytes / row / 2 * 2).min(1 << 30);
        if rows == 0 {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "two {} rows of {columns} values are {} bytes, bindings hold {max_bytes}",
                    self.as_str(),
                    2 * row
                ),
                "use an adapter with larger bindings",
            ));
        }
        Ok(rows as usize)
    }

    /// Values of a row. `bytes` holds [`WeightType::row_bytes`] of `out.len()`; what is missing of either is left.
    pub fn decode_row(self, bytes: &[u8], out: &mut [f32]) {
        match self {
            WeightType::F32 => decode_row::<F32>(bytes, out),
            WeightType::F16 => decode_row::<F16>(bytes, out),
            WeightType::BF16 => decode_row::<BF16>(bytes, out),
            WeightType::Q4_0 => decode_row::<Q4_0>(bytes, out),
            WeightType::Q4_1 => decode_row::<Q4_1>(bytes, out),
            WeightType::Q8_0 => decode_row::<Q8_0>(bytes, out),
            WeightType::Wide => decode_row::<Wide>(bytes, out),
        }
    }
}

/// Calls `$body` with `$block` naming the [`Block`] of `$weight`.
macro_rules! with_block {
    ($weight:expr, $block:ident => $body:expr) => {
        match $weight {
            $crate::num::weights::WeightType::F32 => {
                type $block = $crate::num::weights::F32;
                $body
            }
            $crate::num::weights::WeightType::F16 => {
                type $block = $crate::num::weights::F16;
                $body
            }
            $crate::num::weights::WeightType::BF16 => {
                type $block = $crate::num::weights::BF16;
                $body
            }
            $crate::num::weights::WeightType::Q4_0 => {
                type $block = $crate::num::weights::Q4_0;
                $body
            }
            $crate::num::weights::WeightType::Q4_1 => {
                type $block = $crate::num::weights::Q4_1;
                $body
            }
            $crate::num::weights::WeightType::Q8_0 => {
                type $block = $crate::num::weights::Q8_0;
                $body
            }
            $crate::num::weights::WeightType::Wide => {
                type $block = $crate::num::weights::Wide;
                $body
            }
        }
    };
}
pub(crate) use with_block;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_follow_ggml() {
        let mut block = vec![0u8; 20];
        block[..2].copy_from_slice(&half::f16::from_f32(0.5).to_le_bytes());
        block[2..4].copy_from_slice(&half::f16::from_f32(-1.0).to_le_bytes());
        for i in 0..16 {
            block[4 + i] = (i as u8) | ((15 - i as u8) << 4);
        }
        let mut out = [f32::NAN; 32];
        WeightType::Q4_1.decode_row(&block, &mut out);
        for i in 0..16 {
            assert_eq!(out[i], i as f32 * 0.5 - 1.0);
            assert_eq!(out[i + 16], (15 - i) as f32 * 0.5 - 1.0);
        }
        block.drain(2..4);
        WeightType::Q4_0.decode_row(&block, &mut out);
        for i in 0..16 {
            assert_eq!(out[i], (i as f32 - 8.0) * 0.5);
            assert_eq!(out[i + 16], (7.0 - i as f32) * 0.5);
        }
        let mut block = half::f16::from_f32(0.25).to_le_bytes().to_vec();
        block.extend((0..32).map(|i| (i * 8 - 128) as i8 as u8));
        WeightType::Q8_0.decode_row(&block, &mut out);
        for (i, &value) in out.iter().enumerate() {
            assert_eq!(value, (i as f32 * 8.0 - 128.0) * 0.25);
        }
    }

    #[test]
    fn a_plain_row_may_end_within_a_block() {
        let values: Vec<f32> = (0..40).map(|i| i as f32 - 7.5).collect();
        let halves: Vec<u8> = values.iter().flat_map(|&v| half::f16::from_f32(v).to_le_bytes()).collect();
        let mut out = vec![f32::NAN; 40];
        WeightType::F16.decode_row(&halves, &mut out);
        assert_eq!(out, values);
    }

    #[test]
    fn sizes_and_refusals() {
        assert_eq!(WeightType::Q8_0.row_bytes(64).unwrap(), 68);
        assert_eq!(WeightType::Q4_1.row_bytes(576).unwrap(), 360);
        assert_eq!(WeightType::BF16.row_bytes(8).unwrap(), 16);
        for (weight, columns) in [(WeightType::Q4_0, 48), (WeightType::F32, 0), (WeightType::F16, 12)] {
            assert_eq!(weight.row_bytes(columns).unwrap_err().kind(), ErrorKind::Unsupported);
        }
        assert_eq!(WeightType::Q8_0.rows_per_segment(32, 34 * 5).unwrap(), 4);
        assert!(WeightType::Q8_0.rows_per_segment(32, 34).is_err());
        for weight in WeightType::ALL {
            assert_eq!(WeightType::from_code(weight.code()), Some(weight));
        }
    }
}

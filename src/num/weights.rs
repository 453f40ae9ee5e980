//! Weights as they are stored in GGUF files: types, sizes, and their values in f32.
//!
//! Layouts are ggml's (`ggml-common.h`): little-endian, blocks of 32 along the columns of a row.

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
}

impl WeightType {
    /// Every type.
    pub const ALL: [WeightType; 6] =
        [WeightType::F32, WeightType::F16, WeightType::BF16, WeightType::Q4_0, WeightType::Q4_1, WeightType::Q8_0];

    /// ggml's name.
    pub fn as_str(self) -> &'static str {
        match self {
            WeightType::F32 => "F32",
            WeightType::F16 => "F16",
            WeightType::BF16 => "BF16",
            WeightType::Q4_0 => "Q4_0",
            WeightType::Q4_1 => "Q4_1",
            WeightType::Q8_0 => "Q8_0",
        }
    }

    /// ggml's number for the type, which is also the kernels' constant `WEIGHT`.
    pub const fn code(self) -> u32 {
        match self {
            WeightType::F32 => 0,
            WeightType::F16 => 1,
            WeightType::Q4_0 => 2,
            WeightType::Q4_1 => 3,
            WeightType::Q8_0 => 8,
            WeightType::BF16 => 30,
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
        }
    }

    /// What the columns of a row must be a multiple of: 32 for the block types, 8 for the plain ones, which
    /// the kernels read 8 at a time.
    pub const fn column_multiple(self) -> usize {
        match self {
            WeightType::F32 | WeightType::F16 | WeightType::BF16 => 8,
            WeightType::Q4_0 | WeightType::Q4_1 | WeightType::Q8_0 => 32,
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
        }
    };
}
pub(crate) use with_block;

/// 32 stored values and how to read them. Inlined into code that was compiled for the machine's vectors.
pub(crate) trait Block {
    /// Bytes of 32 values.
    const BYTES: usize;
    /// An array of as many.
    type Bytes;
    /// Whether blocks begin with scales.
    const SCALED: bool;

    /// The whole blocks of a row, and what is left.
    fn blocks(row: &[u8]) -> (&[Self::Bytes], &[u8]);

    /// A block with zeros after `bytes`, of which there are fewer than [`Block::BYTES`].
    fn padded(bytes: &[u8]) -> Self::Bytes;

    /// The halves `d` and `m` of a block, `m` in the upper 16 bits; zeros where there are none.
    fn scale_bits(block: &Self::Bytes) -> u32;

    /// The values of a block whose scales are known.
    fn decode_scaled(block: &Self::Bytes, scales: [f32; 2], out: &mut [f32; 32]);

    /// The values of a block.
    #[inline(always)]
    fn decode(block: &Self::Bytes, out: &mut [f32; 32]) {
        let bits = Self::scale_bits(block);
        Self::decode_scaled(block, [half_to_f32(bits as u16), half_to_f32((bits >> 16) as u16)], out);
    }
}

/// How many blocks' scales are converted at once.
const SCALES_AT_ONCE: usize = 16;

/// The scales `d` and `m` of blocks, converted side by side: one by one they would cost more than all else of a
/// block. Nothing for types without scales.
#[inline(always)]
pub(crate) fn scales_of<B: Block>(blocks: &[B::Bytes], scales: &mut [[f32; 2]]) {
    if !B::SCALED {
        return;
    }
    for (blocks, scales) in blocks.chunks(SCALES_AT_ONCE).zip(scales.chunks_mut(SCALES_AT_ONCE)) {
        let mut bits = [0u32; SCALES_AT_ONCE];
        for (bits, block) in bits.iter_mut().zip(blocks) {
            *bits = B::scale_bits(block);
        }
        let mut values = [[0f32; 2]; SCALES_AT_ONCE];
        for i in 0..SCALES_AT_ONCE {
            values[i] = [half_to_f32(bits[i] as u16), half_to_f32((bits[i] >> 16) as u16)];
        }
        scales.copy_from_slice(&values[..scales.len()]);
    }
}

/// A type's sizes, and how to cut its rows.
macro_rules! block_bytes {
    ($bytes:literal, $scaled:literal) => {
        const BYTES: usize = $bytes;
        type Bytes = [u8; $bytes];
        const SCALED: bool = $scaled;

        #[inline(always)]
        fn blocks(row: &[u8]) -> (&[Self::Bytes], &[u8]) {
            row.as_chunks()
        }

        fn padded(bytes: &[u8]) -> Self::Bytes {
            let mut block = [0; $bytes];
            let length = bytes.len().min($bytes);
            block[..length].copy_from_slice(&bytes[..length]);
            block
        }
    };
}

pub(crate) struct F32;
pub(crate) struct F16;
pub(crate) struct BF16;
pub(crate) struct Q4_0;
pub(crate) struct Q4_1;
pub(crate) struct Q8_0;

impl Block for F32 {
    block_bytes!(128, false);

    #[inline(always)]
    fn scale_bits(_: &[u8; 128]) -> u32 {
        0
    }

    #[inline(always)]
    fn decode_scaled(block: &[u8; 128], _: [f32; 2], out: &mut [f32; 32]) {
        let words: [u32; 32] = bytemuck::cast(*block);
        for i in 0..32 {
            out[i] = f32::from_bits(u32::from_le(words[i]));
        }
    }
}

impl Block for F16 {
    block_bytes!(64, false);

    #[inline(always)]
    fn scale_bits(_: &[u8; 64]) -> u32 {
        0
    }

    #[inline(always)]
    fn decode_scaled(block: &[u8; 64], _: [f32; 2], out: &mut [f32; 32]) {
        let halves: [u16; 32] = bytemuck::cast(*block);
        for i in 0..32 {
            out[i] = half_to_f32(u16::from_le(halves[i]));
        }
    }
}

impl Block for BF16 {
    block_bytes!(64, false);

    #[inline(always)]
    fn scale_bits(_: &[u8; 64]) -> u32 {
        0
    }

    #[inline(always)]
    fn decode_scaled(block: &[u8; 64], _: [f32; 2], out: &mut [f32; 32]) {
        let halves: [u16; 32] = bytemuck::cast(*block);
        for i in 0..32 {
            out[i] = f32::from_bits(u32::from(u16::from_le(halves[i])) << 16);
        }
    }
}

impl Block for Q4_0 {
    block_bytes!(18, true);

    #[inline(always)]
    fn scale_bits(block: &[u8; 18]) -> u32 {
        u32::from(u16::from_le_bytes([block[0], block[1]]))
    }

    #[inline(always)]
    fn decode_scaled(block: &[u8; 18], [d, _]: [f32; 2], out: &mut [f32; 32]) {
        let [_, _, q @ ..] = *block;
        for i in 0..16 {
            out[i] = (i32::from(q[i] & 15) - 8) as f32 * d;
            out[i + 16] = (i32::from(q[i] >> 4) - 8) as f32 * d;
        }
    }
}

impl Block for Q4_1 {
    block_bytes!(20, true);

    #[inline(always)]
    fn scale_bits(block: &[u8; 20]) -> u32 {
        u32::from_le_bytes([block[0], block[1], block[2], block[3]])
    }

    #[inline(always)]
    fn decode_scaled(block: &[u8; 20], [d, m]: [f32; 2], out: &mut [f32; 32]) {
        let [_, _, _, _, q @ ..] = *block;
        for i in 0..16 {
            out[i] = i32::from(q[i] & 15) as f32 * d + m;
            out[i + 16] = i32::from(q[i] >> 4) as f32 * d + m;
        }
    }
}

impl Block for Q8_0 {
    block_bytes!(34, true);

    #[inline(always)]
    fn scale_bits(block: &[u8; 34]) -> u32 {
        u32::from(u16::from_le_bytes([block[0], block[1]]))
    }

    #[inline(always)]
    fn decode_scaled(block: &[u8; 34], [d, _]: [f32; 2], out: &mut [f32; 32]) {
        let [_, _, q @ ..] = *block;
        for i in 0..32 {
            out[i] = i32::from(q[i] as i8) as f32 * d;
        }
    }
}

/// Values of a row, block by block; a row of a plain type may end within a block.
#[inline(always)]
pub(crate) fn decode_row<B: Block>(bytes: &[u8], out: &mut [f32]) {
    let (whole, rest) = out.as_chunks_mut::<32>();
    let (blocks, end) = B::blocks(bytes);
    for (values, blocks) in whole.chunks_mut(SCALES_AT_ONCE).zip(blocks.chunks(SCALES_AT_ONCE)) {
        let mut scales = [[0f32; 2]; SCALES_AT_ONCE];
        scales_of::<B>(blocks, &mut scales[..blocks.len()]);
        for ((values, block), scales) in values.iter_mut().zip(blocks).zip(scales) {
            B::decode_scaled(block, scales, values);
        }
    }
    if !rest.is_empty() {
        let mut values = [0f32; 32];
        B::decode(&B::padded(end), &mut values);
        rest.copy_from_slice(&values[..rest.len()]);
    }
}

/// Exact for every code, subnormals, infinities and NaN included, and without branches or calls, so that loops
/// over it become vector code (`half` asks for the processor's features at each call). Nothing inside is a
/// subnormal f32, which processors are slow with.
#[inline(always)]
pub(crate) fn half_to_f32(half: u16) -> f32 {
    let sign = (u32::from(half) & 0x8000) << 16;
    let magnitude = (u32::from(half) & 0x7fff) << 13;
    // The exponents' biases differ by 112.
    let normal = magnitude + (112 << 23);
    // For subnormals: 2^-14 and the fraction, less 2^-14.
    let subnormal = (f32::from_bits(normal + (1 << 23)) - f32::from_bits(113 << 23)).to_bits();
    let finite = if magnitude < 1 << 23 { subnormal } else { normal };
    let bits = if magnitude >= 0x7c00 << 13 { magnitude | 0x7f80_0000 } else { finite };
    f32::from_bits(bits | sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_is_exact() {
        for code in 0..=u16::MAX {
            let (ours, theirs) = (half_to_f32(code), half::f16::from_bits(code).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{code:04x}");
        }
    }

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

//! Blocks of 32 stored values, and their decoding in code that the compiler turns into vectors.

use crate::num::f16_value;

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
        Self::decode_scaled(block, [f16_value(bits as u16), f16_value((bits >> 16) as u16)], out);
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
            values[i] = [f16_value(bits[i] as u16), f16_value((bits[i] >> 16) as u16)];
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
            out[i] = f16_value(u16::from_le(halves[i]));
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

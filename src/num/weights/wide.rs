//! One stored form for the block types whose scales are finer or of more parts than the others': what they hold,
//! spread out so that a kernel needs no bit work, and exact.

use super::Block;

/// 32 signed codes of 8 bits, an f32 scale for each half of them, and an f32 offset: value `q · d[half] + m`.
///
/// In bytes: `d[0]`, `d[1]`, `m`, then the codes; little-endian.
pub(crate) struct Wide;

/// Bytes of a block of [`Wide`].
pub(crate) const WIDE_BYTES: usize = 44;

/// The bytes of a block.
pub(crate) fn wide_block(scales: [f32; 2], offset: f32, codes: &[i8; 32]) -> [u8; WIDE_BYTES] {
    let mut block = [0; WIDE_BYTES];
    for (at, number) in [scales[0], scales[1], offset].into_iter().enumerate() {
        block[4 * at..4 * at + 4].copy_from_slice(&number.to_le_bytes());
    }
    block[12..].copy_from_slice(bytemuck::cast_slice(codes));
    block
}

impl Block for Wide {
    const BYTES: usize = WIDE_BYTES;
    type Bytes = [u8; WIDE_BYTES];
    const SCALED: bool = false;

    #[inline(always)]
    fn blocks(row: &[u8]) -> (&[Self::Bytes], &[u8]) {
        row.as_chunks()
    }

    fn padded(bytes: &[u8]) -> Self::Bytes {
        let mut block = [0; WIDE_BYTES];
        let length = bytes.len().min(WIDE_BYTES);
        block[..length].copy_from_slice(&bytes[..length]);
        block
    }

    #[inline(always)]
    fn scale_bits(_: &Self::Bytes) -> u32 {
        0
    }

    #[inline(always)]
    fn decode_scaled(block: &Self::Bytes, _: [f32; 2], out: &mut [f32; 32]) {
        let number = |at: usize| f32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
        let (low, high, offset) = (number(0), number(4), number(8));
        let [_, _, _, _, _, _, _, _, _, _, _, _, codes @ ..] = *block;
        for i in 0..16 {
            out[i] = i32::from(codes[i] as i8) as f32 * low + offset;
            out[i + 16] = i32::from(codes[i + 16] as i8) as f32 * high + offset;
        }
    }
}

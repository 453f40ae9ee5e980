//! From ggml's blocks to plain floats, on the CPU: the reference for every faster path.

use half::{bf16, f16};

use super::tensor::{GgmlType, TensorInfo};
use super::widen::{widen, widens};
use crate::error::{Error, ErrorKind, Result};
use crate::num::weights::{WIDE_BYTES, WeightType};

/// What to do about a type that is not read.
pub const READ: &str = "use a model file of F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K or Q6_K tensors";

/// The numbers of `tensor`, whose stored form is `bytes`, in the file's order (contiguous dimension first).
///
/// F32, F16, BF16, Q4_0, Q4_1, Q8_0 and what [`widen`] takes (Q5_0, Q5_1, Q4_K, Q5_K, Q6_K) are read; any other type
/// is `Unsupported`, and a `bytes` of the wrong length is a `Shape` error.
pub fn dequantize(tensor: &TensorInfo, bytes: &[u8]) -> Result<Vec<f32>> {
    use GgmlType::*;
    if !matches!(tensor.ty, F32 | F16 | BF16 | Q4_0 | Q4_1 | Q8_0) && !widens(tensor.ty) {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!("tensor `{}` is of {}, which is not read", tensor.name, tensor.ty),
            READ,
        ));
    }
    if bytes.len() as u64 != tensor.byte_len() {
        return Err(Error::new(
            ErrorKind::Shape,
            format!("tensor `{}` takes {} bytes; {} were given", tensor.name, tensor.byte_len(), bytes.len()),
            "pass what Gguf::tensor_bytes returns",
        ));
    }
    if let Some(wide) = widen(tensor.ty, bytes) {
        let mut values = vec![0.0; wide.len() / WIDE_BYTES * 32];
        WeightType::Wide.decode_row(&wide, &mut values);
        return Ok(values);
    }
    Ok(match tensor.ty {
        F32 => each(bytes, f32::from_le_bytes),
        F16 => each(bytes, |b| f16::from_le_bytes(b).to_f32()),
        BF16 => each(bytes, |b| bf16::from_le_bytes(b).to_f32()),
        Q4_0 => blocks::<18>(bytes, |block, out| {
            let d = half_at(block, 0);
            nibbles(&block[2..], out, |q| (f32::from(q) - 8.0) * d);
        }),
        Q4_1 => blocks::<20>(bytes, |block, out| {
            let (d, m) = (half_at(block, 0), half_at(block, 2));
            nibbles(&block[4..], out, |q| f32::from(q) * d + m);
        }),
        // Q8_0: the only type of the list above that is left.
        _ => blocks::<34>(bytes, |block, out| {
            let d = half_at(block, 0);
            for (x, &q) in out.iter_mut().zip(&block[2..]) {
                *x = f32::from(q as i8) * d;
            }
        }),
    })
}

fn each<const N: usize>(bytes: &[u8], read: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    bytes.as_chunks::<N>().0.iter().map(|&chunk| read(chunk)).collect()
}

/// Decodes blocks of `N` bytes to 32 values each.
fn blocks<const N: usize>(bytes: &[u8], decode: impl Fn(&[u8; N], &mut [f32; 32])) -> Vec<f32> {
    let (blocks, _) = bytes.as_chunks::<N>();
    let mut out = vec![0.0; blocks.len() * 32];
    for (block, values) in blocks.iter().zip(out.as_chunks_mut::<32>().0) {
        decode(block, values);
    }
    out
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Sixteen bytes hold 32 numbers: the low nibble of byte `j` is element `j`, the high one element `j + 16`.
fn nibbles(packed: &[u8], out: &mut [f32; 32], value: impl Fn(u8) -> f32) {
    let (low, high) = out.split_at_mut(16);
    for ((&byte, low), high) in packed.iter().zip(low).zip(high) {
        *low = value(byte & 15);
        *high = value(byte >> 4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(ty: GgmlType, elements: u64) -> TensorInfo {
        let mut t = TensorInfo::unplaced("t".into(), ty, vec![elements], 0);
        t.place(0, 8, 1 << 20).unwrap();
        t
    }

    #[test]
    fn q4_0_low_nibbles_come_first() {
        let mut block = f16::from_f32(0.5).to_le_bytes().to_vec();
        block.extend((0..16u8).map(|j| j | ((15 - j) << 4)));
        let out = dequantize(&tensor(GgmlType::Q4_0, 32), &block).unwrap();
        for j in 0..16 {
            assert_eq!(out[j], (j as f32 - 8.0) * 0.5);
            assert_eq!(out[j + 16], (7.0 - j as f32) * 0.5);
        }
    }

    #[test]
    fn q4_1_adds_the_minimum_and_q8_0_is_signed() {
        let mut block = f16::from_f32(0.25).to_le_bytes().to_vec();
        block.extend(f16::from_f32(-1.0).to_le_bytes());
        block.extend([0xF0; 16]);
        let out = dequantize(&tensor(GgmlType::Q4_1, 32), &block).unwrap();
        assert_eq!((out[0], out[15], out[16], out[31]), (-1.0, -1.0, 2.75, 2.75));

        let mut block = f16::from_f32(2.0).to_le_bytes().to_vec();
        block.extend((0..32).map(|j| (j as i8 - 16) as u8));
        let out = dequantize(&tensor(GgmlType::Q8_0, 32), &block).unwrap();
        assert!(out.iter().enumerate().all(|(j, &x)| x == (j as f32 - 16.0) * 2.0));
    }

    #[test]
    fn plain_floats() {
        let halves: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect();
        assert_eq!(dequantize(&tensor(GgmlType::F16, 2), &halves).unwrap(), [1.5, -2.0]);
        let brains: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect();
        assert_eq!(dequantize(&tensor(GgmlType::BF16, 2), &brains).unwrap(), [1.5, -2.0]);
        assert_eq!(dequantize(&tensor(GgmlType::F32, 1), &3.25f32.to_le_bytes()).unwrap(), [3.25]);
    }

    #[test]
    fn refusals_name_tensor_and_type() {
        let error = dequantize(&tensor(GgmlType::Q3_K, 256), &[0; 110]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains("`t`") && error.message().contains("Q3_K"), "{error}");
        assert_eq!(dequantize(&tensor(GgmlType::F32, 2), &[0; 4]).unwrap_err().kind(), ErrorKind::Shape);
    }
}

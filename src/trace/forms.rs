//! How some fields are written: one way for people (JSON), one for the file.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The text of a token: a string for people, with U+FFFD where a piece ends within a character; its bytes in the file.
pub(crate) mod text {
    use super::*;

    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        match to.is_human_readable() {
            true => to.serialize_str(&String::from_utf8_lossy(bytes)),
            false => bytes.serialize(to),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        match from.is_human_readable() {
            true => Ok(String::deserialize(from)?.into_bytes()),
            false => Vec::deserialize(from),
        }
    }
}

/// Bytes of the two sides of a page: hexadecimal for people.
pub(crate) mod bytes_of_sides {
    use super::*;
    use std::fmt::Write;

    pub fn serialize<S: Serializer>(sides: &[Vec<u8>; 2], to: S) -> Result<S::Ok, S::Error> {
        if !to.is_human_readable() {
            return sides.serialize(to);
        }
        let hex = |bytes: &Vec<u8>| {
            bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            })
        };
        [hex(&sides[0]), hex(&sides[1])].serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[Vec<u8>; 2], D::Error> {
        if !from.is_human_readable() {
            return Deserialize::deserialize(from);
        }
        let [k, v] = <[String; 2]>::deserialize(from)?;
        let bytes = |hex: String| -> Result<Vec<u8>, D::Error> {
            let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap_or_default());
            let values = digits.map(|pair| u8::from_str_radix(pair, 16).map_err(serde::de::Error::custom));
            values.collect()
        };
        Ok([bytes(k)?, bytes(v)?])
    }
}

/// Shares of attention: in the file as 16-bit floats, whose relative error is below 2⁻¹¹ down to 6 · 10⁻⁵.
pub(crate) mod shares {
    use super::*;
    use half::f16;

    pub fn serialize<S: Serializer>(shares: &[Vec<f32>], to: S) -> Result<S::Ok, S::Error> {
        match to.is_human_readable() {
            true => shares.serialize(to),
            false => {
                let halves = |list: &Vec<f32>| list.iter().map(|&x| f16::from_f32(x).to_bits()).collect::<Vec<u16>>();
                shares.iter().map(halves).collect::<Vec<_>>().serialize(to)
            }
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Vec<f32>>, D::Error> {
        match from.is_human_readable() {
            true => Vec::deserialize(from),
            false => {
                let lists = Vec::<Vec<u16>>::deserialize(from)?;
                let floats = |list: Vec<u16>| list.into_iter().map(|bits| f16::from_bits(bits).to_f32()).collect();
                Ok(lists.into_iter().map(floats).collect())
            }
        }
    }
}

/// `k` or `v`; 0 or 1 in the file.
pub(crate) mod side {
    use super::*;
    use crate::shape::Side;

    pub fn serialize<S: Serializer>(side: &Side, to: S) -> Result<S::Ok, S::Error> {
        match (to.is_human_readable(), side) {
            (true, Side::K) => to.serialize_str("k"),
            (true, Side::V) => to.serialize_str("v"),
            (false, side) => to.serialize_u8(u8::from(*side == Side::V)),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Side, D::Error> {
        let wrong = |word: &dyn std::fmt::Display| serde::de::Error::custom(format!("{word} is no side"));
        if from.is_human_readable() {
            return match String::deserialize(from)?.as_str() {
                "k" => Ok(Side::K),
                "v" => Ok(Side::V),
                other => Err(wrong(&other)),
            };
        }
        match u8::deserialize(from)? {
            0 => Ok(Side::K),
            1 => Ok(Side::V),
            other => Err(wrong(&other)),
        }
    }
}

//! What a page holds, in 16 bytes: the same tokens after the same tokens have the same key.

use std::fmt;
use xxhash_rust::xxh3::xxh3_128;

/// Names the content of a page, whatever its format: a hash of the page before it, its token ids, the model and the
/// basis. XXH3 (128 bits): no accident makes two keys equal, a forger could. Who shares pages between parties that do
/// not trust each other compares token ids as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentKey(pub [u8; 16]);

impl ContentKey {
    /// The key of the page of `tokens` that follows the page `parent`, or begins a sequence. `model` names the exact
    /// weights, `basis` the coordinates of both sides.
    ///
    /// The hash is of, in little endian: `"kvarto page 1"`, the parent (16 zero bytes without one), then `model`,
    /// `basis` and `tokens`, each after its length (bytes or tokens) in 8 bytes.
    pub fn of(parent: Option<ContentKey>, tokens: &[u32], model: &str, basis: &str) -> Self {
        let mut bytes = Vec::with_capacity(64 + model.len() + basis.len() + tokens.len() * 4);
        bytes.extend_from_slice(b"kvarto page 1");
        bytes.extend_from_slice(&parent.map_or([0; 16], |key| key.0));
        for text in [model, basis] {
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes.extend_from_slice(&(tokens.len() as u64).to_le_bytes());
        tokens.iter().for_each(|id| bytes.extend_from_slice(&id.to_le_bytes()));
        ContentKey(xxh3_128(&bytes).to_be_bytes())
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for ContentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_another_implementation() {
        // By the reference library's Python binding over the bytes that the documentation states.
        let first = ContentKey::of(None, &[1, 2, 300, 70_000], "model", "hadamard/none");
        assert_eq!(first.to_string(), "605a338bcffc3d70e7524966c0cc0a67");
        let second = ContentKey::of(Some(first), &(0..64).collect::<Vec<u32>>(), "model", "none/none");
        assert_eq!(second.to_string(), "d4c1688f669019736639b1ff09bd6239");
    }

    #[test]
    fn every_part_counts() {
        let tokens = [5u32, 6, 7];
        let one = ContentKey::of(None, &tokens, "ab", "c");
        let others = [
            ContentKey::of(Some(one), &tokens, "ab", "c"),
            ContentKey::of(None, &[5, 6], "ab", "c"),
            ContentKey::of(None, &[5, 7, 6], "ab", "c"),
            ContentKey::of(None, &tokens, "a", "c"),
            ContentKey::of(None, &tokens, "a", "bc"),
            ContentKey::of(None, &tokens, "ab", ""),
        ];
        assert_eq!(ContentKey::of(None, &tokens, "ab", "c"), one);
        assert!(others.iter().all(|other| *other != one));
    }
}

//! The 32 bytes by which kernels know a page.

use crate::format::FormatId;

/// Marks an absent row in `extra` and `side`.
pub const NONE: u32 = u32::MAX;

/// Flag bits of a descriptor.
pub mod flags {
    /// The page is full and encoded; it changes no more.
    pub const SEALED: u16 = 1;
    /// Kept in its format by the caller.
    pub const PINNED: u16 = 2;
    /// Made from the decoded tokens of a sealed page.
    pub const REOPENED: u16 = 4;
    /// Reserved: explicit positions.
    pub const POSITIONS: u16 = 1 << 8;
    /// Reserved: a bit mask of live tokens.
    pub const LIVE: u16 = 1 << 9;
    /// Reserved: rows without token identity.
    pub const SYNTHETIC: u16 = 1 << 10;
}

/// Where a page's bytes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Tier {
    /// In the backend's memory.
    #[default]
    Device,
}

/// One page as kernels read it: `u32 × 8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageDescriptor {
    /// Format of the K side.
    pub k_format: FormatId,
    /// Format of the V side.
    pub v_format: FormatId,
    /// See [`flags`].
    pub flags: u16,
    /// Tokens from the page's start that hold data.
    pub valid_tokens: u16,
    /// Where the bytes are.
    pub tier: Tier,
    /// The group of segments that holds both slots; below 4096.
    pub segment_group: u16,
    /// Grows with every change of format or place.
    pub generation: u32,
    /// Position of token 0.
    pub first_position: u32,
    /// Slot of the K side in its segment.
    pub k_slot: u32,
    /// Slot of the V side in its segment.
    pub v_slot: u32,
}

impl PageDescriptor {
    /// Bytes of a descriptor in device memory.
    pub const BYTES: usize = 32;

    /// Whether the page is sealed.
    pub fn sealed(&self) -> bool {
        self.flags & flags::SEALED != 0
    }

    /// The words that kernels read.
    pub fn words(&self) -> [u32; 8] {
        let tier = match self.tier {
            Tier::Device => 0u32,
        };
        [
            u32::from(self.k_format.0) | u32::from(self.v_format.0) << 8 | u32::from(self.flags) << 16,
            u32::from(self.valid_tokens) | tier << 16 | u32::from(self.segment_group) << 20,
            self.generation,
            self.first_position,
            self.k_slot,
            self.v_slot,
            NONE,
            NONE,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_where_kernels_look_for_them() {
        let words = PageDescriptor {
            k_format: FormatId(3),
            v_format: FormatId(4),
            flags: flags::SEALED | flags::PINNED,
            valid_tokens: 64,
            tier: Tier::Device,
            segment_group: 5,
            generation: 9,
            first_position: 128,
            k_slot: 7,
            v_slot: 8,
        }
        .words();
        assert_eq!(words, [0x0003_0403, 64 | 5 << 20, 9, 128, 7, 8, NONE, NONE]);
    }
}

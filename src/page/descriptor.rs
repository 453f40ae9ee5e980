//! The 32 bytes by which kernels know a page.

use crate::error::{Error, ErrorKind, Result};
use crate::format::FormatId;

/// Marks an absent row in `extra` and `side`.
pub const NONE: u32 = u32::MAX;

/// Flag bits of a descriptor.
pub mod flags {
    use crate::error::{Error, ErrorKind, Result};

    /// The page is full and encoded; it changes no more.
    pub const SEALED: u16 = 1;
    /// Kept in its format by the caller.
    pub const PINNED: u16 = 2;
    /// Made from the decoded tokens of a sealed page.
    pub const REOPENED: u16 = 4;
    /// Reserved: the page's tokens have explicit u32 positions, not consecutive ones. Refused until built.
    pub const POSITIONS: u16 = 1 << 8;
    /// Reserved: a bit mask says which of the page's tokens live. Refused until built.
    pub const LIVE: u16 = 1 << 9;
    /// Reserved: the page's rows were made up and stand for no token. Refused until built.
    pub const SYNTHETIC: u16 = 1 << 10;

    /// Flags that kernels and the engine know.
    const BUILT: u16 = SEALED | PINNED | REOPENED;
    const RESERVED: [(u16, &str, &str); 3] = [
        (POSITIONS, "positions", "explicit positions"),
        (LIVE, "live", "a bit mask of live tokens"),
        (SYNTHETIC, "synthetic", "rows without token identity"),
    ];

    /// Refuses flags that nothing would heed: read as an ordinary page, such a page would give wrong attention.
    ///
    /// # Errors
    /// `Unsupported` naming the reserved flag, or the bits that are not known.
    #[inline]
    pub fn check(flags: u16) -> Result<()> {
        if flags & !BUILT == 0 { Ok(()) } else { Err(refusal(flags)) }
    }

    #[cold]
    fn refusal(flags: u16) -> Error {
        match RESERVED.iter().find(|(bit, ..)| flags & bit != 0) {
            Some((_, name, what)) => Error::new(
                ErrorKind::Unsupported,
                format!("the page flag `{name}` ({what}) is reserved and not built yet"),
                "use pages of consecutive, live, real tokens",
            ),
            None => Error::new(
                ErrorKind::Unsupported,
                format!("page flags {flags:#06x}: {:#06x} are not known", flags & !BUILT),
                "the page table is damaged, or of a newer version",
            ),
        }
    }
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
    /// Row among the pool's descriptors that holds the slots of its further parts (word 0 of K, word 1 of V; all ones where
    /// a side is in one piece), or [`NONE`] where both sides are.
    pub extra: u32,
    /// Row of its side planes' record among those of the pool, or [`NONE`] where no planes are declared.
    pub side: u32,
}

impl PageDescriptor {
    /// Bytes of a descriptor in device memory.
    pub const BYTES: usize = 32;

    /// Whether the page is sealed.
    pub fn sealed(&self) -> bool {
        self.flags & flags::SEALED != 0
    }

    /// The descriptor that `words` are: of a page table or a snapshot that came from elsewhere.
    ///
    /// # Errors
    /// `Unsupported` for flags ([`flags::check`]) or tiers that are not built; nothing is guessed.
    pub fn from_words(words: [u32; 8]) -> Result<Self> {
        let page_flags = (words[0] >> 16) as u16;
        flags::check(page_flags)?;
        let refuse =
            |what: String| Err(Error::new(ErrorKind::Unsupported, what, "the page table is of a newer version"));
        let tier = match words[1] >> 16 & 15 {
            0 => Tier::Device,
            other => return refuse(format!("pages of tier {other} are not built yet")),
        };
        Ok(PageDescriptor {
            k_format: FormatId(words[0] as u8),
            v_format: FormatId((words[0] >> 8) as u8),
            flags: page_flags,
            valid_tokens: words[1] as u16,
            tier,
            segment_group: (words[1] >> 20) as u16,
            generation: words[2],
            first_position: words[3],
            k_slot: words[4],
            v_slot: words[5],
            extra: words[6],
            side: words[7],
        })
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
            self.extra,
            self.side,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> PageDescriptor {
        PageDescriptor {
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
            extra: 10,
            side: 11,
        }
    }

    #[test]
    fn fields_stand_where_kernels_look_for_them() {
        let words = page().words();
        assert_eq!(words, [0x0003_0403, 64 | 5 << 20, 9, 128, 7, 8, 10, 11]);
        assert_eq!(PageDescriptor::from_words(words).unwrap(), page());
    }

    #[test]
    fn what_is_not_built_is_refused_by_name() {
        for (flag, name) in [(flags::POSITIONS, "positions"), (flags::LIVE, "live"), (flags::SYNTHETIC, "synthetic")] {
            let words = PageDescriptor { flags: flags::SEALED | flag, ..page() }.words();
            let error = PageDescriptor::from_words(words).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.message().contains(&format!("`{name}`")), "{error}");
        }
        // Bits 3 to 7 and 11 to 15 mean nothing.
        for bit in (3..8).chain(11..16) {
            let error = flags::check(1 << bit).unwrap_err();
            assert!(error.message().contains(&format!("{:#06x}", 1u16 << bit)), "{error}");
        }
        assert!((0..8).all(|known| flags::check(known).is_ok()));
        let mut words = page().words();
        words[1] |= 1 << 16;
        let error = PageDescriptor::from_words(words).unwrap_err();
        assert!(error.message().contains("tier 1"), "{error}");
    }
}

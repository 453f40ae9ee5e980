//! What events say of pages, steps and memory.

use crate::engine::SeqId;
use crate::shape::Side;
use std::borrow::Cow;
use std::sync::Arc;

/// A reason or the like: the engine's own words cost nothing, words from a file are owned.
pub type Word = Cow<'static, str>;

/// Names of a K and a V format.
pub type Formats = (Arc<str>, Arc<str>);

/// A page: where it belongs and how it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct PageFacts {
    /// Cache group.
    pub group: usize,
    /// Index of its descriptor in the group.
    pub page: u32,
    /// Model layer.
    pub layer: u32,
    /// KV head.
    pub kv_head: u32,
    /// Its number in every sequence that holds it: position of its first token / tokens of a page.
    pub number: u32,
    /// Formats.
    pub formats: Formats,
    /// Slots of the K and the V side, in segments of `segment_group`.
    pub slots: [u32; 2],
    /// The group of segments that both slots are in.
    pub segment_group: u16,
    /// Grows with every change of format or place.
    pub generation: u32,
    /// As [`crate::page::flags`], but for that of pins: those are of tokens.
    pub flags: u16,
    /// Bytes of both sides' slots.
    pub bytes: u64,
}

/// Rows of a sequence in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct SequenceRows {
    /// Which sequence.
    pub sequence: SeqId,
    /// Position of the first row.
    pub first_position: u32,
    /// Rows.
    pub rows: u32,
    /// Whether they stand.
    pub committed: bool,
}

/// A finished step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct StepFacts {
    /// Steps so far, this one included.
    pub step: u64,
    /// Query rows in it.
    pub rows: u32,
    /// Bytes of pages read by decoding rows.
    pub read_bytes: u64,
    /// Host time from the step's beginning to its end, nanoseconds. The end of a step that is not waited for comes before
    /// the device's.
    pub host_ns: u64,
    /// Bytes read and written to seal, convert, reopen and copy pages.
    pub moved_bytes: u64,
    /// Of the host time, that for asking the policy and preparing its moves, nanoseconds.
    pub policy_ns: u64,
    /// Moves that were beyond the step's bound, or had no room, and wait.
    pub waiting_moves: u64,
    /// How often the step was cut so that no submission takes too long.
    pub splits: u64,
    /// Rows by sequence, those without rows left out.
    pub sequences: Vec<SequenceRows>,
}

/// Time of one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct KernelShare {
    /// Its name.
    pub kernel: Word,
    /// Dispatches.
    pub dispatches: u64,
    /// Nanoseconds, summed.
    pub nanoseconds: u64,
}

/// A token and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct TokenPiece {
    /// Its id.
    pub id: u32,
    /// Its bytes: pieces can end within a character.
    #[cfg_attr(feature = "trace", serde(with = "crate::trace::forms::text"))]
    pub text: Vec<u8>,
}

/// Bytes of slots in use of one side and format.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct SideBytes {
    /// Side.
    #[cfg_attr(feature = "trace", serde(with = "crate::trace::forms::side"))]
    pub side: Side,
    /// Format. Of a page in two parts the first part counts as the format that it is a page of.
    pub format: Arc<str>,
    /// Bytes.
    pub bytes: u64,
}

/// Bytes of memory by class, as the allocator counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct MemoryClasses {
    /// Slots in use by side and format.
    pub pages: Vec<SideBytes>,
    /// Whole segments, the slots in use among them.
    pub segment_bytes: u64,
    /// Step tables.
    pub table_bytes: u64,
    /// Descriptors.
    pub descriptor_bytes: u64,
    /// Means and sink logits.
    pub basis_bytes: u64,
    /// Side planes.
    pub side_bytes: u64,
    /// Queries, partial states, staging, memory of selector and policy.
    pub scratch_bytes: u64,
    /// Everything else on the same backend: a model's weights and activations.
    pub other_bytes: u64,
    /// Bound on the slots in use.
    pub budget_bytes: Option<u64>,
}

impl MemoryClasses {
    /// Slots in use.
    pub fn used_slot_bytes(&self) -> u64 {
        self.pages.iter().fold(0, |sum, p| sum.saturating_add(p.bytes))
    }

    /// Slots reserved and not in use.
    pub fn free_slot_bytes(&self) -> u64 {
        self.segment_bytes.saturating_sub(self.used_slot_bytes())
    }

    /// All classes together: what the backend counts.
    pub fn total(&self) -> u64 {
        let metadata = [self.table_bytes, self.descriptor_bytes, self.basis_bytes, self.side_bytes];
        let rest = [self.segment_bytes, self.scratch_bytes, self.other_bytes];
        metadata.into_iter().chain(rest).fold(0, u64::saturating_add)
    }
}

//! What happened in a cache, for whoever listens: bounded queues, drops counted, never a wait.
//!
//! Events say what changed; [`Snapshot`] says what is. A listener who has a snapshot and heard every event since knows
//! which pages each sequence holds, in which formats and slots, and how many bytes they take. With nobody listening no
//! event is made.

mod announce;
mod facts;
mod listeners;
mod reads;
mod snapshot;

pub(super) use announce::sequence_rows;

pub use facts::{Formats, KernelShare, MemoryClasses, PageFacts, SequenceRows, SideBytes, StepFacts, TokenPiece, Word};
pub(super) use listeners::Listeners;
pub use listeners::{Next, Subscription, Timed};
pub use reads::{PageSet, ReadFacts, Reads};
pub use snapshot::{GroupFacts, HeldPages, SequenceFacts, Snapshot};

use super::SeqId;
use std::ops::Range;
use std::sync::Arc;

/// One thing that happened.
///
/// A page is named by its cache group and the index of its descriptor, which other pages get once it was freed.
///
/// In traces an event's number is its place in this list, and its fields follow in this order: new events come last.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "trace", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Event {
    /// A sequence began.
    SequenceCreated {
        /// Which.
        sequence: SeqId,
    },
    /// A sequence was made from another. It holds the pages of the first `at_tokens` tokens, shared.
    SequenceForked {
        /// The new one.
        sequence: SeqId,
        /// Its origin.
        from: SeqId,
        /// Tokens in common.
        at_tokens: u32,
    },
    /// A sequence was cut: pages that lie wholly after its tokens were let go of.
    SequenceTruncated {
        /// Which.
        sequence: SeqId,
        /// Tokens that it has now.
        tokens: u32,
    },
    /// Rows of a sequence that could be taken back now stand.
    SequenceCommitted {
        /// Which.
        sequence: SeqId,
        /// Tokens that stand.
        tokens: u32,
    },
    /// A sequence ended and let go of all its pages.
    SequenceReleased {
        /// Which.
        sequence: SeqId,
    },
    /// The caller keeps the pages of some tokens in their formats ([`crate::engine::Engine::pin`]).
    TokensPinned {
        /// Of which sequence.
        sequence: SeqId,
        /// Its tokens.
        tokens: Range<u32>,
        /// The caller's word.
        reason: Word,
    },
    /// The caller marked tokens as an anchor ([`crate::engine::Engine::anchor`]).
    TokensAnchored {
        /// Of which sequence.
        sequence: SeqId,
        /// Its tokens.
        tokens: Range<u32>,
    },
    /// A sequence got a page of its own: a new one for its rows, or a copy of one that it held at this number.
    PageAllocated {
        /// Which sequence.
        sequence: SeqId,
        /// The page.
        page: PageFacts,
        /// The page it replaces in the sequence and has its tokens from.
        copy_of: Option<u32>,
        /// `rows`, `copied` (a shared page that is written) or `reopened` (a sealed page that was cut).
        reason: Word,
    },
    /// A page's sides are stored in other formats or slots.
    PageConverted {
        /// The page as it is now.
        page: PageFacts,
        /// Formats before.
        from: Formats,
        /// Bytes of its slots before.
        from_bytes: u64,
        /// `sealed`, or a policy's word.
        reason: Word,
    },
    /// A policy took a page from a sequence; it is free unless another sequence holds it.
    PageEvicted {
        /// Which sequence.
        sequence: SeqId,
        /// The page.
        page: PageFacts,
        /// The policy's word.
        reason: Word,
    },
    /// A sequence let go of pages behind a window; they are free unless another sequence holds them.
    PagesLeftBehind {
        /// Which sequence.
        sequence: SeqId,
        /// Cache group.
        group: usize,
        /// Numbers of the pages in the sequence, in every layer and head of the group.
        pages: Range<usize>,
    },
    /// A fork holds pages of its origin: one owner more for each.
    PagesShared {
        /// The fork.
        sequence: SeqId,
        /// Its origin.
        from: SeqId,
        /// Cache group.
        group: usize,
        /// Pages, of all layers and heads.
        pages: u64,
        /// Bytes of their slots.
        bytes: u64,
    },
    /// Nobody holds these pages any more.
    PagesFreed {
        /// Cache group.
        group: usize,
        /// The pages, in the order in which they were let go of.
        pages: Vec<u32>,
        /// Bytes of their slots.
        bytes: u64,
        /// `released`, `truncated`, `evicted`, `left behind`, or `replaced` by a copy.
        reason: Word,
    },
    /// A step was recorded or submitted.
    StepDone(StepFacts),
    /// Which pages the rows of a sequence read in the newest step.
    UnitsRead(ReadFacts),
    /// Time of kernels since the last such event, where it is taken ([`crate::engine::Engine::set_timing`]).
    KernelTimes {
        /// Steps so far.
        step: u64,
        /// By kernel.
        kernels: Vec<KernelShare>,
    },
    /// Bytes of memory changed.
    MemoryUsed(MemoryClasses),
    /// Tokens whose ids a model gave to the cache, with their text. Model level: the engine knows none.
    Tokens {
        /// Of which sequence.
        sequence: SeqId,
        /// Position of the first.
        first_position: u32,
        /// The tokens, in order.
        tokens: Vec<TokenPiece>,
    },
    /// From here on new sequences have this profile. Engines do not tell it, since theirs is fixed; it is for callers that
    /// exchange engines ([`Engine::announce`](crate::engine::Engine::announce)).
    ProfileChanged {
        /// Its text, as `kvarto profiles show` prints it.
        text: Arc<str>,
    },
    /// Shares of attention that the rows of a sequence gave to pages, in a sampled step.
    AttentionMass(MassFacts),
    /// What a page holds.
    PageData {
        /// The page.
        page: PageFacts,
        /// Bytes of the K side and of the V side, as their formats lay them out, further parts after the first ones.
        #[cfg_attr(feature = "trace", serde(with = "crate::trace::forms::bytes_of_sides"))]
        sides: [Vec<u8>; 2],
    },
    /// How far the stored rows of a page are from the exact ones that it was sealed from, in the coordinates of its basis.
    PageError {
        /// The page as it is now.
        page: PageFacts,
        /// Root of the mean squared difference over that of the exact values, K and V.
        relative_rms: [f32; 2],
        /// Largest difference, K and V.
        largest: [f32; 2],
    },
    /// What a selector's choice kept of a layer and head in a sampled step. No engine tells it yet: the mass of pages that were
    /// not read is not known where nobody scores them.
    SelectionQuality {
        /// Steps so far.
        step: u64,
        /// Which sequence.
        sequence: SeqId,
        /// Model layer.
        layer: u32,
        /// KV head.
        kv_head: u32,
        /// Share of the attention mass that the pages read have.
        mass_kept: f32,
        /// Share of the pages with most mass that were read.
        recall: f32,
    },
    /// Events were lost because the listener was slow, or it has only begun: this is the state from here on.
    Resync {
        /// Events lost since the last one heard.
        dropped: u64,
        /// The state.
        snapshot: Box<Snapshot>,
    },
}

impl Event {
    /// The event's number in traces: its place in this list.
    pub fn number(&self) -> usize {
        match self {
            Event::SequenceCreated { .. } => 0,
            Event::SequenceForked { .. } => 1,
            Event::SequenceTruncated { .. } => 2,
            Event::SequenceCommitted { .. } => 3,
            Event::SequenceReleased { .. } => 4,
            Event::TokensPinned { .. } => 5,
            Event::TokensAnchored { .. } => 6,
            Event::PageAllocated { .. } => 7,
            Event::PageConverted { .. } => 8,
            Event::PageEvicted { .. } => 9,
            Event::PagesLeftBehind { .. } => 10,
            Event::PagesShared { .. } => 11,
            Event::PagesFreed { .. } => 12,
            Event::StepDone(_) => 13,
            Event::UnitsRead(_) => 14,
            Event::KernelTimes { .. } => 15,
            Event::MemoryUsed(_) => 16,
            Event::Tokens { .. } => 17,
            Event::ProfileChanged { .. } => 18,
            Event::AttentionMass(_) => 19,
            Event::PageData { .. } => 20,
            Event::PageError { .. } => 21,
            Event::SelectionQuality { .. } => 22,
            Event::Resync { .. } => 23,
        }
    }
}

/// Shares of attention by page.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct MassFacts {
    /// Steps so far.
    pub step: u64,
    /// Which sequence.
    pub sequence: SeqId,
    /// Cache group.
    pub group: usize,
    /// Model layer.
    pub layer: u32,
    /// Number of the first page of the lists.
    pub first_page: u32,
    /// By KV head, then by page from `first_page` on: the share of softmax weight, mean over the head's query heads and
    /// the step's rows. Pages that were not read have 0; a list sums to 1.
    #[cfg_attr(feature = "trace", serde(with = "crate::trace::forms::shares"))]
    pub shares: Vec<Vec<f32>>,
}

//! Policies: what becomes of pages over time. A policy emits moves; it never touches bytes itself.

mod age_anchor;
mod keep;
mod registry;
mod streaming;

pub use age_anchor::AgeAnchor;
pub use keep::Keep;
pub(crate) use registry::plain;
pub use registry::{MakePolicy, PolicyRegistry};
pub use streaming::Streaming;

use crate::backend::Backend;
use crate::engine::{MassFacts, SeqId, TapCall, TapMemory};
use crate::error::Result;
use crate::needs::{Needs, untaken};
use crate::parameters::Parameters;
use crate::shape::CacheShape;
use std::ops::Range;
use std::sync::Arc;

/// A sealed page as a policy sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageView {
    /// The sequence asked about; a shared page shows up under each owner.
    pub sequence: SeqId,
    /// Cache group.
    pub group: usize,
    /// Model layer.
    pub layer: usize,
    /// KV head.
    pub kv_head: usize,
    /// Index of the page in its sequence.
    pub page: usize,
    /// Tokens of a page.
    pub page_tokens: usize,
    /// Names of its K and V formats.
    pub formats: (Arc<str>, Arc<str>),
    /// Tokens committed after the page's last one.
    pub age_tokens: usize,
    /// Sequences that hold it.
    pub references: u32,
    /// Kept by the caller.
    pub pinned: bool,
    /// Whether the caller marked some of its tokens as an anchor ([`crate::engine::Engine::anchor`]).
    pub anchor: bool,
    /// Whether the profile gives its layer and head formats of their own.
    pub overridden: bool,
}

/// A change that a policy asks for; carried out at the start of the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Move {
    /// Encode a sealed page anew. From a format in two parts to that of its first part
    /// ([`crate::format::Format::first_part`]) a side is not encoded anew: its further part is freed.
    Convert {
        /// An owner of the page.
        sequence: SeqId,
        /// Model layer.
        layer: usize,
        /// KV head.
        kv_head: usize,
        /// Index of the page in the sequence.
        page: usize,
        /// Wanted K format.
        k: String,
        /// Wanted V format.
        v: String,
        /// Why, for statistics and traces.
        reason: &'static str,
    },
    /// Take a sealed page from a sequence: no later step of that sequence reads it. Its slots are free once no other
    /// sequence holds it. No length within it can be cut to any more.
    Evict {
        /// The owner that lets go of it.
        sequence: SeqId,
        /// Model layer.
        layer: usize,
        /// KV head.
        kv_head: usize,
        /// Index of the page in the sequence.
        page: usize,
        /// Why, for statistics and traces.
        reason: &'static str,
    },
}

/// What a sequence holds in some rows of a cache group once every due page is sealed: for counting without an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// Numbers of the sealed pages in each row.
    pub sealed: Range<u64>,
    /// Tokens of the sequence, all committed.
    pub tokens: u64,
    /// Tokens of a page.
    pub page_tokens: usize,
    /// Rows: pairs of a layer and a KV head.
    pub rows: u64,
    /// Whether they are those that have formats of their own.
    pub overridden: bool,
}

/// Where pages end that a policy does not leave as they were sealed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// K and V formats, and how many pages end in them, all rows together.
    pub converted: Vec<((String, String), u64)>,
    /// Pages evicted, all rows together.
    pub evicted: u64,
}

/// Decides what becomes of sealed pages.
pub trait Policy: Send {
    /// The word for it in profiles.
    fn name(&self) -> &str;

    /// The parameters that it was made with, defaults included.
    fn parameters(&self) -> Parameters {
        Parameters::default()
    }

    /// What its moves come to in a sequence without anchors or pins of the caller's, for `plan`. The default says that
    /// pages stay as they were sealed.
    fn outcome(&self, _cache: &Outlook) -> Outcome {
        Outcome::default()
    }

    /// Whether it wants to see pages at all; `false` spares the walk over them.
    fn watches(&self) -> bool {
        true
    }

    /// Pairs of K and V formats that its moves can ask for: their kernels are made at warm-up, so that no step compiles.
    fn targets(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// What it cannot do without. Asked once, when an engine is built.
    fn needs(&self, _shape: &CacheShape) -> Needs {
        Needs::default()
    }

    /// Makes the pipelines that [`Policy::tap`] records, so that no step compiles: called at warm-up.
    ///
    /// # Errors
    /// What the backend says of a kernel that it cannot compile.
    fn prepare(&mut self, _backend: &mut dyn Backend, _shape: &CacheShape) -> Result<()> {
        Ok(())
    }

    /// Is handed a tap that its [`Needs`] declare.
    ///
    /// # Errors
    /// Its own; the step is refused then. Without an implementation every tap is refused.
    fn tap(&mut self, call: &mut TapCall<'_>) -> Result<()> {
        Err(untaken("policy", self.name(), call))
    }

    /// Called before each step of an engine that hands it taps: all that earlier steps recorded has been submitted.
    ///
    /// # Errors
    /// Its own; the step does not begin then.
    fn before_step(&mut self, _memory: &mut TapMemory<'_>) -> Result<()> {
        Ok(())
    }

    /// Is told the attention that pages got in a sampled step ([`crate::engine::Engine::sample_mass`]), a layer of a
    /// sequence at a time.
    fn sampled(&mut self, _mass: &MassFacts) {}

    /// Asked after [`Policy::decide`]: tokens that every sequence may gain before it would answer otherwise about the
    /// same pages in the same formats. It is not asked again until then, unless pages, marks or the step's sequences
    /// change: that spares long contexts the walk over them. `None`: at every step.
    fn rests(&self) -> Option<u32> {
        None
    }

    /// Sees the sealed, unpinned pages of the sequences in a step and names what should change.
    fn decide(&mut self, pages: &[PageView]) -> Vec<Move>;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sealed fp8 pages of one sequence of `tokens` tokens, in `heads` rows.
    pub(super) fn views(pages: Range<u64>, tokens: usize, heads: usize) -> Vec<PageView> {
        let view = |kv_head, page: usize| PageView {
            sequence: SeqId(1),
            group: 0,
            layer: 0,
            kv_head,
            page,
            page_tokens: 64,
            formats: ("fp8".into(), "fp8".into()),
            age_tokens: tokens.saturating_sub((page + 1) * 64),
            references: 1,
            pinned: false,
            anchor: false,
            overridden: false,
        };
        (0..heads).flat_map(|head| pages.clone().map(move |page| view(head, page as usize))).collect()
    }
}

//! Policies: what becomes of pages over time. A policy emits moves; it never touches bytes itself.

mod keep;
mod registry;

pub use keep::Keep;
pub use registry::{MakePolicy, PolicyRegistry};

use crate::backend::Backend;
use crate::engine::{SeqId, TapCall, TapMemory};
use crate::error::Result;
use crate::needs::{Needs, untaken};
use crate::shape::CacheShape;

/// A sealed page as a policy sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageView {
    /// The sequence asked about; a shared page shows up under each owner.
    pub sequence: SeqId,
    /// Model layer.
    pub layer: usize,
    /// KV head.
    pub kv_head: usize,
    /// Index of the page in its sequence.
    pub page: usize,
    /// Names of its K and V formats.
    pub formats: (String, String),
    /// Tokens committed after the page's last one.
    pub age_tokens: usize,
    /// Sequences that hold it.
    pub references: u32,
    /// Kept by the caller.
    pub pinned: bool,
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
}

/// Decides what becomes of sealed pages.
pub trait Policy: Send {
    /// The word for it in profiles.
    fn name(&self) -> &str;

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

    /// Sees the sealed, unpinned pages of the sequences in a step and names what should change.
    fn decide(&mut self, pages: &[PageView]) -> Vec<Move>;
}

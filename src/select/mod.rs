//! Selectors: which pages a query reads. Dense is a selector.

mod dense;
mod registry;
mod window;

pub use dense::Dense;
pub use registry::{MakeSelector, SelectorRegistry};
pub use window::Window;

use crate::backend::Backend;
use crate::engine::{TapCall, TapMemory};
use crate::error::Result;
use crate::needs::{Needs, untaken};
use crate::parameters::Parameters;
use crate::shape::CacheShape;

/// What a selector is asked: the pages of one (sequence, layer, KV head) for rows at given positions.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Model layer.
    pub layer: usize,
    /// KV head.
    pub kv_head: usize,
    /// Position of the first query row.
    pub first_position: u32,
    /// Position of the last query row.
    pub last_position: u32,
    /// Pages that hold tokens; the last is the rows' own.
    pub pages: usize,
    /// Tokens of a page.
    pub page_tokens: usize,
    /// Pages of the exact sink: read always.
    pub sink_pages: usize,
    /// Newest pages, the rows' own included, that are read always.
    pub tail_pages: usize,
}

/// Chooses pages by closed form. Selectors that score on the device plug in where these lists are made.
pub trait Selector: Send + Sync {
    /// The word for it in profiles.
    fn name(&self) -> &str;

    /// One line on what it does.
    fn summary(&self) -> &str;

    /// The parameters that it was made with, defaults included.
    fn parameters(&self) -> Parameters {
        Parameters::default()
    }

    /// Whether page `page` is read. The sink and the tail are read whatever this says.
    fn reads(&self, question: &Question, page: usize) -> bool;

    /// Whether every page is read, whatever the question: what a row reads then depends on the cache alone.
    fn reads_all(&self) -> bool {
        false
    }

    /// What it cannot do without. Asked once, when an engine is built.
    fn needs(&self, _shape: &CacheShape) -> Needs {
        Needs::default()
    }

    /// Makes the pipelines that [`Selector::tap`] records, so that no step compiles: called at warm-up.
    ///
    /// # Errors
    /// What the backend says of a kernel that it cannot compile.
    fn prepare(&self, _backend: &mut dyn Backend, _shape: &CacheShape) -> Result<()> {
        Ok(())
    }

    /// Is handed a tap that its [`Needs`] declare.
    ///
    /// # Errors
    /// Its own; the step is refused then. Without an implementation every tap is refused.
    fn tap(&self, call: &mut TapCall<'_>) -> Result<()> {
        Err(untaken("selector", self.name(), call))
    }

    /// Called before each step of an engine that hands it taps: all that earlier steps recorded has been submitted.
    ///
    /// # Errors
    /// Its own; the step does not begin then.
    fn before_step(&self, _memory: &mut TapMemory<'_>) -> Result<()> {
        Ok(())
    }
}

/// Whether a page is read, sink and tail included.
pub fn reads(selector: &dyn Selector, question: &Question, page: usize) -> bool {
    page < question.sink_pages || page + question.tail_pages >= question.pages || selector.reads(question, page)
}

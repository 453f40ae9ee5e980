//! Turns the page counts of a step into work: items, lists and one table of words for the kernels.
//!
//! Pure bookkeeping: it knows no device. The regions of the table are described in `kernel`.

mod attend;
mod build;
mod kept;
mod records;

pub use build::build;
pub use kept::Kept;

use crate::format::FormatId;
use crate::page::{PageId, RecordSegment};
use crate::select::Question;

/// Pages that one dispatch can serve: same formats, same segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Class {
    /// K format.
    pub k: FormatId,
    /// V format.
    pub v: FormatId,
    /// Segment group.
    pub segment_group: u16,
}

/// Which attention kernel serves an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Route {
    /// `decode`, specialised to this many rows (1, 2, 4, 8, 16).
    Decode(u32),
    /// `prefill`, a tile of rows.
    Prefill,
}

/// One sequence's share of a step, in one cache group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanSequence {
    /// First row in the step.
    pub row_start: u32,
    /// Rows.
    pub rows: u32,
    /// Position of the first row.
    pub first_position: u32,
    /// Slot of the sequence's means; 0 without.
    pub mean_slot: u32,
    /// Whether this step measures the sequence's means.
    pub measure_mean: bool,
}

/// What the planner asks of the cache.
pub trait PageSource {
    /// The first page of a sequence that is still held; those before it lie behind the window of every row.
    fn first_page(&self, sequence: usize) -> usize;
    /// Pages of (sequence, layer in group, KV head), from the first page held on, the step's own included; `None` for
    /// one that was evicted.
    fn pages(&self, sequence: usize, layer: usize, kv_head: usize) -> &[Option<PageId>];
    /// Changes whenever a page's number may stand for another page, or its class may have changed. `None` where what is
    /// read depends on more than the pages that there are: then no plan serves twice.
    fn layout(&self) -> Option<u64> {
        None
    }
    /// Formats and segments of a page.
    fn class(&self, page: PageId) -> Class;
    /// Segment of the page's record of side planes; `None` where the group has none.
    fn record_segment(&self, page: PageId) -> Option<RecordSegment>;
    /// Bytes of both sides of a page of that class.
    fn class_bytes(&self, class: Class) -> u64;
    /// What a page of the class costs a multiprocessor that an item of decode attention fills, in bytes of 16-bit pages
    /// read in the same time; `None` where items do not fill one. More items than multiprocessors wait for a second wave.
    fn wave_cost(&self, class: Class) -> Option<u64> {
        let _ = class;
        None
    }
    /// Whether the page is read (sink and tail included).
    fn reads(&self, question: &Question, page: usize) -> bool;
    /// The question for rows of a sequence; fills sink and tail.
    fn question(&self, sequence: usize, layer: usize, kv_head: usize, first: u32, last: u32, pages: usize) -> Question;
}

/// Page `at`, counted from the first held, of every KV head of a layer: one that gets rows, which none was evicted of.
fn written(limits: &Limits, source: &dyn PageSource, sequence: usize, layer: usize, at: usize) -> Vec<PageId> {
    let ids: Vec<_> = (0..limits.kv_heads).filter_map(|h| source.pages(sequence, layer, h)[at]).collect();
    debug_assert_eq!(ids.len(), limits.kv_heads, "page {at} gets rows");
    ids
}

/// Sizes that the planner splits by.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Layers of the group.
    pub layers: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Query heads a KV head.
    pub group: usize,
    /// Tokens of a page.
    pub page_tokens: usize,
    /// Window of the group's layers, if they have one.
    pub window: Option<usize>,
    /// Work items that keep the backend busy.
    pub target_items: usize,
    /// Items that run at once of kernels that fill a multiprocessor with one ([`PageSource::wave_cost`]).
    pub wave_items: usize,
    /// Rows of a prefill tile.
    pub tile_rows: u32,
    /// Most partial states that the workspace holds at once.
    pub max_partials: usize,
    /// Most rows whose prepared queries the workspace holds at once.
    pub max_rows: usize,
    /// Whether every page is an item of its own, so that partial states are those of pages, merged in their order.
    pub page_items: bool,
}

/// Items of one class and route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Formats and segments.
    pub class: Class,
    /// Kernel.
    pub route: Route,
    /// First word of the items.
    pub items_at: u32,
    /// Items.
    pub items: u32,
}

/// Appends into one class of open pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendBatch {
    /// Formats and segments of the open pages.
    pub class: Class,
    /// First word of the items.
    pub items_at: u32,
    /// Items.
    pub items: u32,
}

/// Pages that get rows and have their records of side planes in one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaneBatch {
    /// Where their records are.
    pub segment: RecordSegment,
    /// First word of the items.
    pub items_at: u32,
    /// Items: a page of every KV head each.
    pub items: u32,
}

/// Rows of a step whose partial states are in the workspace together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// First row in the step. Items count their rows from here.
    pub row_start: u32,
    /// Rows.
    pub rows: u32,
    /// Partial states that it emits.
    pub partials: usize,
    /// What is read.
    pub attend: Vec<Batch>,
}

/// A layer's work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayerPlan {
    /// Where new rows go.
    pub append: Vec<AppendBatch>,
    /// Which records of side planes the new rows change.
    pub planes: Vec<PlaneBatch>,
    /// What is read, one round after the other; each is merged before the next reuses the workspace.
    pub rounds: Vec<Round>,
    /// First word of the merge lists.
    pub lists_at: u32,
    /// Bytes of pages that decode entries read.
    pub read_bytes: u64,
}

/// A step's work in one cache group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepPlan {
    /// The words that kernels read.
    pub tables: Vec<u32>,
    /// How many of them, in front, are the same in every plan of this stamp; such plans may follow each other.
    pub kept: Option<(u64, usize)>,
    /// First word of the rows.
    pub rows_at: u32,
    /// Query rows.
    pub rows: u32,
    /// First word of the mean items, and their number.
    pub means: (u32, u32),
    /// Work by layer in group.
    pub layers: Vec<LayerPlan>,
    /// Partial states that the largest round emits.
    pub partials: usize,
    /// Rows of the longest round.
    pub round_rows: u32,
}

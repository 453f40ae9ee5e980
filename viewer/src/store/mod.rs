//! What views look at: the state of the cache at the cursor, and the chronicle of the whole trace. Nothing of egui.

pub mod bounded;
pub mod chronicle;
pub mod figures;
pub mod lineage;
pub mod names;
pub mod pieces;

pub use chronicle::{At, Change, Chronicle, Moment, PageChange};
pub use names::{Name, Names};

use kvarto::engine::{Event, PageFacts, SeqId};
use kvarto::trace::{Ending, Header, Record, State};

/// A place in a cache: of whichever page is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The sequence.
    pub sequence: SeqId,
    /// Cache group.
    pub group: usize,
    /// The list of pages: `layer in group × KV heads + KV head`.
    pub row: usize,
    /// Number of the page: position of its first token / tokens of a page.
    pub number: u32,
}

/// A page that changed while the cursor went forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched {
    /// Cache group.
    pub group: usize,
    /// Index of its descriptor.
    pub page: u32,
    /// Model layer.
    pub layer: u32,
    /// KV head.
    pub kv_head: u32,
    /// Its number.
    pub number: u32,
}

/// Touched pages that are remembered for views that were not shown; then they begin anew.
const MOST_TOUCHED: usize = 1 << 20;

/// What views look at.
#[derive(Clone, Debug, Default)]
pub struct Store {
    /// Words for the source, such as a file's name.
    pub name: String,
    /// What was traced.
    pub header: Header,
    /// The whole trace over time, as far as it was read.
    pub chronicle: Chronicle,
    /// The cache after the event at the cursor.
    pub state: State,
    /// The newest event taken in; `None` before the first.
    pub cursor: Option<Moment>,
    /// Grows with every event taken in and every jump.
    pub revision: u64,
    /// Grows where the state changed otherwise than by [`Store::touched_since`] says: after a jump, and where sequences came,
    /// went, or were cut.
    pub epoch: u64,
    touched: Vec<Touched>,
    touched_before: u64,
    /// How the trace ends, as far as it was read.
    pub ending: Option<Ending>,
    /// Share of the trace that is in the chronicle.
    pub scanned: f32,
    /// What could not be read, in words.
    pub faults: Vec<String>,
}

impl Store {
    /// Takes in the next event.
    ///
    /// # Errors
    /// What does not fit the state, in words: events are missing then, or the trace is damaged.
    pub fn apply(&mut self, record: &Record) -> Result<(), String> {
        self.cursor = Some(Moment { event: record.number, ns: record.ns });
        self.revision += 1;
        let Some(event) = &record.event else { return Ok(()) };
        let fits = self.state.apply(event);
        match event {
            Event::PageAllocated { page, .. } | Event::PageConverted { page, .. } | Event::PageEvicted { page, .. } => {
                self.touch(page)
            }
            Event::SequenceCreated { .. }
            | Event::SequenceForked { .. }
            | Event::SequenceTruncated { .. }
            | Event::SequenceReleased { .. }
            | Event::PagesLeftBehind { .. }
            | Event::TokensPinned { .. }
            | Event::TokensAnchored { .. }
            | Event::Resync { .. } => self.begin_anew(),
            _ => {}
        }
        fits
    }

    fn touch(&mut self, page: &PageFacts) {
        if self.touched.len() >= MOST_TOUCHED {
            self.begin_anew();
        }
        let &PageFacts { group, page, layer, kv_head, number, .. } = page;
        self.touched.push(Touched { group, page, layer, kv_head, number });
    }

    fn begin_anew(&mut self) {
        self.epoch += 1;
        self.touched_before += self.touched.len() as u64;
        self.touched.clear();
    }

    /// Jumps: `state` is the one after the event at `cursor`.
    pub fn jump(&mut self, state: State, cursor: Option<Moment>) {
        self.state = state;
        self.cursor = cursor;
        self.revision += 1;
        self.begin_anew();
    }

    /// How many pages were touched so far: to remember for [`Store::touched_since`].
    pub fn touched_count(&self) -> u64 {
        self.touched_before + self.touched.len() as u64
    }

    /// Pages touched since the count was `count`, in the same epoch.
    pub fn touched_since(&self, count: u64) -> &[Touched] {
        let from = count.saturating_sub(self.touched_before).min(self.touched.len() as u64);
        &self.touched[from as usize..]
    }

    /// Events at and before the cursor.
    pub fn events_done(&self) -> u64 {
        self.cursor.map_or(0, |moment| moment.event.saturating_add(1))
    }

    /// The page at a place.
    pub fn page_at(&self, place: Place) -> Option<PageFacts> {
        let held = self.state.sequences.get(&place.sequence)?.groups.get(place.group)?;
        let at = place.number.checked_sub(held.first)? as usize;
        let page = (*held.rows.get(place.row)?.get(at)?)?;
        self.state.pages.get(place.group, page)
    }

    /// Model layer and KV head of a list of pages.
    pub fn layer_and_head(&self, group: usize, row: usize) -> Option<(u32, u32)> {
        let facts = self.state.groups.get(group)?;
        let heads = facts.kv_heads.max(1) as usize;
        Some((*facts.layers.get(row / heads)?, (row % heads) as u32))
    }

    /// The list of pages of a model layer and KV head.
    pub fn row_of(&self, group: usize, layer: u32, kv_head: u32) -> Option<usize> {
        let facts = self.state.groups.get(group)?;
        let at = facts.layers.iter().position(|known| *known == layer)?;
        (kv_head < facts.kv_heads).then_some(at * facts.kv_heads as usize + kv_head as usize)
    }

    /// Tokens of a page of a cache group.
    pub fn page_tokens(&self, group: usize) -> u32 {
        self.state.groups.get(group).map_or(0, |facts| facts.page_tokens)
    }

    /// Sequences that hold the page with this index.
    pub fn owners(&self, place: Place) -> usize {
        let Some(page) = self.page_at(place) else { return 0 };
        let holds = |sequence: &kvarto::engine::SequenceFacts| {
            let held = sequence.groups.get(place.group)?;
            let at = place.number.checked_sub(held.first)? as usize;
            (*held.rows.get(place.row)?.get(at)? == Some(page.page)).then_some(())
        };
        self.state.sequences.values().filter(|sequence| holds(sequence).is_some()).count()
    }
}

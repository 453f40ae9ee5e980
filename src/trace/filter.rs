//! Which events somebody wants.

use super::codec::{EVENT_NAMES, Record, event_name};
use crate::engine::{Event, SeqId};
use crate::error::{Error, ErrorKind, Result};

/// Lets events through by kind, sequence, layer and number.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    kinds: Vec<String>,
    /// Only events of this sequence.
    pub sequence: Option<SeqId>,
    /// Only events of this model layer.
    pub layer: Option<u32>,
    /// Only events from this number on.
    pub from: u64,
    /// At most so many.
    pub limit: Option<u64>,
    passed: u64,
}

impl Filter {
    /// Lets events of these kinds through; all for none.
    ///
    /// # Errors
    /// `Usage` for a kind that there is not, with those that there are.
    pub fn new(kinds: &[String]) -> Result<Self> {
        if let Some(wrong) = kinds.iter().find(|kind| !EVENT_NAMES.contains(&kind.as_str())) {
            return Err(Error::new(
                ErrorKind::Usage,
                format!("{} is no kind of event", wrong.escape_debug()),
                format!("there are {}", EVENT_NAMES.join(", ")),
            ));
        }
        Ok(Filter { kinds: kinds.to_vec(), ..Filter::default() })
    }

    /// Whether no further event will pass.
    pub fn done(&self) -> bool {
        self.limit.is_some_and(|limit| self.passed >= limit)
    }

    /// Whether the event is wanted; it then counts towards the limit.
    pub fn passes(&mut self, record: &Record) -> bool {
        let Some(event) = &record.event else {
            return self.count(self.kinds.is_empty() && self.sequence.is_none() && self.layer.is_none(), record);
        };
        let kind = self.kinds.is_empty() || self.kinds.iter().any(|kind| kind == event_name(event));
        let sequence = self.sequence.is_none_or(|sequence| concerns(event, sequence));
        let layer = self.layer.is_none_or(|layer| layer_of(event) == Some(layer));
        self.count(kind && sequence && layer, record)
    }

    fn count(&mut self, wanted: bool, record: &Record) -> bool {
        let passes = wanted && record.number >= self.from && !self.done();
        self.passed += u64::from(passes);
        passes
    }
}

/// Whether an event is of a sequence.
fn concerns(event: &Event, wanted: SeqId) -> bool {
    match event {
        Event::SequenceForked { sequence, from, .. } | Event::PagesShared { sequence, from, .. } => {
            *sequence == wanted || *from == wanted
        }
        Event::SequenceCreated { sequence }
        | Event::SequenceTruncated { sequence, .. }
        | Event::SequenceCommitted { sequence, .. }
        | Event::SequenceReleased { sequence }
        | Event::TokensPinned { sequence, .. }
        | Event::TokensAnchored { sequence, .. }
        | Event::PageAllocated { sequence, .. }
        | Event::PageEvicted { sequence, .. }
        | Event::PagesLeftBehind { sequence, .. }
        | Event::Tokens { sequence, .. }
        | Event::SelectionQuality { sequence, .. } => *sequence == wanted,
        Event::UnitsRead(read) => read.sequence == wanted,
        Event::AttentionMass(mass) => mass.sequence == wanted,
        Event::StepDone(step) => step.sequences.iter().any(|rows| rows.sequence == wanted),
        _ => false,
    }
}

/// The one model layer that an event is of.
fn layer_of(event: &Event) -> Option<u32> {
    match event {
        Event::PageAllocated { page, .. }
        | Event::PageConverted { page, .. }
        | Event::PageEvicted { page, .. }
        | Event::PageData { page, .. }
        | Event::PageError { page, .. } => Some(page.layer),
        Event::AttentionMass(mass) => Some(mass.layer),
        Event::SelectionQuality { layer, .. } => Some(*layer),
        _ => None,
    }
}

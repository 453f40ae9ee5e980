//! What a whole trace says over time, gathered while it is read once from its beginning: steps, bytes, changes of pages,
//! reads, texts. Views look up in it what was at the cursor, before it and after it.

use super::bounded::{Recent, Series};
use super::lineage::Lineage;
use super::names::{Name, Names};
use kvarto::engine::{Event, Formats, KernelShare, MassFacts, MemoryClasses, PageFacts, ReadFacts, SeqId, StepFacts};
use kvarto::trace::Record;
use std::sync::Arc;

/// When something was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Number of the event in the trace.
    pub event: u64,
    /// Nanoseconds since the engine was made.
    pub ns: u64,
}

/// Something and when it was told.
#[derive(Clone, Debug, PartialEq)]
pub struct At<T> {
    /// When.
    pub when: Moment,
    /// What.
    pub what: T,
}

/// What became of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A sequence got it.
    Allocated,
    /// Its formats or slots changed.
    Converted,
    /// A policy took it from a sequence.
    Evicted,
}

/// A change of a page.
#[derive(Clone, Debug, PartialEq)]
pub struct PageChange {
    /// What became of it.
    pub change: Change,
    /// Of which sequence, where the event says it.
    pub sequence: Option<SeqId>,
    /// Cache group.
    pub group: u16,
    /// Index of its descriptor.
    pub page: u32,
    /// Model layer.
    pub layer: u16,
    /// KV head.
    pub kv_head: u16,
    /// Its number in a sequence.
    pub number: u32,
    /// Formats of K and V now.
    pub formats: [Name; 2],
    /// Formats before, of a conversion.
    pub from: Option<[Name; 2]>,
    /// Its generation.
    pub generation: u32,
    /// As [`kvarto::page::flags`].
    pub flags: u16,
    /// Bytes of its slots.
    pub bytes: u64,
    /// The event's word.
    pub reason: Name,
}

/// How far a page is from the exact rows.
#[derive(Clone, Debug, PartialEq)]
pub struct PageFault {
    /// Cache group.
    pub group: usize,
    /// Index of its descriptor.
    pub page: u32,
    /// The generation that was measured.
    pub generation: u32,
    /// Root of the mean squared difference over that of the exact values, K and V.
    pub relative_rms: [f32; 2],
    /// Largest difference, K and V.
    pub largest: [f32; 2],
}

/// Where in the trace a page's bytes stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataPlace {
    /// Cache group.
    pub group: usize,
    /// Index of its descriptor.
    pub page: u32,
    /// The generation that was written.
    pub generation: u32,
    /// The chunk that holds the event.
    pub chunk: usize,
}

/// What a choice of pages kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Quality {
    /// Steps so far.
    pub step: u64,
    /// Which sequence.
    pub sequence: SeqId,
    /// Model layer.
    pub layer: u32,
    /// KV head.
    pub kv_head: u32,
    /// Share of the attention mass.
    pub mass_kept: f32,
    /// Share of the pages with most mass.
    pub recall: f32,
}

/// Times of kernels since the ones before.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelTimes {
    /// Steps so far.
    pub step: u64,
    /// By kernel.
    pub kernels: Arc<[KernelShare]>,
}

/// Most samples of series over steps.
const MOST_SAMPLES: usize = 1 << 17;
/// Most page changes that are kept.
const MOST_CHANGES: usize = 1 << 21;
/// Most reads and masses; lists by head can be long.
const MOST_READS: usize = 1 << 14;
/// Most of anything else.
const MOST_OTHERS: usize = 1 << 17;

/// What a trace says over time.
#[derive(Clone, Debug)]
pub struct Chronicle {
    /// Names of formats.
    pub formats: Names,
    /// Words of events.
    pub reasons: Names,
    /// Finished steps.
    pub steps: Series<At<StepFacts>>,
    /// Bytes by class.
    pub memory: Series<At<MemoryClasses>>,
    /// Changes of pages.
    pub changes: Recent<At<PageChange>>,
    /// Which pages were read.
    pub reads: Series<At<Arc<ReadFacts>>>,
    /// Sampled attention by page.
    pub masses: Series<At<Arc<MassFacts>>>,
    /// Sampled quality of choices.
    pub qualities: Series<At<Quality>>,
    /// Times of kernels.
    pub kernels: Series<At<KernelTimes>>,
    /// Errors of pages.
    pub faults: Recent<At<PageFault>>,
    /// Where pages' bytes stand.
    pub data: Recent<At<DataPlace>>,
    /// Profiles that new sequences got, as texts.
    pub profiles: Recent<At<Arc<str>>>,
    /// Events that were lost, and when that was told.
    pub lost: Recent<At<u64>>,
    /// Sequences, their forks and their texts.
    pub lineage: Lineage,
    /// Events so far.
    pub events: u64,
    /// The newest event.
    pub end: Moment,
    /// Steps so far.
    pub last_step: u64,
    /// The time of the first event.
    pub start_ns: Option<u64>,
}

impl Default for Chronicle {
    fn default() -> Self {
        Chronicle {
            formats: Names::default(),
            reasons: Names::default(),
            steps: Series::new(MOST_SAMPLES),
            memory: Series::new(MOST_SAMPLES),
            changes: Recent::new(MOST_CHANGES),
            reads: Series::new(MOST_READS),
            masses: Series::new(MOST_READS),
            qualities: Series::new(MOST_OTHERS),
            kernels: Series::new(MOST_OTHERS),
            faults: Recent::new(MOST_OTHERS),
            data: Recent::new(MOST_OTHERS),
            profiles: Recent::new(1 << 10),
            lost: Recent::new(1 << 10),
            lineage: Lineage::default(),
            events: 0,
            end: Moment::default(),
            last_step: 0,
            start_ns: None,
        }
    }
}

impl Chronicle {
    /// Takes in an event of chunk `chunk`.
    pub fn take(&mut self, record: &Record, chunk: usize) {
        let when = Moment { event: record.number, ns: record.ns };
        self.events = record.number.saturating_add(1);
        self.end = when;
        self.start_ns.get_or_insert(record.ns);
        let Some(event) = &record.event else { return };
        self.lineage.take(when, event);
        match event {
            Event::StepDone(step) => {
                self.last_step = step.step;
                self.steps.push(At { when, what: step.clone() });
            }
            Event::MemoryUsed(memory) => self.memory.push(At { when, what: memory.clone() }),
            Event::UnitsRead(read) => self.reads.push(At { when, what: Arc::new(read.clone()) }),
            Event::AttentionMass(mass) => self.masses.push(At { when, what: Arc::new(mass.clone()) }),
            Event::PageAllocated { sequence, page, reason, .. } => {
                let change = self.change(Change::Allocated, page, reason);
                self.changes.push(At { when, what: PageChange { sequence: Some(*sequence), ..change } });
            }
            Event::PageConverted { page, from, reason, .. } => {
                let from = Some(self.pair(from));
                let change = self.change(Change::Converted, page, reason);
                self.changes.push(At { when, what: PageChange { from, ..change } });
            }
            Event::PageEvicted { sequence, page, reason } => {
                let change = self.change(Change::Evicted, page, reason);
                self.changes.push(At { when, what: PageChange { sequence: Some(*sequence), ..change } });
            }
            Event::KernelTimes { step, kernels } => {
                let what = KernelTimes { step: *step, kernels: kernels.clone().into() };
                self.kernels.push(At { when, what });
            }
            Event::PageError { page, relative_rms, largest } => {
                let &PageFacts { group, page, generation, .. } = page;
                let what = PageFault { group, page, generation, relative_rms: *relative_rms, largest: *largest };
                self.faults.push(At { when, what });
            }
            Event::PageData { page, .. } => {
                let &PageFacts { group, page, generation, .. } = page;
                self.data.push(At { when, what: DataPlace { group, page, generation, chunk } });
            }
            Event::SelectionQuality { step, sequence, layer, kv_head, mass_kept, recall } => {
                let (step, sequence, layer, kv_head) = (*step, *sequence, *layer, *kv_head);
                let what = Quality { step, sequence, layer, kv_head, mass_kept: *mass_kept, recall: *recall };
                self.qualities.push(At { when, what });
            }
            Event::ProfileChanged { text } => self.profiles.push(At { when, what: text.clone() }),
            Event::Resync { dropped, snapshot } => {
                if *dropped > 0 {
                    self.lost.push(At { when, what: *dropped });
                }
                self.last_step = self.last_step.max(snapshot.step);
                self.memory.push(At { when, what: snapshot.memory.clone() });
            }
            _ => {}
        }
    }

    fn pair(&mut self, formats: &Formats) -> [Name; 2] {
        [self.formats.place(&formats.0), self.formats.place(&formats.1)]
    }

    fn change(&mut self, change: Change, page: &PageFacts, reason: &str) -> PageChange {
        let small = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
        PageChange {
            change,
            sequence: None,
            group: u16::try_from(page.group).unwrap_or(u16::MAX),
            page: page.page,
            layer: small(page.layer),
            kv_head: small(page.kv_head),
            number: page.number,
            formats: self.pair(&page.formats),
            from: None,
            generation: page.generation,
            flags: page.flags,
            bytes: page.bytes,
            reason: self.reasons.place(&Arc::from(reason)),
        }
    }

    /// Number of the first event after step `step` has ended, if the trace goes so far.
    pub fn after_step(&self, step: u64) -> Option<u64> {
        let steps = self.steps.samples();
        let at = steps.partition_point(|sample| sample.what.step < step);
        steps.get(at).map(|sample| sample.when.event.saturating_add(1))
    }
}

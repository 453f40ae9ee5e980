//! A line a step: what was read, and how good the choice was.

use super::pattern;
use crate::store::Store;
use crate::store::chronicle::Quality;
use kvarto::engine::{ReadFacts, SeqId, StepFacts};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A step of a sequence.
#[derive(Clone, Debug)]
pub struct Line {
    /// When its reads were told.
    pub event: u64,
    /// What it read.
    pub read: Arc<ReadFacts>,
}

/// What is looked at: a sequence in a cache group, and a list of pages or the mean of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whose {
    /// Sequence.
    pub sequence: SeqId,
    /// Cache group.
    pub group: usize,
    /// List of pages.
    pub row: Option<usize>,
    /// All lists.
    pub rows: usize,
}

impl Whose {
    fn own(&self, read: &ReadFacts) -> bool {
        read.sequence == self.sequence && read.group == self.group
    }

    /// Share of the visible pages that a step read.
    pub fn share(&self, read: &ReadFacts) -> Option<f64> {
        let (count, visible) = pattern::counts(read, self.row, self.rows);
        (visible > 0).then(|| count / visible as f64)
    }
}

/// Steps before the cursor.
#[derive(Default)]
pub struct Lines {
    key: Option<(Whose, u64, u64)>,
    /// Oldest first.
    pub lines: Vec<Line>,
    /// Steps of the whole trace, and the highest number of a visible page in it, and one more.
    pub all: usize,
    /// Columns.
    pub columns: u32,
    /// Mass kept and recall by step, means where several lists are looked at.
    pub qualities: BTreeMap<u64, [f32; 2]>,
}

impl Lines {
    /// Looks the steps up, anew where the cursor or what is looked at has changed.
    pub fn update(&mut self, store: &Store, whose: Whose) {
        let key = Some((whose, store.revision, store.chronicle.events));
        if self.key == key {
            return;
        }
        self.key = key;
        let done = store.events_done();
        let own = store.chronicle.reads.samples().iter().filter(|at| whose.own(&at.what));
        (self.all, self.columns) = (0, 0);
        self.lines.clear();
        let mut now = 0;
        for at in own {
            self.all += 1;
            self.columns = self.columns.max(at.what.visible.end);
            if at.when.event < done {
                now = self.columns;
                self.lines.push(Line { event: at.when.event, read: at.what.clone() });
            }
        }
        // What is far ahead would make the first steps a dot.
        let room = u64::from(now).saturating_mul(4).next_power_of_two().max(64);
        self.columns = self.columns.min(u32::try_from(room).unwrap_or(u32::MAX)).max(1);
        self.qualities = qualities(store, whose);
    }
}

fn own_quality(quality: &Quality, store: &Store, whose: Whose) -> bool {
    let row = store.row_of(whose.group, quality.layer, quality.kv_head);
    quality.sequence == whose.sequence && row.is_some_and(|row| whose.row.is_none_or(|chosen| chosen == row))
}

fn qualities(store: &Store, whose: Whose) -> BTreeMap<u64, [f32; 2]> {
    let done = store.events_done();
    let mut sums: BTreeMap<u64, ([f32; 2], f32)> = BTreeMap::new();
    for at in store.chronicle.qualities.until(|at| at.when.event >= done) {
        if own_quality(&at.what, store, whose) {
            let (sum, count) = sums.entry(at.what.step).or_default();
            sum[0] += at.what.mass_kept;
            sum[1] += at.what.recall;
            *count += 1.0;
        }
    }
    sums.into_iter().map(|(step, (sum, count))| (step, sum.map(|sum| sum / count))).collect()
}

/// The step's own facts, if they were kept.
pub fn step_facts(store: &Store, step: u64) -> Option<&StepFacts> {
    let steps = store.chronicle.steps.samples();
    let at = steps.partition_point(|sample| sample.what.step < step);
    steps.get(at).map(|sample| &sample.what).filter(|facts| facts.step == step)
}

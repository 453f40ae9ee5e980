//! Which pages were taken from a sequence, and when: gathered from the trace as far as it is needed.

use crate::store::{Change, Store};
use kvarto::engine::SeqId;
use std::collections::BTreeMap;

/// Changes that are taken in in one frame.
const TAKE: usize = 100_000;

/// Sequences that a sequence was forked from, one after the other, that are followed.
const MOST_FORKS: usize = 64;

/// What evictions are gathered for: sequence, cache group, list or all.
type Whose = (SeqId, usize, Option<usize>);

/// Evictions by number of the page: events, ascending.
#[derive(Default)]
pub struct Gone {
    whose: Option<Whose>,
    /// The sequence and those that it comes from, each with the event after which theirs do not count.
    line: Vec<(SeqId, u64)>,
    taken: u64,
    events: BTreeMap<u32, Vec<u64>>,
    /// Grows with every eviction that was found.
    pub version: u64,
}

impl Gone {
    /// Takes in what was told before the cursor; whether there is more.
    pub fn update(&mut self, store: &Store, whose: Whose) -> bool {
        let (sequence, group, row) = whose;
        if self.whose != Some(whose) {
            *self = Gone { whose: Some(whose), version: self.version + 1, ..Gone::default() };
            let (mut next, mut limit) = (Some(sequence), u64::MAX);
            while let Some(here) = next.filter(|_| self.line.len() < MOST_FORKS) {
                self.line.push((here, limit));
                let life = store.chronicle.lineage.of(here);
                limit = life.map_or(limit, |life| limit.min(life.born.event));
                next = life.and_then(|life| life.from).map(|(from, _)| from);
            }
        }
        let (done, changes) = (store.events_done(), &store.chronicle.changes);
        let list = changes.until(|at| at.when.event >= done);
        let from = self.taken.saturating_sub(changes.forgotten()).min(list.len() as u64) as usize;
        let slice = &list[from..(from + TAKE).min(list.len())];
        for at in slice.iter().filter(|at| at.what.change == Change::Evicted && usize::from(at.what.group) == group) {
            let change = &at.what;
            let own = self.line.iter().any(|(known, limit)| Some(*known) == change.sequence && at.when.event < *limit);
            let place = store.row_of(group, change.layer.into(), change.kv_head.into());
            if own && row.is_none_or(|row| place == Some(row)) {
                self.events.entry(change.number).or_default().push(at.when.event);
                self.version += 1;
            }
        }
        // A cursor that went back: what is later than a step does not count for it, and is not taken in twice.
        self.taken = self.taken.max(changes.forgotten() + (from + slice.len()) as u64);
        from + slice.len() < list.len()
    }

    /// Pages that were gone before an event, as runs of numbers, with the share of `lists` lists that they are gone of.
    pub fn before(&self, event: u64, lists: usize) -> Vec<(std::ops::Range<u32>, f32)> {
        let mut runs: Vec<(std::ops::Range<u32>, f32)> = Vec::new();
        for (&number, events) in &self.events {
            let count = events.partition_point(|at| *at < event);
            if count == 0 {
                continue;
            }
            let share = (count as f32 / lists.max(1) as f32).min(1.0);
            match runs.last_mut() {
                Some((run, known)) if run.end == number && *known == share => run.end = number.saturating_add(1),
                _ => runs.push((number..number.saturating_add(1), share)),
            }
        }
        runs
    }

    /// Numbers of pages that it knows of.
    pub fn len(&self) -> usize {
        self.events.len()
    }
}

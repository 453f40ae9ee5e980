//! Which pages a step read.

use crate::engine::storage::Group;
use crate::engine::{Engine, SeqId, SeqRows};
use crate::kernel::attention::{ITEM_WORDS, ROW_WORDS};
use crate::page::PageId;
use crate::plan::StepPlan;
use std::collections::BTreeMap;
use std::ops::Range;

/// A set of page numbers: ascending ranges that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "trace", serde(try_from = "Vec<Range<u32>>", into = "Vec<Range<u32>>"))]
pub struct PageSet(Vec<Range<u32>>);

impl PageSet {
    /// The set of `numbers`, in any order.
    pub fn of(mut numbers: Vec<u32>) -> Self {
        numbers.sort_unstable();
        numbers.dedup();
        let mut set = PageSet::default();
        for number in numbers {
            match set.0.last_mut() {
                Some(last) if last.end == number => last.end += 1,
                _ => set.0.push(number..number.saturating_add(1)),
            }
        }
        set
    }

    /// The set of `ranges`; `None` unless each is not empty and begins after the one before it has ended.
    pub fn from_ranges(ranges: Vec<Range<u32>>) -> Option<Self> {
        let apart = ranges.windows(2).all(|pair| pair[0].end < pair[1].start);
        (apart && ranges.iter().all(|r| r.start < r.end)).then_some(PageSet(ranges))
    }

    /// Its ranges, ascending.
    pub fn ranges(&self) -> &[Range<u32>] {
        &self.0
    }

    /// Pages in it.
    pub fn len(&self) -> u64 {
        self.0.iter().map(|r| u64::from(r.end - r.start)).sum()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it holds `number`.
    pub fn contains(&self, number: u32) -> bool {
        let at = self.0.partition_point(|r| r.end <= number);
        self.0.get(at).is_some_and(|r| r.contains(&number))
    }
}

impl TryFrom<Vec<Range<u32>>> for PageSet {
    type Error = &'static str;

    fn try_from(ranges: Vec<Range<u32>>) -> Result<Self, Self::Error> {
        PageSet::from_ranges(ranges).ok_or("page ranges are empty, overlap or do not ascend")
    }
}

impl From<PageSet> for Vec<Range<u32>> {
    fn from(set: PageSet) -> Self {
        set.0
    }
}

/// Pages that layers and heads of a cache group read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Reads {
    /// All that rows can see, in every layer and head.
    All,
    /// The same ones in every layer and head.
    Same(PageSet),
    /// By `layer in group × KV heads + KV head`.
    Rows(Vec<PageSet>),
}

/// What the rows of a sequence read in a step, in units of pages. Rows of a prefill count together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct ReadFacts {
    /// Steps so far.
    pub step: u64,
    /// Which sequence.
    pub sequence: SeqId,
    /// Cache group.
    pub group: usize,
    /// Tokens of a unit.
    pub unit_tokens: u32,
    /// Units that causality and the group's window let some row see.
    pub visible: Range<u32>,
    /// Those read.
    pub read: Reads,
}

impl ReadFacts {
    /// The pages that a row of the group read ([`Reads::Rows`]).
    pub fn of_row(&self, row: usize) -> PageSet {
        match &self.read {
            Reads::All if self.visible.is_empty() => PageSet::default(),
            Reads::All => PageSet(vec![self.visible.clone()]),
            Reads::Same(set) => set.clone(),
            Reads::Rows(rows) => rows.get(row).cloned().unwrap_or_default(),
        }
    }
}

impl Engine {
    /// What the sequences of a step read. Called before pages are let go of.
    pub(in crate::engine) fn read_facts(&self, step: u64, rows: &[SeqRows], plans: &[StepPlan]) -> Vec<ReadFacts> {
        let mut facts = Vec::new();
        for (index, (group, plan)) in self.groups.iter().zip(plans).enumerate() {
            // Where counts are those of all visible pages, no list is looked at: what a dense step costs.
            let all =
                seen(group, plan).is_some_and(|seen| plan.layers.iter().all(|layer| counted(plan, layer) == seen));
            let mut sets = if all { BTreeMap::new() } else { self.read_sets(index, rows, plan) };
            let mut first_row = 0;
            for r in rows.iter().filter(|r| r.rows > 0) {
                let Some(&first) = plan.tables.get(plan.rows_at as usize + first_row as usize * ROW_WORDS) else {
                    break;
                };
                first_row += r.rows;
                let read = match sets.remove(&r.seq) {
                    None => Reads::All,
                    Some(rows) if rows.windows(2).all(|pair| pair[0] == pair[1]) => {
                        Reads::Same(rows.into_iter().next().unwrap_or_default())
                    }
                    Some(rows) => Reads::Rows(rows),
                };
                let (sequence, unit_tokens) = (r.seq, group.shape.page_tokens as u32);
                let visible = visible(group, first, first + r.rows - 1);
                facts.push(ReadFacts { step, sequence, group: index, unit_tokens, visible, read });
            }
        }
        facts
    }

    /// Pages read by sequence and row of the group, from the lists of the plan's items.
    fn read_sets(&self, index: usize, rows: &[SeqRows], plan: &StepPlan) -> BTreeMap<SeqId, Vec<PageSet>> {
        let group = &self.groups[index];
        let (heads, size) = (group.shape.kv_heads, group.shape.page_tokens as u32);
        let mut ends = Vec::new();
        let mut end = 0;
        for r in rows.iter().filter(|r| r.rows > 0) {
            end += r.rows;
            ends.push((end, r.seq));
        }
        let mut numbers: BTreeMap<SeqId, Vec<Vec<u32>>> =
            ends.iter().map(|(_, seq)| (*seq, vec![Vec::new(); plan.layers.len() * heads])).collect();
        for (at, layer) in plan.layers.iter().enumerate() {
            for round in &layer.rounds {
                for item in round.attend.iter().flat_map(|batch| items(plan, batch.items_at, batch.items)) {
                    let row = round.row_start + item[0];
                    let owner = ends.get(ends.partition_point(|(end, _)| *end <= row));
                    let Some(lists) = owner.and_then(|(_, seq)| numbers.get_mut(seq)) else { continue };
                    let ids = plan.tables.get(item[3] as usize..).and_then(|ids| ids.get(..item[4] as usize));
                    let live =
                        ids.unwrap_or_default().iter().map(|&id| PageId(id)).filter(|&id| group.pool.is_live(id));
                    let list = &mut lists[at * heads + item[2] as usize];
                    list.extend(live.map(|id| group.pool.page(id).descriptor.first_position / size));
                }
            }
        }
        numbers.into_iter().map(|(seq, lists)| (seq, lists.into_iter().map(PageSet::of).collect())).collect()
    }
}

fn items(plan: &StepPlan, at: u32, count: u32) -> impl Iterator<Item = &[u32]> {
    plan.tables.get(at as usize..).unwrap_or_default().chunks_exact(ITEM_WORDS).take(count as usize)
}

/// Pages in the lists of a layer.
fn counted(plan: &StepPlan, layer: &crate::plan::LayerPlan) -> u64 {
    let batches = layer.rounds.iter().flat_map(|round| &round.attend);
    batches.flat_map(|batch| items(plan, batch.items_at, batch.items)).map(|item| u64::from(item[4])).sum()
}

/// Pages in the lists of a layer whose entries read all that they can see.
fn seen(group: &Group, plan: &StepPlan) -> Option<u64> {
    let words = plan.tables.get(plan.rows_at as usize..)?.get(..plan.rows as usize * ROW_WORDS)?;
    let rows: Vec<&[u32]> = words.chunks_exact(ROW_WORDS).collect();
    let entries = rows.chunk_by(|a, b| a[1] == b[1]).map(|entry| {
        let pages = visible(group, entry[0][0], entry[entry.len() - 1][0]);
        u64::from(pages.end - pages.start)
    });
    Some(entries.sum::<u64>() * group.shape.kv_heads as u64)
}

/// Numbers of the pages that rows from position `first` to `last` can see.
fn visible(group: &Group, first: u32, last: u32) -> Range<u32> {
    let size = group.shape.page_tokens as u32;
    let start = group.window.map_or(0, |window| (first + 1).saturating_sub(u32::try_from(window).unwrap_or(u32::MAX)));
    start / size..last / size + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_ranges_apart() {
        let set = PageSet::of(vec![7, 1, 2, 3, 9, 8, 2]);
        assert_eq!(set.ranges(), [1..4, 7..10]);
        assert_eq!(set.len(), 6);
        for number in 0..12 {
            assert_eq!(set.contains(number), [1, 2, 3, 7, 8, 9].contains(&number), "{number}");
        }
        assert_eq!(PageSet::from_ranges(set.ranges().to_vec()), Some(set));
        let range = |start: u32, end: u32| start..end;
        let (empty, turned) = (vec![range(1, 1)], vec![range(5, 3)]);
        for wrong in [empty, vec![2..4, 4..5], vec![3..4, 1..2], turned] {
            assert_eq!(PageSet::from_ranges(wrong.clone()), None, "{wrong:?}");
        }
    }
}

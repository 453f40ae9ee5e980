//! What a cache held after the events so far.

use super::pages::PageTable;
use crate::engine::{Event, GroupFacts, HeldPages, MemoryClasses, PageFacts, SeqId, SequenceFacts, Snapshot};
use std::collections::BTreeMap;

/// Sequences, pages and bytes, brought up to date event by event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Steps so far.
    pub step: u64,
    /// Cache groups.
    pub groups: Vec<GroupFacts>,
    /// Live sequences.
    pub sequences: BTreeMap<SeqId, SequenceFacts>,
    /// Live pages.
    pub pages: PageTable,
    /// Bytes by class, as last told.
    pub memory: MemoryClasses,
}

/// Lists of pages of a sequence, and pages that all sequences may hold: beyond these a trace is taken for damaged.
const MOST_ROWS: usize = 1 << 20;
const MOST_PAGES: usize = 1 << 27;
/// Live sequences: likewise.
const MOST_SEQUENCES: usize = 1 << 18;

impl State {
    /// The state that a snapshot holds.
    pub fn of(snapshot: &Snapshot) -> Self {
        let mut state = State::default();
        // What does not fit is left out; an engine's snapshot fits.
        let _ = state.become_of(snapshot);
        state
    }

    fn become_of(&mut self, snapshot: &Snapshot) -> Result<(), String> {
        let mut pages = PageTable::default();
        let inserted = snapshot.pages.iter().try_for_each(|page| pages.insert(page).map(drop));
        *self = State {
            step: snapshot.step,
            groups: snapshot.groups.clone(),
            sequences: snapshot.sequences.iter().map(|s| (s.sequence, s.clone())).collect(),
            pages,
            memory: snapshot.memory.clone(),
        };
        inserted
    }

    /// The state as a snapshot.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            step: self.step,
            groups: self.groups.clone(),
            sequences: self.sequences.values().cloned().collect(),
            pages: self.pages.iter().collect(),
            memory: self.memory.clone(),
        }
    }

    /// Bytes of the slots of live pages: what the allocator counts as slots in use.
    pub fn page_bytes(&self) -> u64 {
        self.pages.bytes()
    }

    /// Sequences that hold each page.
    pub fn owners(&self) -> BTreeMap<(usize, u32), u32> {
        let mut owners = BTreeMap::new();
        for sequence in self.sequences.values() {
            for (group, held) in sequence.groups.iter().enumerate() {
                for page in held.rows.iter().flatten().flatten() {
                    *owners.entry((group, *page)).or_default() += 1;
                }
            }
        }
        owners
    }

    /// Takes in an event.
    ///
    /// # Errors
    /// What does not fit the state, such as a page that is not there: the trace then misses events, or is damaged. The
    /// state goes on with what could be taken in.
    pub fn apply(&mut self, event: &Event) -> Result<(), String> {
        match event {
            Event::SequenceCreated { sequence } => {
                let rows = |group: &GroupFacts| group.layers.len().saturating_mul(group.kv_heads as usize);
                if self.groups.iter().map(rows).fold(0, usize::saturating_add) > MOST_ROWS {
                    return Err(format!("a sequence has more than {MOST_ROWS} lists of pages"));
                }
                let empty = |group: &GroupFacts| HeldPages { first: 0, rows: vec![Vec::new(); rows(group)] };
                let fresh = SequenceFacts {
                    sequence: *sequence,
                    logical: 0,
                    committed: 0,
                    groups: self.groups.iter().map(empty).collect(),
                    pins: Vec::new(),
                    anchors: Vec::new(),
                };
                if self.sequences.len() >= MOST_SEQUENCES {
                    return Err(format!("there are more than {MOST_SEQUENCES} sequences"));
                }
                match self.sequences.insert(*sequence, fresh) {
                    None => Ok(()),
                    Some(_) => Err(format!("sequence {} is made twice", sequence.0)),
                }
            }
            Event::SequenceForked { sequence, from, at_tokens } => {
                let sequences = self.sequences.len() + 1;
                if sequences > MOST_SEQUENCES {
                    return Err(format!("there are more than {MOST_SEQUENCES} sequences"));
                }
                let origin = self.sequence(*from)?;
                let held = origin.groups.iter().flat_map(|group| &group.rows).fold(0, |sum, row| sum + row.len() + 8);
                if held.saturating_mul(sequences) > MOST_PAGES {
                    return Err(format!("{sequences} sequences hold more than {MOST_PAGES} pages"));
                }
                let fork = SequenceFacts { sequence: *sequence, ..origin.clone() };
                // Marks stay, those of tokens to come as well: a fork that cuts them says so.
                let (pins, anchors) = (fork.pins.clone(), fork.anchors.clone());
                self.sequences.insert(*sequence, fork);
                self.cut(*sequence, *at_tokens)?;
                let fork = self.sequence(*sequence)?;
                (fork.pins, fork.anchors) = (pins, anchors);
                Ok(())
            }
            Event::SequenceTruncated { sequence, tokens } => self.cut(*sequence, *tokens),
            Event::SequenceCommitted { sequence, tokens } => {
                self.sequence(*sequence)?.committed = *tokens;
                Ok(())
            }
            Event::SequenceReleased { sequence } => {
                self.sequences.remove(sequence).map(|_| ()).ok_or_else(|| unknown(*sequence))
            }
            Event::TokensPinned { sequence, tokens, .. } => {
                self.sequence(*sequence)?.pins.push(tokens.clone());
                Ok(())
            }
            Event::TokensAnchored { sequence, tokens } => {
                self.sequence(*sequence)?.anchors.push(tokens.clone());
                Ok(())
            }
            Event::PageAllocated { sequence, page, .. } => {
                let before = self.pages.insert(page)?;
                *self.place(*sequence, page)? = Some(page.page);
                match before {
                    None => Ok(()),
                    Some(_) => Err(format!("page {} of group {} is given out twice", page.page, page.group)),
                }
            }
            Event::PageConverted { page, .. } => match self.pages.insert(page)? {
                Some(before) if before.generation != page.generation => Ok(()),
                Some(_) => Err(format!("page {} of group {} changes without a new generation", page.page, page.group)),
                None => Err(format!("page {} of group {} changes and is not there", page.page, page.group)),
            },
            Event::PageEvicted { sequence, page, .. } => {
                *self.place(*sequence, page)? = None;
                Ok(())
            }
            Event::PagesLeftBehind { sequence, group, pages } => {
                let held = self.sequence(*sequence)?.groups.get_mut(*group);
                let held = held.ok_or_else(|| format!("cache group {group} is not there"))?;
                let gone = pages.end.saturating_sub(held.first as usize);
                held.rows.iter_mut().for_each(|row| drop(row.drain(..gone.min(row.len()))));
                held.first = u32::try_from(pages.end).unwrap_or(u32::MAX).max(held.first);
                Ok(())
            }
            Event::PagesFreed { group, pages, bytes, .. } => {
                let mut freed = 0u64;
                for page in pages {
                    let gone = self.pages.remove(*group, *page);
                    let gone = gone.ok_or_else(|| format!("page {page} of group {group} is freed and is not there"))?;
                    freed = freed.saturating_add(gone.bytes);
                }
                match freed == *bytes {
                    true => Ok(()),
                    false => Err(format!("{} pages of {freed} bytes are freed as {bytes} bytes", pages.len())),
                }
            }
            Event::StepDone(step) => {
                self.step = step.step;
                for rows in &step.sequences {
                    let held = self.sequence(rows.sequence)?;
                    held.logical = rows.first_position.saturating_add(rows.rows);
                    if rows.committed {
                        held.committed = held.logical;
                    }
                }
                Ok(())
            }
            Event::MemoryUsed(memory) => {
                self.memory = memory.clone();
                match (self.page_bytes(), memory.used_slot_bytes()) {
                    (pages, used) if pages == used => Ok(()),
                    (pages, used) => Err(format!("live pages have {pages} bytes, the allocator counts {used}")),
                }
            }
            Event::Resync { snapshot, .. } => self.become_of(snapshot),
            _ => Ok(()),
        }
    }

    fn sequence(&mut self, sequence: SeqId) -> Result<&mut SequenceFacts, String> {
        self.sequences.get_mut(&sequence).ok_or_else(|| unknown(sequence))
    }

    /// Where a sequence has the page, or would have it next.
    fn place(&mut self, sequence: SeqId, page: &PageFacts) -> Result<&mut Option<u32>, String> {
        let wrong = || {
            let PageFacts { group, layer, kv_head, number, .. } = page;
            format!("sequence {} has no page {number} of layer {layer}, head {kv_head}, group {group}", sequence.0)
        };
        let group = self.groups.get(page.group).ok_or_else(wrong)?;
        let layer = group.layers.iter().position(|&layer| layer == page.layer).ok_or_else(wrong)?;
        let row = layer.saturating_mul(group.kv_heads as usize).saturating_add(page.kv_head as usize);
        let held = self.sequences.get_mut(&sequence).and_then(|s| s.groups.get_mut(page.group)).ok_or_else(wrong)?;
        let at = page.number.checked_sub(held.first).ok_or_else(wrong)? as usize;
        let row = held.rows.get_mut(row).ok_or_else(wrong)?;
        if at == row.len() && at < MOST_PAGES {
            row.push(None);
        }
        row.get_mut(at).ok_or_else(wrong)
    }

    fn cut(&mut self, sequence: SeqId, tokens: u32) -> Result<(), String> {
        let sizes: Vec<u32> = self.groups.iter().map(|group| group.page_tokens.max(1)).collect();
        let held = self.sequence(sequence)?;
        held.logical = held.logical.min(tokens);
        held.committed = held.committed.min(tokens);
        for ranges in [&mut held.pins, &mut held.anchors] {
            ranges.iter_mut().for_each(|range| range.end = range.end.min(tokens));
            ranges.retain(|range| range.start < range.end);
        }
        for (pages, size) in held.groups.iter_mut().zip(sizes) {
            let keep = tokens.div_ceil(size).saturating_sub(pages.first) as usize;
            pages.rows.iter_mut().for_each(|row| row.truncate(keep));
            if tokens == 0 {
                pages.first = 0;
            }
        }
        Ok(())
    }
}

fn unknown(sequence: SeqId) -> String {
    format!("sequence {} is not there", sequence.0)
}

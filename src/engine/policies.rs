//! What the policy is shown before a step, and the moves that it answers with.

use super::journal::{Done, Journal};
use super::moves::Transfer;
use super::prepare::no_layer;
use super::{Engine, Event, SeqId, SeqRows};
use crate::error::{Error, ErrorKind, Result};
use crate::format::FormatId;
use crate::page::{PageId, flags};
use crate::policy::{Move, PageView};
use crate::shape::Side;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a policy did in a step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moved {
    /// Pages converted.
    pub pages: u64,
    /// Bytes read and written for them.
    pub bytes: u64,
    /// Pages taken from a sequence.
    pub evicted: u64,
    /// Moves beyond the step's bound.
    pub put_off: u64,
    /// The host's time for the question and the answer's tables.
    pub time: Duration,
}

/// The policy's last word: while nothing that it saw has changed, it need not be asked.
pub(super) struct Asked {
    /// Sequences of the step and their committed tokens.
    sequences: Vec<(SeqId, u32)>,
    /// Conversions and evictions until then.
    changes: (u64, u64),
    /// Tokens that each may gain.
    rests: u32,
}

/// A page that a move names.
struct Target {
    seq: SeqId,
    group: usize,
    row: usize,
    at: usize,
    id: PageId,
}

impl Asked {
    fn stands(&self, sequences: &[(SeqId, u32)], changes: (u64, u64)) -> bool {
        let grown = |(then, now): (&(SeqId, u32), &(SeqId, u32))| {
            then.0 == now.0 && now.1.checked_sub(then.1).is_some_and(|tokens| tokens <= self.rests)
        };
        self.changes == changes
            && self.sequences.len() == sequences.len()
            && self.sequences.iter().zip(sequences).all(grown)
    }
}

impl Engine {
    /// Tokens that each of the sequences may gain before the policy is asked again; `None` if the next step asks it.
    pub(super) fn policy_rests(&self, seqs: &[SeqId]) -> Result<Option<u32>> {
        let now = seqs.iter().map(|&seq| Ok((seq, self.sequence(seq)?.committed))).collect::<Result<Vec<_>>>()?;
        let changes = (self.counters.conversions, self.counters.policy.evicted);
        let Some(asked) = self.asked.as_ref().filter(|asked| asked.stands(&now, changes)) else { return Ok(None) };
        let gained = asked.sequences.iter().zip(&now).map(|(then, now)| now.1.saturating_sub(then.1)).max();
        Ok(Some(asked.rests.saturating_sub(gained.unwrap_or(0))))
    }

    pub(super) fn apply_policy(
        &mut self,
        rows: &[SeqRows],
        journal: &mut Journal,
        moved: &mut [[Vec<Transfer>; 2]],
        events: &mut Vec<Event>,
    ) -> Result<Moved> {
        let mut sum = Moved::default();
        if !self.policy.watches() {
            return Ok(sum);
        }
        let start = Instant::now();
        let sequences =
            rows.iter().map(|r| Ok((r.seq, self.sequence(r.seq)?.committed))).collect::<Result<Vec<_>>>()?;
        let changes = (self.counters.conversions, self.counters.policy.evicted);
        if self.asked.as_ref().is_some_and(|asked| asked.stands(&sequences, changes)) {
            return Ok(sum);
        }
        self.asked = None;
        let views = self.views(rows)?;
        let taken: u64 = rows.iter().map(|r| u64::from(r.rows)).sum();
        let bound = self.move_bytes.max(taken.saturating_mul(self.shape.values_per_token() as u64 * 2));
        let mut done = BTreeSet::new();
        for asked in self.policy.decide(&views) {
            match asked {
                Move::Convert { sequence, layer, kv_head, page, k, v, reason } => {
                    let Target { group, id, .. } = self.target(sequence, layer, kv_head, page)?;
                    let to = (self.registry.formats.by_name(&k)?.0, self.registry.formats.by_name(&v)?.0);
                    let held = &self.groups[group].pool.page(id).descriptor;
                    let from = (held.k_format, held.v_format);
                    if from == to || !done.insert((group, id)) {
                        continue;
                    }
                    let bytes = self.move_bytes_of(group, from, to);
                    if sum.bytes > 0 && sum.bytes + bytes > bound {
                        sum.put_off += 1;
                    } else if self.change_if_room(
                        group,
                        id,
                        to.0,
                        to.1,
                        reason,
                        journal,
                        &mut moved[group][1],
                        events,
                    )? {
                        sum.pages += 1;
                        sum.bytes += bytes;
                    }
                }
                // Nothing is moved, so nothing is put off.
                Move::Evict { sequence, layer, kv_head, page, reason } => {
                    let Target { seq, group, row, at, id } = self.target(sequence, layer, kv_head, page)?;
                    if !self.listeners.is_empty() {
                        let page = self.facts(group, id);
                        events.push(Event::PageEvicted { sequence: seq, page, reason: reason.into() });
                    }
                    let place = self.sequence_mut(seq)?.groups[group].place_mut(row, at);
                    if let Some(place) = place {
                        *place = None;
                    }
                    journal.0.push(Done::Evicted { seq, group, row, at, page: id });
                    sum.evicted += 1;
                }
            }
        }
        if sum.put_off == 0 && self.counters.deferred == 0 {
            self.asked = self.policy.rests().map(|rests| Asked { sequences, changes, rests });
        }
        sum.time = start.elapsed();
        Ok(sum)
    }

    /// Bytes that a page's sides in another format are read and written with; a side that only loses a part moves
    /// nothing.
    fn move_bytes_of(&self, group: usize, from: (FormatId, FormatId), to: (FormatId, FormatId)) -> u64 {
        let pool = &self.groups[group].pool;
        let name = |id: FormatId| self.registry.formats.get(id).map(|f| f.name());
        let side = |side: Side, from: FormatId, to: FormatId| {
            let first = self.registry.formats.get(from).and_then(|f| f.first_part());
            let stays = from == to || first.is_some() && first == name(to);
            if stays { 0 } else { pool.side_bytes(side, from) + pool.side_bytes(side, to) }
        };
        side(Side::K, from.0, to.0) + side(Side::V, from.1, to.1)
    }

    /// The page that a move names: held, sealed and not pinned.
    fn target(&self, seq: SeqId, layer: usize, kv_head: usize, at: usize) -> Result<Target> {
        let (group, layer_in_group) = self.shape.locate(layer).ok_or_else(|| no_layer(layer))?;
        let heads = self.groups[group].shape.kv_heads;
        let held = &self.sequence(seq)?.groups[group];
        let row = (kv_head < heads).then_some(layer_in_group * heads + kv_head);
        let refuse = |what: &str| {
            let place = format!("page {at} of layer {layer}, head {kv_head}");
            Error::new(ErrorKind::Shape, format!("the policy moves {place}, which is {what}"), "")
        };
        let (Some(row), Some(id)) = (row, row.and_then(|row| held.page(row, at))) else {
            return Err(refuse("not there"));
        };
        let descriptor = &self.groups[group].pool.page(id).descriptor;
        if !descriptor.sealed() || descriptor.flags & flags::PINNED != 0 {
            return Err(refuse("open or pinned"));
        }
        Ok(Target { seq, group, row, at, id })
    }

    fn views(&self, rows: &[SeqRows]) -> Result<Vec<PageView>> {
        let mut views = Vec::new();
        let named = |(id, format): (FormatId, &Arc<dyn crate::format::Format>)| (id, Arc::<str>::from(format.name()));
        let names: BTreeMap<FormatId, Arc<str>> = self.registry.formats.iter().map(named).collect();
        let unknown: Arc<str> = "?".into();
        let name = |id: FormatId| names.get(&id).unwrap_or(&unknown).clone();
        for r in rows {
            let sequence = self.sequence(r.seq)?;
            for (index, (group, held)) in self.groups.iter().zip(&sequence.groups).enumerate() {
                let size = group.shape.page_tokens;
                for row in 0..held.pages.len() {
                    for (at, id) in held.numbered(row, 0..usize::MAX) {
                        let page = group.pool.page(id);
                        let pinned = page.descriptor.flags & flags::PINNED != 0;
                        if !page.descriptor.sealed() || pinned {
                            continue;
                        }
                        views.push(PageView {
                            sequence: r.seq,
                            group: index,
                            layer: group.shape.layers[row / group.shape.kv_heads],
                            kv_head: row % group.shape.kv_heads,
                            page: at,
                            page_tokens: size,
                            formats: (name(page.descriptor.k_format), name(page.descriptor.v_format)),
                            age_tokens: (sequence.committed as usize).saturating_sub((at + 1) * size),
                            references: page.references,
                            pinned,
                            anchor: sequence.anchored((at * size) as u32, ((at + 1) * size) as u32),
                            overridden: group.overridden[row],
                        });
                    }
                }
            }
        }
        Ok(views)
    }
}

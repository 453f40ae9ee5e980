//! What is looked at now and then, because it costs: attention by page, and what pages hold.

use super::events::MassFacts;
use super::prepare::Prepared;
use super::step::Step;
use super::{Engine, Event, SeqId, SeqRows};
use crate::backend::read_blocking;
use crate::error::Result;
use crate::kernel::attention::ITEM_WORDS;
use crate::kernel::partial::{NO_KEY, floats};
use crate::page::{Change, PageId, Slots, flags};
use crate::shape::Side;
use std::collections::BTreeMap;

/// Of which pages the contents are told when they are sealed or converted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageSampling {
    /// Of none.
    #[default]
    None,
    /// Of every so manieth: 1 for all.
    Every(u32),
}

/// What is sampled, and how far the counts are.
#[derive(Debug, Default)]
pub(super) struct Samples {
    mass_every: u32,
    decode_steps: u64,
    pages: PageSampling,
    changed: u64,
    /// Whether it was said that masses do not fit.
    told_unfit: bool,
}

/// Attention gathered in a step: by sequence, cache group and layer in group.
#[derive(Debug, Default)]
pub(super) struct Mass(BTreeMap<(SeqId, usize, usize), Shares>);

#[derive(Debug)]
struct Shares {
    first_page: u32,
    /// Sums over rows and query heads, by KV head, then page.
    sums: Vec<Vec<f64>>,
    rows: u32,
}

impl Engine {
    /// From here on tells, in every `every`th decoding step, how much attention each page gets
    /// ([`Event::AttentionMass`]), and hands it to the policy; 0 for never. In such a step each page is a work item of its
    /// own and the step waits for the device in every layer: it takes longer, and sums may round otherwise. Steps that are
    /// recorded into a caller's encoder are not sampled.
    pub fn sample_mass(&mut self, every: u32) {
        self.samples.mass_every = every;
    }

    /// From here on tells what pages hold when they are sealed or converted ([`Event::PageData`]), and, where they were
    /// open before, how far that is from the exact rows ([`Event::PageError`]). Each is read back from the device.
    pub fn sample_pages(&mut self, which: PageSampling) {
        self.samples.pages = which;
        self.samples.changed = 0;
    }

    /// Whether attention by page is gathered in a step of these rows, which are about to be planned.
    pub(super) fn samples_mass(&mut self, rows: &[SeqRows]) -> bool {
        let every = u64::from(self.samples.mass_every);
        let decodes =
            |r: &SeqRows| r.rows == 0 || r.rows <= 16 && self.sequences.get(&r.seq).is_some_and(|s| s.logical > 0);
        if every == 0 || !rows.iter().any(|r| r.rows > 0) || !rows.iter().all(decodes) {
            return false;
        }
        self.samples.decode_steps += 1;
        if !self.samples.decode_steps.is_multiple_of(every) {
            return false;
        }
        let fits = rows.iter().all(|r| self.unfit_for_page_items(r).is_none());
        if !fits && !std::mem::replace(&mut self.samples.told_unfit, true) {
            log::warn!("attention by page is not sampled in steps whose states, a page each, do not fit one binding");
        }
        fits
    }

    /// The states of a row and those that the workspace holds, where the former are more with a page each. Entries of
    /// several rows are cut by the planner.
    pub(super) fn unfit_for_page_items(&self, r: &SeqRows) -> Option<(usize, usize)> {
        let Some(sequence) = self.sequences.get(&r.seq) else { return Some((0, 0)) };
        self.groups.iter().enumerate().find_map(|(index, group)| {
            let held = sequence.held(index, group.shape.page_tokens);
            let pages = ((held.end - held.start + r.rows) as usize).div_ceil(group.shape.page_tokens) + 1;
            let (states, most) = (pages.saturating_mul(group.shape.q_heads), self.most_partials(group));
            (states > most).then_some((states, most))
        })
    }

    /// What the sealed and converted pages of a step hold, for those that are sampled. The step has run; the slots that
    /// the pages had before are not yet anybody else's.
    pub(super) fn page_samples(&mut self, changes: &[(usize, Change)]) -> Result<Vec<Event>> {
        let PageSampling::Every(every) = self.samples.pages else { return Ok(Vec::new()) };
        let mut events = Vec::new();
        for (index, change) in changes {
            self.samples.changed += 1;
            let live = self.groups[*index].pool.is_live(change.page);
            if !live || !self.samples.changed.is_multiple_of(u64::from(every.max(1))) {
                continue;
            }
            let page = self.facts(*index, change.page);
            let now = [self.stored(*index, &change.new, Side::K)?, self.stored(*index, &change.new, Side::V)?];
            let was_open = change.before.flags & flags::SEALED == 0;
            if was_open {
                let tokens = usize::from(change.before.valid_tokens);
                let (mut relative_rms, mut largest) = ([0.0; 2], [0.0; 2]);
                for (at, side) in Side::BOTH.into_iter().enumerate() {
                    let exact = self.stored(*index, &change.old, side)?;
                    let exact = self.decoded(*index, side, change.old.side(side).0, &exact, tokens)?;
                    let there = self.decoded(*index, side, change.new.side(side).0, &now[at], tokens)?;
                    (relative_rms[at], largest[at]) = difference(&exact, &there);
                }
                events.push(Event::PageError { page: page.clone(), relative_rms, largest });
            }
            let sides = now.map(|words| bytemuck::cast_slice(&words).to_vec());
            events.push(Event::PageData { page, sides });
        }
        Ok(events)
    }

    /// The words of a page side, all its parts.
    fn stored(&mut self, index: usize, slots: &Slots, side: Side) -> Result<Vec<u32>> {
        let mut words = Vec::new();
        for (key, slot) in slots.parts(side) {
            let group = &self.groups[index];
            let (slice, bytes) = (group.segment_of(key)?, group.pool.slot_size(side, key.format));
            let at = slice.offset + u64::from(slot) * bytes;
            let read = read_blocking(self.backend.as_mut(), slice.buffer, at, bytes)?;
            words.extend(bytemuck::pod_collect_to_vec::<u8, u32>(&read));
        }
        Ok(words)
    }

    fn decoded(
        &self,
        index: usize,
        side: Side,
        format: crate::format::FormatId,
        words: &[u32],
        tokens: usize,
    ) -> Result<Vec<f32>> {
        let codec = self.groups[index].codec(side, format)?;
        let mut rows = vec![f32::NAN; tokens * codec.codec.layout().geometry.head_dim];
        codec.codec.decode(words, 0..tokens, &mut rows);
        Ok(rows)
    }

    /// Tells what a step gathered, and hands it to the policy.
    pub(super) fn announce_mass(&mut self, step: u64, mass: Mass) {
        for ((sequence, group, at), Shares { first_page, sums, rows }) in mass.0 {
            let shape = &self.groups[group].shape;
            let of_all = f64::from(rows.max(1)) * shape.group_size() as f64;
            let layer = shape.layers[at] as u32;
            let mean = |sums: Vec<f64>| sums.into_iter().map(|sum| (sum / of_all) as f32).collect();
            let shares = sums.into_iter().map(mean).collect();
            let facts = MassFacts { step, sequence, group, layer, first_page, shares };
            self.policy.sampled(&facts);
            self.listeners.send(Event::AttentionMass(facts));
        }
    }
}

/// Root mean squared difference over that of the exact values, and the largest difference. A value that is not a number
/// makes both so.
fn difference(exact: &[f32], there: &[f32]) -> (f32, f32) {
    let (mut sum, mut of_exact, mut largest) = (0.0f64, 0.0f64, 0.0f64);
    for (&e, &t) in exact.iter().zip(there) {
        let (e, d) = (f64::from(e), f64::from(t) - f64::from(e));
        sum += d * d;
        of_exact += e * e;
        largest = if d.abs() <= largest { largest } else { d.abs() };
    }
    let relative = if sum == 0.0 { 0.0 } else { (sum / of_exact).sqrt() };
    (relative as f32, largest as f32)
}

impl Step<'_> {
    /// Adds what round `round` of a layer's attention gave to each page, from the partial states that it left: every item
    /// is one page. Submits what is recorded so far and waits for it.
    pub(super) fn gather_mass(&mut self, index: usize, at: usize, round: usize) -> Result<()> {
        let group = &self.engine.groups[index];
        let size = floats(group.shape.v_dim);
        let states = self.prepared.plans[index].layers[at].rounds[round].partials;
        self.submit()?;
        let Engine { groups, backend, .. } = &mut *self.engine;
        let buffer = groups[index].partials.slice()?.buffer;
        let bytes = read_blocking(backend.as_mut(), buffer, 0, (states * size * 4) as u64)?;
        let partials: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
        let Step { engine, prepared: Prepared { plans, rows, mass, .. }, .. } = self;
        if round == 0 {
            // A layer that attends again tells its newest attention.
            mass.0.retain(|(_, group, layer), _| (*group, *layer) != (index, at));
        }
        let (group, plan) = (&engine.groups[index], &plans[index]);
        let round = &plan.layers[at].rounds[round];
        let (queries, page_tokens) = (group.shape.group_size(), group.shape.page_tokens as u32);
        // States of an entry and KV head: of each page the place of its first.
        let mut lists: BTreeMap<(u32, u32, u32), Vec<(u32, u32)>> = BTreeMap::new();
        for batch in &round.attend {
            for item in plan.tables[batch.items_at as usize..].chunks_exact(ITEM_WORDS).take(batch.items as usize) {
                for &id in &plan.tables[item[3] as usize..][..item[4] as usize] {
                    let number = group.pool.page(PageId(id)).descriptor.first_position / page_tokens;
                    lists.entry((item[0], item[1], item[2])).or_default().push((number, item[5]));
                }
            }
        }
        for ((row, count, head), pages) in lists {
            let row = round.row_start + row;
            let mut end = 0;
            let owner = rows.iter().find(|r| {
                end += r.rows;
                row < end
            });
            let Some(owner) = owner else { continue };
            let Some(sequence) = engine.sequences.get(&owner.seq) else { continue };
            let first_page = sequence.groups[index].first as u32;
            let held = (sequence.logical.div_ceil(page_tokens) - first_page) as usize;
            let shares = mass.0.entry((owner.seq, index, at)).or_insert_with(|| Shares {
                first_page,
                sums: vec![vec![0.0; held]; group.shape.kv_heads],
                rows: owner.rows,
            });
            for query in 0..count as usize * queries {
                let state = |first: u32| {
                    let start = (first as usize + query) * size;
                    (partials[start], partials[start + 1])
                };
                let most = pages.iter().map(|&(_, first)| state(first).0).fold(NO_KEY, f32::max);
                let weight = |first: u32| {
                    let (m, l) = state(first);
                    if l == 0.0 { 0.0 } else { f64::from(m - most).exp() * f64::from(l) }
                };
                let all: f64 = pages.iter().map(|&(_, first)| weight(first)).sum();
                for &(number, first) in &pages {
                    let sums = &mut shares.sums[head as usize];
                    if let Some(sum) = sums.get_mut((number - first_page) as usize) {
                        *sum += if all == 0.0 { 0.0 } else { weight(first) / all };
                    }
                }
            }
        }
        Ok(())
    }
}

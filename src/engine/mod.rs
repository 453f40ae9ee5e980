//! The façade: sequences over one page table, steps that append and attend, moves and statistics.

mod events;
mod journal;
mod moves;
pub(crate) mod pipelines;
mod prepare;
mod registry;
mod sequence;
mod stats;
mod step;
mod storage;

pub use events::{Event, Subscription};
pub use registry::Registry;
pub use sequence::{Lengths, SeqId};
pub use stats::{Memory, Stats};
pub use step::{Input, Output, Step, StepReport};
pub use storage::AttentionOptions;

use crate::backend::Backend;
use crate::error::{Error, ErrorKind, Result};
use crate::page::flags;
use crate::policy::Policy;
use crate::profile::Profile;
use crate::select::Selector;
use crate::shape::CacheShape;
use moves::Reopened;
use sequence::{Pin, Rows, Sequence};
use std::collections::BTreeMap;
use std::sync::Arc;
use storage::Group;

/// What an engine is told beyond its shape and profile.
#[derive(Clone, Debug, Default)]
pub struct EngineOptions {
    /// Bound on the bytes of slots in use, in every cache group.
    pub kv_budget_bytes: Option<u64>,
    /// Tokens that segments are first sized for; they grow beyond.
    pub context_tokens: usize,
    /// Rows of the largest prefill step: they lie in open pages at once.
    pub chunk_tokens: usize,
    /// How each group scores; missing entries take the defaults.
    pub attention: Vec<AttentionOptions>,
}

/// Rows of one sequence in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeqRows {
    /// Which sequence.
    pub seq: SeqId,
    /// Tokens appended and asked about; 0 only lets due pages be sealed.
    pub rows: u32,
    /// Whether the rows stand (prefill, decode) or may be taken back (drafts).
    pub committed: bool,
}

/// Keeps the cache of a model and answers attention over it.
///
/// Steps recorded into a caller's own encoder must be submitted before the next step begins.
pub struct Engine {
    backend: Box<dyn Backend>,
    shape: CacheShape,
    profile: Profile,
    registry: Registry,
    selector: Arc<dyn Selector>,
    policy: Box<dyn Policy>,
    groups: Vec<Group>,
    sequences: BTreeMap<SeqId, Sequence>,
    next_sequence: u64,
    /// Reopened pages whose bytes the next step brings over, by group.
    pending: Vec<Vec<Reopened>>,
    staging: Vec<storage::Scratch>,
    listeners: events::Listeners,
    counters: stats::Counters,
    broken: Option<Error>,
}

impl Engine {
    /// An engine with default options.
    ///
    /// # Errors
    /// As [`Engine::with_options`].
    pub fn new(backend: Box<dyn Backend>, shape: CacheShape, profile: Profile, registry: Registry) -> Result<Self> {
        Engine::with_options(backend, shape, profile, registry, EngineOptions::default())
    }

    /// An engine over `shape`, whose formats, selector and policy `profile` names.
    ///
    /// # Errors
    /// `Shape` and `Unsupported` for a shape, format or head size that is refused, `Usage` for a name that the
    /// registry does not know, `OutOfMemory` when the device refuses the first buffers.
    pub fn with_options(
        mut backend: Box<dyn Backend>,
        shape: CacheShape,
        profile: Profile,
        registry: Registry,
        options: EngineOptions,
    ) -> Result<Self> {
        shape.validate()?;
        let selector = registry.selectors.by_name(&profile.selector)?.clone();
        let policy = registry.policies.make(&profile.policy)?;
        let mut groups: Vec<Group> = Vec::with_capacity(shape.groups.len());
        for (i, group) in shape.groups.iter().enumerate() {
            let attention = options.attention.get(i).cloned().unwrap_or_default();
            match Group::new(backend.as_mut(), group, &profile, &registry, &options, &attention) {
                Ok(group) => groups.push(group),
                Err(error) => {
                    groups.iter_mut().for_each(|g| g.release(backend.as_mut()));
                    return Err(error);
                }
            }
        }
        Ok(Engine {
            pending: vec![Vec::new(); groups.len()],
            backend,
            shape,
            profile,
            registry,
            selector,
            policy,
            groups,
            sequences: BTreeMap::new(),
            next_sequence: 0,
            staging: Vec::new(),
            listeners: events::Listeners::default(),
            counters: stats::Counters::default(),
            broken: None,
        })
    }

    /// The backend.
    pub fn backend(&mut self) -> &mut dyn Backend {
        self.backend.as_mut()
    }

    /// Gives the backend back, with every buffer of the engine freed.
    pub fn into_backend(mut self) -> Box<dyn Backend> {
        for group in &mut self.groups {
            group.release(self.backend.as_mut());
        }
        for scratch in &mut self.staging {
            scratch.release(self.backend.as_mut());
        }
        self.backend
    }

    /// The shape.
    pub fn shape(&self) -> &CacheShape {
        &self.shape
    }

    /// The profile.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The registry.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Names of the (K, V) bases of each cache group.
    pub fn bases(&self) -> Vec<(&'static str, &'static str)> {
        let name = |b: crate::kernel::SideBasis| match (b.rotate, b.mean) {
            (_, true) => "mean",
            (true, false) => "hadamard",
            (false, false) => "none",
        };
        self.groups.iter().map(|g| (name(g.bases.k), name(g.bases.v))).collect()
    }

    /// Makes every pipeline that steps with these row counts, and prefills, can need, the policy's targets included.
    ///
    /// # Errors
    /// What the backend says of a kernel that it cannot compile.
    pub fn warm_up(&mut self, decode_rows: &[u32], prefill: bool) -> Result<()> {
        let mut targets = Vec::new();
        for (k, v) in self.policy.targets() {
            targets.push((self.registry.formats.by_name(&k)?.0, self.registry.formats.by_name(&v)?.0));
        }
        for group in &mut self.groups {
            group.warm_up(self.backend.as_mut(), decode_rows, prefill, &targets)?;
        }
        Ok(())
    }

    /// A new, empty sequence.
    ///
    /// # Errors
    /// None; a place for the means that a basis may remove is taken with the first rows.
    pub fn create(&mut self) -> Result<SeqId> {
        let groups = self
            .groups
            .iter()
            .map(|g| Rows { pages: vec![Vec::new(); g.shape.layers.len() * g.shape.kv_heads], ..Rows::default() });
        let sequence = Sequence { logical: 0, committed: 0, groups: groups.collect(), pins: Vec::new() };
        let id = self.insert(sequence);
        self.listeners.send(Event::SequenceCreated { sequence: id });
        Ok(id)
    }

    fn insert(&mut self, sequence: Sequence) -> SeqId {
        self.next_sequence += 1;
        let id = SeqId(self.next_sequence);
        self.sequences.insert(id, sequence);
        id
    }

    /// A sequence with the same tokens, sharing every page until one of the two writes.
    ///
    /// # Errors
    /// `Shape` for an unknown sequence.
    pub fn fork(&mut self, seq: SeqId) -> Result<SeqId> {
        let at_tokens = self.sequence(seq)?.logical;
        let id = self.share(seq)?;
        self.listeners.send(Event::SequenceForked { sequence: id, from: seq, at_tokens });
        Ok(id)
    }

    fn share(&mut self, seq: SeqId) -> Result<SeqId> {
        let copy = self.sequence(seq)?.clone();
        for (group, rows) in self.groups.iter_mut().zip(&copy.groups) {
            rows.pages.iter().flatten().for_each(|&page| group.pool.retain(page));
        }
        Ok(self.insert(copy))
    }

    /// A sequence with the first `logical` tokens of `seq`.
    ///
    /// # Errors
    /// As [`Engine::truncate`]; no sequence is made then.
    pub fn fork_at(&mut self, seq: SeqId, logical: u32) -> Result<SeqId> {
        let length = self.sequence(seq)?.logical;
        if logical > length {
            return Err(beyond("fork_at", logical, length));
        }
        let id = self.share(seq)?;
        match self.truncate(id, logical) {
            Ok(()) => {
                self.listeners.send(Event::SequenceForked { sequence: id, from: seq, at_tokens: logical });
                Ok(id)
            }
            Err(error) => {
                self.forget(id)?;
                Err(error)
            }
        }
    }

    /// Ends a sequence; pages that no other holds are free for the next step.
    ///
    /// # Errors
    /// `Shape` for an unknown sequence.
    pub fn release(&mut self, seq: SeqId) -> Result<()> {
        self.forget(seq)?;
        self.listeners.send(Event::SequenceReleased { sequence: seq });
        Ok(())
    }

    fn forget(&mut self, seq: SeqId) -> Result<()> {
        let Some(sequence) = self.sequences.remove(&seq) else { return Err(unknown(seq)) };
        for (index, rows) in sequence.groups.iter().enumerate() {
            rows.pages.iter().flatten().for_each(|&page| self.groups[index].pool.release(page));
            self.drop_stale(index);
            if !sequence.pins.is_empty() {
                self.mark_pins(index, &rows.pages, 0);
            }
            self.give_mean_slot(index, rows.mean_slot);
        }
        Ok(())
    }

    /// Forgets waiting pages that no sequence holds any more, and frees what nothing can read. Called right after
    /// pages were released, before an id is given to another page.
    fn drop_stale(&mut self, index: usize) {
        let pool = &mut self.groups[index].pool;
        let (kept, stale): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.pending[index]).into_iter().partition(|w| pool.is_live(w.page));
        self.pending[index] = kept;
        stale.iter().for_each(|w| pool.release(w.source));
        pool.reclaim();
    }

    /// Sets the `PINNED` flag of those of `rows`' pages, from page `from` on, that are still held: an owner's pin
    /// covers them, or none does.
    fn mark_pins(&mut self, index: usize, rows: &[Vec<crate::page::PageId>], from: usize) {
        let size = self.groups[index].shape.page_tokens;
        for (row, pages) in rows.iter().enumerate() {
            for (at, &id) in pages.iter().enumerate().skip(from) {
                if !self.groups[index].pool.is_live(id) {
                    continue;
                }
                let (start, end) = ((at * size) as u32, ((at + 1) * size) as u32);
                let pinned = self
                    .sequences
                    .values()
                    .any(|s| s.groups[index].pages[row].get(at) == Some(&id) && s.pinned(start, end));
                let held = self.groups[index].pool.page(id).descriptor.flags & flags::PINNED != 0;
                if held != pinned {
                    self.groups[index].pool.update(id, |d| d.flags ^= flags::PINNED);
                }
            }
        }
    }

    /// Frees a place for means unless another sequence uses it.
    fn give_mean_slot(&mut self, index: usize, slot: Option<u32>) {
        let shared = self.sequences.values().any(|s| s.groups[index].mean_slot == slot);
        self.groups[index].mean_slots.extend(slot.filter(|_| !shared));
    }

    /// Declares that the first `n` tokens stand: pages below may be sealed.
    ///
    /// # Errors
    /// `Shape` when `n` is above the tokens held or below what was committed.
    pub fn commit(&mut self, seq: SeqId, n: u32) -> Result<()> {
        let sequence = self.sequence_mut(seq)?;
        if n > sequence.logical {
            return Err(beyond("commit", n, sequence.logical));
        }
        if n < sequence.committed {
            return Err(Error::new(
                ErrorKind::Shape,
                format!("commit({n}): {} tokens are committed already", sequence.committed),
                "use truncate to take tokens back",
            ));
        }
        sequence.committed = n;
        Ok(())
    }

    /// Keeps the first `logical` tokens. Within a sealed page, a new open page is made of its decoded tokens; the
    /// sealed one stays until the next step has read it. Pins end where the tokens do.
    ///
    /// # Errors
    /// `Shape` beyond the tokens held; `OutOfPages` or `OutOfMemory` when a page cannot be reopened. Nothing has
    /// changed then.
    pub fn truncate(&mut self, seq: SeqId, logical: u32) -> Result<()> {
        let length = self.sequence(seq)?.logical;
        if logical > length {
            return Err(beyond("truncate", logical, length));
        }
        let mut journal = journal::Journal::default();
        if let Err(error) = self.reopen(seq, logical, &mut journal) {
            self.roll_back(journal);
            return Err(error);
        }
        self.announce_reopened(&journal);
        journal.accept(&mut self.groups);
        let sequence = self.sequence_mut(seq)?;
        sequence.logical = logical;
        sequence.committed = sequence.committed.min(logical);
        let pins = sequence.pins.len();
        sequence.pins.iter_mut().for_each(|p| p.range.end = p.range.end.min(logical));
        sequence.pins.retain(|p| p.range.start < p.range.end);
        for index in 0..self.groups.len() {
            let Some(sequence) = self.sequences.get_mut(&seq) else { return Err(unknown(seq)) };
            let (group, held) = (&mut self.groups[index], &mut sequence.groups[index]);
            let size = group.shape.page_tokens;
            let (whole, keep) = (logical as usize / size, (logical as usize).div_ceil(size));
            held.sealed_to = held.sealed_to.min(whole);
            let before = (pins > 0).then(|| held.pages.clone());
            for row in &mut held.pages {
                row.drain(keep.min(row.len())..).for_each(|page| group.pool.release(page));
                if let Some(&page) = row.get(whole).filter(|&&p| group.pool.page(p).references == 1) {
                    group.pool.update(page, |d| d.valid_tokens = (logical as usize % size) as u16);
                }
            }
            // New first rows measure new means; the old ones could be those of rows taken back.
            let slot = if logical == 0 { held.mean_slot.take() } else { None };
            self.drop_stale(index);
            self.give_mean_slot(index, slot);
            if let Some(rows) = before {
                self.mark_pins(index, &rows, whole);
            }
        }
        Ok(())
    }

    /// Keeps the pages that hold `range` in the formats they have, whatever the policy says.
    ///
    /// # Errors
    /// `Shape` for an unknown sequence or an empty or reversed range.
    pub fn pin(&mut self, seq: SeqId, range: std::ops::Range<u32>, reason: &str) -> Result<()> {
        if range.start >= range.end {
            return Err(Error::new(ErrorKind::Shape, format!("pin {range:?} holds no token"), "give start < end"));
        }
        let sequence = self.sequences.get_mut(&seq).ok_or_else(|| unknown(seq))?;
        for (group, rows) in self.groups.iter_mut().zip(&sequence.groups) {
            let size = group.shape.page_tokens;
            let pages = range.start as usize / size..(range.end as usize).div_ceil(size);
            for row in &rows.pages {
                for &page in row.iter().take(pages.end).skip(pages.start) {
                    group.pool.update(page, |d| d.flags |= flags::PINNED);
                }
            }
        }
        sequence.pins.push(Pin { range, reason: reason.into() });
        Ok(())
    }

    /// Ranges pinned, with the reasons given.
    ///
    /// # Errors
    /// `Shape` for an unknown sequence.
    pub fn pins(&self, seq: SeqId) -> Result<Vec<(std::ops::Range<u32>, String)>> {
        Ok(self.sequence(seq)?.pins.iter().map(|p| (p.range.clone(), p.reason.clone())).collect())
    }

    /// The three lengths of a sequence.
    ///
    /// # Errors
    /// `Shape` for an unknown sequence.
    pub fn lengths(&self, seq: SeqId) -> Result<Lengths> {
        let s = self.sequence(seq)?;
        Ok(Lengths { logical: s.logical, cached: s.cached(), committed: s.committed })
    }

    /// Live sequences.
    pub fn sequences(&self) -> impl Iterator<Item = SeqId> {
        self.sequences.keys().copied()
    }

    /// Listens; at most `bound` events wait, further ones are dropped and counted.
    pub fn subscribe(&mut self, bound: usize) -> Subscription {
        self.listeners.subscribe(bound)
    }

    /// Begins a step: seals due pages, reserves the rows' pages and plans the work.
    ///
    /// # Errors
    /// `Shape` for unknown or repeated sequences, `OutOfPages` naming the bytes short, `OutOfMemory`; every sequence
    /// is as it was. `Device` or `DeviceLost` once the device has failed.
    pub fn begin_step(&mut self, rows: &[SeqRows]) -> Result<Step<'_>> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        // A failure since the last step would void this one as well.
        self.backend.poll().inspect_err(|error| self.note(error))?;
        self.groups.iter_mut().for_each(|g| g.pool.reclaim());
        let mut journal = journal::Journal::default();
        match self.prepare_step(rows, &mut journal) {
            Ok(prepared) => Ok(Step::new(self, prepared, journal)),
            Err(error) => {
                self.roll_back(journal);
                Err(error)
            }
        }
    }

    /// Refuses further steps once the device has failed.
    fn note(&mut self, error: &Error) {
        if matches!(error.kind(), ErrorKind::Device | ErrorKind::DeviceLost) && self.broken.is_none() {
            self.broken = Some(error.clone());
        }
    }

    fn sequence(&self, seq: SeqId) -> Result<&Sequence> {
        self.sequences.get(&seq).ok_or_else(|| unknown(seq))
    }

    fn sequence_mut(&mut self, seq: SeqId) -> Result<&mut Sequence> {
        self.sequences.get_mut(&seq).ok_or_else(|| unknown(seq))
    }
}

fn unknown(seq: SeqId) -> Error {
    Error::new(ErrorKind::Shape, format!("sequence {} is not known", seq.0), "it was released, or is another engine's")
}

fn beyond(what: &str, asked: u32, length: u32) -> Error {
    Error::new(ErrorKind::Shape, format!("{what}({asked}): the sequence holds {length} tokens"), "")
}

//! The façade: sequences over one page table, steps that append and attend, moves and statistics.

mod events;
mod inspect;
mod journal;
mod keys;
mod lifetimes;
mod maps;
mod moves;
pub(crate) mod pipelines;
mod policies;
mod prepare;
mod registry;
mod samples;
mod scratch;
mod sequence;
mod settled;
mod sides;
mod source;
mod stats;
mod steady;
mod step;
mod storage;
mod taps;
mod window;

pub use events::{
    Event, Formats, GroupFacts, HeldPages, KernelShare, MassFacts, MemoryClasses, Next, PageFacts, PageSet, ReadFacts,
    Reads, SequenceFacts, SequenceRows, SideBytes, Snapshot, StepFacts, Subscription, Timed, TokenPiece, Word,
};
pub(crate) use inspect::StoredPage;
pub use registry::Registry;
pub use samples::PageSampling;
pub use sequence::{Lengths, SeqId};
pub use stats::{Memory, Routes, Stats};
pub use step::{Input, Output, Step, StepReport};
pub use storage::AttentionOptions;
pub use taps::{TapCall, TapMemory, TapPlanes};

use crate::backend::{Backend, KernelTime, Timing};
use crate::error::{Error, ErrorKind, Result};
use crate::needs::{TapOffer, Taps, Wanted};
use crate::page::Budget;
use crate::policy::Policy;
use crate::profile::Profile;
use crate::select::Selector;
use crate::shape::CacheShape;
use moves::Reopened;
use sequence::{Rows, Sequence};
use std::collections::BTreeMap;
use std::sync::Arc;
use storage::Group;

/// What an engine is told beyond its shape and profile.
#[derive(Clone, Debug, Default)]
pub struct EngineOptions {
    /// Bound on the bytes of slots in use, all cache groups together.
    pub kv_budget_bytes: Option<u64>,
    /// Tokens that segments are first sized for; they grow beyond.
    pub context_tokens: usize,
    /// Rows of the largest prefill step: they lie in open pages at once.
    pub chunk_tokens: usize,
    /// How each group scores; missing entries take the defaults.
    pub attention: Vec<AttentionOptions>,
    /// Committed tokens that can be taken back in `Window` groups: their pages go this many tokens later. One token
    /// can be in any case. `Full` groups keep every page.
    pub rewind_tokens: usize,
    /// Names the exact weights in content keys, such as the SHA-256 of the model's file; without it no page has one.
    pub model_hash: Option<String>,
    /// Tensors of its forward pass that the caller gives in every step with [`Step::tap`]. A selector or policy that needs
    /// others is refused.
    pub taps: Vec<TapOffer>,
    /// Bytes that a policy's moves may read and write in one step, or as many as the step's rows take at 16 bits if
    /// that is more; `None` for [`MOVE_BYTES`]. A page moves in any case. What is left over waits for later steps.
    pub move_bytes: Option<u64>,
    /// Whether each page is a work item of its own, and states are merged in the order of positions. Then no bit of an
    /// attention's result depends on what the plan otherwise splits by: how large bindings are, in which segments pages
    /// lie, what else is in the step. It costs a partial state a page, row and head.
    pub page_items: bool,
}

/// Bytes of a policy's moves in a step where the options say nothing.
pub const MOVE_BYTES: u64 = 16 << 20;

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
    staging: Vec<scratch::Scratch>,
    listeners: events::Listeners,
    counters: stats::Counters,
    broken: Option<Error>,
    model_hash: Option<String>,
    /// What the policy said last, as long as it stands.
    asked: Option<policies::Asked>,
    page_items: bool,
    move_bytes: u64,
    taps: Taps,
    /// Memory of the selector and the policy.
    user_buffers: taps::UserBuffers,
    /// Finished steps with rows so far.
    tap_steps: u64,
    /// How the backend times, and the times taken for listeners that nobody else has asked for yet.
    timing: Timing,
    times: BTreeMap<&'static str, KernelTime>,
    /// Names of formats by id, for events.
    format_names: Vec<Option<Arc<str>>>,
    budget_bytes: Option<u64>,
    samples: samples::Samples,
    /// Bytes by class that listeners know of.
    told_memory: Option<MemoryClasses>,
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
    /// `Shape` and `Unsupported` for a shape, format, head size, side plane or wanting tap that is refused, `Usage` for a
    /// name that the registry does not know, `OutOfMemory` when the device refuses the first buffers.
    pub fn with_options(
        mut backend: Box<dyn Backend>,
        shape: CacheShape,
        profile: Profile,
        registry: Registry,
        options: EngineOptions,
    ) -> Result<Self> {
        shape.validate()?;
        let selector = profile.make_selector(&registry.names())?;
        let policy = profile.make_policy(&registry.names())?;
        let wanted = Wanted::of(selector.as_ref(), policy.as_ref(), &shape);
        let taps = Taps::new(&shape, &wanted, &options.taps)?;
        let budget = Budget::new(options.kv_budget_bytes);
        let layers = shape.model_layers();
        let mut groups: Vec<Group> = Vec::with_capacity(shape.groups.len());
        for (i, group) in shape.groups.iter().enumerate() {
            let attention = options.attention.get(i).cloned().unwrap_or_default();
            let cache = storage::GroupOptions { layers, policy: policy.as_ref(), budget: &budget, wanted: &wanted };
            match Group::new(backend.as_mut(), group, &profile, &registry, &options, &attention, &cache) {
                Ok(group) => groups.push(group),
                Err(error) => {
                    groups.iter_mut().for_each(|g| g.release(backend.as_mut()));
                    return Err(error);
                }
            }
        }
        let mut format_names: Vec<Option<Arc<str>>> = Vec::new();
        for (id, format) in registry.formats.iter() {
            format_names.resize(format_names.len().max(usize::from(id.0) + 1), None);
            format_names[usize::from(id.0)] = Some(format.name().into());
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
            model_hash: options.model_hash,
            asked: None,
            page_items: options.page_items,
            move_bytes: options.move_bytes.unwrap_or(MOVE_BYTES),
            taps,
            user_buffers: taps::UserBuffers::new(),
            tap_steps: 0,
            timing: Timing::None,
            times: BTreeMap::new(),
            format_names,
            budget_bytes: options.kv_budget_bytes,
            samples: samples::Samples::default(),
            told_memory: None,
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
        for scratch in self.staging.iter_mut().chain(self.user_buffers.values_mut()) {
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
        let name = |b: crate::kernel::SideBasis| match b {
            b if b.map => "map",
            b if b.mean || b.fixed => "mean",
            b if b.rotate => "hadamard",
            _ => "none",
        };
        self.groups.iter().map(|g| (name(g.bases.k), name(g.bases.v))).collect()
    }

    /// What content keys call the (K, V) bases of each cache group: their names, or `map:ID` and `mean:ID` with the
    /// identity of the calibration ([`crate::basis::Calibration::id`]).
    pub fn basis_ids(&self) -> Vec<(&str, &str)> {
        self.groups.iter().map(|g| (g.basis_ids[0].as_str(), g.basis_ids[1].as_str())).collect()
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
        self.selector.prepare(self.backend.as_mut(), &self.shape)?;
        self.policy.prepare(self.backend.as_mut(), &self.shape)
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
        let sequence = Sequence {
            logical: 0,
            committed: 0,
            groups: groups.collect(),
            ids: Vec::new(),
            pins: Vec::new(),
            anchors: Vec::new(),
        };
        let id = self.insert(sequence);
        self.listeners.send(Event::SequenceCreated { sequence: id });
        Ok(id)
    }

    fn insert(&mut self, sequence: Sequence) -> SeqId {
        self.asked = None;
        self.next_sequence += 1;
        let id = SeqId(self.next_sequence);
        self.sequences.insert(id, sequence);
        id
    }

    /// The three lengths of a sequence.
    ///
    /// # Errors
    /// `Shape` for an unknown sequence.
    pub fn lengths(&self, seq: SeqId) -> Result<Lengths> {
        let s = self.sequence(seq)?;
        let held = self.held(seq)?.into_iter().map(|range| range.end - range.start);
        Ok(Lengths { logical: s.logical, cached: held.max().unwrap_or(0), committed: s.committed })
    }

    /// Live sequences.
    pub fn sequences(&self) -> impl Iterator<Item = SeqId> {
        self.sequences.keys().copied()
    }

    /// Begins a step: seals due pages, reserves the rows' pages and plans the work.
    ///
    /// # Errors
    /// `Shape` for unknown or repeated sequences, `OutOfPages` naming the bytes short, `OutOfMemory`; every sequence
    /// is as it was. `Device` or `DeviceLost` once the device has failed.
    pub fn begin_step(&mut self, rows: &[SeqRows]) -> Result<Step<'_>> {
        self.begin_step_with_tokens(rows, &[])
    }

    /// [`Engine::begin_step`] with the token ids of the rows, one entry a sequence in the order of `rows` and `None`
    /// where they are not known: full pages then have content keys ([`Engine::content_keys`]).
    ///
    /// # Errors
    /// As [`Engine::begin_step`]; `Shape` for other numbers of entries or ids than of sequences or rows.
    pub fn begin_step_with_tokens(&mut self, rows: &[SeqRows], tokens: &[Option<&[u32]>]) -> Result<Step<'_>> {
        Engine::check_tokens(rows, tokens)?;
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        // A failure since the last step would void this one as well.
        self.backend.poll().inspect_err(|error| self.note(error))?;
        self.before_step().inspect_err(|error| self.note(error))?;
        let (began_ns, listened) = (self.listeners.now(), self.listened());
        self.groups.iter_mut().for_each(|g| {
            g.pool.reclaim();
            g.pool.note_freed(listened);
        });
        let mut journal = journal::Journal::default();
        match self.prepare_step(rows, &mut journal) {
            Ok(mut prepared) => {
                prepared.began_ns = began_ns;
                prepared.tokens = tokens.iter().map(|ids| ids.map(<[u32]>::to_vec)).collect();
                Ok(Step::new(self, prepared, journal))
            }
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

//! What an engine holds on the device for one cache group: segments, descriptors, tables and workspace.

use super::registry::Registry;
use super::scratch::Scratch;
use super::settled::Settled;
use super::sides::{heads, in_parts, side_basis};
use crate::backend::{Backend, BufferSlice, CodecUse};
use crate::error::{Error, ErrorKind, Result};
use crate::format::FormatId;
use crate::kernel::attention::AttentionShape;
use crate::kernel::{MeanPlace, SideBases, decode_tiles, decode_tuning};
use crate::needs::{PlaneSet, Wanted};
use crate::page::{Backing, Budget, PageDescriptor, Pool, SegmentKey, SlotSpec};
use crate::plan::Kept;
use crate::policy::Policy;
use crate::profile::Profile;
use crate::shape::{CacheGroup, GroupKind, Side};
use std::collections::{BTreeMap, HashMap};

/// How a group's attention scores.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttentionOptions {
    /// Factor of the logits; `None` for `1/√k_dim`.
    pub scale: Option<f32>,
    /// Logits pass through `cap · tanh(s / cap)`.
    pub softcap: Option<f32>,
    /// Attention-sink logits, `[layer in group][query head]`.
    pub sinks: Option<Vec<Vec<f32>>>,
}

/// One cache group's pages and buffers.
pub(super) struct Group {
    pub shape: CacheGroup,
    pub attention: AttentionShape,
    pub scale: f32,
    pub softcap: f32,
    pub window: Option<usize>,
    /// Committed tokens that can be taken back before pages behind the window are missed.
    pub rewind_tokens: usize,
    pub bases: SideBases,
    /// What content keys call the bases of K and V.
    pub basis_ids: [String; 2],
    pub pool: Pool,
    /// Rows (`layer in group × KV heads + KV head`) that pages belong to, by id.
    row_of: Vec<u32>,
    pub codecs: BTreeMap<(Side, FormatId), CodecUse>,
    /// Formats of open pages, by `layer in group × KV heads + KV head`; those of a layer are alike.
    pub open: Vec<(FormatId, FormatId)>,
    /// Formats of sealed pages, by the same.
    pub sealed: Vec<(FormatId, FormatId)>,
    /// Rows whose formats an override of the profile names.
    pub overridden: Vec<bool>,
    pub segments: HashMap<SegmentKey, BufferSlice>,
    /// What is kept with each page beside its slots, and the segments of it.
    pub planes: PlaneSet,
    pub records: Vec<BufferSlice>,
    pub descriptors: Scratch,
    pub tables: Scratch,
    /// The last plan's attention, and the stamp of the one whose words the tables' buffer holds in front.
    pub kept: Kept,
    pub held: Option<u64>,
    pub queries: Scratch,
    pub partials: Scratch,
    /// Means of sequences, then 256-aligned sink logits by layer; dummies when unused.
    pub means: BufferSlice,
    pub mean_slots: Vec<u32>,
    /// Calibrated means and maps by layer in group; none where no side has some.
    pub maps: Vec<BufferSlice>,
    pub sinks: Vec<BufferSlice>,
    pub has_sinks: bool,
    pub pipelines: HashMap<super::pipelines::Key, crate::backend::PipelineId>,
}

/// What the groups of an engine have in common.
#[derive(Clone, Copy)]
pub(super) struct GroupOptions<'a> {
    /// Layers of the model.
    pub layers: usize,
    pub policy: &'a dyn Policy,
    pub budget: &'a Budget,
    pub wanted: &'a [Wanted],
}

/// Sequences whose means an engine can hold at once.
pub(super) const MEAN_SLOTS: u32 = 64;

impl Group {
    pub fn new(
        backend: &mut dyn Backend,
        shape: &CacheGroup,
        profile: &Profile,
        registry: &Registry,
        options: &super::EngineOptions,
        attention: &AttentionOptions,
        cache: &GroupOptions<'_>,
    ) -> Result<Self> {
        shape.validate()?;
        let GroupOptions { layers, budget, wanted, .. } = *cache;
        let planes = PlaneSet::new(shape, wanted)?;
        let (mut codecs, mut nested) = (BTreeMap::new(), BTreeMap::new());
        for (id, format) in registry.formats.iter() {
            for side in Side::BOTH {
                // A format that refuses this geometry is only missed when something asks for it.
                let Ok(mut codec) = format.codec(side, shape.geometry(side)) else { continue };
                if let Some(first) = format.first_part() {
                    codec = in_parts(format.as_ref(), first, codec, registry)?;
                    nested.insert((side, id), registry.formats.by_name(first)?.0);
                }
                codecs.insert((side, id), CodecUse { format: format.name().into(), codec });
            }
        }
        let (mut open, mut sealed, mut overridden) = (Vec::new(), Vec::new(), Vec::new());
        for head in heads(shape, layers) {
            let (k, v) = profile.formats_of(head);
            for (side, name) in [(Side::K, k), (Side::V, v)] {
                // Asked again, so that the refusal is the format's own words.
                registry.formats.by_name(name)?.1.codec(side, shape.geometry(side))?;
            }
            let id = |name: &str| Ok(registry.formats.by_name(name)?.0);
            sealed.push((id(k)?, id(v)?));
            let (k, v) = profile.open_formats_of(head);
            open.push((id(k)?, id(v)?));
            overridden.push(profile.overridden(head));
        }
        let turned = [
            side_basis(profile.k_basis.as_deref(), Side::K, profile, shape, cache, registry)?,
            side_basis(profile.v_basis.as_deref(), Side::V, profile, shape, cache, registry)?,
        ];
        let bases = SideBases { k: turned[0].basis, v: turned[1].basis };
        let rows = (shape.layers.len() * shape.kv_heads) as u64;
        let pages = |tokens: usize| (tokens / shape.page_tokens) as u64 + 1;
        // Pages of a step's rows are there while those that the step seals wait for the next one to be reused. What
        // spills into a second segment is a second dispatch a layer: 17 us on an H200, for a handful of pages.
        let two_chunks = options.chunk_tokens.saturating_mul(2);
        // Segments grow: what no context of this size can fill is not reserved ahead.
        let most = options.context_tokens.max(4096).saturating_add(two_chunks);
        let exact = profile.exact_sink_tokens.saturating_add(profile.exact_tail_tokens);
        let in_passing = exact.saturating_add(options.chunk_tokens).min(most);
        let exact = exact.saturating_add(two_chunks).min(most);
        // Pages behind a window go.
        let holds_at_once = match shape.kind {
            GroupKind::Window(w) => [options.rewind_tokens, options.chunk_tokens, 2 * shape.page_tokens]
                .into_iter()
                .fold(w, usize::saturating_add),
            GroupKind::Full => usize::MAX,
        };
        // Where a policy brings pages elsewhere, segments are sized for what it leaves.
        let settled = Settled::of(shape, profile, registry, options.context_tokens.min(holds_at_once), cache)?;
        let moves = settled.moves();
        let slots = codecs
            .iter()
            .map(|(&(side, id), codec)| {
                let holds = |format| format == id || nested.get(&(side, format)) == Some(&id);
                let settled = settled.pages(side, holds);
                let exact_pages = rows.saturating_mul(pages(exact.min(holds_at_once)));
                // A chunk's pages pass through the formats of sealing: sealed in the step after, moved in the next, and
                // their slots free one later.
                let in_passing = rows.saturating_mul(pages(in_passing.min(holds_at_once)));
                let passing = if moves { in_passing.saturating_mul(3) } else { rows };
                let some = |pages: u64| if pages == 0 { 0 } else { pages.saturating_add(passing) };
                let first_slots = exact_pages.max(some(settled)).min(u64::from(u32::MAX)) as u32;
                // Of a format in two parts only the further one lies in slots of its own.
                let [first, further] = codec.codec.parts();
                let bytes = if further > 0 { further } else { first } as u64 * 4;
                ((side, id), SlotSpec { bytes, first_slots: first_slots.max(64) })
            })
            .collect();
        let held = options.context_tokens.max(exact).min(holds_at_once);
        let first_records = rows.saturating_mul(pages(held)).clamp(64, u64::from(u32::MAX)) as u32;
        let caps = backend.caps();
        let segment = caps.max_binding_bytes.min(caps.max_buffer_bytes);
        let window = match shape.kind {
            GroupKind::Window(w) => Some(w),
            GroupKind::Full => None,
        };
        let scale = attention.scale.unwrap_or(1.0 / (shape.k_dim as f32).sqrt());
        let softcap = attention.softcap.unwrap_or(0.0);
        if !scale.is_finite() || !softcap.is_finite() || softcap < 0.0 {
            return Err(Error::new(
                ErrorKind::Shape,
                format!("attention scale {scale} and softcap {softcap} must be finite, the cap not negative"),
                "",
            ));
        }
        let attention_shape = AttentionShape {
            kv_heads: shape.kv_heads,
            group: shape.group_size(),
            k_dim: shape.k_dim,
            v_dim: shape.v_dim,
            page_tokens: shape.page_tokens,
            window: window.is_some(),
            softcap: attention.softcap.is_some(),
        };
        let uses_means = bases.k.mean || bases.v.mean;
        let slot_floats = rows * (shape.k_dim + shape.v_dim) as u64;
        let mean_bytes = if uses_means { slot_floats * 4 * u64::from(MEAN_SLOTS) } else { 256 };
        let means = BufferSlice::whole(backend.alloc("means", mean_bytes)?, mean_bytes);
        let mut group = Group {
            shape: shape.clone(),
            attention: attention_shape,
            scale,
            softcap,
            window,
            rewind_tokens: options.rewind_tokens,
            bases,
            basis_ids: [turned[0].id.clone(), turned[1].id.clone()],
            pool: match (planes.record_bytes(), Pool::new(slots, segment, budget.clone()).with_parts(nested)) {
                (0, pool) => pool,
                (bytes, pool) => pool.with_records(SlotSpec { bytes, first_slots: first_records }),
            },
            row_of: Vec::new(),
            planes,
            records: Vec::new(),
            codecs,
            open,
            sealed,
            overridden,
            segments: HashMap::new(),
            descriptors: Scratch::new("descriptors"),
            tables: Scratch::new("tables"),
            kept: Kept::default(),
            held: None,
            queries: Scratch::new("queries"),
            partials: Scratch::new("partials"),
            means,
            mean_slots: (0..if uses_means { MEAN_SLOTS } else { 0 }).rev().collect(),
            maps: Vec::new(),
            sinks: Vec::new(),
            has_sinks: attention.sinks.is_some(),
            pipelines: HashMap::new(),
        };
        group.make_sinks(backend, attention)?;
        group.make_maps(backend, &turned)?;
        Ok(group)
    }

    fn make_sinks(&mut self, backend: &mut dyn Backend, attention: &AttentionOptions) -> Result<()> {
        let layers = self.shape.layers.len();
        let stride = (self.shape.q_heads as u64 * 4).next_multiple_of(256);
        let buffer = backend.alloc("sink logits", if self.has_sinks { stride * layers as u64 } else { stride })?;
        for layer in 0..layers {
            let at = if self.has_sinks { stride * layer as u64 } else { 0 };
            self.sinks.push(BufferSlice { buffer, offset: at, bytes: stride });
        }
        let Some(sinks) = &attention.sinks else { return Ok(()) };
        if sinks.len() != layers || sinks.iter().any(|s| s.len() != self.shape.q_heads) {
            return Err(Error::new(
                ErrorKind::Shape,
                format!("sink logits are wanted for {layers} layers of {} heads", self.shape.q_heads),
                "",
            ));
        }
        for (slice, logits) in self.sinks.iter().zip(sinks) {
            backend.write(slice.buffer, slice.offset, bytemuck::cast_slice(logits))?;
        }
        Ok(())
    }

    /// Where a layer's means lie.
    pub fn mean_place(&self, layer: usize) -> MeanPlace {
        MeanPlace::new(&self.attention, self.shape.layers.len(), layer)
    }

    /// Whether sequences of this group carry means.
    pub fn uses_means(&self) -> bool {
        self.bases.k.mean || self.bases.v.mean
    }

    /// The pool, with the backend as its memory.
    pub fn with_pool<T>(&mut self, backend: &mut dyn Backend, act: impl FnOnce(&mut Pool, &mut dyn Backing) -> T) -> T {
        let mut backing = Segments { segments: &mut self.segments, records: &mut self.records, backend };
        act(&mut self.pool, &mut backing)
    }

    /// Remembers the row that a new page belongs to.
    pub fn note_row(&mut self, id: crate::page::PageId, row: usize) {
        let at = id.0 as usize;
        self.row_of.resize(self.row_of.len().max(at + 1), 0);
        // Layers and heads are far fewer than 2^32.
        self.row_of[at] = row as u32;
    }

    /// The row that a page belongs to.
    pub fn row_of(&self, id: crate::page::PageId) -> usize {
        self.row_of.get(id.0 as usize).map_or(0, |&row| row as usize)
    }

    /// Bytes of both sides of a page in these formats.
    pub fn side_pair_bytes(&self, k: FormatId, v: FormatId) -> u64 {
        self.pool.side_bytes(Side::K, k) + self.pool.side_bytes(Side::V, v)
    }

    /// Bytes of a live page's slots.
    pub fn page_bytes(&self, id: crate::page::PageId) -> u64 {
        let d = &self.pool.page(id).descriptor;
        self.side_pair_bytes(d.k_format, d.v_format)
    }

    /// The buffer of a segment.
    pub fn segment_of(&self, key: SegmentKey) -> Result<BufferSlice> {
        self.segments
            .get(&key)
            .copied()
            .ok_or_else(|| Error::new(ErrorKind::Shape, format!("segment {key:?} is not there"), ""))
    }

    /// The segment of the record at a row, and the row's number in it.
    pub fn record_at(&self, row: u32) -> Result<(BufferSlice, u32)> {
        let segment = self.pool.record_segment(row);
        let slice = segment.and_then(|s| Some((*self.records.get(s.index)?, row - s.first_row)));
        slice.ok_or_else(|| Error::new(ErrorKind::Shape, format!("record {row} of side planes is not there"), ""))
    }

    /// The codec of a format on a side.
    ///
    /// # Errors
    /// `Unsupported` for a format that refused the head size.
    pub fn codec(&self, side: Side, format: FormatId) -> Result<CodecUse> {
        self.codecs.get(&(side, format)).cloned().ok_or_else(|| {
            Error::new(
                ErrorKind::Unsupported,
                format!("format {} cannot hold {} rows of {}", format.0, side.as_str(), self.shape.head_dim(side)),
                "choose another format",
            )
        })
    }

    /// What a page of these formats costs where decode attention reads it by tiles (`decode_tuning::cost`).
    pub fn tiles_cost(&self, k: FormatId, v: FormatId) -> Option<u64> {
        let (k, v) = (self.codecs.get(&(Side::K, k))?, self.codecs.get(&(Side::V, v))?);
        decode_tiles::fits(k, v).then(|| decode_tuning::cost(k) + decode_tuning::cost(v))
    }

    /// Uploads descriptors that changed, growing their buffer when there are more pages than it holds.
    pub fn upload_descriptors(&mut self, backend: &mut dyn Backend) -> Result<()> {
        let bytes = (self.pool.descriptor_count() * PageDescriptor::BYTES) as u64;
        if self.descriptors.ensure(backend, bytes)? {
            self.pool.touch_all();
        }
        let buffer = self.descriptors.slice()?.buffer;
        for (first, words) in self.pool.take_dirty() {
            backend.write(buffer, u64::from(first) * PageDescriptor::BYTES as u64, bytemuck::cast_slice(&words))?;
        }
        Ok(())
    }

    /// Frees every buffer.
    pub fn release(&mut self, backend: &mut dyn Backend) {
        for slice in self.segments.drain().map(|(_, slice)| slice).chain(self.records.drain(..)) {
            backend.free(slice.buffer);
        }
        for scratch in [&mut self.descriptors, &mut self.tables, &mut self.queries, &mut self.partials] {
            scratch.release(backend);
        }
        backend.free(self.means.buffer);
        self.maps.drain(..).for_each(|slice| backend.free(slice.buffer));
        if let Some(first) = self.sinks.first() {
            backend.free(first.buffer);
        }
    }
}

struct Segments<'a> {
    segments: &'a mut HashMap<SegmentKey, BufferSlice>,
    records: &'a mut Vec<BufferSlice>,
    backend: &'a mut dyn Backend,
}

impl Backing for Segments<'_> {
    fn reserve(&mut self, key: SegmentKey, bytes: u64) -> Result<()> {
        let buffer = self.backend.alloc(&format!("{} pages", key.side.as_str()), bytes)?;
        self.segments.insert(key, BufferSlice::whole(buffer, bytes));
        Ok(())
    }

    fn reserve_records(&mut self, _: usize, bytes: u64) -> Result<()> {
        let buffer = self.backend.alloc("side planes", bytes)?;
        self.records.push(BufferSlice::whole(buffer, bytes));
        Ok(())
    }
}

//! What a cache will take, before anything is allocated: bytes by context, and the context that a budget holds.
//!
//! Counts pages as the engine makes them (`ARCHITECTURE.md`, "Bytes"): a page is sealed when it is full, older than the
//! exact tail and outside the exact sink. A test allocates the same pages and compares every byte.

mod shapes;

pub use shapes::{NAMES, NamedShape, OtherState};

use crate::basis::BasisChoice;
use crate::engine::Registry;
use crate::error::Result;
use crate::kernel::{SideBases, SideBasis, maps};
use crate::needs::{PlaneSet, Wanted};
use crate::page::PageDescriptor;
use crate::policy::{Outlook, Policy};
use crate::profile::{Head, Profile};
use crate::shape::{CacheGroup, CacheShape, GroupKind, Side};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Pages of one pair of formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCount {
    /// How many.
    pub pages: u64,
    /// Their slots, both sides.
    pub bytes: u64,
}

/// What one sequence of a context takes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Footprint {
    /// Pages by (K format, V format).
    pub pages: BTreeMap<(String, String), PageCount>,
    /// Cached values: tokens held × KV heads × (K and V head size), over layers; those of evicted pages left out.
    pub values: u64,
    /// Descriptors, table entries and side planes of the pages, and the means that a basis removes.
    pub metadata_bytes: u64,
    /// Calibrated means and maps, which are metadata too and which all sequences share.
    pub shared_bytes: u64,
}

impl Footprint {
    /// Bytes of slots.
    pub fn slot_bytes(&self) -> u64 {
        self.pages.values().fold(0, |sum, p| sum.saturating_add(p.bytes))
    }

    /// Slots and metadata, what sequences share included.
    pub fn total_bytes(&self) -> u64 {
        self.slot_bytes().saturating_add(self.metadata_bytes).saturating_add(self.shared_bytes)
    }

    /// Pages with a side in `format`, of all.
    pub fn share_of(&self, format: &str) -> f64 {
        let pages = |with: &dyn Fn(&Pair) -> bool| -> u64 {
            self.pages.iter().filter(|(pair, _)| with(pair)).map(|(_, count)| count.pages).sum()
        };
        pages(&|(k, v)| k == format || v == format) as f64 / pages(&|_| true).max(1) as f64
    }

    /// Bits of slots a cached value; `None` for an empty cache.
    pub fn resident_bits_per_value(&self) -> Option<f64> {
        (self.values > 0).then(|| self.slot_bytes() as f64 * 8.0 / self.values as f64)
    }

    /// Bits of metadata a cached value, what sequences share included; `None` for an empty cache.
    pub fn metadata_bits_per_value(&self) -> Option<f64> {
        (self.values > 0).then(|| (self.metadata_bytes + self.shared_bytes) as f64 * 8.0 / self.values as f64)
    }
}

/// A cache's layers and formats, ready to be counted.
#[derive(Clone)]
pub struct Estimator {
    groups: Vec<Group>,
    policy: Arc<dyn Policy>,
    sink_tokens: usize,
    tail_tokens: usize,
    /// Whether a side's basis removes the mean of a sequence.
    means: bool,
    /// Bytes of calibrated means and maps.
    shared_bytes: u64,
}

#[derive(Clone, Debug)]
struct Group {
    shape: CacheGroup,
    /// Rows, which are KV heads of layers, by the formats of their pages.
    rows: BTreeMap<Formats, u64>,
    bytes: BTreeMap<Pair, u64>,
    /// Metadata of a page: descriptor, table entry, side planes.
    page_metadata: u64,
    /// Pairs of which a side is in two parts: their pages have a row for the slots of further parts.
    in_parts: BTreeSet<Pair>,
}

/// K format and V format.
type Pair = (String, String);

/// Formats of a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Formats {
    open: Pair,
    sealed: Pair,
    /// Whether an override of the profile says so.
    overridden: bool,
}

impl Estimator {
    /// The layers of `shape` under `profile`, with the side planes that its selector and policy declare.
    ///
    /// # Errors
    /// `Usage` for a name that is not known, `Unsupported` for a format that refuses the head size.
    pub fn new(shape: &CacheShape, profile: &Profile, registry: &Registry) -> Result<Self> {
        shape.validate()?;
        let formats = &registry.formats;
        let selector = profile.make_selector(&registry.names())?;
        let policy = profile.make_policy(&registry.names())?;
        let layers = shape.model_layers();
        let wanted = Wanted::of(selector.as_ref(), policy.as_ref(), shape);
        let mut groups = Vec::new();
        for group in &shape.groups {
            let mut rows: BTreeMap<Formats, u64> = BTreeMap::new();
            let (mut bytes, mut in_parts) = (BTreeMap::new(), BTreeSet::new());
            let heads = group.kv_heads;
            let of_layer = |&layer: &usize| (0..heads).map(move |head| Head { layer, layers, head, heads });
            for head in group.layers.iter().flat_map(of_layer) {
                let pair = |(k, v): (&str, &str)| (k.to_string(), v.to_string());
                let (open, sealed) = (pair(profile.open_formats_of(head)), pair(profile.formats_of(head)));
                for pair in [&open, &sealed].into_iter().chain(&policy.targets()) {
                    if bytes.contains_key(pair) {
                        continue;
                    }
                    let size = |side: Side, name: &str| -> Result<u64> {
                        let (_, format) = formats.by_name(name)?;
                        Ok(format.codec(side, group.geometry(side))?.layout().page_bytes() as u64)
                    };
                    let in_two = |name: &str| Ok(formats.by_name(name)?.1.first_part().is_some());
                    if in_two(&pair.0)? || in_two(&pair.1)? {
                        in_parts.insert(pair.clone());
                    }
                    bytes.insert(pair.clone(), size(Side::K, &pair.0)? + size(Side::V, &pair.1)?);
                }
                *rows.entry(Formats { open, sealed, overridden: profile.overridden(head) }).or_default() += 1;
            }
            let planes = PlaneSet::new(group, &wanted)?;
            let page_metadata = PageDescriptor::BYTES as u64 + 4 + planes.record_bytes();
            groups.push(Group { shape: group.clone(), rows, bytes, page_metadata, in_parts });
        }
        // Of a basis that is not named none of this is needed.
        let basis = |word: &Option<String>| -> Result<SideBasis> {
            Ok(match word.as_deref().map(BasisChoice::parse).transpose()? {
                Some(BasisChoice::Map(_)) => SideBasis::MAP,
                Some(BasisChoice::FixedMean(_)) => SideBasis::FIXED_MEAN,
                Some(BasisChoice::Named(name)) if name == "mean" => SideBasis::MEAN,
                _ => SideBasis::NONE,
            })
        };
        let bases = SideBases { k: basis(&profile.k_basis)?, v: basis(&profile.v_basis)? };
        let shared = |group: &CacheGroup| {
            let floats: usize = maps::layer_floats(bases, group.kv_heads, group.k_dim, group.v_dim).into_iter().sum();
            (group.layers.len() * floats) as u64 * 4
        };
        Ok(Estimator {
            shared_bytes: shape.groups.iter().map(shared).sum(),
            groups,
            policy: policy.into(),
            sink_tokens: profile.exact_sink_tokens,
            tail_tokens: profile.exact_tail_tokens,
            means: bases.k.mean || bases.v.mean,
        })
    }

    /// What one sequence of `tokens` committed tokens takes, once every page that is due is sealed and the policy has
    /// moved what it wants to ([`Policy::outcome`]). Sums beyond 2⁶⁴ stay at its end.
    pub fn at(&self, tokens: u64) -> Footprint {
        let shared_bytes = if tokens > 0 { self.shared_bytes } else { 0 };
        let mut sum = Footprint { shared_bytes, ..Footprint::default() };
        for group in &self.groups {
            let size = group.shape.page_tokens as u64;
            let first = first_page(&group.shape, tokens);
            let end = tokens.div_ceil(size);
            let sink = (self.sink_tokens as u64).div_ceil(size);
            let sealed_end = tokens.saturating_sub(self.tail_tokens as u64) / size;
            let sealed = sink.max(first)..sealed_end.max(sink.max(first));
            let open = end - first - (sealed.end - sealed.start);
            let (mut all, mut evicted) = (0u64, 0u64);
            for (Formats { open: open_pair, sealed: sealed_pair, overridden }, &rows) in &group.rows {
                let (page_tokens, overridden) = (group.shape.page_tokens, *overridden);
                let outcome =
                    self.policy.outcome(&Outlook { sealed: sealed.clone(), tokens, page_tokens, rows, overridden });
                let moved = outcome.converted.iter().fold(outcome.evicted, |sum, (_, n)| sum.saturating_add(*n));
                let staying = (sealed.end - sealed.start).saturating_mul(rows).saturating_sub(moved);
                let counts = [(open_pair, open.saturating_mul(rows)), (sealed_pair, staying)];
                evicted = evicted.saturating_add(outcome.evicted);
                for (pair, pages) in counts.into_iter().chain(outcome.converted.iter().map(|(p, n)| (p, *n))) {
                    all = all.saturating_add(pages);
                    if pages > 0 {
                        let count = sum.pages.entry(pair.clone()).or_default();
                        count.pages = count.pages.saturating_add(pages);
                        count.bytes = count.bytes.saturating_add(pages.saturating_mul(group.bytes[pair]));
                        let rows = if group.in_parts.contains(pair) { pages } else { 0 };
                        let rows = rows.saturating_mul(PageDescriptor::BYTES as u64);
                        sum.metadata_bytes = sum.metadata_bytes.saturating_add(rows);
                    }
                }
            }
            let rows = (group.shape.layers.len() * group.shape.kv_heads) as u64;
            let pages = all.saturating_mul(group.page_metadata);
            let means =
                if self.means && tokens > 0 { rows * (group.shape.k_dim + group.shape.v_dim) as u64 * 4 } else { 0 };
            sum.metadata_bytes = sum.metadata_bytes.saturating_add(pages).saturating_add(means);
            let values = (tokens - first * size).saturating_mul(group.shape.values_per_token() as u64);
            let gone = evicted.saturating_mul(size * (group.shape.k_dim + group.shape.v_dim) as u64);
            sum.values = sum.values.saturating_add(values.saturating_sub(gone));
        }
        sum
    }

    /// Bytes that one more token takes in the long run: full pages, sealed, of groups that grow; metadata apart.
    pub fn bytes_per_token(&self) -> (f64, f64) {
        // Whole pages of every size, and far beyond windows, sinks and what a policy calls recent.
        const FAR: u64 = 1 << 28;
        let (near, far) = (self.at(FAR), self.at(2 * FAR));
        let each = |near: u64, far: u64| far.saturating_sub(near) as f64 / FAR as f64;
        (each(near.slot_bytes(), far.slot_bytes()), each(near.metadata_bytes, far.metadata_bytes))
    }

    /// The longest context, up to `most` tokens, whose slots and metadata stay within `budget_bytes` at every length
    /// on the way there.
    pub fn context_within(&self, budget_bytes: u64, most: u64) -> u64 {
        let sizes = || self.groups.iter().map(|g| g.shape.page_tokens as u64);
        let (page, least) = (sizes().max().unwrap_or(1), sizes().min().unwrap_or(1));
        // A sequence takes most just after a page was begun, from where it only shrinks until the next one; and a whole
        // (largest) page later it takes no less than before.
        let fits = |pages: u64| {
            let start = pages.saturating_sub(1) * page;
            pages == 0 || (0..page / least).all(|i| self.at(start + i * least + 1).total_bytes() <= budget_bytes)
        };
        let (mut low, mut high) = (0, most.div_ceil(page));
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if fits(middle) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        (low * page).min(most)
    }
}

/// The first page that a group still holds with `tokens` committed tokens.
fn first_page(group: &CacheGroup, tokens: u64) -> u64 {
    match group.kind {
        GroupKind::Full => 0,
        GroupKind::Window(window) => tokens.saturating_sub(window as u64) / group.page_tokens as u64,
    }
}

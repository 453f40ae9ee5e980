//! How the sides of a cache group are stored: bases by the profile, codecs of formats in two parts.

use super::registry::Registry;
use super::storage::GroupOptions;
use crate::basis::{BasisChoice, BasisRegistry, Calibration};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Codec, Format};
use crate::kernel::SideBasis;
use crate::profile::{Head, Profile};
use crate::shape::{CacheGroup, Side};
use std::sync::Arc;

/// The codec of a format in two parts for pages that are stored so.
pub(super) fn in_parts(
    format: &dyn Format,
    first: &str,
    whole: Arc<dyn Codec>,
    registry: &Registry,
) -> Result<Arc<dyn Codec>> {
    let layout = whole.layout();
    let of_first = registry.formats.by_name(first)?.1.codec(layout.side, layout.geometry)?;
    let split = whole.split().filter(|split| {
        let [words, further] = split.parts();
        words == of_first.layout().page_words && further > 0 && words + further == layout.page_words
    });
    split.ok_or_else(|| {
        Error::new(
            ErrorKind::Unsupported,
            format!("pages of format {:?} cannot be stored as pages of {first:?} and a further part", format.name()),
            "mend the format's first_part, split or parts",
        )
    })
}

/// The rows of a group: every KV head of every layer, in the order of page tables. `layers` are the model's.
pub(super) fn heads(shape: &CacheGroup, layers: usize) -> impl Iterator<Item = Head> {
    let heads = shape.kv_heads;
    shape.layers.iter().flat_map(move |&layer| (0..heads).map(move |head| Head { layer, layers, head, heads }))
}

/// How a side's rows are turned, what that is made from, and what content keys call it.
#[derive(Clone, Debug)]
pub(super) struct Turned {
    pub basis: SideBasis,
    pub calibration: Option<Arc<Calibration>>,
    pub id: String,
}

/// The basis of a side: the profile's word, else `hadamard` when a format of its pages wants rotated rows.
pub(super) fn side_basis(
    word: Option<&str>,
    side: Side,
    profile: &Profile,
    shape: &CacheGroup,
    cache: &GroupOptions<'_>,
    registry: &Registry,
) -> Result<Turned> {
    let word = match word {
        Some(word) => word,
        None => {
            let mut wants = false;
            for head in heads(shape, cache.layers) {
                let (k, v) = profile.formats_of(head);
                let name = if side == Side::K { k } else { v };
                wants |= registry.formats.by_name(name)?.1.wants_rotation();
            }
            // All pages of a side share a basis, those that the policy moves as well.
            for (k, v) in cache.policy.targets() {
                wants |= registry.formats.by_name(if side == Side::K { &k } else { &v })?.1.wants_rotation();
            }
            if wants { "hadamard" } else { "none" }
        }
    };
    let choice = BasisChoice::parse(word)?;
    let (source, basis) = match &choice {
        BasisChoice::Named(name) => {
            let bases = BasisRegistry::builtin();
            let named = bases.by_name(name)?;
            let basis = SideBasis { rotate: named.rotates(), mean: named.removes_mean(), ..SideBasis::NONE };
            return Ok(Turned { basis, calibration: None, id: name.clone() });
        }
        BasisChoice::FixedMean(source) => (source, SideBasis::FIXED_MEAN),
        BasisChoice::Map(source) => (source, SideBasis::MAP),
    };
    let calibration = registry.calibration(source)?.clone();
    let dim = shape.head_dim(side);
    for &layer in &shape.layers {
        let found = calibration.heads(layer, side);
        if found.len() != shape.kv_heads || found.iter().any(|head| head.mean().len() != dim) {
            let sizes: Vec<usize> = found.iter().map(|head| head.mean().len()).collect();
            return Err(Error::new(
                ErrorKind::Shape,
                format!(
                    "the calibration has heads of {sizes:?} for {} of layer {layer}, the cache {} of {dim}",
                    side.as_str(),
                    shape.kv_heads
                ),
                "use the calibration of this model",
            ));
        }
    }
    let id = format!("{}:{}", if basis.map { "map" } else { "mean" }, calibration.id());
    Ok(Turned { basis, calibration: Some(calibration), id })
}

//! How the sides of a cache group are stored: bases by the profile, codecs of formats in two parts.

use super::registry::Registry;
use super::storage::GroupOptions;
use crate::basis::BasisRegistry;
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

/// The basis of a side: the profile's word, else `hadamard` when a format of its pages wants rotated rows.
pub(super) fn side_basis(
    word: Option<&str>,
    side: Side,
    profile: &Profile,
    shape: &CacheGroup,
    cache: &GroupOptions<'_>,
    registry: &Registry,
) -> Result<SideBasis> {
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
    let bases = BasisRegistry::builtin();
    let basis = bases.by_name(word)?;
    Ok(SideBasis { rotate: basis.rotates(), mean: basis.removes_mean() })
}

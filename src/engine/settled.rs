//! Where sealed pages end up, in numbers: what segments are first sized for.

use super::registry::Registry;
use super::sides::heads;
use super::storage::GroupOptions;
use crate::error::Result;
use crate::format::FormatId;
use crate::policy::{Outcome, Outlook};
use crate::profile::Profile;
use crate::shape::{CacheGroup, Side};
use std::collections::BTreeMap;

/// Sealed pages of a context by side and format, once the policy has moved all it wants to.
pub(super) struct Settled {
    pages: BTreeMap<(Side, FormatId), u64>,
    moves: bool,
}

impl Settled {
    /// Counts those of one sequence of `tokens` tokens.
    pub fn of(
        shape: &CacheGroup,
        profile: &Profile,
        registry: &Registry,
        tokens: usize,
        cache: &GroupOptions<'_>,
    ) -> Result<Self> {
        let mut rows: BTreeMap<(&str, &str, bool), u64> = BTreeMap::new();
        for head in heads(shape, cache.layers) {
            let (k, v) = profile.formats_of(head);
            *rows.entry((k, v, profile.overridden(head))).or_default() += 1;
        }
        let pages = (tokens / shape.page_tokens) as u64;
        let mut settled = Settled { pages: BTreeMap::new(), moves: false };
        for ((k, v, overridden), rows) in rows {
            let (tokens, page_tokens) = (tokens as u64, shape.page_tokens);
            let outcome = cache.policy.outcome(&Outlook { sealed: 0..pages, tokens, page_tokens, rows, overridden });
            settled.moves |= outcome != Outcome::default();
            let mut staying = pages.saturating_mul(rows).saturating_sub(outcome.evicted);
            for ((k, v), count) in &outcome.converted {
                staying = staying.saturating_sub(*count);
                settled.add(registry, k, v, *count)?;
            }
            settled.add(registry, k, v, staying)?;
        }
        Ok(settled)
    }

    fn add(&mut self, registry: &Registry, k: &str, v: &str, pages: u64) -> Result<()> {
        for (side, name) in [(Side::K, k), (Side::V, v)] {
            let count = self.pages.entry((side, registry.formats.by_name(name)?.0)).or_default();
            *count = count.saturating_add(pages);
        }
        Ok(())
    }

    /// Whether the policy leaves any page elsewhere than where it was sealed.
    pub fn moves(&self) -> bool {
        self.moves
    }

    /// Pages whose side is in one of the formats that `holds` says.
    pub fn pages(&self, side: Side, holds: impl Fn(FormatId) -> bool) -> u64 {
        let found = self.pages.iter().filter(|((s, format), _)| *s == side && holds(*format));
        found.fold(0, |sum, (_, pages)| sum.saturating_add(*pages))
    }
}

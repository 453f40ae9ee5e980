//! Figures at the cursor: bits a value.

use super::Store;
use std::collections::BTreeMap;

/// Bits by cached value at the cursor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bits {
    /// Slots in use.
    pub resident: f64,
    /// Descriptors, tables, side planes, means.
    pub metadata: f64,
    /// Pages read in the newest step that reads any, by value of one row's context; `None` where no step is known.
    pub read: Option<f64>,
    /// Cached values: a page that several sequences share counts once.
    pub values: u64,
}

impl Store {
    /// Bits a value; `None` while nothing is cached, or where the trace's header has no shapes.
    pub fn bits(&self) -> Option<Bits> {
        let mut values = 0u64;
        for (group, facts) in self.state.groups.iter().enumerate() {
            let shape = self.header.groups.get(group)?;
            let dims = u64::from(shape.k_dim) + u64::from(shape.v_dim);
            let full = (self.state.pages.count(group) as u64).saturating_mul(u64::from(facts.page_tokens));
            let tokens = full.saturating_sub(missing_tokens(self, group, facts.page_tokens));
            values = dims.saturating_mul(tokens).saturating_add(values);
        }
        if values == 0 {
            return None;
        }
        let memory = &self.state.memory;
        let metadata = [memory.descriptor_bytes, memory.table_bytes, memory.side_bytes, memory.basis_bytes];
        let metadata = metadata.into_iter().fold(0, u64::saturating_add);
        let per_value = |bytes: u64| bytes as f64 * 8.0 / values as f64;
        Some(Bits {
            resident: per_value(self.state.page_bytes()),
            metadata: per_value(metadata),
            read: self.read_bits(values),
            values,
        })
    }

    /// Of the newest step before the cursor, if each of its sequences decoded one row: bytes read by its values.
    fn read_bits(&self, values: u64) -> Option<f64> {
        let done = self.events_done();
        let step = &self.chronicle.steps.until(|step| step.when.event >= done).last()?.what;
        let decoded = step.read_bytes > 0 && step.sequences.len() == self.state.sequences.len();
        decoded.then(|| step.read_bytes as f64 * 8.0 / values as f64)
    }
}

/// Tokens that the last pages of lists have no room of their own for: those of pages that are not full, each counted once.
fn missing_tokens(store: &Store, group: usize, page_tokens: u32) -> u64 {
    let mut missing = BTreeMap::new();
    for sequence in store.state.sequences.values() {
        let Some(held) = sequence.groups.get(group) else { continue };
        for row in &held.rows {
            let Some(Some(page)) = row.last() else { continue };
            let end = (u64::from(held.first) + row.len() as u64) * u64::from(page_tokens);
            let empty = end.saturating_sub(u64::from(sequence.logical)).min(u64::from(page_tokens));
            missing.entry(*page).and_modify(|known: &mut u64| *known = empty.min(*known)).or_insert(empty);
        }
    }
    missing.values().sum()
}

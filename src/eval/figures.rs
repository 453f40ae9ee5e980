//! What a cache took and read while a batch was scored.

use crate::engine::Engine;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bits by cached value, from the allocator and from counted reads, and pages by format, at the end of a batch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheFigures {
    /// Slots in use.
    pub resident_bits_per_value: Option<f64>,
    /// The same by value of all tokens so far, those of evicted pages and pages behind a window too: what fewer tokens
    /// spare counts here.
    pub resident_bits_per_seen_value: Option<f64>,
    /// Pages read in a step with one row a sequence, mean over the scored rows.
    pub read_bits_per_value: Option<f64>,
    /// The same by value of all tokens so far.
    pub read_bits_per_seen_value: Option<f64>,
    /// Descriptors, table entries, side planes and means.
    pub metadata_bits_per_value: Option<f64>,
    /// Distinct pages by `K/V` format.
    pub pages: BTreeMap<String, u64>,
    /// Pages that the policy evicted.
    pub evicted: u64,
    /// Conversions so far, sealing included.
    pub conversions: u64,
    /// Bases of the first cache group's K and V.
    pub basis: [String; 2],
}

impl CacheFigures {
    /// Those of an engine now.
    pub fn of(engine: &Engine) -> Self {
        let stats = engine.stats();
        let tokens: u64 =
            engine.sequences().filter_map(|seq| engine.lengths(seq).ok()).map(|l| u64::from(l.logical)).sum();
        let seen = tokens * engine.shape().values_per_token() as u64;
        let held = (seen > 0).then(|| stats.cached_values as f64 / seen as f64);
        let basis = engine.bases().first().copied().unwrap_or(("none", "none"));
        CacheFigures {
            resident_bits_per_value: stats.resident_bits_per_value,
            resident_bits_per_seen_value: stats.resident_bits_per_value.zip(held).map(|(bits, held)| bits * held),
            read_bits_per_value: stats.read_bits_per_value,
            read_bits_per_seen_value: stats.read_bits_per_value.zip(held).map(|(bits, held)| bits * held),
            metadata_bits_per_value: stats.metadata_bits_per_value,
            pages: stats.pages.iter().map(|((k, v), &count)| (format!("{k}/{v}"), count)).collect(),
            evicted: stats.evicted,
            conversions: stats.conversions,
            basis: [basis.0.into(), basis.1.into()],
        }
    }

    /// The same with bits read as they were counted over some steps.
    pub fn with_reads(self, bits: Option<f64>) -> Self {
        let held = self.read_bits_per_seen_value.zip(self.read_bits_per_value).map(|(seen, held)| seen / held);
        CacheFigures {
            read_bits_per_value: bits,
            read_bits_per_seen_value: bits.zip(held).map(|(bits, held)| bits * held),
            ..self
        }
    }
}

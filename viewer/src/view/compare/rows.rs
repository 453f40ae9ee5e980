//! Which lists of pages two traces have in common, and how their shapes differ.

use super::super::Scene;
use crate::store::Store;
use crate::units;
use kvarto::engine::SeqId;

/// A list of pages in both traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The list in A's selected group.
    pub a: usize,
    /// Cache group and list in B.
    pub b: (usize, usize),
}

/// What is compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shared {
    /// Cache group of A.
    pub group: usize,
    /// The sequence of each.
    pub sequences: [Option<SeqId>; 2],
    /// Lists of the same layer and KV head.
    pub rows: Vec<Row>,
    /// Tokens of a column: of the larger page.
    pub unit: u32,
    /// Columns.
    pub columns: u64,
}

/// Lists that are shown.
const MOST_ROWS: usize = 4096;

impl Shared {
    /// The lists that both have, of A's selected group.
    pub fn of(scene: &Scene<'_>, other: &Store) -> Self {
        let (store, group) = (scene.store, scene.selection.group);
        let sequences = [sequence(store, scene.selection.sequence), sequence(other, scene.selection.sequence)];
        let mut shared = Shared { group, sequences, ..Shared::default() };
        let Some(facts) = store.state.groups.get(group) else { return shared };
        let count = facts.layers.len().saturating_mul(facts.kv_heads as usize).min(MOST_ROWS);
        let groups = 0..other.state.groups.len().min(64);
        let mut unit = facts.page_tokens.max(1);
        for a in 0..count {
            let Some((layer, head)) = store.layer_and_head(group, a) else { continue };
            let found = groups.clone().find_map(|group| Some((group, other.row_of(group, layer, head)?)));
            if let Some(b) = found {
                unit = unit.max(other.page_tokens(b.0));
                shared.rows.push(Row { a, b });
            }
        }
        shared.unit = unit;
        let length = |store: &Store, sequence: Option<SeqId>| {
            sequence.and_then(|sequence| store.state.sequences.get(&sequence)).map_or(0, |held| held.logical)
        };
        let tokens = length(store, sequences[0]).max(length(other, sequences[1]));
        shared.columns = u64::from(tokens).div_ceil(unit.into());
        shared
    }
}

/// The sequence, or the first live one where it is not there.
pub fn sequence(store: &Store, wanted: Option<SeqId>) -> Option<SeqId> {
    let live = &store.state.sequences;
    wanted.filter(|wanted| live.contains_key(wanted)).or_else(|| live.keys().next().copied())
}

/// How the shapes differ, in words.
pub fn differences(scene: &Scene<'_>, other: &Store, shared: &Shared) -> Vec<String> {
    let (a, b) = (&scene.store.state, &other.state);
    let mut words = Vec::new();
    let mut differ = |what: &str, [a, b]: [u64; 2]| {
        if a != b {
            words.push(format!("They differ in {what}: A has {}, B has {}.", units::count(a), units::count(b)));
        }
    };
    let group_b = shared.rows.first().map_or(0, |row| row.b.0);
    let (facts_a, facts_b) = (a.groups.get(shared.group), b.groups.get(group_b));
    differ("cache groups", [a.groups.len() as u64, b.groups.len() as u64]);
    if let (Some(facts_a), Some(facts_b)) = (facts_a, facts_b) {
        differ("layers of the group", [facts_a.layers.len() as u64, facts_b.layers.len() as u64]);
        differ("KV heads", [facts_a.kv_heads.into(), facts_b.kv_heads.into()]);
        differ("tokens of a page", [facts_a.page_tokens.into(), facts_b.page_tokens.into()]);
    }
    differ("live sequences", [a.sequences.len() as u64, b.sequences.len() as u64]);
    if let [Some(first), Some(second)] = shared.sequences
        && first != second
    {
        words.push(format!("Sequence {} of A is shown beside sequence {} of B.", first.0, second.0));
    }
    let lists = facts_a.map_or(0, |facts| facts.layers.len().saturating_mul(facts.kv_heads as usize));
    if shared.rows.is_empty() && !a.groups.is_empty() && !b.groups.is_empty() {
        words.push("They have no layer and KV head in common: only the figures can be compared.".into());
    } else if shared.rows.len() < lists {
        words.push(format!("Only the {} lists that both have are shown.", shared.rows.len()));
    }
    words
}

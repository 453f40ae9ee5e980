//! From a case to slabs, descriptors, tables and inputs.

use super::reference::Token;
use super::stored::{StoredSide, further_slot};
use super::{Case, POISON, Random, SideMaps, Values};
use crate::backend::CodecUse;
use crate::error::{Error, ErrorKind, Result};
use crate::format::FormatRegistry;
use crate::shape::{self, PageGeometry};
use std::collections::BTreeMap;

/// Work of one dispatch: a (K format, V format) pair.
pub struct Class {
    /// K format.
    pub k: &'static str,
    /// V format.
    pub v: &'static str,
    /// First word of the items in the tables.
    pub items_at: usize,
    /// Items.
    pub items: usize,
}

/// Everything a run needs, and the reference's inputs.
pub struct Built {
    /// The case that it was built from.
    pub case: Case,
    /// K pages by format.
    pub k_slabs: BTreeMap<&'static str, StoredSide>,
    /// V pages by format.
    pub v_slabs: BTreeMap<&'static str, StoredSide>,
    /// Page descriptors, 8 words each.
    pub descs: Vec<u32>,
    /// Rows, items, page lists and merge lists.
    pub tables: Vec<u32>,
    /// First word of the rows in the tables.
    pub rows_at: usize,
    /// Query rows.
    pub rows: usize,
    /// Rows that `merge` is asked for: all of them, but in tests of the harness.
    pub merged_rows: usize,
    /// First word of the merge lists in the tables.
    pub lists_at: usize,
    /// One dispatch each.
    pub classes: Vec<Class>,
    /// Partial states in all.
    pub states: usize,
    /// States of each (row, query head), for merging on the host.
    pub states_of: Vec<Vec<usize>>,
    /// Means by (sequence, KV head): K then V.
    pub means: Vec<f32>,
    /// Calibrated means and maps of K.
    pub k_maps: SideMaps,
    /// Calibrated means and maps of V.
    pub v_maps: SideMaps,
    /// Sink logits by query head; NaN without.
    pub sinks: Vec<f32>,
    /// `[rows][q_heads][k_dim]`, dense.
    pub queries: Vec<f32>,
    /// Position and sequence of each row.
    pub row_info: Vec<(u64, usize)>,
    /// Tokens by (sequence, KV head), in the model's coordinates, as decoded from their pages.
    pub tokens: Vec<Vec<Vec<Token>>>,
}

struct Page {
    sequence: usize,
    head: usize,
    formats: (&'static str, &'static str),
    id: usize,
}

impl Built {
    /// Builds `case` with the formats of `registry`.
    ///
    /// # Errors
    /// As [`Case::build`].
    pub fn new(case: &Case, registry: &FormatRegistry) -> Result<Self> {
        let mut random = Random::new(case.seed);
        // Numbers of their own: a case without maps draws what it always did.
        let mut of_maps = Random::new(!case.seed);
        let mut built = Built {
            case: case.clone(),
            k_slabs: BTreeMap::new(),
            v_slabs: BTreeMap::new(),
            descs: Vec::new(),
            tables: vec![POISON; 12],
            rows_at: 0,
            rows: 0,
            merged_rows: 0,
            lists_at: 0,
            classes: Vec::new(),
            states: 0,
            states_of: Vec::new(),
            means: Vec::new(),
            k_maps: SideMaps::new(case.basis.k, case.kv_heads, case.k_dim, &mut of_maps),
            v_maps: SideMaps::new(case.basis.v, case.kv_heads, case.v_dim, &mut of_maps),
            sinks: Vec::new(),
            queries: Vec::new(),
            row_info: Vec::new(),
            tokens: Vec::new(),
        };
        let mean_floats = case.sequences.len() * case.kv_heads * (case.k_dim + case.v_dim);
        built.means = random.normal(mean_floats);
        built.sinks = (0..case.q_heads()).map(|h| case.sink.unwrap_or(f32::NAN) + 0.01 * h as f32).collect();
        let pages = built.fill_pages(registry, &mut random)?;
        built.plan(&pages, &mut random);
        Ok(built)
    }

    /// Floats of the means of one head.
    fn mean(&self, sequence: usize, head: usize, side: shape::Side) -> Vec<f32> {
        let case = &self.case;
        let start = (sequence * case.kv_heads + head) * (case.k_dim + case.v_dim);
        match side {
            shape::Side::K => self.means[start..start + case.k_dim].to_vec(),
            shape::Side::V => self.means[start + case.k_dim..start + case.k_dim + case.v_dim].to_vec(),
        }
    }

    fn fill_pages(&mut self, registry: &FormatRegistry, random: &mut Random) -> Result<Vec<Page>> {
        let case = self.case.clone();
        let p = case.page_tokens;
        // Slots of every format and side: as many as pages, and three to stay poisoned, in random order.
        let mut counts: [BTreeMap<&'static str, usize>; 2] = Default::default();
        for (s, &(len, _)) in case.sequences.iter().enumerate() {
            for page in 0..len.div_ceil(p) {
                let (k, v) = (case.formats)(s, page);
                *counts[0].entry(k).or_default() += case.kv_heads;
                *counts[1].entry(v).or_default() += case.kv_heads;
            }
        }
        let mut free: [BTreeMap<&'static str, Vec<usize>>; 2] = Default::default();
        for side in shape::Side::BOTH {
            let at = side as usize;
            for (&name, &count) in &counts[at] {
                let (_, format) = registry.by_name(name)?;
                let head_dim = if side == shape::Side::K { case.k_dim } else { case.v_dim };
                let codec = format.codec(side, PageGeometry { tokens: p, head_dim })?;
                let words = vec![POISON; (count + 3) * codec.layout().page_words];
                let mut slots: Vec<usize> = (0..count + 3).collect();
                random.shuffle(&mut slots);
                free[at].insert(name, slots);
                let side_of = StoredSide { codec: CodecUse { format: name.into(), codec }, words, used: Vec::new() };
                if at == 0 {
                    self.k_slabs.insert(name, side_of)
                } else {
                    self.v_slabs.insert(name, side_of)
                };
            }
        }
        let mut ids: Vec<usize> = (0..counts[0].values().sum::<usize>() + 2).collect();
        random.shuffle(&mut ids);
        // Behind the descriptors, the rows of further parts' slots.
        let extras_at = ids.len();
        self.descs = vec![POISON; (ids.len() + if case.in_parts { ids.len() } else { 0 }) * 8];

        let mut pages = Vec::new();
        for (s, &(len, _)) in case.sequences.iter().enumerate() {
            self.tokens.push((0..case.kv_heads).map(|_| Vec::new()).collect());
            for page in 0..len.div_ceil(p) {
                let valid = (len - page * p).min(p);
                let formats = (case.formats)(s, page);
                for head in 0..case.kv_heads {
                    let start = u64::from(case.first_position) + (page * p) as u64;
                    let [mut keys, mut values] = draw(&case, random, page * p, valid, len);
                    let k_mean = self.mean(s, head, shape::Side::K);
                    let v_mean = self.mean(s, head, shape::Side::V);
                    let [k_slot, v_slot] = [(0, formats.0), (1, formats.1)]
                        .map(|(side, name)| free[side].get_mut(name).and_then(Vec::pop).ok_or_else(|| changing(&case)));
                    let (k_slot, v_slot) = (k_slot?, v_slot?);
                    let k_side = self.k_slabs.get_mut(formats.0).ok_or_else(|| changing(&case))?;
                    let k_rows = k_side.store(k_slot, &mut keys, case.basis.k, (&k_mean, self.k_maps.heads.get(head)));
                    let v_side = self.v_slabs.get_mut(formats.1).ok_or_else(|| changing(&case))?;
                    let v_rows =
                        v_side.store(v_slot, &mut values, case.basis.v, (&v_mean, self.v_maps.heads.get(head)));
                    for (t, (key, value)) in k_rows.into_iter().zip(v_rows).enumerate() {
                        self.tokens[s][head].push(Token { position: start + t as u64, key, value });
                    }
                    let id = ids.pop().ok_or_else(|| changing(&case))?;
                    let extra = if case.in_parts { extras_at + id } else { u32::MAX as usize };
                    let words =
                        [0, valid as u32, 7, start as u32, k_slot as u32, v_slot as u32, extra as u32, u32::MAX];
                    self.descs[id * 8..id * 8 + 8].copy_from_slice(&words);
                    if case.in_parts {
                        let further = [(formats.0, &self.k_slabs, k_slot), (formats.1, &self.v_slabs, v_slot)];
                        for (at, (name, slabs, slot)) in further.into_iter().enumerate() {
                            let slots = slabs.get(name).map_or(0, StoredSide::slots);
                            self.descs[extra * 8 + at] = further_slot(slot, slots) as u32;
                        }
                    }
                    pages.push(Page { sequence: s, head, formats, id });
                }
            }
        }
        Ok(pages)
    }

    /// Rows, items, page lists and merge lists.
    fn plan(&mut self, pages: &[Page], random: &mut Random) {
        let case = self.case.clone();
        // An entry: rows of one sequence that share items. (first row, rows, sequence)
        let mut entries = Vec::new();
        let mut row_words = Vec::new();
        for (s, &(len, rows)) in case.sequences.iter().enumerate() {
            for tile in (0..rows).step_by(case.row_tile) {
                let count = case.row_tile.min(rows - tile);
                entries.push((self.row_info.len(), count, s));
                for row in 0..count {
                    let position = u64::from(case.first_position) + (len + tile + row) as u64 - rows as u64;
                    row_words.extend([position as u32, entries.len() as u32 - 1, row as u32, s as u32]);
                    self.row_info.push((position, s));
                }
            }
        }
        self.rows = self.row_info.len();
        self.merged_rows = self.rows;
        self.queries = match case.values {
            Values::Logit(_) => (0..self.rows * case.q_heads())
                .flat_map(|_| (0..case.k_dim).map(|c| if c == 0 { 1.0 } else { 0.0 }))
                .collect(),
            _ => random.normal(self.rows * case.q_heads() * case.k_dim),
        };
        self.rows_at = self.region(&row_words);

        let mut classes: BTreeMap<(&'static str, &'static str), Vec<[u32; 8]>> = BTreeMap::new();
        let mut lists: Vec<Vec<u32>> = vec![Vec::new(); entries.len() * case.kv_heads];
        self.states_of = vec![Vec::new(); self.rows * case.q_heads()];
        for (e, &(row_start, rows, sequence)) in entries.iter().enumerate() {
            for head in 0..case.kv_heads {
                let mut by_class: BTreeMap<(&'static str, &'static str), Vec<u32>> = BTreeMap::new();
                for page in pages.iter().filter(|page| page.sequence == sequence && page.head == head) {
                    by_class.entry(page.formats).or_default().push(page.id as u32);
                }
                for (formats, ids) in by_class {
                    for ids in ids.chunks(case.pages_per_item) {
                        let ids_at = self.region(ids);
                        let start = self.states as u32;
                        self.states += rows * case.group;
                        classes.entry(formats).or_default().push([
                            row_start as u32,
                            rows as u32,
                            head as u32,
                            ids_at as u32,
                            ids.len() as u32,
                            start,
                            0,
                            0,
                        ]);
                        lists[e * case.kv_heads + head].push(start);
                        for row in 0..rows {
                            for g in 0..case.group {
                                let of = (row_start + row) * case.q_heads() + head * case.group + g;
                                self.states_of[of].push(start as usize + row * case.group + g);
                            }
                        }
                    }
                }
            }
        }
        for ((k, v), mut items) in classes {
            random.shuffle(&mut items);
            let items_at = self.region(&items.concat());
            self.classes.push(Class { k, v, items_at, items: items.len() });
        }
        let heads: Vec<u32> = lists
            .iter()
            .flat_map(|list| {
                let start = self.region(list);
                [start as u32, list.len() as u32]
            })
            .collect();
        self.lists_at = self.region(&heads);
    }

    /// Appends a region to the tables, padded to 16 bytes with poison.
    pub fn region(&mut self, words: &[u32]) -> usize {
        let start = self.tables.len();
        self.tables.extend(words);
        self.tables.resize(self.tables.len().next_multiple_of(4), POISON);
        start
    }
}

/// A function of formats that says another thing each time it is asked.
fn changing(case: &Case) -> Error {
    Error::new(ErrorKind::Usage, format!("the formats of {case:?} change between calls"), "let them depend on the page")
}

/// Keys and values of a page's tokens in the model's coordinates, one vector a token.
fn draw(case: &Case, random: &mut Random, start: usize, valid: usize, len: usize) -> [Vec<Vec<f32>>; 2] {
    let keys = (0..valid)
        .map(|t| match case.values {
            Values::Normal => random.normal(case.k_dim),
            Values::Ramp => vec![0.0; case.k_dim],
            Values::Logit(s) => {
                let mut row = vec![0.0; case.k_dim];
                row[0] = if (start + t).is_multiple_of(2) { s } else { 0.0 };
                row
            }
        })
        .collect();
    let values = (0..valid)
        .map(|t| match case.values {
            Values::Ramp => vec![(start + t) as f32 / len as f32; case.v_dim],
            _ => random.normal(case.v_dim),
        })
        .collect();
    [keys, values]
}

//! `decode` and `prefill` on the CPU: a thread takes a work item and goes through its pages.
//!
//! One design serves both: what few rows need (pages decoded once, all heads of the group on them) is what many
//! rows need. States of an item are written by one thread in a fixed order, so results do not depend on timing.

use super::attention::{ITEM_WORDS, ROW_WORDS};
use super::few;
use super::panel::{Arrangement, CHANNEL_BLOCK, PageStep, Queries, TOKEN_BLOCK, lanes, refill, union};
use super::partial::{HEADER, floats};
use super::prefetch;
use super::tables::{self, Descriptor, descriptor, further_slots, item, range, split_disjoint};
use crate::backend::CpuCall;
use crate::error::{Error, ErrorKind, Result};
use crate::format::Codec;
use rayon::prelude::*;
use std::cell::RefCell;

/// One dispatch of `decode` or `prefill`.
pub(super) fn run(call: &mut CpuCall<'_>) -> Result<()> {
    let spec = call.spec;
    let v_dim = spec.usize("V_DIM");
    let kernel = Kernel {
        group: spec.usize("GROUP"),
        q_heads: spec.usize("Q_HEADS"),
        k_dim: spec.usize("K_DIM"),
        v_dim,
        v_stride: v_dim.next_multiple_of(CHANNEL_BLOCK),
        page_tokens: spec.usize("PAGE_TOKENS"),
        k_words: spec.usize("K_WORDS"),
        v_words: spec.usize("V_WORDS"),
        further: match spec.flag("IN_PARTS") {
            true => {
                let (k1_slab, v1_slab) = (call.read("k1_slab"), call.read("v1_slab"));
                Some((k1_slab, spec.usize("K1_WORDS"), v1_slab, spec.usize("V1_WORDS")))
            }
            false => None,
        },
        window: spec.flag("WINDOW").then(|| call.param("window")),
        softcap: spec.flag("SOFTCAP").then(|| call.float("softcap")),
        k: spec.codec("k"),
        v: spec.codec("v"),
        k_slab: call.read("k_slab"),
        v_slab: call.read("v_slab"),
        descs: call.read("descs"),
        tables: call.read("tables"),
        q: call.read("q"),
        rows_at: call.index("rows_at"),
        arch: pulp::Arch::new(),
        reads_halves: few::reads_halves(),
    };
    let (items_at, most_rows) = (call.index("items_at"), spec.usize("ROWS"));
    let mut parts = Vec::with_capacity(call.groups as usize);
    for index in 0..call.groups as usize {
        let [row_start, rows, kv_head, ids_start, ids_count, partial_start, ..] =
            item::<ITEM_WORDS>(kernel.tables, items_at, index)?;
        if rows > most_rows {
            let message = format!("work item {index} has {rows} rows, the kernel takes {most_rows}");
            return Err(Error::new(ErrorKind::Shape, message, "split the rows or specialise for more"));
        }
        let ids = range(kernel.tables, ids_start, ids_count, "page list")?;
        let state = floats(v_dim);
        parts.push((
            partial_start.saturating_mul(state),
            rows * kernel.group * state,
            Item { row_start, rows, kv_head, ids },
        ));
    }
    let partials = call.write::<f32>("partials");
    // A piece an item: items differ in length, and a thread that is done takes the next.
    split_disjoint(partials, parts, "partial states")?
        .into_par_iter()
        .with_max_len(1)
        .try_for_each(|(item, out)| SCRATCH.with_borrow_mut(|scratch| kernel.attend(&item, out, scratch)))
}

thread_local! {
    /// Kept from item to item and from step to step: an item is a job of its own, which would make one each.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Rows of one sequence against pages of one format class, for one KV head.
struct Item<'a> {
    row_start: usize,
    rows: usize,
    kv_head: usize,
    ids: &'a [u32],
}

/// A thread's working memory.
#[derive(Default)]
struct Scratch {
    queries: Queries,
    keys: Vec<f32>,
    values: Vec<f32>,
    packed: Vec<f32>,
    scores: Vec<f32>,
    positions: Vec<u32>,
    /// Pages of K and V that are in two parts, put together.
    joined: [Vec<u32>; 2],
}

/// Constants, parameters and inputs of a dispatch.
struct Kernel<'a> {
    group: usize,
    q_heads: usize,
    k_dim: usize,
    v_dim: usize,
    v_stride: usize,
    page_tokens: usize,
    k_words: usize,
    v_words: usize,
    /// Slabs of further parts and the words of theirs, K's and V's, where a side is in two.
    further: Option<(&'a [u32], usize, &'a [u32], usize)>,
    window: Option<u32>,
    softcap: Option<f32>,
    k: &'a dyn Codec,
    v: &'a dyn Codec,
    k_slab: &'a [u32],
    v_slab: &'a [u32],
    descs: &'a [u32],
    tables: &'a [u32],
    q: &'a [f32],
    rows_at: usize,
    arch: pulp::Arch,
    reads_halves: bool,
}

impl Kernel<'_> {
    fn attend(&self, item: &Item<'_>, out: &mut [f32], scratch: &mut Scratch) -> Result<()> {
        self.load_queries(item, scratch)?;
        let rows = self.page_tokens + TOKEN_BLOCK;
        let width = scratch.queries.width;
        scratch.keys.resize(rows * self.k_dim, 0.0);
        scratch.values.resize(self.page_tokens * self.v_stride, 0.0);
        scratch.packed.resize(self.page_tokens * self.v_dim, 0.0);
        scratch.scores.resize(rows * width, 0.0);

        for (at, &id) in item.ids.iter().enumerate() {
            let page = descriptor(self.descs, id as usize)?;
            if page.valid_tokens > self.page_tokens {
                let message = format!(
                    "page descriptor {id} has {} valid tokens, a page holds {}",
                    page.valid_tokens, self.page_tokens
                );
                return Err(Error::new(ErrorKind::Shape, message, ""));
            }
            self.see(&page, scratch);
            let queries = &mut scratch.queries;
            let Some((low, high)) = union(&queries.first[..queries.count], &queries.visible[..queries.count]) else {
                continue;
            };
            let [mut k_further, mut v_further] = [None; 2];
            if let Some((k_slab, k_words, v_slab, v_words)) = self.further {
                let [k_slot, v_slot] = further_slots(self.descs, page.extra)?;
                k_further = Some((k_slab, k_slot, k_words));
                v_further = Some((v_slab, v_slot, v_words));
            }
            let [k_joined, v_joined] = &mut scratch.joined;
            let k_page = tables::page((self.k_slab, page.k_slot, self.k_words), k_further, k_joined)?;
            let v_page = tables::page((self.v_slab, page.v_slot, self.v_words), v_further, v_joined)?;
            let arrangement = queries.arrangement;
            let as_they_are = arrangement == Arrangement::Rows && self.reads_halves;
            let halves = [
                Some(k_page).filter(|_| as_they_are && self.k.holds_halves()),
                Some(v_page).filter(|_| as_they_are && self.v.holds_halves() && self.v_stride == self.v_dim),
            ];
            let next = item.ids.get(at + 1).map_or([&[][..]; 2], |&id| self.words_of(id));
            for (next, _) in next.iter().zip(&halves).filter(|(_, own)| own.is_none()) {
                prefetch::all(next);
            }
            if halves[0].is_none() {
                self.k.decode(k_page, low..high, &mut scratch.keys[low * self.k_dim..high * self.k_dim]);
            }
            if halves[1].is_none() {
                self.decode_values(v_page, low, high, &mut scratch.packed, &mut scratch.values);
            }
            let step = PageStep {
                queries,
                keys: &scratch.keys,
                values: &scratch.values,
                halves,
                next,
                scores: &mut scratch.scores,
                k_dim: self.k_dim,
                v_stride: self.v_stride,
                softcap: self.softcap,
            };
            match arrangement {
                Arrangement::Panels => self.arch.dispatch(step),
                Arrangement::Rows => few::attend(self.arch, step),
            }
        }

        let queries = &scratch.queries;
        for (index, state) in out.chunks_exact_mut(floats(self.v_dim)).enumerate() {
            state[..HEADER].copy_from_slice(&[queries.m[index], queries.l[index], 0.0, 0.0]);
            state[HEADER..].copy_from_slice(&queries.o[index * self.v_stride..][..self.v_dim]);
        }
        Ok(())
    }

    /// The words of a page, K and V, or of its first parts; empty where its tables are at fault, which whoever reads the page
    /// will say.
    fn words_of(&self, id: u32) -> [&[u32]; 2] {
        let Ok(page) = descriptor(self.descs, id as usize) else { return [&[]; 2] };
        let of = |slab, slot, words| tables::slot(slab, slot, words).unwrap_or_default();
        [of(self.k_slab, page.k_slot, self.k_words), of(self.v_slab, page.v_slot, self.v_words)]
    }

    /// Positions and prepared queries of the item's rows.
    fn load_queries(&self, item: &Item<'_>, scratch: &mut Scratch) -> Result<()> {
        let count = item.rows * self.group;
        let queries = &mut scratch.queries;
        queries.reset(lanes(self.arch), count, self.k_dim, self.v_stride);
        refill(&mut scratch.positions, item.rows, 0);
        let head_floats = self.k_dim + 4;
        for (in_item, position) in scratch.positions.iter_mut().enumerate() {
            let row = item.row_start + in_item;
            let [at, ..] = crate::kernel::tables::item::<ROW_WORDS>(self.tables, self.rows_at, row)?;
            *position = at as u32;
            let first = (row * self.q_heads + item.kv_head * self.group) * head_floats;
            let heads = range(self.q, first, self.group * head_floats, "prepared query")?;
            for (head, q) in heads.chunks_exact(head_floats).enumerate() {
                queries.set(in_item * self.group + head, &q[..self.k_dim], q[self.k_dim]);
            }
        }
        Ok(())
    }

    /// Which of the page's tokens each query sees: positions decide, never indices.
    fn see(&self, page: &Descriptor, scratch: &mut Scratch) {
        let page_start = i64::from(page.first_position);
        for (row, &position) in scratch.positions.iter().enumerate() {
            let after = i64::from(position) + 1 - page_start;
            let oldest = self.window.map_or(0, |window| after - i64::from(window));
            let high = after.clamp(0, page.valid_tokens as i64);
            let low = oldest.clamp(0, high);
            let heads = row * self.group..(row + 1) * self.group;
            scratch.queries.first[heads.clone()].fill(low as u32);
            scratch.queries.visible[heads].fill((high - low) as u32);
        }
    }

    /// Rows `low..high` of a V page, each padded to `v_stride`.
    fn decode_values(&self, page: &[u32], low: usize, high: usize, packed: &mut [f32], values: &mut [f32]) {
        let rows = &mut values[low * self.v_stride..high * self.v_stride];
        if self.v_stride == self.v_dim {
            self.v.decode(page, low..high, rows);
            return;
        }
        let packed = &mut packed[..(high - low) * self.v_dim];
        self.v.decode(page, low..high, packed);
        for (row, packed) in rows.chunks_exact_mut(self.v_stride).zip(packed.chunks_exact(self.v_dim)) {
            row[..self.v_dim].copy_from_slice(packed);
        }
    }
}

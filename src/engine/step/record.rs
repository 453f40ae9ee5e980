//! The dispatches of a layer: its rows into pages, its attention over them.
//!
//! What may take long stands between boundaries, and is recorded as several dispatches over parts of its items where it is
//! predicted to take longer than one submission may: the items, and so the results, are the same.

use super::Step;
use crate::backend::{Backend, BufferSlice, PipelineId};
use crate::engine::pipelines::Key;
use crate::engine::storage::Group;
use crate::error::Result;
use crate::kernel::attention::{self, AttentionArgs, AttentionBuffers, FurtherParts, ITEM_WORDS, ROW_WORDS};
use crate::kernel::{RowView, append, mean, merge, plane, query};
use crate::page::SegmentKey;
use crate::plan::{Class, PlaneBatch, Round, Route};
use crate::shape::Side;
use std::ops::Range;

impl Step<'_> {
    /// Records the layer `at` of cache group `index`: means to measure, rows to append.
    pub(super) fn record_rows(&mut self, index: usize, at: usize, k_in: RowView, v_in: RowView) -> Result<()> {
        let engine = &mut *self.engine;
        let backend = engine.backend.as_mut();
        let group = &mut engine.groups[index];
        let heads = group.shape.kv_heads;
        let plan = &self.prepared.plans[index];
        let tables = group.tables.slice()?;
        let (means, maps) = (group.mean_place(at), group.maps_of(at));
        if plan.means.1 > 0 {
            let pipeline = group.pipeline(backend, Key::Mean)?;
            let buffers = mean::Buffers { k_in, v_in, tables, means: group.means };
            let args = mean::Args { items: plan.means.1, items_at: plan.means.0, means };
            self.recording.dispatch(mean::dispatch(pipeline, heads, &buffers, &args));
            self.recording.boundary();
        }
        for batch in &plan.layers[at].append {
            let pipeline = group.pipeline(backend, Key::Append(batch.class.k, batch.class.v))?;
            let (k_slab, v_slab) = slabs(group, batch.class)?;
            let descs = group.descriptors.slice()?;
            let buffers =
                append::Buffers { k_in, v_in, tables, descs, means: group.means, maps: maps[0], k_slab, v_slab };
            for part in parts(backend, pipeline, batch.items, heads as u32 * 2) {
                let items_at = batch.items_at + part.start * append::ITEM_WORDS as u32;
                let args = append::Args { items: part.len() as u32, items_at, rows_at: plan.rows_at, means };
                self.recording.dispatch(append::dispatch(pipeline, heads, &buffers, &args));
                self.recording.boundary();
            }
        }
        self.record_planes(index, at, k_in, v_in)
    }

    /// Brings the side planes of the pages that got rows up to date.
    fn record_planes(&mut self, index: usize, at: usize, k_in: RowView, v_in: RowView) -> Result<()> {
        let engine = &mut *self.engine;
        let backend = engine.backend.as_mut();
        let group = &mut engine.groups[index];
        let heads = group.shape.kv_heads;
        for PlaneBatch { segment, items_at, items } in &self.prepared.plans[index].layers[at].planes {
            let Some(&planes) = group.records.get(segment.index) else { continue };
            let (tables, descs) = (group.tables.slice()?, group.descriptors.slice()?);
            let buffers = plane::Buffers { k_in, v_in, tables, descs, planes };
            for plane in 0..group.planes.iter().count() {
                let pipeline = group.pipeline(backend, Key::Plane(plane))?;
                for part in parts(backend, pipeline, *items, heads as u32) {
                    let items_at = items_at + part.start * plane::ITEM_WORDS as u32;
                    let args = plane::Args { items: part.len() as u32, items_at, first_record: segment.first_row };
                    self.recording.dispatch(plane::dispatch(pipeline, heads, &buffers, &args));
                    self.recording.boundary();
                }
            }
        }
        Ok(())
    }

    /// Records the attention of the layer `at` of cache group `index`.
    pub(super) fn record_attention(&mut self, index: usize, at: usize, q_in: RowView, out: RowView) -> Result<()> {
        for round in 0..self.prepared.plans[index].layers[at].rounds.len() {
            self.record_round(index, at, round, q_in, out)?;
            if self.prepared.sampled {
                self.gather_mass(index, at, round)?;
            }
        }
        Ok(())
    }

    fn record_round(&mut self, index: usize, at: usize, round: usize, q_in: RowView, out: RowView) -> Result<()> {
        let engine = &mut *self.engine;
        let backend = engine.backend.as_mut();
        let group = &mut engine.groups[index];
        let plan = &self.prepared.plans[index];
        let q_heads = group.shape.q_heads;
        let (tables, q, partials) = (group.tables.slice()?, group.queries.slice()?, group.partials.slice()?);
        let (means, maps) = (group.mean_place(at), group.maps_of(at));
        let (ask, unite) = (group.pipeline(backend, Key::Query)?, group.pipeline(backend, Key::Merge)?);
        let window = u32::try_from(group.window.unwrap_or(0)).unwrap_or(u32::MAX);
        let (softcap, scale) = (group.softcap, group.scale);
        let lists_at = plan.layers[at].lists_at;
        if let Some(Round { row_start, rows, attend, .. }) = plan.layers[at].rounds.get(round) {
            // The kernels count a round's rows from its first.
            let (rows, rows_at) = (*rows, plan.rows_at + row_start * ROW_WORDS as u32);
            let buffers =
                query::Buffers { q_in: q_in.down(*row_start), tables, means: group.means, maps: maps[1], q_out: q };
            let args = query::Args { rows_at, rows, means, scale };
            self.recording.dispatch(query::dispatch(ask, q_heads, &buffers, &args));
            self.recording.boundary();
            let mut first = true;
            for batch in attend {
                let (k_slab, v_slab) = slabs(group, batch.class)?;
                let further = further(group, batch.class, (k_slab, v_slab))?;
                let descs = group.descriptors.slice()?;
                let buffers = AttentionBuffers { k_slab, v_slab, descs, tables, q, partials };
                let pipeline = group.pipeline(
                    backend,
                    match batch.route {
                        Route::Decode(rows) => Key::Decode(rows, batch.class.k, batch.class.v),
                        Route::Prefill => Key::Prefill(batch.class.k, batch.class.v),
                    },
                )?;
                for part in parts(backend, pipeline, batch.items, 1) {
                    let items_at = batch.items_at + part.start * ITEM_WORDS as u32;
                    let args = AttentionArgs { items: part.len() as u32, items_at, rows_at, window, softcap };
                    // Each writes partial states of its own.
                    if !std::mem::take(&mut first) {
                        self.recording.beside();
                    }
                    self.recording.dispatch(attention::dispatch(pipeline, &buffers, further, &args));
                    self.recording.boundary();
                }
            }
            let out = out.down(*row_start);
            let buffers =
                merge::Buffers { partials, tables, means: group.means, maps: maps[2], sinks: group.sinks[at], out };
            let args = merge::Args { rows_at, rows, lists_at, means };
            self.recording.dispatch(merge::dispatch(unite, q_heads, &buffers, &args));
            self.recording.boundary();
        }
        Ok(())
    }
}

/// Ranges of `items`, each of `groups` workgroups, that one submission may hold by prediction: even shares.
pub(in crate::engine) fn parts(
    backend: &dyn Backend,
    pipeline: PipelineId,
    items: u32,
    groups: u32,
) -> impl Iterator<Item = Range<u32>> + use<> {
    let most = (backend.groups_a_submission(pipeline) / groups.max(1)).max(1);
    let share = items.div_ceil(items.div_ceil(most).max(1)).max(1);
    (0..items).step_by(share as usize).map(move |start| start..start.saturating_add(share).min(items))
}

fn slabs(group: &Group, class: Class) -> Result<(BufferSlice, BufferSlice)> {
    let of = |side, format| group.segment_of(group.pool.first_segment(class.segment_group, side, format));
    Ok((of(Side::K, class.k)?, of(Side::V, class.v)?))
}

/// Slabs of further parts where a side of the class is in two parts; `own` are those of first parts and whole pages.
fn further(group: &Group, class: Class, own: (BufferSlice, BufferSlice)) -> Result<Option<FurtherParts>> {
    let of = |side, format| {
        let key = SegmentKey { group: class.segment_group, side, format };
        (group.pool.first_segment(class.segment_group, side, format) != key).then(|| group.segment_of(key)).transpose()
    };
    Ok(match (of(Side::K, class.k)?, of(Side::V, class.v)?) {
        (None, None) => None,
        (k, v) => Some(FurtherParts { k1_slab: k.unwrap_or(own.0), v1_slab: v.unwrap_or(own.1) }),
    })
}

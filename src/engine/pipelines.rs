//! Pipelines of a cache group: made at warm-up, looked up by what they are for.

use super::storage::Group;
use crate::backend::{Backend, BackendKind, Caps, PipelineId, Specialisation};
use crate::error::{Error, ErrorKind, Result};
use crate::format::FormatId;
use crate::kernel::attention::AttentionShape;
use crate::kernel::tier::Tier;
use crate::kernel::{self, append, convert, copy_slots, decode, mean, merge, prefill, prefill_tiles, query};
use crate::shape::Side;

/// What a pipeline of a group is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Append(FormatId, FormatId),
    Mean,
    Query,
    Decode(u32, FormatId, FormatId),
    Prefill(FormatId, FormatId),
    Merge,
    Convert(Side, FormatId, FormatId),
    Copy(Side, FormatId),
    /// The n-th side plane.
    Plane(usize),
    CopyRecords,
}

/// Rows of a prefill tile: what a kernel's workgroup memory (or a core's cache) can serve at once; with tensor cores, what
/// fills their block.
pub(crate) fn tile_rows(caps: &Caps, shape: &AttentionShape) -> u32 {
    match caps.kind {
        BackendKind::Cpu => 64,
        _ if Tier::of(caps).tiles.is_some() => prefill_tiles::rows(shape) as u32,
        _ => 16,
    }
}

/// Threads of a workgroup of every kernel of the cache, attention over V heads above 256 apart.
pub(crate) const WORKGROUP: u32 = 64;

impl Group {
    /// The pipeline for `key`, made if it is not there.
    pub fn pipeline(&mut self, backend: &mut dyn Backend, key: Key) -> Result<PipelineId> {
        if let Some(&id) = self.pipelines.get(&key) {
            return Ok(id);
        }
        let spec = self.specialise(backend.caps(), key)?;
        let id = backend.prepare(&spec)?;
        self.pipelines.insert(key, id);
        Ok(id)
    }

    fn specialise(&self, caps: &Caps, key: Key) -> Result<Specialisation> {
        let (k, v) = (Side::K, Side::V);
        // A thread of attention owns four channels of V or more.
        let attending = WORKGROUP.max((self.attention.v_dim as u32 / 4).next_power_of_two());
        match key {
            Key::Append(kf, vf) => {
                append::specialise(&self.attention, self.codec(k, kf)?, self.codec(v, vf)?, self.bases, WORKGROUP)
            }
            Key::Mean => mean::specialise(&self.attention, WORKGROUP),
            Key::Query => query::specialise(&self.attention, self.bases.k, WORKGROUP),
            Key::Decode(rows, kf, vf) => {
                let (k, v) = (self.codec(k, kf)?, self.codec(v, vf)?);
                decode::specialise(&self.attention, k, v, rows as usize, Tier::of(caps), attending)
            }
            Key::Prefill(kf, vf) => prefill::specialise(
                &self.attention,
                self.codec(k, kf)?,
                self.codec(v, vf)?,
                tile_rows(caps, &self.attention) as usize,
                Tier::of(caps),
                attending,
            ),
            Key::Merge => merge::specialise(&self.attention, self.bases.v, self.has_sinks, WORKGROUP),
            Key::Convert(side, from, to) => {
                convert::specialise(self.codec(side, from)?, self.codec(side, to)?, WORKGROUP)
            }
            Key::Copy(side, format) => {
                copy_slots::specialise(self.codec(side, format)?.codec.layout().page_words, WORKGROUP)
            }
            Key::Plane(at) => {
                let Some((plane, place)) = self.planes.iter().nth(at) else {
                    return Err(Error::new(ErrorKind::Shape, format!("side plane {at} is not there"), ""));
                };
                kernel::plane::specialise(plane.kernel, &self.attention, *place, WORKGROUP)
            }
            Key::CopyRecords => copy_slots::specialise(self.planes.record_words() as usize, WORKGROUP),
        }
    }

    /// Makes every pipeline that steps of these kinds can need, with pages that a policy brings to `targets`.
    pub fn warm_up(
        &mut self,
        backend: &mut dyn Backend,
        decode_rows: &[u32],
        prefill: bool,
        targets: &[(FormatId, FormatId)],
    ) -> Result<()> {
        let mut keys = vec![Key::Query, Key::Merge];
        if self.uses_means() {
            keys.push(Key::Mean);
        }
        keys.extend((0..self.planes.iter().count()).map(Key::Plane));
        if self.planes.record_words() > 0 {
            keys.push(Key::CopyRecords);
        }
        for (&open, &sealed) in self.open.iter().zip(&self.sealed) {
            keys.push(Key::Append(open.0, open.1));
            keys.extend([Key::Copy(Side::K, open.0), Key::Copy(Side::V, open.1)]);
            let mut closed = vec![sealed];
            closed.extend(targets);
            for &(k, v) in &closed {
                // Sealing or moving to it, from every state that a page can be in, and reopening from it.
                for from in [open].iter().chain(&closed) {
                    keys.extend([Key::Convert(Side::K, from.0, k), Key::Convert(Side::V, from.1, v)]);
                }
                keys.extend([Key::Convert(Side::K, k, open.0), Key::Convert(Side::V, v, open.1)]);
            }
            for (k, v) in [open].into_iter().chain(closed) {
                keys.extend(decode_rows.iter().map(|rows| Key::Decode(rows.next_power_of_two().min(16), k, v)));
                if prefill {
                    keys.push(Key::Prefill(k, v));
                }
            }
        }
        for key in keys {
            if !matches!(key, Key::Convert(_, from, to) if from == to) {
                self.pipeline(backend, key)?;
            }
        }
        Ok(())
    }
}

//! Finding free slots: in the segments there are, else in a new one, within the budget.

use super::{Backing, Pool, SegmentKey, Slab, Slots};
use crate::error::{Error, ErrorKind, Result};
use crate::format::FormatId;
use crate::page::descriptor::NONE;
use crate::shape::Side;

const MAX_SEGMENT_GROUPS: u16 = 4096;

impl Pool {
    /// `kept` with `side` in new slots of its segment group; `None` when that is full.
    pub(super) fn take_side(
        &mut self,
        kept: &Slots,
        side: Side,
        format: FormatId,
        backing: &mut dyn Backing,
    ) -> Result<Option<Slots>> {
        self.budget.check(self.side_bytes(side, format))?;
        let keys: Vec<SegmentKey> = self.segments(kept.group, side, format).collect();
        if !self.all_free(&keys, true) {
            return Ok(None);
        }
        for key in keys {
            self.ensure(key, backing)?;
        }
        Ok(self.take_parts(kept, side, format))
    }

    /// Whether each of the segments has a free slot, or may be made. All are looked at before any is made: one for the
    /// first is of no use while another is full.
    fn all_free(&self, keys: &[SegmentKey], may_reserve: bool) -> bool {
        keys.iter().all(|key| self.slabs.get(key).map_or(may_reserve, Slab::has_free))
    }

    /// `slots` with `side` in free slots of segments that are there.
    fn take_parts(&mut self, slots: &Slots, side: Side, format: FormatId) -> Option<Slots> {
        let mut taken = [NONE; 2];
        for (key, slot) in self.segments(slots.group, side, format).zip(&mut taken) {
            *slot = self.take(key)?;
        }
        Some(slots.with(side, (format, self.first_of(side, format)), taken))
    }

    pub(super) fn take_slots(
        &mut self,
        k: FormatId,
        v: FormatId,
        prefer: Option<u16>,
        backing: &mut dyn Backing,
    ) -> Result<Slots> {
        self.budget.check(self.side_bytes(Side::K, k) + self.side_bytes(Side::V, v))?;
        // Free slots anywhere come before a new segment: reserving more while there is room would waste it.
        for may_reserve in [false, true] {
            let order = prefer.into_iter().chain((0..self.groups).filter(|g| Some(*g) != prefer));
            for group in order.collect::<Vec<_>>() {
                if let Some(slots) = self.take_pair(group, k, v, may_reserve, backing)? {
                    return Ok(slots);
                }
            }
        }
        if self.groups >= MAX_SEGMENT_GROUPS {
            return Err(Error::new(
                ErrorKind::OutOfPages,
                format!("all {MAX_SEGMENT_GROUPS} segment groups are in use"),
                "use an adapter with larger bindings, or larger pages",
            ));
        }
        let group = self.groups;
        self.groups += 1;
        match self.take_pair(group, k, v, true, backing) {
            Ok(Some(slots)) => Ok(slots),
            Ok(None) => Err(Error::new(ErrorKind::OutOfPages, "a fresh segment group has no slot", "")),
            Err(error) => {
                // A group that got no segment would only be a hole in the numbering.
                if !self.slabs.keys().any(|key| key.group == group) {
                    self.groups -= 1;
                }
                Err(error)
            }
        }
    }

    fn take_pair(
        &mut self,
        group: u16,
        k: FormatId,
        v: FormatId,
        may_reserve: bool,
        backing: &mut dyn Backing,
    ) -> Result<Option<Slots>> {
        let sides = [(Side::K, k), (Side::V, v)].into_iter();
        let keys: Vec<SegmentKey> = sides.flat_map(|(side, format)| self.segments(group, side, format)).collect();
        if !self.all_free(&keys, may_reserve) {
            return Ok(None);
        }
        for key in keys {
            self.ensure(key, backing)?;
        }
        let empty = Slots { group, k: (k, NONE), v: (v, NONE), first: [k, v], further: [NONE; 2] };
        Ok(self.take_parts(&empty, Side::K, k).and_then(|slots| self.take_parts(&slots, Side::V, v)))
    }

    /// Makes the segment where it is not there.
    fn ensure(&mut self, key: SegmentKey, backing: &mut dyn Backing) -> Result<()> {
        if self.slabs.contains_key(&key) {
            return Ok(());
        }
        let Some(spec) = self.slots.get(&(key.side, key.format)).copied() else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("format {} has no {} pages of this geometry", key.format.0, key.side.as_str()),
                "the format refused the head size when the engine was built",
            ));
        };
        let most = (self.max_segment_bytes / spec.bytes.max(1)).min(u64::from(u32::MAX / 2)) as u32;
        if most == 0 {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "a page of {} bytes is above the segment limit of {} bytes",
                    spec.bytes, self.max_segment_bytes
                ),
                "use smaller pages (--page-tokens)",
            ));
        }
        let so_far: u32 = self
            .slabs
            .iter()
            .filter(|(k, _)| k.side == key.side && k.format == key.format)
            .fold(0, |n, (_, slab)| n.saturating_add(slab.slots()));
        let slab = Slab::new(so_far.max(spec.first_slots).clamp(1, most), spec.bytes);
        backing.reserve(key, slab.reserved_bytes())?;
        self.slabs.insert(key, slab);
        Ok(())
    }

    fn take(&mut self, key: SegmentKey) -> Option<u32> {
        let slot = self.slabs.get_mut(&key)?.take()?;
        let bytes = self.slot_size(key.side, key.format);
        self.used_bytes += bytes;
        self.budget.take(bytes);
        Some(slot)
    }
}

//! Finding free slots: in the segments there are, else in a new one, within the budget.

use super::{Backing, Pool, SegmentKey, Slab, Slots};
use crate::error::{Error, ErrorKind, Result};
use crate::format::FormatId;
use crate::shape::Side;

const MAX_SEGMENT_GROUPS: u16 = 4096;

impl Pool {
    pub(super) fn take_side_in(
        &mut self,
        old: &Slots,
        k: FormatId,
        v: FormatId,
        backing: &mut dyn Backing,
    ) -> Result<Option<Slots>> {
        let side = if old.k.0 == k { Side::V } else { Side::K };
        let format = if side == Side::K { k } else { v };
        self.budget.check(self.slot_size(side, format))?;
        let key = SegmentKey { group: old.group, side, format };
        if !self.ensure(key, backing)? {
            return Ok(None);
        }
        Ok(self.take(key).map(|slot| match side {
            Side::K => Slots { group: old.group, k: (k, slot), v: old.v },
            Side::V => Slots { group: old.group, k: old.k, v: (v, slot) },
        }))
    }

    pub(super) fn take_slots(
        &mut self,
        k: FormatId,
        v: FormatId,
        prefer: Option<u16>,
        backing: &mut dyn Backing,
    ) -> Result<Slots> {
        self.budget.check(self.slot_size(Side::K, k) + self.slot_size(Side::V, v))?;
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
        let keys = [SegmentKey { group, side: Side::K, format: k }, SegmentKey { group, side: Side::V, format: v }];
        // Both are looked at first: a segment made for one side is of no use while the other's is full.
        if keys.iter().any(|key| self.slabs.get(key).map_or(!may_reserve, |slab| !slab.has_free())) {
            return Ok(None);
        }
        if !self.ensure(keys[0], backing)? || !self.ensure(keys[1], backing)? {
            return Ok(None);
        }
        Ok(match (self.take(keys[0]), self.take(keys[1])) {
            (Some(a), Some(b)) => Some(Slots { group, k: (k, a), v: (v, b) }),
            _ => None,
        })
    }

    /// Whether the segment exists, or was made, and has a free slot.
    fn ensure(&mut self, key: SegmentKey, backing: &mut dyn Backing) -> Result<bool> {
        if let Some(slab) = self.slabs.get(&key) {
            return Ok(slab.has_free());
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
        Ok(true)
    }

    fn take(&mut self, key: SegmentKey) -> Option<u32> {
        let slot = self.slabs.get_mut(&key)?.take()?;
        let bytes = self.slot_size(key.side, key.format);
        self.used_bytes += bytes;
        self.budget.take(bytes);
        Some(slot)
    }
}

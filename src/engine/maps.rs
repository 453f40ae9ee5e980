//! Calibrated means and maps of a cache group on the device.

use super::sides::Turned;
use super::storage::Group;
use crate::backend::{Backend, BufferSlice};
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::maps;
use crate::shape::{CacheGroup, Side};

impl Group {
    /// Uploads the calibrated means and maps of every layer, a buffer each.
    pub fn make_maps(&mut self, backend: &mut dyn Backend, turned: &[Turned; 2]) -> Result<()> {
        if !self.uses_maps() {
            return Ok(());
        }
        let limit = backend.caps().max_binding_bytes.min(backend.caps().max_buffer_bytes);
        for &layer in &self.shape.layers {
            let mut floats = map_region(&turned[0], Side::K, &self.shape, layer);
            floats.extend(map_region(&turned[1], Side::V, &self.shape, layer));
            let bytes = floats.len() as u64 * 4;
            if bytes > limit {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("a layer's maps take {bytes} bytes in one binding, the adapter's limit is {limit}"),
                    "use --basis hadamard, or another adapter",
                ));
            }
            let buffer = backend.alloc("maps", bytes)?;
            self.maps.push(BufferSlice::whole(buffer, bytes));
            backend.write(buffer, 0, bytemuck::cast_slice(&floats))?;
        }
        Ok(())
    }

    /// The maps of a layer for both sides, for K and for V; a buffer that is only read where there are none.
    pub fn maps_of(&self, layer: usize) -> [BufferSlice; 3] {
        let Some(&whole) = self.maps.get(layer) else { return [self.means; 3] };
        let shape = &self.shape;
        let [k, v] =
            maps::layer_floats(self.bases, shape.kv_heads, shape.k_dim, shape.v_dim).map(|floats| floats as u64 * 4);
        let side = |offset, bytes| match bytes {
            0 => self.means,
            _ => BufferSlice { offset, bytes, ..whole },
        };
        [whole, side(0, k), side(k, v)]
    }

    /// Whether a side has a calibrated mean or map.
    pub fn uses_maps(&self) -> bool {
        self.bases.k.fixed || self.bases.v.fixed
    }

    /// Bytes of calibrated means and maps.
    pub fn map_bytes(&self) -> u64 {
        self.maps.iter().map(|slice| slice.bytes).sum()
    }
}

/// A side's region of a layer's maps, as [`crate::kernel::maps`] lays it out.
fn map_region(turned: &Turned, side: Side, shape: &CacheGroup, layer: usize) -> Vec<f32> {
    let dim = shape.head_dim(side);
    let mut floats = Vec::with_capacity(maps::region_floats(turned.basis, shape.kv_heads, dim));
    for head in turned.calibration.iter().flat_map(|c| c.heads(layer, side)) {
        floats.extend(head.mean());
        if turned.basis.map {
            let columns = |rows: &[f32]| -> Vec<f32> {
                (0..dim).flat_map(|c| rows.iter().skip(c).step_by(dim).copied().collect::<Vec<_>>()).collect()
            };
            floats.extend(columns(head.map()));
            match side {
                // The columns of F⁻ᵀ are the rows of F⁻¹.
                Side::K => floats.extend(head.inverse()),
                Side::V => floats.extend(columns(head.inverse())),
            }
        }
    }
    floats.resize(maps::region_floats(turned.basis, shape.kv_heads, dim), 0.0);
    floats
}

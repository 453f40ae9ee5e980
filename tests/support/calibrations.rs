//! Calibrations that no model was asked for: random means, and maps whose condition is 4 at most.
#![allow(dead_code, reason = "each test program uses a part")]

use kvarto::basis::{Calibration, CalibrationSource, HeadMap, LayerMaps};
use kvarto::conformance::{Random, SideMaps};
use kvarto::engine::Registry;
use kvarto::kernel::SideBasis;
use kvarto::shape::{CacheShape, Side};
use std::sync::Arc;

/// What profiles call the calibration of [`registry`] that is a file's.
pub const FILE: &str = "x.kvcal";

/// One for every layer and KV head of `shape`.
pub fn synthetic(shape: &CacheShape, id: &str, seed: u64) -> Arc<Calibration> {
    let mut random = Random::new(seed);
    let mut layers = vec![LayerMaps::default(); shape.model_layers()];
    for group in &shape.groups {
        for &layer in &group.layers {
            let [k, v] = Side::BOTH.map(|side| {
                let maps = SideMaps::new(SideBasis::MAP, group.kv_heads, group.head_dim(side), &mut random);
                maps.heads.into_iter().map(|head| HeadMap { mean: head.mean, map: head.map }).collect()
            });
            layers[layer] = LayerMaps { k, v };
        }
    }
    Arc::new(Calibration::new(id, layers).expect("safe maps"))
}

/// `registry` with the model's own calibration, and another as [`FILE`].
pub fn with(registry: Registry, shape: &CacheShape) -> Registry {
    registry
        .with_calibration(CalibrationSource::OfModel, synthetic(shape, "own", 5))
        .with_calibration(CalibrationSource::File(FILE.into()), synthetic(shape, "file", 6))
}

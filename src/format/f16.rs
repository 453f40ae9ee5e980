//! `f16`: 16-bit values, each token writable alone.

use std::sync::Arc;

use super::halves::{self, Half};
use super::{Codec, Format};
use crate::error::Result;
use crate::shape::{PageGeometry, Side};

/// IEEE 16-bit floats, to nearest even; stores saturate at ±65504 and keep NaN.
pub struct F16;

impl Format for F16 {
    fn name(&self) -> &str {
        "f16"
    }

    fn summary(&self) -> &str {
        "16-bit floats; stores saturate at 65504"
    }

    fn wants_rotation(&self) -> bool {
        false
    }

    fn codec(&self, side: Side, geometry: PageGeometry) -> Result<Arc<dyn Codec>> {
        halves::codec(Half::F16, side, geometry)
    }
}

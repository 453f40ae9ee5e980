//! `bf16`: 16-bit values, each token writable alone.

use std::sync::Arc;

use super::halves::{self, Half};
use super::{Codec, Format};
use crate::error::Result;
use crate::shape::{PageGeometry, Side};

/// bfloat16, to nearest even; NaN stays NaN.
pub struct Bf16;

impl Format for Bf16 {
    fn name(&self) -> &str {
        "bf16"
    }

    fn summary(&self) -> &str {
        "bfloat16, what many models compute in"
    }

    fn wants_rotation(&self) -> bool {
        false
    }

    fn codec(&self, side: Side, geometry: PageGeometry) -> Result<Arc<dyn Codec>> {
        halves::codec(Half::Bf16, side, geometry)
    }
}

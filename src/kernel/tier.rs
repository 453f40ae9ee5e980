//! Which optional features of a device a kernel uses: the dispatcher's reading of the capability record.

use super::decode_tuning::TensorCores;
use crate::backend::{BackendKind, Caps};
use crate::format::Codec;

/// What kernels may use beyond WebGPU's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tier {
    /// The f16 type, for storage in registers and workgroup memory and for arithmetic where a format has lost more.
    pub f16: bool,
    /// 0: reductions by workgroup memory alone. 1: by the device's subgroups, whatever their size. Another power of
    /// two: by subgroups of that many threads that workgroup memory plays, so that a test can see any size.
    pub subgroup: u32,
    /// Tensor cores by CUDA's own text, for formats that have tiles.
    pub tiles: Option<TensorCores>,
}

impl Tier {
    /// WebGPU's defaults: what runs everywhere.
    pub const FLOOR: Tier = Tier { f16: false, subgroup: 0, tiles: None };

    /// What `caps` allows.
    pub fn of(caps: &Caps) -> Tier {
        // WebGPU's smallest is 4, and kernels have room for as many subgroups as that makes.
        let own = u32::from(caps.subgroups.is_some_and(|(smallest, _)| smallest >= 4));
        Tier {
            f16: caps.f16 && caps.kind != BackendKind::Cuda,
            subgroup: caps.played_subgroup.unwrap_or(own),
            tiles: (caps.kind == BackendKind::Cuda && caps.f16).then(|| TensorCores::of(caps)),
        }
    }

    /// Whether attention over this side's pages multiplies in 16 bits, and so errs by more than sums in f32 do: decode's,
    /// and with `tiles` prefill's too.
    pub fn in_half(&self, codec: &dyn Codec) -> bool {
        (self.tiles.is_some() && codec.tiles().is_some())
            || (self.f16 && codec.wgsl_units(codec.layout().side.as_str()).half)
    }
}

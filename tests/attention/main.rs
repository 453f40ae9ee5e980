//! The attention kernels against the dense f64 reference, on the CPU.

mod grid;
mod planted;
mod portability;
mod round_trip;
mod speed;

fn cpu() -> kvarto::backend::CpuBackend {
    kvarto::backend::CpuBackend::new(0).expect("threads")
}

/// Largest error allowed against attention over the pages as decoded, as a fraction of the largest output:
/// f32 sums of at most 4097 terms and 512 channels. Formats do not matter here: both sides read the same values.
const TOLERANCE: f64 = 5e-6;

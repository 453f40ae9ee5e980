//! The attention kernels against the dense f64 reference, on the CPU.

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../reference/mod.rs"]
mod reference;

mod speed;

fn cpu() -> kvarto::backend::CpuBackend {
    kvarto::backend::CpuBackend::new(0).expect("threads")
}

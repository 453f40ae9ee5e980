//! The capability record of a device.

use super::compile::Compiler;
use super::probe::DeviceReport;
use crate::backend::{BackendKind, Caps};
use crate::kernel::decode_tuning;

/// Workgroups of portable kernels that keep a multiprocessor busy, about.
const WORKGROUPS_A_MULTIPROCESSOR: u32 = 8;

/// What kernels and the dispatcher may count on.
pub(super) fn caps(report: &DeviceReport, compiler: &Compiler) -> Caps {
    let compiled = compiler.compiler().map_or("no NVRTC".to_string(), |version| format!("NVRTC {version}"));
    Caps {
        kind: BackendKind::Cuda,
        api: "cuda".into(),
        adapter: report.name.clone(),
        driver: format!("CUDA {}, {compiled}", report.driver),
        device_type: if report.integrated { "integrated" } else { "discrete" }.into(),
        software: false,
        tier: "native".into(),
        // Kernels count words by 32 bits.
        max_binding_bytes: u64::from(u32::MAX) * 4,
        max_buffer_bytes: (u64::from(u32::MAX) * 4).min(report.memory_bytes),
        max_workgroup_bytes: report.shared_bytes,
        max_invocations: 1024,
        max_workgroups_per_dimension: i32::MAX as u32,
        max_storage_buffers: 8,
        offset_alignment: 256,
        target_workgroups: WORKGROUPS_A_MULTIPROCESSOR * report.multiprocessors,
        multiprocessors: Some(report.multiprocessors),
        timestamps: true,
        // Products on tensor cores.
        f16: true,
        subgroups: None,
        played_subgroup: None,
        features: decode_tuning::features(report.capability, compiler.target()),
        masked: Vec::new(),
        max_submission_ms: 0,
    }
}

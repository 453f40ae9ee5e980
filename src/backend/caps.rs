//! What an adapter can do: the one record that both `doctor` and the dispatcher read.

/// The kind of backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendKind {
    /// This process's threads.
    Cpu,
    /// A GPU through WGSL.
    Wgpu,
    /// An NVIDIA GPU through CUDA.
    Cuda,
}

impl BackendKind {
    /// `cpu`, `wgpu` or `cuda`.
    pub fn as_str(self) -> &'static str {
        match self {
            BackendKind::Cpu => "cpu",
            BackendKind::Wgpu => "wgpu",
            BackendKind::Cuda => "cuda",
        }
    }
}

/// Identity, features and limits of an adapter.
#[derive(Clone, Debug)]
pub struct Caps {
    /// Which backend this is.
    pub kind: BackendKind,
    /// `cpu`, `vulkan`, `gl`, `metal`, `dx12` or `cuda`.
    pub api: String,
    /// The adapter's name.
    pub adapter: String,
    /// Driver and version, as the API gives them.
    pub driver: String,
    /// `discrete`, `integrated`, `virtual`, `other`, `software` or `cpu`.
    pub device_type: String,
    /// True for a rasteriser that runs on the CPU, and for the CPU itself.
    pub software: bool,
    /// The kernel tier in use: `native` for the CPU's own code and for WGSL with 16-bit floats or subgroups, `floor` for
    /// WGSL within WebGPU's defaults.
    pub tier: String,
    /// Largest storage binding, bytes.
    pub max_binding_bytes: u64,
    /// Largest buffer, bytes.
    pub max_buffer_bytes: u64,
    /// Workgroup memory a group, bytes.
    pub max_workgroup_bytes: u32,
    /// Invocations a group.
    pub max_invocations: u32,
    /// Workgroups a dimension.
    pub max_workgroups_per_dimension: u32,
    /// Storage buffers a stage.
    pub max_storage_buffers: u32,
    /// Alignment of binding offsets, bytes.
    pub offset_alignment: u64,
    /// Workgroups that keep the adapter busy: what plans split for.
    pub target_workgroups: u32,
    /// Multiprocessors, where the driver says how many: kernels that fill one with a workgroup are planned for as many
    /// items at once.
    pub multiprocessors: Option<u32>,
    /// Whether device timestamps can be taken.
    pub timestamps: bool,
    /// Whether shaders may use 16-bit floats (`enable f16;`).
    pub f16: bool,
    /// Invocations of the smallest and of the largest subgroup, where shaders may use subgroup operations.
    pub subgroups: Option<(u32, u32)>,
    /// Invocations of the subgroups that workgroup memory plays in place of the adapter's
    /// (`wgpu::OpenOptions::play_subgroup`); `None` where nothing plays.
    pub played_subgroup: Option<u32>,
    /// Optional features that are in use, by name.
    pub features: Vec<String>,
    /// What was masked when the device was opened (`limits=webgpu-default`, `without f16`); empty where nothing was.
    pub masked: Vec<String>,
    /// Longest time one submission may be predicted to take, milliseconds; 0 for no limit. Recordings above it are split
    /// at their boundaries.
    pub max_submission_ms: u32,
}

impl Caps {
    /// `vulkan: llvmpipe (LLVM 15.0.6, 256 bits)`.
    pub fn title(&self) -> String {
        format!("{}: {}", self.api, self.adapter)
    }
}

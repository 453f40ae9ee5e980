//! Adapters: what there is, which one to take, and what is asked of it.

use super::OpenOptions;
use super::mask::masked;
use crate::backend::{BackendKind, Caps};
use crate::error::{Error, ErrorKind, Result};

/// Which adapter to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdapterChoice {
    /// A discrete GPU, else an integrated one, else any other; a software rasteriser only where allowed.
    Auto {
        /// Whether a rasteriser that runs on the CPU will do.
        allow_software: bool,
    },
    /// A named API, software included.
    Api {
        /// `vulkan`, `metal`, `dx12` or `gl`.
        api: String,
        /// Which of that API's adapters, counted as in [`adapters`].
        index: usize,
    },
}

/// An adapter as `doctor` reports it.
#[derive(Clone, Debug)]
pub struct AdapterReport {
    /// `vulkan`, `metal`, `dx12` or `gl`.
    pub api: String,
    /// Its number among the adapters of its API.
    pub index: usize,
    /// Name, as the API gives it.
    pub name: String,
    /// Driver and version, as the API gives them.
    pub driver: String,
    /// `discrete`, `integrated`, `virtual`, `software` or `other`.
    pub device_type: String,
    /// Whether it is a rasteriser that runs on the CPU.
    pub software: bool,
    /// What it offers at most.
    pub limits: wgpu::Limits,
    /// Its optional features, by name.
    pub features: Vec<String>,
    /// Why the kernels cannot run on it; none where they can. Opening decides by the same record.
    pub refusal: Option<String>,
}

impl AdapterReport {
    fn of(adapter: &wgpu::Adapter, index: usize) -> Self {
        let info = adapter.get_info();
        let able = adapter.get_downlevel_capabilities().flags;
        AdapterReport {
            api: api_name(info.backend).into(),
            index,
            driver: driver_text(&info),
            device_type: device_type(&info).into(),
            software: is_software(&info),
            limits: adapter.limits(),
            features: adapter.features().iter_names().map(|(name, _)| name.to_lowercase()).collect(),
            refusal: if !able.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS) {
                Some("it runs no compute shaders".into())
            } else if !able.contains(wgpu::DownlevelFlags::SHADER_F16_IN_F32) {
                Some("its shaders cannot unpack 16-bit floats".into())
            } else {
                floor_refusal(&adapter.limits())
            },
            name: info.name,
        }
    }

    fn title(&self) -> String {
        format!("{} {} {:?} ({})", self.api, self.index, self.name, self.device_type)
    }
}

fn instance(apis: wgpu::Backends) -> wgpu::Instance {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = apis;
    // Validation layers are for whoever sets WGPU_VALIDATION or WGPU_DEBUG; wgpu's own checks stay on.
    descriptor.flags = wgpu::InstanceFlags::empty().with_env();
    wgpu::Instance::new(descriptor)
}

fn found(apis: wgpu::Backends) -> Vec<(wgpu::Adapter, AdapterReport)> {
    let mut counts = std::collections::HashMap::new();
    let adapters = pollster::block_on(instance(apis).enumerate_adapters(apis));
    let number = |adapter: wgpu::Adapter| {
        let count: &mut usize = counts.entry(adapter.get_info().backend).or_default();
        let report = AdapterReport::of(&adapter, *count);
        *count += 1;
        (adapter, report)
    };
    adapters.into_iter().map(number).collect()
}

/// Every adapter of every API of this machine.
pub fn adapters() -> Vec<AdapterReport> {
    found(wgpu::Backends::all()).into_iter().map(|(_, report)| report).collect()
}

/// The adapters that `choice` is made from, and which of them it is.
///
/// Only the APIs in question are started: GL when it is named, or when no other API has an adapter that serves.
fn find(choice: &AdapterChoice) -> Result<(wgpu::Adapter, AdapterReport)> {
    let pick = |apis: wgpu::Backends| {
        let mut all = found(apis);
        let at = choose(&all.iter().map(|(_, report)| report.clone()).collect::<Vec<_>>(), choice)?;
        Ok(all.swap_remove(at))
    };
    match choice {
        AdapterChoice::Api { api, index } => pick(api_bits(api)).map_err(|_| absent(api, *index, &adapters())),
        AdapterChoice::Auto { .. } => pick(wgpu::Backends::PRIMARY).or_else(|_: Error| pick(wgpu::Backends::all())),
    }
}

/// Opens the chosen adapter with its own limits for compute and the optional features that serve, but for what
/// `options` masks.
///
/// # Errors
/// `Unsupported` when there is none that serves (what was found, and why it was refused, is in the message), and for a
/// limit above the adapter's; `Usage` for a limit that is too low; `Device` when the driver gives no device.
pub(super) fn open_adapter(choice: &AdapterChoice, options: &OpenOptions) -> Result<(wgpu::Device, wgpu::Queue)> {
    let (adapter, report) = find(choice)?;
    let request = adapter.request_device(&wgpu::DeviceDescriptor {
        label: Some("kvarto"),
        required_features: options.without.of(adapter.features()),
        required_limits: options.limits.over(&report.limits, &report.title())?,
        // Our buffers are large already: pooling several in one block would only round them up.
        memory_hints: wgpu::MemoryHints::MemoryUsage,
        ..Default::default()
    });
    pollster::block_on(request).map_err(|e| {
        Error::new(ErrorKind::Device, format!("{} gave no device: {e}", report.title()), "update the driver")
    })
}

fn choose(found: &[AdapterReport], choice: &AdapterChoice) -> Result<usize> {
    let wanted = |report: &AdapterReport| -> Option<String> {
        if let Some(refusal) = &report.refusal {
            return Some(refusal.clone());
        }
        match choice {
            AdapterChoice::Auto { allow_software: false } if report.software => {
                Some("software adapters are taken only when named".into())
            }
            AdapterChoice::Api { api, index } if *api != report.api || *index != report.index => {
                Some(format!("{api} {index} was asked for"))
            }
            _ => None,
        }
    };
    let best = (0..found.len()).filter(|&at| wanted(&found[at]).is_none()).min_by_key(|&at| rank(&found[at]));
    best.ok_or_else(|| {
        let list: Vec<String> =
            found.iter().map(|r| format!("{}: {}", r.title(), wanted(r).unwrap_or_default())).collect();
        let list = if list.is_empty() { "there is none".to_string() } else { list.join("; ") };
        Error::new(
            ErrorKind::Unsupported,
            format!("no adapter serves: {list}"),
            "name one (kvarto doctor lists them), or use the CPU backend",
        )
    })
}

/// Why adapter `index` of `api` cannot be opened, among `all` that this machine has, and which can be.
fn absent(api: &str, index: usize, all: &[AdapterReport]) -> Error {
    let word = |r: &AdapterReport| format!("{}:{}", r.api, r.index);
    let asked = format!("{api}:{index}");
    let refused = all.iter().find(|r| word(r) == asked).and_then(|r| r.refusal.as_ref());
    let of_api = all.iter().filter(|r| r.api == api).count();
    let why = match (refused, of_api) {
        (Some(refusal), _) => format!("adapter {asked} cannot run the kernels: {refusal}"),
        (None, 0) => format!("adapter {asked} is not there: this machine has none that {api} reaches"),
        (None, 1) => format!("adapter {asked} is not there: {api} reaches one, number 0"),
        (None, count) => format!("adapter {asked} is not there: {api} reaches {count}, numbers 0 to {}", count - 1),
    };
    let describe = |r: &AdapterReport| match &r.refusal {
        None => format!("{} {:?} ({})", word(r), r.name, r.device_type),
        Some(refusal) => format!("{} {:?} ({}; refused: {refusal})", word(r), r.name, r.device_type),
    };
    let list: Vec<String> = all.iter().map(describe).collect();
    let list = if list.is_empty() { "no adapter at all".to_string() } else { list.join(", ") };
    let usable: Vec<String> = all.iter().filter(|r| r.refusal.is_none()).map(word).chain(["cpu".into()]).collect();
    Error::new(
        ErrorKind::Unsupported,
        format!("{why}; found: {list}"),
        format!("choose with --backend {}; `kvarto doctor` tests each", usable.join(" or ")),
    )
}

/// Smaller is better; equal ranks keep the driver's order.
fn rank(report: &AdapterReport) -> (u8, u8) {
    let kind = match report.device_type.as_str() {
        "discrete" => 0,
        "integrated" => 1,
        "virtual" => 2,
        "other" => 3,
        _ => 4,
    };
    (kind, u8::from(report.api == "gl"))
}

/// Which of WebGPU's default limits for compute an adapter misses.
fn floor_refusal(limits: &wgpu::Limits) -> Option<String> {
    let floor = wgpu::Limits::defaults();
    let pairs: [(&str, u64, u64); 9] = [
        (
            "storage buffers a stage",
            limits.max_storage_buffers_per_shader_stage.into(),
            floor.max_storage_buffers_per_shader_stage.into(),
        ),
        (
            "bytes of workgroup memory",
            limits.max_compute_workgroup_storage_size.into(),
            floor.max_compute_workgroup_storage_size.into(),
        ),
        (
            "invocations a workgroup",
            limits.max_compute_invocations_per_workgroup.into(),
            floor.max_compute_invocations_per_workgroup.into(),
        ),
        (
            "invocations a workgroup along x",
            limits.max_compute_workgroup_size_x.into(),
            floor.max_compute_workgroup_size_x.into(),
        ),
        (
            "workgroups a dimension",
            limits.max_compute_workgroups_per_dimension.into(),
            floor.max_compute_workgroups_per_dimension.into(),
        ),
        ("bytes a storage binding", limits.max_storage_buffer_binding_size, floor.max_storage_buffer_binding_size),
        ("bytes a buffer", limits.max_buffer_size, floor.max_buffer_size),
        (
            "uniform buffers a stage",
            limits.max_uniform_buffers_per_shader_stage.into(),
            floor.max_uniform_buffers_per_shader_stage.into(),
        ),
        (
            "uniform buffers with dynamic offsets",
            limits.max_dynamic_uniform_buffers_per_pipeline_layout.into(),
            floor.max_dynamic_uniform_buffers_per_pipeline_layout.into(),
        ),
    ];
    let missing: Vec<String> = pairs
        .iter()
        .filter(|(_, has, needs)| has < needs)
        .map(|(name, has, needs)| format!("{has} {name}, {needs} needed"))
        .collect();
    (!missing.is_empty()).then(|| missing.join(", "))
}

/// Refuses a caller's device that lacks WebGPU's default limits for compute.
pub(super) fn check_device(device: &wgpu::Device) -> Result<()> {
    let Some(refusal) = floor_refusal(&device.limits()) else { return Ok(()) };
    Err(Error::new(
        ErrorKind::Unsupported,
        format!("a device of {:?} has too low limits: {refusal}", device.adapter_info().name),
        "request it with wgpu::Limits::defaults() or better",
    ))
}

/// What a device can do under the masks of `options`, and what plans should know of it.
pub(super) fn caps_of(device: &wgpu::Device, options: &OpenOptions) -> Result<Caps> {
    let info = device.adapter_info();
    let own = device.limits();
    let limits = options.limits.over(&own, &format!("{:?}", info.name))?;
    let features = options.without.of(device.features());
    let software = is_software(&info);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()) as u32;
    if let Some(size) = options.play_subgroup.filter(|size| !size.is_power_of_two() || !(4..=256).contains(size)) {
        let message = format!("subgroups of {size} invocations cannot be played");
        return Err(Error::new(ErrorKind::Usage, message, "give a power of two from 4 to 256"));
    }
    let f16 = features.contains(wgpu::Features::SHADER_F16);
    let subgroups = features.contains(wgpu::Features::SUBGROUP);
    Ok(Caps {
        kind: BackendKind::Wgpu,
        api: api_name(info.backend).into(),
        driver: driver_text(&info),
        device_type: device_type(&info).into(),
        software,
        tier: if f16 || subgroups { "native" } else { "floor" }.into(),
        max_binding_bytes: limits.max_storage_buffer_binding_size.min(limits.max_buffer_size) / 16 * 16,
        max_buffer_bytes: limits.max_buffer_size / 16 * 16,
        max_workgroup_bytes: limits.max_compute_workgroup_storage_size,
        max_invocations: limits.max_compute_invocations_per_workgroup,
        max_workgroups_per_dimension: limits.max_compute_workgroups_per_dimension,
        max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
        offset_alignment: u64::from(own.min_storage_buffer_offset_alignment).max(16),
        // Enough to fill the largest cards there are; more only gives the merge more to do (measured on an H200).
        target_workgroups: if software { 4 * threads } else { 2048 },
        multiprocessors: None,
        timestamps: features.contains(wgpu::Features::TIMESTAMP_QUERY),
        f16,
        subgroups: subgroups.then_some((info.subgroup_min_size, info.subgroup_max_size)),
        played_subgroup: options.play_subgroup,
        features: features.iter_names().map(|(name, _)| name.to_lowercase()).collect(),
        masked: masked(&options.limits, options.without),
        max_submission_ms: options.max_submission_ms.unwrap_or(if software { 0 } else { 50 }),
        adapter: info.name,
    })
}

fn api_name(backend: wgpu::Backend) -> &'static str {
    match backend {
        wgpu::Backend::Vulkan => "vulkan",
        wgpu::Backend::Metal => "metal",
        wgpu::Backend::Dx12 => "dx12",
        wgpu::Backend::Gl => "gl",
        wgpu::Backend::BrowserWebGpu => "webgpu",
        wgpu::Backend::Noop => "noop",
    }
}

/// The API of that name; none for another word.
fn api_bits(name: &str) -> wgpu::Backends {
    match name {
        "vulkan" => wgpu::Backends::VULKAN,
        "metal" => wgpu::Backends::METAL,
        "dx12" => wgpu::Backends::DX12,
        "gl" => wgpu::Backends::GL,
        _ => wgpu::Backends::empty(),
    }
}

fn device_type(info: &wgpu::AdapterInfo) -> &'static str {
    if is_software(info) {
        return "software";
    }
    match info.device_type {
        wgpu::DeviceType::DiscreteGpu => "discrete",
        wgpu::DeviceType::IntegratedGpu => "integrated",
        wgpu::DeviceType::VirtualGpu => "virtual",
        _ => "other",
    }
}

fn is_software(info: &wgpu::AdapterInfo) -> bool {
    let name = info.name.to_lowercase();
    info.device_type == wgpu::DeviceType::Cpu
        || ["llvmpipe", "softpipe", "swiftshader", "basic render"].iter().any(|s| name.contains(s))
}

fn driver_text(info: &wgpu::AdapterInfo) -> String {
    format!("{} {}", info.driver, info.driver_info).trim().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(api: &str, index: usize, refusal: Option<&str>) -> AdapterReport {
        AdapterReport {
            api: api.into(),
            index,
            name: format!("card {index}"),
            driver: String::new(),
            device_type: "discrete".into(),
            software: false,
            limits: wgpu::Limits::defaults(),
            features: Vec::new(),
            refusal: refusal.map(String::from),
        }
    }

    #[test]
    fn an_absent_adapter_is_told_with_those_there_are() {
        let all = [report("vulkan", 0, None), report("vulkan", 1, Some("too old")), report("gl", 0, None)];
        for (api, index, words) in [
            ("vulkan", 99, "vulkan reaches 2, numbers 0 to 1"),
            ("vulkan", 1, "vulkan:1 cannot run the kernels: too old"),
            ("gl", 1, "gl reaches one, number 0"),
            ("metal", 0, "this machine has none that metal reaches"),
        ] {
            let error = absent(api, index, &all);
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            let asked = format!("{api}:{index}");
            for word in [words, &asked, "vulkan:0 \"card 0\" (discrete)", "refused: too old", "gl:0"] {
                assert!(error.message().contains(word), "{word:?} is not in {error}");
            }
            assert!(error.remedy().contains("--backend vulkan:0 or gl:0 or cpu"), "{error}");
        }
        let error = absent("vulkan", 0, &[]);
        assert!(error.message().contains("no adapter at all") && error.remedy().contains("--backend cpu"), "{error}");
    }
}

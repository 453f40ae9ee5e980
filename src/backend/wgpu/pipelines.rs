//! Compiled kernels, and the bind group layouts that they share.

use super::health::{full_text, scoped};
use crate::backend::{
    Access, Caps, Element, KernelDecl, PipelineId, Specialisation,
    assemble::{AssembleOptions, Module, assemble, entry_point, params_bytes},
};
use crate::error::{Error, ErrorKind, Result};
use std::collections::HashMap;

/// A compiled kernel.
pub(super) struct Pipeline {
    pub(super) decl: &'static KernelDecl,
    pub(super) pipeline: wgpu::ComputePipeline,
    /// Index of its layout.
    pub(super) layout: usize,
}

/// What a bind group must look like; kernels with equal ones share bind groups.
#[derive(Clone, PartialEq, Eq, Hash)]
struct LayoutShape {
    block_bytes: u64,
    bindings: Vec<(bool, u64)>,
}

/// A bind group layout.
pub(super) struct Layout {
    pub(super) bind_group: wgpu::BindGroupLayout,
    pipeline: wgpu::PipelineLayout,
    /// Bytes of the uniform block.
    pub(super) block_bytes: u64,
}

/// All compiled kernels of a backend.
pub(super) struct Pipelines {
    list: Vec<Pipeline>,
    by_key: HashMap<String, PipelineId>,
    layouts: Vec<Layout>,
    by_shape: HashMap<LayoutShape, usize>,
    pub(super) forbid_new: bool,
    trusted: bool,
    assembly: AssembleOptions,
}

impl Pipelines {
    pub(super) fn new(trusted: bool, assembly: AssembleOptions) -> Self {
        Pipelines {
            list: Vec::new(),
            by_key: HashMap::new(),
            layouts: Vec::new(),
            by_shape: HashMap::new(),
            forbid_new: false,
            trusted,
            assembly,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn get(&self, id: PipelineId) -> Result<&Pipeline> {
        self.list
            .get(id.0 as usize)
            .ok_or_else(|| Error::new(ErrorKind::Shape, format!("{id:?} is not a pipeline of this backend"), ""))
    }

    pub(super) fn layout(&self, at: usize) -> &Layout {
        &self.layouts[at]
    }

    pub(super) fn prepare(&mut self, device: &wgpu::Device, caps: &Caps, spec: &Specialisation) -> Result<PipelineId> {
        if let Some(&id) = self.by_key.get(spec.key()) {
            return Ok(id);
        }
        let decl = spec.decl;
        if self.forbid_new {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("pipeline made after warm-up: {}", spec.key()),
                "prepare it at load",
            ));
        }
        decl.check_size(caps.max_storage_buffers)?;
        let module = assemble(spec, &self.assembly)?;
        let layout = self.layout_for(device, decl)?;
        let pipeline = self.compile(device, decl, &module, &self.layouts[layout].pipeline, spec.key())?;
        let id = PipelineId(self.list.len() as u32);
        self.list.push(Pipeline { decl, pipeline, layout });
        self.by_key.insert(spec.key().to_string(), id);
        Ok(id)
    }

    fn compile(
        &self,
        device: &wgpu::Device,
        decl: &KernelDecl,
        module: &Module,
        layout: &wgpu::PipelineLayout,
        key: &str,
    ) -> Result<wgpu::ComputePipeline> {
        let Module { text, unzeroed, .. } = module;
        let (module, error) = scoped(device, || {
            let source = wgpu::ShaderSource::Wgsl(text.as_str().into());
            let descriptor = wgpu::ShaderModuleDescriptor { label: Some(decl.name), source };
            if self.trusted {
                let checks = wgpu::ShaderRuntimeChecks {
                    bounds_checks: false,
                    force_loop_bounding: false,
                    ..Default::default()
                };
                #[allow(unsafe_code)]
                // SAFETY: loops must end and indices stay within their arrays: the kernels' loops are counted, and
                // what they index by is the engine's own tables, whose every kernel also runs checked in tests. Who
                // sets `OpenOptions::trusted` vouches for kernels and formats from elsewhere.
                unsafe {
                    device.create_shader_module_trusted(descriptor, checks)
                }
            } else {
                device.create_shader_module(descriptor)
            }
        });
        if let Some(error) = error {
            let info = pollster::block_on(module.get_compilation_info());
            let line = info.messages.iter().find_map(|m| m.location).map(|l| l.line_number as usize);
            let at = match line.and_then(|l| text.lines().nth(l.saturating_sub(1)).map(|t| (l, t.trim()))) {
                Some((line, source)) => format!(" at line {line}, `{source}`"),
                None => String::new(),
            };
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("kernel {key} does not compile{at}: {}", full_text(&error)),
                "",
            ));
        }
        let (pipeline, error) = scoped(device, || {
            device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(decl.name),
                layout: Some(layout),
                module: &module,
                entry_point: Some(entry_point()),
                compilation_options: wgpu::PipelineCompilationOptions {
                    zero_initialize_workgroup_memory: !unzeroed,
                    ..Default::default()
                },
                cache: None,
            })
        });
        match error {
            None => Ok(pipeline),
            Some(error) => Err(Error::new(
                ErrorKind::Unsupported,
                format!("kernel {key} makes no pipeline: {}", full_text(&error)),
                "",
            )),
        }
    }

    fn layout_for(&mut self, device: &wgpu::Device, decl: &KernelDecl) -> Result<usize> {
        let element_bytes = |element: Element| match element {
            Element::U32 | Element::F32 => 4,
            Element::U32x4 | Element::F32x4 => 16,
        };
        let shape = LayoutShape {
            block_bytes: params_bytes(decl.params.len()),
            bindings: decl.bindings.iter().map(|b| (b.access == Access::Read, element_bytes(b.element))).collect(),
        };
        if let Some(&at) = self.by_shape.get(&shape) {
            return Ok(at);
        }
        let entry = |binding: u32, ty, has_dynamic_offset, bytes| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset, min_binding_size: wgpu::BufferSize::new(bytes) },
            count: None,
        };
        let mut entries = vec![entry(0, wgpu::BufferBindingType::Uniform, true, shape.block_bytes)];
        for (at, &(read_only, bytes)) in shape.bindings.iter().enumerate() {
            entries.push(entry(at as u32 + 1, wgpu::BufferBindingType::Storage { read_only }, false, bytes));
        }
        let ((bind_group, pipeline), error) = scoped(device, || {
            let bind_group = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                label: Some(decl.name),
                entries: &entries,
            });
            let pipeline = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: Some(decl.name),
                bind_group_layouts: &[Some(&bind_group)],
                immediate_size: 0,
            });
            (bind_group, pipeline)
        });
        if let Some(error) = error {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("kernel {}: its buffers make no layout: {}", decl.name, full_text(&error)),
                "",
            ));
        }
        self.layouts.push(Layout { bind_group, pipeline, block_bytes: shape.block_bytes });
        self.by_shape.insert(shape, self.layouts.len() - 1);
        Ok(self.layouts.len() - 1)
    }
}

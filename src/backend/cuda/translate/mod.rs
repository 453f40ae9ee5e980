//! WGSL as CUDA: an assembled kernel, read by naga, written for NVRTC.
//!
//! So every kernel that has a text in `shaders/` runs on CUDA too, by the same words, with every format; those that
//! gain by it have a text of their own in `cuda/`. What is read is the floor tier's text: no 16-bit floats, no
//! subgroups. The module's functions become members of one struct, which holds the buffers and the parameters.

mod expressions;
mod statements;
mod types;

use super::source::{ENTRY, Source};
use crate::backend::assemble::{AssembleOptions, assemble};
use crate::backend::{Access, BindingDecl, Element, Specialisation};
use crate::error::{Error, ErrorKind, Result};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, GlobalVariable, Handle, Module};
use std::fmt::Write as _;

const PRELUDE: &str =
    concat!(include_str!("../../../../cuda/lib/launch.cuh"), include_str!("../../../../cuda/lib/wgsl.cuh"));

/// The CUDA text of a kernel that is written in WGSL.
///
/// # Errors
/// As [`assemble`]; `Unsupported` for WGSL that this translation does not know, by name.
pub(super) fn translate(spec: &Specialisation) -> Result<Source> {
    let assembled = assemble(spec, &AssembleOptions::default())?;
    let parsed =
        naga::front::wgsl::parse_str(&assembled.text).map_err(|e| unknown(spec, e.emit_to_string(&assembled.text)))?;
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::SHADER_FLOAT16_IN_FLOAT32);
    let info = validator.validate(&parsed).map_err(|e| unknown(spec, e.emit_to_string(&assembled.text)))?;
    let writer = Writer { module: &parsed, info: &info, spec };
    writer.source(!assembled.unzeroed).map_err(|e| unknown(spec, e.0))
}

fn unknown(spec: &Specialisation, what: String) -> Error {
    Error::new(ErrorKind::Unsupported, format!("kernel {} is not translated to CUDA: {what}", spec.key()), "")
}

/// What the translation does not know.
struct Unknown(String);

impl Unknown {
    fn new(what: impl std::fmt::Debug) -> Self {
        Unknown(format!("{what:?}"))
    }
}

type Known<T> = std::result::Result<T, Unknown>;

struct Writer<'a> {
    module: &'a Module,
    info: &'a ModuleInfo,
    spec: &'a Specialisation,
}

impl Writer<'_> {
    fn source(&self, clear: bool) -> Known<Source> {
        let [entry] = self.module.entry_points.as_slice() else {
            return Err(Unknown("a module without one entry point".into()));
        };
        let mut out = String::from(PRELUDE);
        for (handle, ty) in self.module.types.iter() {
            self.structure(handle, ty, &mut out)?;
        }
        for (handle, constant) in self.module.constants.iter() {
            // Scalars stand where they are used.
            if !self.is_scalar(constant.ty) {
                let (ty, value) = (self.type_name(constant.ty)?, self.constant_expression(constant.init)?);
                let _ = writeln!(out, "__constant__ {ty} {} = {value};", constant_name(handle));
            }
        }
        for (handle, variable) in self.variables(|space| space == AddressSpace::WorkGroup) {
            let _ = writeln!(out, "__shared__ {} {};", self.type_name(variable.ty)?, self.global_name(handle));
        }
        out.push_str("struct KvKernel {\n");
        let buffers = self.buffers();
        let params = self.params()?;
        for (declaration, _) in &buffers {
            let _ = writeln!(out, "{declaration};");
        }
        if let Some((ty, name)) = &params {
            let _ = writeln!(out, "{ty} {name};");
        }
        for (handle, variable) in self.variables(|space| space == AddressSpace::Private) {
            let value = match variable.init {
                Some(init) => self.constant_expression(init)?,
                None => "{}".into(),
            };
            let _ = writeln!(out, "{} {} = {value};", self.type_name(variable.ty)?, self.global_name(handle));
        }
        for (handle, function) in self.module.functions.iter() {
            self.function(&function_name(handle), function, &self.info[handle], &mut out)?;
        }
        self.function("kv_main", &entry.function, self.info.get_entry_point(0), &mut out)?;
        out.push_str("};\n");
        self.kernel(entry, &buffers, params, clear, &mut out)?;
        Ok(Source {
            text: out,
            threads: entry.workgroup_size.iter().product(),
            shared_bytes: 0,
            overlaps: true,
            rounds_each: self.makes_codes(),
        })
    }

    /// The `__global__` function: buffers in the declaration's order, then the parameter block.
    fn kernel(
        &self,
        entry: &naga::EntryPoint,
        buffers: &[(String, String)],
        params: Option<(String, String)>,
        clear: bool,
        out: &mut String,
    ) -> Known<()> {
        let threads: u32 = entry.workgroup_size.iter().product();
        let mut arguments: Vec<String> = buffers.iter().map(|(declaration, _)| declaration.clone()).collect();
        arguments.extend(params.iter().map(|(ty, name)| format!("{ty} {name}")));
        let _ = writeln!(
            out,
            "extern \"C\" __global__ void __launch_bounds__({threads}) {ENTRY}({}) {{",
            arguments.join(", ")
        );
        // No load may come before the kernels ahead have ended: `start` is known only then.
        out.push_str("KvKernel kernel;\nconst unsigned start = kv_wait_for_others();\nkv_let_others_begin();\n");
        for (_, name) in buffers {
            let _ = writeln!(out, "kernel.{name} = {name} + start;");
        }
        if let Some((_, name)) = &params {
            let _ = writeln!(out, "kernel.{name} = {name};");
        }
        if clear {
            for (handle, _) in self.variables(|space| space == AddressSpace::WorkGroup) {
                let _ = writeln!(out, "kv_clear({});", self.global_name(handle));
            }
            out.push_str("__syncthreads();\n");
        }
        let arguments =
            entry.function.arguments.iter().map(|a| built_in(a.binding.as_ref())).collect::<Known<Vec<_>>>()?;
        let _ = writeln!(out, "kernel.kv_main({});\n}}", arguments.join(", "));
        Ok(())
    }

    fn variables(
        &self,
        of: impl Fn(AddressSpace) -> bool,
    ) -> impl Iterator<Item = (Handle<GlobalVariable>, &GlobalVariable)> {
        self.module.global_variables.iter().filter(move |(_, v)| of(v.space))
    }

    /// Declaration and name of each storage buffer, in the order of bindings.
    fn buffers(&self) -> Vec<(String, String)> {
        let mut found: Vec<(u32, String, String)> = Vec::new();
        for (handle, variable) in self.variables(|space| matches!(space, AddressSpace::Storage { .. })) {
            let Some(binding) = variable.binding else { continue };
            let Some(element) = self.element(variable.ty) else { continue };
            let read = self.is_read(handle);
            let name = self.global_name(handle);
            // Launches overlap: what is read may be written while the kernel is there, so not by loads that take it for
            // constant.
            let declaration = match read {
                true => format!("const {element}* {name}"),
                false => format!("{element}* __restrict__ {name}"),
            };
            found.push((binding.binding, declaration, name));
        }
        found.sort();
        found.into_iter().map(|(_, declaration, name)| (declaration, name)).collect()
    }

    fn params(&self) -> Known<Option<(String, String)>> {
        match self.variables(|space| space == AddressSpace::Uniform).next() {
            Some((handle, variable)) => Ok(Some((self.type_name(variable.ty)?, self.global_name(handle)))),
            None => Ok(None),
        }
    }

    /// Whether it writes pages in a format.
    fn makes_codes(&self) -> bool {
        let words =
            |b: &BindingDecl| b.access == Access::ReadWrite && matches!(b.element, Element::U32 | Element::U32x4);
        !self.spec.codecs.is_empty() && self.spec.decl.bindings.iter().any(words)
    }

    /// Whether a buffer is only read.
    fn is_read(&self, handle: Handle<GlobalVariable>) -> bool {
        let Some(binding) = self.module.global_variables[handle].binding else { return false };
        let declared = (binding.binding as usize).checked_sub(1).and_then(|at| self.spec.decl.bindings.get(at));
        declared.is_some_and(|b| b.access == Access::Read)
    }

    fn global_name(&self, handle: Handle<GlobalVariable>) -> String {
        match &self.module.global_variables[handle].name {
            Some(name) => format!("kvg_{name}"),
            None => format!("kvg_{}", handle.index()),
        }
    }
}

fn constant_name(handle: Handle<naga::Constant>) -> String {
    format!("kvc_{}", handle.index())
}

fn function_name(handle: Handle<naga::Function>) -> String {
    format!("kvf_{}", handle.index())
}

fn built_in(binding: Option<&naga::Binding>) -> Known<String> {
    use naga::BuiltIn;
    let vector = |of: &str| format!("kv_vec<unsigned, 3>{{{of}.x, {of}.y, {of}.z}}");
    match binding {
        Some(naga::Binding::BuiltIn(BuiltIn::WorkGroupId)) => Ok(vector("blockIdx")),
        Some(naga::Binding::BuiltIn(BuiltIn::NumWorkGroups)) => Ok(vector("gridDim")),
        Some(naga::Binding::BuiltIn(BuiltIn::LocalInvocationId)) => Ok(vector("threadIdx")),
        Some(naga::Binding::BuiltIn(BuiltIn::LocalInvocationIndex)) => Ok("threadIdx.x".into()),
        other => Err(Unknown::new(other)),
    }
}

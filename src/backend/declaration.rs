//! What a kernel is, said once: name, bindings, constants, and its code for each backend.

use super::cpu_call::CpuCall;
use crate::error::{Error, ErrorKind, Result};
use crate::format::Codec;
use std::fmt::Write as _;
use std::sync::Arc;

/// Most storage buffers of a kernel, and words of its parameter block after `groups`.
pub(super) const MAX_BINDINGS: usize = 8;
const MAX_PARAMS: usize = 31;

/// How a kernel uses a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read only.
    Read,
    /// Read and written.
    ReadWrite,
}

/// Element type of a storage binding, as WGSL sees it; the CPU casts its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// `array<u32>`
    U32,
    /// `array<f32>`
    F32,
    /// `array<vec4<u32>>`
    U32x4,
    /// `array<vec4<f32>>`
    F32x4,
}

impl Element {
    /// The WGSL element type.
    pub fn wgsl(self) -> &'static str {
        match self {
            Element::U32 => "u32",
            Element::F32 => "f32",
            Element::U32x4 => "vec4<u32>",
            Element::F32x4 => "vec4<f32>",
        }
    }

    /// Words of an element.
    pub fn words(self) -> usize {
        match self {
            Element::U32 | Element::F32 => 1,
            Element::U32x4 | Element::F32x4 => 4,
        }
    }
}

/// One storage buffer of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct BindingDecl {
    /// Name in the shader.
    pub name: &'static str,
    /// Read or written.
    pub access: Access,
    /// Element type.
    pub element: Element,
}

impl BindingDecl {
    /// A binding that is only read.
    pub const fn read(name: &'static str, element: Element) -> Self {
        BindingDecl { name, access: Access::Read, element }
    }

    /// A binding that is written.
    pub const fn write(name: &'static str, element: Element) -> Self {
        BindingDecl { name, access: Access::ReadWrite, element }
    }
}

/// Type of a word of the parameter block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// `u32`
    U32,
    /// `f32`, passed by its bits.
    F32,
}

/// One word of a kernel's parameter block, after the leading `groups`.
#[derive(Clone, Copy, Debug)]
pub struct ParamDecl {
    /// Name in the shader: `params.NAME`.
    pub name: &'static str,
    /// Its type.
    pub kind: ParamKind,
}

impl ParamDecl {
    /// An unsigned word.
    pub const fn u32(name: &'static str) -> Self {
        ParamDecl { name, kind: ParamKind::U32 }
    }

    /// A float word.
    pub const fn f32(name: &'static str) -> Self {
        ParamDecl { name, kind: ParamKind::F32 }
    }
}

/// A kernel: one name on every backend, and its code for each.
///
/// In WGSL the assembler writes, before the kernel's own text: the constants as `const NAME: u32|f32|bool`,
/// `struct Params { groups: u32, .. }`, `var<uniform> params` at binding 0, the storage bindings from 1 on,
/// the shared number functions, and the functions of each codec. The entry point is `main`.
/// Dispatches are one-dimensional; a backend folds them and the shader unfolds with `group_index(..)`,
/// leaving when that is not below `params.groups`.
pub struct KernelDecl {
    /// The kernel's name: label, file stem, and name in reports.
    pub name: &'static str,
    /// Storage buffers in order; at most 8.
    pub bindings: &'static [BindingDecl],
    /// Words of the parameter block after `groups`; at most 31.
    pub params: &'static [ParamDecl],
    /// Names of the constants that a specialisation must give.
    pub constants: &'static [&'static str],
    /// Prefixes of the codecs that a specialisation must give (`k`, `v`, `src`, `dst`).
    pub codecs: &'static [&'static str],
    /// The CPU's code: a real implementation, and the first to read.
    pub cpu: fn(&mut CpuCall<'_>) -> Result<()>,
    /// WGSL source, before assembly.
    pub wgsl: &'static str,
    /// CUDA source, where there is one beside the WGSL's translation.
    pub cuda: Option<CudaText>,
}

/// A kernel's own text for CUDA. The assembler writes before it: the constants, `struct Params`, the number functions,
/// and for roles `k` and `v` the formats' tiles ([`crate::format::Tiles`]) as `KeyTiles` and `ValueTiles`. It defines
/// `kvarto_kernel`, with pointers to the bindings in their order and the parameters by value. A constant `SHARED_BYTES` is
/// the shared memory that its launches ask for, beside what it declares.
#[derive(Clone, Copy)]
pub struct CudaText {
    /// The source.
    pub text: &'static str,
    /// Whether it serves a specialisation; the WGSL's translation does otherwise.
    pub serves: fn(&Specialisation) -> bool,
    /// Threads of a block, which is what `WORKGROUP` is there.
    pub threads: fn(&Specialisation) -> u32,
    /// Bytes of shared memory that a launch asks for, beside what the text declares.
    pub shared_bytes: fn(&Specialisation) -> u32,
    /// Whether it may begin before the kernel ahead of it has ended, by the rules of `cuda/lib/launch.cuh`: it waits for
    /// that one by itself, at its end where `params.beside` says that it need not wait at its beginning.
    pub overlaps: bool,
}

impl KernelDecl {
    /// Checks the number of storage buffers, 8 or `most_buffers` where that is fewer, and of parameters.
    ///
    /// # Errors
    /// `Unsupported` where there are more.
    pub(super) fn check_size(&self, most_buffers: u32) -> Result<()> {
        let most = MAX_BINDINGS.min(most_buffers as usize);
        if self.bindings.len() <= most && self.params.len() <= MAX_PARAMS {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "kernel {} has {} storage buffers and {} parameters; {most} and {MAX_PARAMS} are allowed",
                self.name,
                self.bindings.len(),
                self.params.len()
            ),
            "pack tables into one buffer",
        ))
    }
}

impl std::fmt::Debug for KernelDecl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelDecl").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A constant of a specialisation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Constant {
    /// An unsigned number.
    U32(u32),
    /// A float.
    F32(f32),
    /// A flag, for `#if` as well.
    Bool(bool),
}

impl From<u32> for Constant {
    fn from(value: u32) -> Self {
        Constant::U32(value)
    }
}

impl From<f32> for Constant {
    fn from(value: f32) -> Self {
        Constant::F32(value)
    }
}

impl From<bool> for Constant {
    fn from(value: bool) -> Self {
        Constant::Bool(value)
    }
}

/// A codec in one of a kernel's roles.
#[derive(Clone)]
pub struct CodecUse {
    /// The format's name, as in profiles.
    pub format: String,
    /// The format at the page's side and geometry.
    pub codec: Arc<dyn Codec>,
}

impl std::fmt::Debug for CodecUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.format)
    }
}

/// A kernel with its constants and codecs fixed: what a pipeline is made from.
#[derive(Clone, Debug)]
pub struct Specialisation {
    /// The kernel.
    pub decl: &'static KernelDecl,
    /// Constants, in the declaration's order.
    pub constants: Vec<(&'static str, Constant)>,
    /// Codecs, in the declaration's order.
    pub codecs: Vec<CodecUse>,
    key: String,
}

impl Specialisation {
    /// Fixes `decl`'s constants and codecs.
    ///
    /// # Errors
    /// `Shape` when a constant or codec is missing or unknown: a fault of the caller's code.
    pub fn new(
        decl: &'static KernelDecl,
        constants: &[(&'static str, Constant)],
        codecs: Vec<CodecUse>,
    ) -> Result<Self> {
        let mut ordered = Vec::with_capacity(decl.constants.len());
        for &name in decl.constants {
            match constants.iter().find(|(n, _)| *n == name) {
                Some(&(n, c)) => ordered.push((n, c)),
                None => return Err(fault(decl, format!("constant {name} is not given"))),
            }
        }
        if constants.len() != decl.constants.len() {
            return Err(fault(decl, format!("{} constants given, {} declared", constants.len(), decl.constants.len())));
        }
        if codecs.len() != decl.codecs.len() {
            return Err(fault(decl, format!("{} codecs given, {} declared", codecs.len(), decl.codecs.len())));
        }
        let mut key = decl.name.to_string();
        for (name, constant) in &ordered {
            let _ = match constant {
                Constant::U32(v) => write!(key, " {name}={v}"),
                Constant::F32(v) => write!(key, " {name}={:08x}", v.to_bits()),
                Constant::Bool(v) => write!(key, " {name}={v}"),
            };
        }
        for (prefix, codec) in decl.codecs.iter().zip(&codecs) {
            let layout = codec.codec.layout();
            let _ = write!(
                key,
                " {prefix}={}:{}:{}x{}",
                codec.format,
                layout.side.as_str(),
                layout.geometry.tokens,
                layout.geometry.head_dim
            );
        }
        Ok(Specialisation { decl, constants: ordered, codecs, key })
    }

    /// Identifies the specialisation: equal keys are one pipeline.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// A numeric constant. Panics if it is not declared as one: a fault of the kernel's own code.
    pub fn u32(&self, name: &str) -> u32 {
        match self.constant(name) {
            Constant::U32(v) => v,
            other => panic!("constant {name} of {} is {other:?}, not u32", self.decl.name),
        }
    }

    /// A numeric constant as an index.
    pub fn usize(&self, name: &str) -> usize {
        self.u32(name) as usize
    }

    /// A float constant. Panics if it is not declared as one.
    pub fn f32(&self, name: &str) -> f32 {
        match self.constant(name) {
            Constant::F32(v) => v,
            other => panic!("constant {name} of {} is {other:?}, not f32", self.decl.name),
        }
    }

    /// A flag. Panics if it is not declared as one.
    pub fn flag(&self, name: &str) -> bool {
        match self.constant(name) {
            Constant::Bool(v) => v,
            other => panic!("constant {name} of {} is {other:?}, not a flag", self.decl.name),
        }
    }

    fn constant(&self, name: &str) -> Constant {
        match self.constants.iter().find(|(n, _)| *n == name) {
            Some(&(_, c)) => c,
            None => panic!("kernel {} declares no constant {name}", self.decl.name),
        }
    }

    /// The codec in the role `prefix`. Panics if the kernel declares no such role.
    pub fn codec(&self, prefix: &str) -> &dyn Codec {
        let at = self.decl.codecs.iter().position(|p| *p == prefix);
        match at {
            Some(at) => self.codecs[at].codec.as_ref(),
            None => panic!("kernel {} declares no codec {prefix}", self.decl.name),
        }
    }
}

fn fault(decl: &KernelDecl, message: String) -> Error {
    Error::new(ErrorKind::Shape, format!("kernel {}: {message}", decl.name), "")
}

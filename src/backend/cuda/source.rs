//! The CUDA text of a specialised kernel.

use super::translate::translate;
use crate::backend::assemble::params_bytes;
use crate::backend::{Constant, CudaText, ParamKind, Specialisation};
use crate::error::{Error, ErrorKind, Result};
use crate::num::CUDA_NUMBERS;
use std::fmt::Write as _;

/// Name of every kernel's entry point: pointers to its buffers in the declaration's order, then its parameter block.
pub const ENTRY: &str = "kvarto_kernel";

/// What tiles of formats are written in.
const PRODUCTS: &str = include_str!("../../../cuda/decode/products.cuh");
const WEIGHTS: &str = include_str!("../../../cuda/decode/weights.cuh");
const PANELS: &str = include_str!("../../../cuda/tiles/panels.cuh");

/// How launches overlap.
const LAUNCH: &str = include_str!("../../../cuda/lib/launch.cuh");

/// The type that a role's tiles get.
const ROLES: [(&str, &str); 2] = [("k", "KeyTiles"), ("v", "ValueTiles")];

/// One complete CUDA source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its text, without includes.
    pub text: String,
    /// Threads of a block.
    pub threads: u32,
    /// Shared memory that a launch asks for, beside what the text declares.
    pub shared_bytes: u32,
    /// Whether it may begin before the kernel ahead of it has ended: it then waits for that by itself.
    pub overlaps: bool,
    /// Whether products and sums are each rounded, as the CPU's are: kernels that make codes are held to its bits.
    pub rounds_each: bool,
}

/// The text of `spec`: its own where it has one in `cuda/`, else its WGSL's translation.
///
/// # Errors
/// As the assembler; `Unsupported` for WGSL that the translation does not know, `Shape` for an own text that is asked for
/// what it cannot be given.
pub fn source(spec: &Specialisation) -> Result<Source> {
    match spec.decl.cuda.filter(|own| (own.serves)(spec)) {
        Some(own) => written(spec, &own),
        None => translate(spec),
    }
}

/// A kernel's own text, after what it is written against.
fn written(spec: &Specialisation, own: &CudaText) -> Result<Source> {
    let threads = (own.threads)(spec);
    let mut text = String::new();
    for &(name, constant) in &spec.constants {
        let _ = match constant {
            _ if name == "WORKGROUP" => writeln!(text, "constexpr unsigned {name} = {threads}u;"),
            Constant::U32(v) => writeln!(text, "constexpr unsigned {name} = {v}u;"),
            Constant::Bool(v) => writeln!(text, "constexpr bool {name} = {v};"),
            // Exact: every f32 is a decimal of a double.
            Constant::F32(v) => writeln!(text, "constexpr float {name} = (float){:?};", f64::from(v)),
        };
    }
    text.push_str("struct Params {\n    unsigned groups;\n");
    for param in spec.decl.params {
        let kind = match param.kind {
            ParamKind::U32 => "unsigned",
            ParamKind::F32 => "float",
        };
        let _ = writeln!(text, "    {kind} {};", param.name);
    }
    let words = params_bytes(spec.decl.params.len()) / 4;
    for pad in spec.decl.params.len() as u64 + 1..words {
        let _ = writeln!(text, "    unsigned pad_{pad};");
    }
    // Behind the block that all backends share: whether the launch stands beside the one ahead.
    text.push_str("    unsigned beside;\n};\n");
    text.push_str(LAUNCH);
    text.push_str(CUDA_NUMBERS);
    tiles(spec, &mut text)?;
    text.push_str(own.text);
    Ok(Source { text, threads, shared_bytes: (own.shared_bytes)(spec), overlaps: own.overlaps, rounds_each: false })
}

/// The formats' tiles, each text once, and their names in the kernel.
fn tiles(spec: &Specialisation, text: &mut String) -> Result<()> {
    let mut names = String::new();
    let mut texts: Vec<&str> = Vec::new();
    for (role, codec) in spec.decl.codecs.iter().zip(&spec.codecs) {
        let Some((_, name)) = ROLES.iter().find(|(known, _)| known == role) else { continue };
        let Some(tiles) = codec.codec.tiles() else {
            let message = format!("kernel {}: format {} has no tiles for role {role}", spec.decl.name, codec.format);
            return Err(Error::new(ErrorKind::Shape, message, "ask the kernel whether it fits"));
        };
        if !texts.contains(&tiles.text) {
            texts.push(tiles.text);
        }
        let _ = writeln!(names, "using {name} = {};", tiles.name);
    }
    if !texts.is_empty() {
        text.push_str(PRODUCTS);
        text.push_str(WEIGHTS);
        text.push_str(PANELS);
        texts.iter().for_each(|tiles| text.push_str(tiles));
        text.push_str(&names);
    }
    Ok(())
}

//! From a specialised kernel to one complete WGSL module.
//!
//! WGSL has no includes, and `override` cannot size a function's arrays, so constants enter as text.
//! The module is, in order: `enable` lines, the constants, `struct Params` and its uniform at binding 0,
//! the storage bindings from 1, `group_index`, the number functions, the codecs' functions, the kernel.
//!
//! A kernel's text may hold these directives, each on a line of its own:
//!
//! | directive | effect |
//! | --- | --- |
//! | `#if NAME`, `#if !NAME`, `#if NAME == 3`, `#elif ..`, `#else`, `#endif` | text for some specialisations only; `!=`, `<`, `<=`, `>`, `>=` as well |
//! | `#for NAME < COUNT`, `#endfor` | the text between, once for each number below COUNT (digits or a constant); `NAME` is a constant there |
//! | `#codec_units p` | the functions that read many values at a time in role `p` |
//! | `#include "lib/x.wgsl"` | a shared file, once |
//! | `#codec_store p` | the functions that write one token in role `p` |
//! | `#codec_encode p` | those that write a page in role `p`, and the former where there are any |
//! | `#enable f16` | an extension that the module needs: `f16` or `subgroups` |
//! | `#unzeroed` | this file writes every word of its workgroup variables before it reads it |
//!
//! Clearing workgroup memory at entry is what makes a pipeline slow to compile on some drivers. It is left out where
//! every part of the module that declares workgroup variables holds `#unzeroed` (a codec's text: `//#unzeroed`).
//!
//! `#{NAME}` anywhere in a line is replaced by the constant's value (digits without a suffix); so is `#{2*NAME+1}`.

mod claims;
mod directives;
mod expression;
mod lines;
mod poison;
#[cfg(test)]
mod tests;

use super::{Access, BindingDecl, Constant, Element, ParamKind, Specialisation};
use crate::error::{Error, ErrorKind, Result};
use crate::num::{WGSL_HADAMARD, WGSL_NUMBERS};
use claims::Claims;
use std::fmt::Write as _;

const PREAMBLE: &str = include_str!("../../../shaders/lib/preamble.wgsl");

/// Files that `#include` finds.
const LIBRARY: &[(&str, &str)] = &[
    ("lib/preamble.wgsl", PREAMBLE),
    ("lib/numbers.wgsl", WGSL_NUMBERS),
    ("lib/hadamard.wgsl", WGSL_HADAMARD),
    ("decode/logits.wgsl", include_str!("../../../shaders/decode/logits.wgsl")),
    ("decode/values.wgsl", include_str!("../../../shaders/decode/values.wgsl")),
    ("decode/vectors.wgsl", include_str!("../../../shaders/decode/vectors.wgsl")),
    ("lib/hadamard_block.wgsl", include_str!("../../../shaders/lib/hadamard_block.wgsl")),
    ("lib/map_block.wgsl", include_str!("../../../shaders/lib/map_block.wgsl")),
    ("lib/plane.wgsl", include_str!("../../../shaders/lib/plane.wgsl")),
    ("lib/reduce.wgsl", include_str!("../../../shaders/lib/reduce.wgsl")),
    ("lib/visible.wgsl", include_str!("../../../shaders/lib/visible.wgsl")),
];

/// Those that every module holds already.
const ALWAYS: [&str; 2] = ["lib/preamble.wgsl", "lib/numbers.wgsl"];

/// How to assemble, beyond what the specialisation says.
#[derive(Clone, Debug, Default)]
pub struct AssembleOptions {
    /// Extensions for `enable` lines at the top (`f16`); none within WebGPU's defaults.
    pub enables: Vec<String>,
    /// Fills every workgroup variable with NaN patterns at entry, for tests of the claim `#unzeroed`.
    pub poison_workgroup: bool,
}

/// One complete WGSL module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its text.
    pub text: String,
    /// Whether nothing reads workgroup memory that was not written before: it need not be cleared at entry.
    pub unzeroed: bool,
    /// Extensions that it uses: `f16`, which the text enables, and `subgroups`, which it does not: naga has no such line.
    pub enables: Vec<String>,
}

/// Name of the entry point that every kernel's text defines.
pub fn entry_point() -> &'static str {
    "main"
}

/// Bytes of a kernel's uniform block: `groups` and the parameters, rounded up to 16.
pub fn params_bytes(params: usize) -> u64 {
    ((params as u64 + 1) * 4).next_multiple_of(16)
}

/// The WGSL module of one specialised kernel.
///
/// # Errors
/// `Shape` for a malformed directive (kernel, line and directive are named) or a constant that WGSL cannot
/// write (an infinity or NaN), or for workgroup variables that cannot be poisoned where that is asked for;
/// `Unsupported` for `#codec_store` of a format whose tokens cannot be written alone.
pub fn assemble(spec: &Specialisation, options: &AssembleOptions) -> Result<Module> {
    let decl = spec.decl;
    let mut out = String::with_capacity(4096 + decl.wgsl.len());
    for &(name, constant) in &spec.constants {
        let line = match constant {
            Constant::U32(v) => format!("const {name}: u32 = {v}u;"),
            Constant::F32(v) => format!("const {name}: f32 = {};", f32_text(decl.name, name, v)?),
            Constant::Bool(v) => format!("const {name}: bool = {v};"),
        };
        out.push_str(&line);
        out.push('\n');
    }
    out.push_str("struct Params {\n    groups: u32,\n");
    for param in decl.params {
        let kind = match param.kind {
            ParamKind::U32 => "u32",
            ParamKind::F32 => "f32",
        };
        let _ = writeln!(out, "    {}: {kind},", param.name);
    }
    let words = params_bytes(decl.params.len()) / 4;
    for pad in decl.params.len() as u64 + 1..words {
        let _ = writeln!(out, "    pad_{pad}: u32,");
    }
    out.push_str("}\n@group(0) @binding(0) var<uniform> params: Params;\n");
    for (at, binding) in decl.bindings.iter().enumerate() {
        let access = match binding.access {
            Access::Read => "read",
            Access::ReadWrite => "read_write",
        };
        let _ = writeln!(
            out,
            "@group(0) @binding({}) var<storage, {access}> {}: array<{}>;",
            at + 1,
            binding.name,
            slab_words(spec, binding).map_or(binding.element.wgsl(), |words| match words {
                1 => "u32",
                2 => "vec2<u32>",
                _ => "vec4<u32>",
            })
        );
    }
    push_text(&mut out, PREAMBLE);
    push_text(&mut out, WGSL_NUMBERS);
    let mut claims = Claims::default();
    for (prefix, codec) in decl.codecs.iter().zip(&spec.codecs) {
        // The slab of whole pages or of first parts, and that of further parts where the kernel is given it.
        for prefix in [prefix.to_string(), format!("{prefix}1")] {
            let slab = format!("{prefix}_slab");
            if let Some(binding) = decl.bindings.iter().find(|b| b.name == slab) {
                let words = slab_words(spec, binding).unwrap_or(binding.element.words());
                let word = match words {
                    4 => "[i / 4u][i % 4u]",
                    2 => "[i / 2u][i % 2u]",
                    _ => "[i]",
                };
                let _ = writeln!(out, "fn {prefix}_word(i: u32) -> u32 {{ return {slab}{word}; }}");
            }
        }
        if decl.bindings.iter().any(|b| b.name == format!("{prefix}1_slab")) {
            let _ = writeln!(out, "var<private> {prefix}_part1: u32;");
        }
        let text = codec.codec.wgsl(prefix);
        claims.codec(&text);
        push_text(&mut out, &text);
    }
    let mut enables = options.enables.clone();
    enables.extend(directives::expand(spec, LIBRARY, &mut claims, &mut out)?);
    // naga knows subgroups by their built-ins and refuses the line; what compiles for browsers adds it.
    let lines: String = enables.iter().filter(|e| *e != "subgroups").map(|e| format!("enable {e};\n")).collect();
    out.insert_str(0, &lines);
    let text = match options.poison_workgroup {
        true => poison::poisoned(decl.name, &out)?,
        false => out,
    };
    Ok(Module { text, unzeroed: claims.hold(), enables })
}

/// Words of an element of a slab that is read by units: as the codec has it. `None` for every other binding.
fn slab_words(spec: &Specialisation, binding: &BindingDecl) -> Option<usize> {
    let prefix = binding.name.strip_suffix("_slab").filter(|_| binding.element == Element::U32x4)?;
    let role = spec.decl.codecs.iter().position(|role| *role == prefix)?;
    Some(spec.codecs[role].codec.wgsl_units(prefix).words)
}

fn push_text(out: &mut String, text: &str) {
    out.push_str(text);
    if !text.is_empty() && !text.ends_with('\n') {
        out.push('\n');
    }
}

/// A decimal that every WGSL compiler reads back as `value`.
///
/// The shortest decimal of the value as an f64: compilers read literals without a suffix as f64 and round to
/// f32 after, and the shortest decimal of an f32 could be rounded twice on that way.
fn f32_text(kernel: &str, name: &str, value: f32) -> Result<String> {
    if !value.is_finite() {
        return Err(Error::new(
            ErrorKind::Shape,
            format!("kernel {kernel}: constant {name} is {value}, which WGSL has no literal for"),
            "pass it as a parameter, or as a flag",
        ));
    }
    Ok(format!("{:?}", f64::from(value)))
}

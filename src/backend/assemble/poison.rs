//! A prologue that fills every workgroup variable with NaN patterns: a kernel that reads what it did not write then
//! computes with them, and a test sees it.
//!
//! It works on the text of a finished module, and knows the declarations that the kernels use: numbers, vectors,
//! atomics, structs and aliases of them, and arrays of those.

use super::entry_point;
use crate::error::{Error, ErrorKind, Result};
use std::fmt::Write as _;

/// `text` with the prologue at the start of its entry point; as it was where there are no workgroup variables.
///
/// # Errors
/// `Shape` for a declaration or an entry point that this cannot read.
pub(super) fn poisoned(kernel: &str, text: &str) -> Result<String> {
    let module = Text { kernel, text };
    let variables = module.variables()?;
    if variables.is_empty() {
        return Ok(text.to_string());
    }
    let entry = format!("fn {}(", entry_point());
    let (_, from_entry) = text.split_once(&entry).ok_or_else(|| module.unread("its entry point", &entry))?;
    let (parameters, body) = from_entry.split_once("{\n").ok_or_else(|| module.unread("its entry point", "no body"))?;
    let thread = parameters
        .split_once("@builtin(local_invocation_index)")
        .and_then(|(_, rest)| rest.trim_start().split_once(':'))
        .ok_or_else(|| module.unread("its entry point", "no local_invocation_index"))?
        .0;
    let threads = text
        .split_once("@workgroup_size(")
        .and_then(|(_, rest)| rest.split_once(')'))
        .ok_or_else(|| module.unread("its entry point", "no workgroup_size"))?
        .0;
    // All ones, in a form that no compiler can fold into a constant NaN, which WGSL refuses.
    let mut prologue = String::from("    let poison_word = params.groups | 0xffffffffu;\n");
    for (name, kind) in variables {
        match array(kind) {
            Some((element, count)) => {
                let stores = module.stores(&format!("{name}[poison_at]"), element)?;
                let _ = writeln!(
                    prologue,
                    "    for (var poison_at = {thread}; poison_at < {count}; poison_at += {threads}) {{ {stores} }}"
                );
            }
            None => {
                let _ = writeln!(prologue, "    if ({thread} == 0u) {{ {} }}", module.stores(name, kind)?);
            }
        }
    }
    prologue.push_str("    workgroupBarrier();\n");
    let body_at = text.len() - body.len();
    Ok(format!("{}{prologue}{body}", &text[..body_at]))
}

/// Element and count of `array<ELEMENT, COUNT>`.
fn array(kind: &str) -> Option<(&str, &str)> {
    let (element, count) = kind.strip_prefix("array<")?.strip_suffix('>')?.rsplit_once(',')?;
    Some((element.trim(), count.trim()))
}

struct Text<'a> {
    kernel: &'a str,
    text: &'a str,
}

impl<'a> Text<'a> {
    /// Name and type of each workgroup variable.
    fn variables(&self) -> Result<Vec<(&'a str, &'a str)>> {
        let lines = self.text.lines().filter(|line| super::claims::declares(line));
        lines
            .map(|line| {
                line.trim()
                    .strip_prefix("var<workgroup> ")
                    .and_then(|rest| rest.split_once(';')?.0.split_once(": "))
                    .ok_or_else(|| self.unread("the declaration", line))
            })
            .collect()
    }

    /// Statements that fill `place`, of type `kind`.
    fn stores(&self, place: &str, kind: &str) -> Result<String> {
        match kind {
            "atomic<u32>" => Ok(format!("atomicStore(&{place}, poison_word);")),
            _ => Ok(format!("{place} = {};", self.value(kind)?)),
        }
    }

    /// A value of type `kind` of all ones.
    fn value(&self, kind: &str) -> Result<String> {
        if let Some(scalar) = ["vec2<", "vec3<", "vec4<"].iter().find_map(|v| kind.strip_prefix(v)?.strip_suffix('>')) {
            return Ok(format!("{kind}({})", self.value(scalar)?));
        }
        match kind {
            "u32" => Ok("poison_word".into()),
            "f16" => Ok("f16(bitcast<f32>(poison_word))".into()),
            "f32" | "i32" => Ok(format!("bitcast<{kind}>(poison_word)")),
            _ => self.named(kind),
        }
    }

    /// A value of an alias or a struct.
    fn named(&self, kind: &str) -> Result<String> {
        if let Some((_, rest)) = self.text.split_once(&format!("alias {kind} = "))
            && let Some((target, _)) = rest.split_once(';')
        {
            return self.value(target);
        }
        let Some((_, rest)) = self.text.split_once(&format!("struct {kind} {{")) else {
            return Err(self.unread("the type", kind));
        };
        let fields = rest.split('}').next().unwrap_or_default().split(",\n");
        let values: Vec<String> = fields
            .filter_map(|field| field.split_once(':'))
            .map(|(_, kind)| self.value(kind.trim()))
            .collect::<Result<_>>()?;
        Ok(format!("{kind}({})", values.join(", ")))
    }

    fn unread(&self, what: &str, found: &str) -> Error {
        Error::new(
            ErrorKind::Shape,
            format!("kernel {}: {what} is not one that poisoning can read: `{}`", self.kernel, found.trim()),
            "write it as the other kernels do, or leave poisoning off",
        )
    }
}

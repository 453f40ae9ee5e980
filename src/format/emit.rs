//! A layout's positions as shader text.

use std::fmt::Write;

use super::{Expr, Layout, Per};

/// WGSL `fn {prefix}_{plane}_word(t: u32, c: u32) -> u32` and `…_shift` for every plane, and the
/// same for every plane of scalars, with `t` alone unless it is of blocks. Words count from the page's first.
pub fn wgsl_positions(layout: &Layout, prefix: &str) -> String {
    each_function(layout, |plane, what, with_c, e| {
        let parameters = if with_c { "t: u32, c: u32" } else { "t: u32" };
        format!("fn {prefix}_{plane}_{what}({parameters}) -> u32 {{ return {}; }}\n", e.wgsl())
    })
}

/// The same functions as CUDA text that is also C; needs [`CUDA_NUMBERS`](crate::num::CUDA_NUMBERS).
pub fn c_positions(layout: &Layout, prefix: &str) -> String {
    each_function(layout, |plane, what, with_c, e| {
        let (parameters, unused) =
            if with_c { ("unsigned t, unsigned c", "(void)t; (void)c; ") } else { ("unsigned t", "(void)t; ") };
        format!("KV_FN unsigned {prefix}_{plane}_{what}({parameters}) {{ {unused}return {}; }}\n", e.c())
    })
}

/// Calls `print(plane, "word" or "shift", takes a channel, expression)` for every function.
fn each_function(layout: &Layout, print: impl Fn(&str, &str, bool, &Expr) -> String) -> String {
    let mut text = String::new();
    let planes = layout.planes.iter().map(|p| (p.name, true, p.offset_words, &p.word, &p.shift));
    let scalars =
        layout.scalars.iter().map(|s| (s.name, matches!(s.per, Per::Block(_)), s.offset_words, &s.word, &s.shift));
    for (name, with_c, offset, word, shift) in planes.chain(scalars) {
        let word = word.clone() + offset as u32;
        // Writing to a String cannot fail.
        let _ = write!(text, "{}{}", print(name, "word", with_c, &word), print(name, "shift", with_c, shift));
    }
    text
}

/// `text` with every `{p}` replaced by `prefix` and every other `{name}` by its value in `values`.
///
/// Shader text is full of braces, which `format!` would want doubled.
pub fn fill(text: &str, prefix: &str, values: &[(&str, String)]) -> String {
    let mut text = text.replace("{p}", prefix);
    for (name, value) in values {
        text = text.replace(&format!("{{{name}}}"), value);
    }
    text
}

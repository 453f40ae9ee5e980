//! A profile as the text of its file.

use super::Profile;
use crate::parameters::{Parameters, Value};
use std::fmt::Write;

impl Profile {
    /// The profile as a TOML file that reads back as the same profile.
    pub fn to_toml(&self) -> String {
        let mut out = String::from("schema = 1\n");
        let mut line = |key: &str, value: &str| {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{key} = {value}");
        };
        line("name", &quoted(&self.name));
        for (key, text) in [("source", &self.source), ("summary", &self.summary)] {
            if !text.is_empty() {
                line(key, &quoted(text));
            }
        }
        line("\n[kv]\nk", &quoted(&self.k));
        line("v", &quoted(&self.v));
        line("page_tokens", &self.page_tokens.to_string());
        line("exact_sink_tokens", &self.exact_sink_tokens.to_string());
        line("exact_tail_tokens", &self.exact_tail_tokens.to_string());
        match (&self.k_basis, &self.v_basis) {
            (None, None) => {}
            (Some(k), Some(v)) if k == v => line("basis", &quoted(k)),
            (k, v) => {
                for (key, word) in [("basis.k", k), ("basis.v", v)] {
                    if let Some(word) = word {
                        line(key, &quoted(word));
                    }
                }
            }
        }
        let mut section = |key: &str, name: &str, parameters: &Parameters| {
            line(&format!("\n[{key}]\nname"), &quoted(name));
            for (name, value) in parameters.iter() {
                line(&key_of(name), &toml(value));
            }
        };
        section("selector", &self.selector, &self.selector_parameters);
        section("policy", &self.policy, &self.policy_parameters);
        for over in &self.overrides {
            line("\n[[override]]\nlayers", &quoted(&over.layers.to_string()));
            line("heads", &quoted(&over.heads.to_string()));
            for (key, format) in [("kv.k", &over.k), ("kv.v", &over.v)] {
                if let Some(format) = format {
                    line(key, &quoted(format));
                }
            }
        }
        out
    }
}

/// A value as TOML writes it.
fn toml(value: &Value) -> String {
    match value {
        Value::Text(text) => quoted(text),
        Value::Integer(n) => n.to_string(),
        // `{:?}` keeps the point, and reads back bit for bit.
        Value::Number(x) => format!("{x:?}"),
        Value::Flag(flag) => flag.to_string(),
        Value::List(items) => format!("[{}]", items.iter().map(toml).collect::<Vec<_>>().join(", ")),
    }
}

fn key_of(name: &str) -> String {
    let bare = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if bare { name.into() } else { quoted(name) }
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out + "\""
}

//! From the tree of a profile's file to a profile: every key known, every name resolved, every value in range.

use super::tree::{Entry, Node, Table};
use super::{Names, Override, Profile, Ranges};
use crate::basis::BasisChoice;
use crate::error::Result;
use crate::format::words;
use crate::parameters::{Parameters, Place, Value};
use crate::shape::PAGE_TOKENS;

/// Tokens that a sequence can hold.
const MOST_TOKENS: usize = 1 << 30;

/// Reads the whole file.
pub(super) fn profile(root: &Table, names: &Names<'_>) -> Result<Profile> {
    check(root, &["schema", "name", "source", "summary", "kv", "selector", "policy", "override"])?;
    match required(root, "schema")? {
        (Value::Integer(1), _) => {}
        (_, place) => return Err(place.refuse("this schema is not known", "write schema = 1")),
    }
    let kv = section(root, "kv")?.ok_or_else(|| root.place.refuse("no [kv] in it", "add [kv] with k and v"))?;
    check(kv, &["k", "v", "page_tokens", "exact_sink_tokens", "exact_tail_tokens", "basis"])?;
    let mut profile = Profile::formats(&format(kv, "k", names)?, &format(kv, "v", names)?);
    profile.name = text(required(root, "name")?)?;
    if profile.name.is_empty() {
        return Err(required(root, "name")?.1.refuse("the name is empty", "give one"));
    }
    profile.source = optional(root, "source")?.map(text).transpose()?.unwrap_or_default();
    profile.summary = optional(root, "summary")?.map(text).transpose()?.unwrap_or_default();
    if let Some(found) = optional(kv, "page_tokens")? {
        profile.page_tokens = count("page_tokens", found)?;
        if !PAGE_TOKENS.contains(&profile.page_tokens) {
            let message = format!("page_tokens is {}", profile.page_tokens);
            return Err(found.1.refuse(message, "use 16, 32, 64 or 128"));
        }
    }
    for (key, tokens) in
        [("exact_sink_tokens", &mut profile.exact_sink_tokens), ("exact_tail_tokens", &mut profile.exact_tail_tokens)]
    {
        if let Some(found) = optional(kv, key)? {
            *tokens = count(key, found)?;
        }
    }
    (profile.k_basis, profile.v_basis) = bases(kv)?;
    (profile.selector, profile.selector_parameters) =
        named(root, "selector", "dense", names.selectors.names().collect())?;
    (profile.policy, profile.policy_parameters) = named(root, "policy", "keep", names.policies.names().collect())?;
    profile.overrides = overrides(root, names)?;
    // Made once to be checked, and asked for the values that were left out.
    profile.resolve(names)
}

/// Refuses keys that are not known.
fn check(table: &Table, known: &[&str]) -> Result<()> {
    match table.entries.iter().find(|e| !known.contains(&e.key.as_str())) {
        None => Ok(()),
        Some(Entry { key, at, .. }) => {
            Err(at.refuse(format!("no key is named {key:?} here"), words::suggest(key, known.iter().copied())))
        }
    }
}

fn optional<'a>(table: &'a Table, key: &str) -> Result<Option<(&'a Value, &'a Place)>> {
    match table.get(key) {
        None => Ok(None),
        Some(Entry { node: Node::Value(value, place), .. }) => Ok(Some((value, place))),
        Some(Entry { node, at, .. }) => Err(at.refuse(format!("{key} is {}", node.kind()), "give one value")),
    }
}

fn required<'a>(table: &'a Table, key: &str) -> Result<(&'a Value, &'a Place)> {
    optional(table, key)?.ok_or_else(|| table.place.refuse(format!("{key} is missing"), format!("add {key} = …")))
}

fn section<'a>(table: &'a Table, key: &str) -> Result<Option<&'a Table>> {
    match table.get(key) {
        None => Ok(None),
        Some(Entry { node: Node::Table(table), .. }) => Ok(Some(table)),
        Some(Entry { node, at, .. }) => Err(at.refuse(format!("{key} is {}", node.kind()), format!("write [{key}]"))),
    }
}

fn text((value, place): (&Value, &Place)) -> Result<String> {
    match value {
        Value::Text(text) => Ok(text.clone()),
        other => Err(place.refuse(format!("{} stands there", other.kind()), "give a text in quotes")),
    }
}

fn count(key: &str, (value, place): (&Value, &Place)) -> Result<usize> {
    let remedy = || format!("give a whole number from 0 to {MOST_TOKENS}");
    match *value {
        Value::Integer(n) => match usize::try_from(n) {
            Ok(n) if n <= MOST_TOKENS => Ok(n),
            _ => Err(place.refuse(format!("{key} is {n}, out of range"), remedy())),
        },
        ref other => Err(place.refuse(format!("{key} is {}", other.kind()), remedy())),
    }
}

fn format(table: &Table, key: &str, names: &Names<'_>) -> Result<String> {
    let (value, place) = required(table, key)?;
    let word = text((value, place))?;
    names.formats.by_name(&word).map_err(|e| place.of(e))?;
    Ok(word)
}

/// One word for both sides, or a table with `k` and `v`; what is left out is the formats' preference.
fn bases(kv: &Table) -> Result<(Option<String>, Option<String>)> {
    let read = |found: (&Value, &Place)| -> Result<String> {
        let word = text(found)?;
        BasisChoice::parse(&word).map_err(|e| found.1.of(e))?;
        Ok(word)
    };
    if let Some(Entry { node: Node::Table(sides), .. }) = kv.get("basis") {
        check(sides, &["k", "v"])?;
        let side = |key: &str| optional(sides, key)?.map(read).transpose();
        return Ok((side("k")?, side("v")?));
    }
    let both = optional(kv, "basis")?.map(read).transpose()?;
    Ok((both.clone(), both))
}

/// A section's name, and its other keys as parameters.
fn named(root: &Table, key: &str, default: &str, known: Vec<&str>) -> Result<(String, Parameters)> {
    let mut parameters = Parameters::default();
    let Some(table) = section(root, key)? else { return Ok((default.into(), parameters)) };
    let (value, place) = required(table, "name")?;
    let name = text((value, place))?;
    if !known.contains(&name.as_str()) {
        return Err(place.refuse(format!("no {key} is named {name:?}"), words::suggest(&name, known.into_iter())));
    }
    for entry in table.entries.iter().filter(|e| e.key != "name") {
        match &entry.node {
            Node::Value(value, place) => parameters.put(&entry.key, value.clone(), place.clone()),
            other => {
                let message = format!("{} is {}", entry.key, other.kind());
                return Err(entry.at.refuse(message, "parameters are texts, numbers, true or false, or lists"));
            }
        }
    }
    Ok((name, parameters))
}

fn overrides(root: &Table, names: &Names<'_>) -> Result<Vec<Override>> {
    let tables = match root.get("override") {
        None => return Ok(Vec::new()),
        Some(Entry { node: Node::Tables(tables), .. }) => tables,
        Some(Entry { node: Node::Value(Value::List(items), _), .. }) if items.is_empty() => return Ok(Vec::new()),
        Some(Entry { node, at, .. }) => {
            return Err(at.refuse(format!("override is {}", node.kind()), "write [[override]]"));
        }
    };
    let ranges = |table: &Table, key: &str| -> Result<Option<Ranges>> {
        let Some((value, place)) = optional(table, key)? else { return Ok(None) };
        let read = match value {
            Value::Integer(n) => Ranges::parse(&n.to_string()),
            _ => Ranges::parse(&text((value, place))?),
        };
        read.map(Some).map_err(|what| place.refuse(what, "write \"0..2,-2..\", or \"*\" for all"))
    };
    let mut read = Vec::new();
    for table in tables {
        check(table, &["layers", "heads", "kv"])?;
        let (layers, heads) = (ranges(table, "layers")?, ranges(table, "heads")?);
        if layers.is_none() && heads.is_none() {
            return Err(table.place.refuse("the override says neither layers nor heads", "add layers = \"0..2\""));
        }
        let kv = section(table, "kv")?;
        let side = |key: &str| -> Result<Option<String>> {
            let Some(kv) = kv else { return Ok(None) };
            check(kv, &["k", "v"])?;
            kv.get(key).map(|_| format(kv, key, names)).transpose()
        };
        let (k, v) = (side("k")?, side("v")?);
        if k.is_none() && v.is_none() {
            return Err(table.place.refuse("the override changes nothing", "add kv.k or kv.v"));
        }
        let all = |ranges: Option<Ranges>| ranges.unwrap_or_else(Ranges::all);
        read.push(Override { layers: all(layers), heads: all(heads), k, v });
    }
    Ok(read)
}

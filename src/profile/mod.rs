//! Profiles: what a cache does, as a file. Formats, basis, selector and policy by name, with their parameters.

pub mod builtin;
mod draft;
mod print;
mod ranges;
mod read;
mod tree;

pub use draft::{Draft, Setting};
pub use ranges::Ranges;

use crate::error::{Error, ErrorKind, Result};
use crate::format::FormatRegistry;
use crate::parameters::Parameters;
use crate::policy::{Policy, PolicyRegistry};
use crate::select::{Selector, SelectorRegistry};
use std::sync::Arc;

/// What names in a profile may stand for.
#[derive(Clone, Copy)]
pub struct Names<'a> {
    /// Page formats.
    pub formats: &'a FormatRegistry,
    /// Selectors.
    pub selectors: &'a SelectorRegistry,
    /// Policies.
    pub policies: &'a PolicyRegistry,
}

/// What a maker of a selector or policy is given.
#[derive(Clone, Copy)]
pub struct Making<'a> {
    /// Its parameters.
    pub parameters: &'a Parameters,
    /// K format of sealed pages.
    pub k: &'a str,
    /// V format of sealed pages.
    pub v: &'a str,
    /// Formats that parameters may name.
    pub formats: &'a FormatRegistry,
}

/// What a cache does, by names that a [`Registry`](crate::engine::Registry) resolves.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The profile's name; `ad-hoc` for one made from flags.
    pub name: String,
    /// Where the idea comes from, such as `arXiv 2608.23834`; may be empty.
    pub source: String,
    /// One line on what it does; may be empty.
    pub summary: String,
    /// Format of the K side of sealed pages.
    pub k: String,
    /// Format of the V side of sealed pages.
    pub v: String,
    /// Tokens of a page. An engine takes them from its shape; this is what shapes are made with.
    pub page_tokens: usize,
    /// Tokens from the sequence's start whose pages stay at 16 bits.
    pub exact_sink_tokens: usize,
    /// Newest tokens whose pages stay at 16 bits.
    pub exact_tail_tokens: usize,
    /// Basis of the K side; `None` takes the format's preference.
    pub k_basis: Option<String>,
    /// Basis of the V side; `None` takes the format's preference.
    pub v_basis: Option<String>,
    /// Which pages a step reads.
    pub selector: String,
    /// The selector's own parameters.
    pub selector_parameters: Parameters,
    /// What becomes of sealed pages.
    pub policy: String,
    /// The policy's own parameters.
    pub policy_parameters: Parameters,
    /// Layers or heads with formats of their own; later entries win.
    pub overrides: Vec<Override>,
}

/// Formats of some layers and heads.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// Model layers.
    pub layers: Ranges,
    /// KV heads.
    pub heads: Ranges,
    /// K format of their sealed pages, if another.
    pub k: Option<String>,
    /// V format of their sealed pages, if another.
    pub v: Option<String>,
}

/// A KV head of a model's layer: their numbers and how many there are of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Model layer.
    pub layer: usize,
    /// Layers of the model.
    pub layers: usize,
    /// KV head.
    pub head: usize,
    /// KV heads of the layer.
    pub heads: usize,
}

impl Profile {
    /// `k` and `v` in sealed pages, the first 64 and the newest 128 tokens exact, dense selection.
    pub fn formats(k: &str, v: &str) -> Self {
        Profile {
            name: "ad-hoc".into(),
            source: String::new(),
            summary: String::new(),
            k: k.into(),
            v: v.into(),
            page_tokens: 64,
            exact_sink_tokens: 64,
            exact_tail_tokens: 128,
            k_basis: None,
            v_basis: None,
            selector: "dense".into(),
            selector_parameters: Parameters::default(),
            policy: "keep".into(),
            policy_parameters: Parameters::default(),
            overrides: Vec::new(),
        }
    }

    /// 16-bit pages everywhere.
    pub fn dense() -> Self {
        Profile { name: "dense".into(), ..Profile::formats("f16", "f16") }
    }

    /// Reads `f16`, or `k=fp8,v=tq3` (either side alone leaves the other at f16).
    ///
    /// # Errors
    /// `Usage` naming the word that is not understood and the formats there are.
    pub fn parse_kv(text: &str, formats: &FormatRegistry) -> Result<Self> {
        let bad = |what: String| {
            let names: Vec<&str> = formats.iter().map(|(_, f)| f.name()).collect();
            Error::new(
                ErrorKind::Usage,
                format!("--kv {text}: {what}"),
                format!("write a format, or k=FORMAT,v=FORMAT; formats: {}", names.join(", ")),
            )
        };
        let check = |word: &str| formats.by_name(word).map(|_| word.to_string()).map_err(|e| bad(e.message().into()));
        if !text.contains('=') {
            let name = check(text.trim())?;
            return Ok(Profile::formats(&name, &name));
        }
        let (mut k, mut v) = (None, None);
        for part in text.split(',') {
            let (side, word) = part.split_once('=').ok_or_else(|| bad(format!("{part:?} is not SIDE=FORMAT")))?;
            let place = match side.trim() {
                "k" => &mut k,
                "v" => &mut v,
                other => return Err(bad(format!("{other:?} is not a side (k or v)"))),
            };
            if place.replace(check(word.trim())?).is_some() {
                return Err(bad(format!("side {} is given twice", side.trim())));
            }
        }
        Ok(Profile::formats(k.as_deref().unwrap_or("f16"), v.as_deref().unwrap_or("f16")))
    }

    /// Reads the text of a profile's file; `file` is how errors name it.
    ///
    /// # Errors
    /// As [`Draft::parse`] and [`Draft::read`].
    pub fn parse(text: &str, file: &str, names: &Names<'_>) -> Result<Self> {
        Draft::parse(text, file)?.read(names)
    }

    /// A profile that comes with the crate, by its name, or any file, by its path.
    ///
    /// # Errors
    /// As [`Draft::load`] and [`Draft::read`].
    pub fn load(word: &str, names: &Names<'_>) -> Result<Self> {
        Draft::load(word)?.read(names)
    }

    /// Formats (K, V) of the sealed pages of a layer's KV head.
    pub fn formats_of(&self, head: Head) -> (&str, &str) {
        let mut formats = (self.k.as_str(), self.v.as_str());
        for over in self.overrides_of(head) {
            formats.0 = over.k.as_deref().unwrap_or(formats.0);
            formats.1 = over.v.as_deref().unwrap_or(formats.1);
        }
        formats
    }

    /// Formats (K, V) of the open pages of a layer's KV head: 16 bits, or `f32` where a head of the layer seals to it,
    /// since rows are appended to all heads of a layer alike.
    pub fn open_formats_of(&self, head: Head) -> (&'static str, &'static str) {
        let wide =
            |side: fn((&str, &str)) -> bool| (0..head.heads).any(|h| side(self.formats_of(Head { head: h, ..head })));
        let open = |wide: bool| if wide { "f32" } else { "f16" };
        (open(wide(|f| f.0 == "f32")), open(wide(|f| f.1 == "f32")))
    }

    /// Whether an override names a layer's KV head: policies do not convert its pages.
    pub fn overridden(&self, head: Head) -> bool {
        self.overrides_of(head).next().is_some()
    }

    fn overrides_of(&self, at: Head) -> impl Iterator<Item = &Override> {
        let covers = move |o: &&Override| o.layers.contains(at.layer, at.layers) && o.heads.contains(at.head, at.heads);
        self.overrides.iter().filter(covers)
    }

    /// The selector that the profile names, made with its parameters.
    ///
    /// # Errors
    /// `Usage` for an unknown name, or a parameter that the selector refuses.
    pub fn make_selector(&self, names: &Names<'_>) -> Result<Arc<dyn Selector>> {
        names.selectors.make(&self.selector, &self.making(&self.selector_parameters, names))
    }

    /// The policy that the profile names, made with its parameters.
    ///
    /// # Errors
    /// `Usage` for an unknown name, or a parameter that the policy refuses.
    pub fn make_policy(&self, names: &Names<'_>) -> Result<Box<dyn Policy>> {
        names.policies.make(&self.policy, &self.making(&self.policy_parameters, names))
    }

    fn making<'a>(&'a self, parameters: &'a Parameters, names: &Names<'a>) -> Making<'a> {
        Making { parameters, k: &self.k, v: &self.v, formats: names.formats }
    }

    /// The same with every parameter that was left out.
    ///
    /// # Errors
    /// As [`Profile::make_selector`] and [`Profile::make_policy`].
    pub fn resolve(mut self, names: &Names<'_>) -> Result<Self> {
        self.selector_parameters = self.make_selector(names)?.parameters();
        self.policy_parameters = self.make_policy(names)?.parameters();
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_read_apart() {
        let formats = FormatRegistry::builtin();
        if formats.by_name("f16").is_err() {
            return;
        }
        let p = Profile::parse_kv("k=f16,v=f16", &formats).unwrap();
        assert_eq!((p.k.as_str(), p.v.as_str()), ("f16", "f16"));
        for bad in ["", "k=", "k=f16,k=f16", "x=f16", "nonsense", "k=f16;v=f16"] {
            let error = Profile::parse_kv(bad, &formats).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage, "{bad}");
        }
    }

    #[test]
    fn later_overrides_win() {
        let mut p = Profile::formats("tq3", "tq3");
        let all = Ranges::all;
        p.overrides = vec![
            Override { layers: (0..4).into(), heads: all(), k: Some("fp8".into()), v: None },
            Override { layers: (2..3).into(), heads: all(), k: Some("f16".into()), v: Some("fp8".into()) },
            Override { layers: all(), heads: Ranges::parse("-1").unwrap(), k: None, v: Some("tq4".into()) },
        ];
        let of = |layer, head| p.formats_of(Head { layer, layers: 12, head, heads: 2 });
        assert_eq!(of(0, 0), ("fp8", "tq3"));
        assert_eq!(of(2, 0), ("f16", "fp8"));
        assert_eq!(of(2, 1), ("f16", "tq4"));
        assert_eq!(of(9, 0), ("tq3", "tq3"));
        assert_eq!(of(9, 1), ("tq3", "tq4"));
        assert!(!p.overridden(Head { layer: 9, layers: 12, head: 0, heads: 2 }));
    }
}

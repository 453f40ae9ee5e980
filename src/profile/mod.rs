//! Profiles: which formats, basis, selector and policy a cache uses.

use crate::error::{Error, ErrorKind, Result};
use crate::format::FormatRegistry;

/// What a cache does, by names that a [`Registry`](crate::engine::Registry) resolves.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The profile's name; `ad-hoc` for one made from flags.
    pub name: String,
    /// Format of the K side of sealed pages.
    pub k: String,
    /// Format of the V side of sealed pages.
    pub v: String,
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
    /// What becomes of sealed pages.
    pub policy: String,
    /// Layers with formats of their own; later entries win.
    pub overrides: Vec<Override>,
}

/// Formats of some layers.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// Model layers, half-open.
    pub layers: std::ops::Range<usize>,
    /// K format of these layers' sealed pages, if another.
    pub k: Option<String>,
    /// V format of these layers' sealed pages, if another.
    pub v: Option<String>,
}

impl Profile {
    /// `k` and `v` in sealed pages, the first 64 and the newest 128 tokens exact, dense selection.
    pub fn formats(k: &str, v: &str) -> Self {
        Profile {
            name: "ad-hoc".into(),
            k: k.into(),
            v: v.into(),
            exact_sink_tokens: 64,
            exact_tail_tokens: 128,
            k_basis: None,
            v_basis: None,
            selector: "dense".into(),
            policy: "keep".into(),
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

    /// Formats (K, V) of a model layer's sealed pages.
    pub fn layer_formats(&self, layer: usize) -> (&str, &str) {
        let mut formats = (self.k.as_str(), self.v.as_str());
        for over in self.overrides.iter().filter(|o| o.layers.contains(&layer)) {
            formats.0 = over.k.as_deref().unwrap_or(formats.0);
            formats.1 = over.v.as_deref().unwrap_or(formats.1);
        }
        formats
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
        p.overrides = vec![
            Override { layers: 0..4, k: Some("fp8".into()), v: None },
            Override { layers: 2..3, k: Some("f16".into()), v: Some("fp8".into()) },
        ];
        assert_eq!(p.layer_formats(0), ("fp8", "tq3"));
        assert_eq!(p.layer_formats(2), ("f16", "fp8"));
        assert_eq!(p.layer_formats(9), ("tq3", "tq3"));
    }
}

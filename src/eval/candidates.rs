//! Words for the profiles of a comparison.

use super::runner::Candidate;
use crate::engine::Registry;
use crate::error::Result;
use crate::profile::{Draft, Profile, Setting};
use std::path::Path;

/// Marks formats without a profile.
const FORMATS: &str = "kv:";

impl Candidate {
    /// Reads a profile's name or file, or `kv:FORMAT`, `kv:K/V`, `kv:k=FORMAT,v=FORMAT`; after it `@BASIS`, and any number of
    /// `+KEY=VALUE`. `sets` are further settings, which come before those of the word. The word is the label.
    ///
    /// # Errors
    /// `Usage` naming what is not understood; `File` for a file that cannot be read.
    pub fn parse(word: &str, sets: &[String], registry: &Registry) -> Result<Self> {
        // A path may hold any character: what exists is a path.
        let (head, own) = match Path::new(word).exists() {
            true => (word, Vec::new()),
            false => {
                let mut parts = word.split('+');
                (parts.next().unwrap_or_default(), parts.map(String::from).collect())
            }
        };
        let (base, basis) = match head.rsplit_once('@').filter(|_| !Path::new(head).exists()) {
            Some((base, basis)) => (base, Some(basis)),
            None => (head, None),
        };
        let mut draft = match base.strip_prefix(FORMATS) {
            Some(formats) => {
                let formats = match formats.split_once('/') {
                    Some((k, v)) => format!("k={k},v={v}"),
                    None => formats.to_string(),
                };
                Draft::of(&Profile::parse_kv(&formats, &registry.formats)?, word)?
            }
            None => Draft::load(base)?,
        };
        let basis = basis.map(|basis| format!("kv.basis={basis}"));
        for setting in sets.iter().chain(basis.iter()).chain(own.iter()) {
            draft.set(&Setting::parse(setting)?)?;
        }
        // Every parameter spelled out: a later version's other default must not pass for the same profile.
        let profile = draft.read(&registry.names())?.resolve(&registry.names())?;
        Ok(Candidate { label: word.into(), profile, calibrations: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn words_name_profiles_formats_bases_and_settings() {
        let registry = Registry::builtin();
        let read = |word: &str, sets: &[&str]| {
            let sets: Vec<String> = sets.iter().map(|s| s.to_string()).collect();
            Candidate::parse(word, &sets, &registry).map(|c| c.profile)
        };
        let p = read("kv:tq4/tq3@mean", &[]).unwrap();
        assert_eq!((p.k.as_str(), p.v.as_str(), p.k_basis.as_deref()), ("tq4", "tq3", Some("mean")));
        let p = read("kv:k=fp8", &["kv.exact_tail_tokens=256"]).unwrap();
        assert_eq!((p.k.as_str(), p.v.as_str(), p.exact_tail_tokens), ("fp8", "f16", 256));
        let p = read("streaming+policy.recent_tokens=512+kv.exact_sink_tokens=0", &["policy.recent_tokens=9"]).unwrap();
        assert_eq!(p.exact_sink_tokens, 0);
        assert!(p.to_toml().contains("recent_tokens = 512"), "{}", p.to_toml());
        assert_eq!(read("minima-kv@none", &[]).unwrap().v_basis.as_deref(), Some("none"));
        for bad in ["", "kv:", "kv:tq9", "tq3@wrong", "tq3+policy", "minima-kw", "kv:tq3/tq3/tq3"] {
            assert_eq!(read(bad, &[]).unwrap_err().kind(), ErrorKind::Usage, "{bad}");
        }
    }
}

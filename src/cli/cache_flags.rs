//! Flags that say what a cache does: a profile by name or file, or an ad-hoc one, and changes to it.

use super::arguments;
use clap::Args;
use kvarto::engine::Registry;
use kvarto::parameters::{Place, Value};
use kvarto::profile::{Draft, Profile, Setting};
use kvarto::{Error, ErrorKind, Result};

/// What the pages of a cache are like, and what becomes of them.
#[derive(Clone, Debug, Default, Args)]
pub struct CacheFlags {
    /// Formats of sealed pages: one for both sides, or k=FORMAT,v=FORMAT (f16 if not given); `bench decode` and
    /// `bench prefill` also take mix:fp8=0.31,tq3, which spreads several over the pages
    #[arg(long, value_name = "FORMATS", conflicts_with = "profile")]
    pub kv: Option<String>,
    /// All that a cache does: a name from `kvarto profiles`, or a path that ends in .toml
    #[arg(long, value_name = "NAME-or-FILE")]
    pub profile: Option<String>,
    /// Change a value of the profile, such as policy.recent_tokens=1024; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Coordinates pages are stored in: none, hadamard, mean, map (as `kvarto calibrate` found), FILE.kvcal (the map of
    /// that file) or mean:FILE.kvcal (its means alone); the formats' preference if not given
    #[arg(long, value_name = "BASIS")]
    pub basis: Option<String>,
    /// Tokens of a page: 16, 32, 64 or 128 (64 without a profile)
    #[arg(long, allow_negative_numbers = true, value_parser = arguments::count, value_name = "N")]
    pub page_tokens: Option<usize>,
    /// First tokens whose pages stay at 16 bits (64 without a profile)
    #[arg(long, allow_negative_numbers = true, value_parser = arguments::count, value_name = "N")]
    pub exact_sink: Option<usize>,
    /// Newest tokens whose pages stay at 16 bits (128 without a profile)
    #[arg(long, allow_negative_numbers = true, value_parser = arguments::count, value_name = "N")]
    pub exact_tail: Option<usize>,
}

impl CacheFlags {
    /// The profile that the flags say.
    ///
    /// # Errors
    /// `Usage` naming the flag, or the file's line, and the words there are; `File` for a file that cannot be read.
    pub fn profile(&self, registry: &Registry) -> Result<Profile> {
        let mut draft = match &self.profile {
            Some(word) => Draft::load(word)?,
            None => {
                let kv = self.kv.as_deref().unwrap_or("f16");
                Draft::of(&Profile::parse_kv(kv, &registry.formats)?, &format!("--kv {kv}"))?
            }
        };
        apply(&mut draft, &self.set)?;
        let sets = self.set.iter().map(|text| Setting::parse(text)).collect::<Result<Vec<_>>>()?;
        for flag in self.single() {
            // The last of several settings is the one that counts.
            if let Some(set) = sets.iter().rev().find(|s| s.path == flag.path && s.value != flag.value) {
                let error =
                    Error::new(ErrorKind::Usage, "contradicts a --set of the same value", "leave one of them out");
                return Err(set.place.of(flag.place.of(error)));
            }
            draft.set(&flag)?;
        }
        draft.read(&registry.names())
    }

    /// The flags for one value each, as settings.
    fn single(&self) -> Vec<Setting> {
        let count = |n: usize| Value::Integer(i64::try_from(n).unwrap_or(i64::MAX));
        let counts = [
            ("page_tokens", "--page-tokens", self.page_tokens),
            ("exact_sink_tokens", "--exact-sink", self.exact_sink),
            ("exact_tail_tokens", "--exact-tail", self.exact_tail),
        ];
        let setting = |key: &str, flag: &str, shown: String, value: Value| Setting {
            path: vec!["kv".into(), key.into()],
            value,
            place: Place::new(format!("{flag} {shown}")),
        };
        let counts =
            counts.into_iter().filter_map(|(key, flag, n)| n.map(|n| setting(key, flag, n.to_string(), count(n))));
        let basis = self.basis.iter().map(|word| setting("basis", "--basis", word.clone(), Value::Text(word.clone())));
        counts.chain(basis).collect()
    }

    /// The mix of formats that `--kv mix:…` asks for.
    pub fn mix(&self) -> Option<&str> {
        self.kv.as_deref()?.strip_prefix("mix:")
    }

    /// What was asked for, for reports: the profile, or the formats.
    pub fn asked(&self) -> &str {
        self.profile.as_deref().or(self.kv.as_deref()).unwrap_or("f16")
    }
}

/// Carries out `--set`s in their order.
///
/// # Errors
/// `Usage` naming the one that cannot be meant.
pub fn apply(draft: &mut Draft, sets: &[String]) -> Result<()> {
    sets.iter().try_for_each(|text| draft.set(&Setting::parse(text)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        cache: CacheFlags,
    }

    fn profile(words: &[&str]) -> Result<Profile> {
        let line = Line::try_parse_from([&["x"], words].concat()).unwrap();
        line.cache.profile(&Registry::builtin())
    }

    #[test]
    fn flags_override_the_profile_and_contradict_nothing() {
        let p =
            profile(&["--profile", "minima-kv", "--exact-tail", "256", "--set", "policy.recent_tokens=640"]).unwrap();
        assert_eq!((p.name.as_str(), p.exact_tail_tokens, p.exact_sink_tokens), ("minima-kv", 256, 64));
        assert_eq!(p.policy_parameters.iter().find(|(n, _)| *n == "recent_tokens").unwrap().1, &Value::Integer(640));
        assert_eq!(profile(&[]).unwrap().k, "f16");
        assert_eq!(profile(&["--kv", "k=fp8,v=tq3", "--set", "kv.k=tq4"]).unwrap().k, "tq4");
        profile(&["--page-tokens", "32", "--set", "kv.page_tokens=32"]).unwrap();
        let error = profile(&["--page-tokens", "32", "--set", "kv.page_tokens=16"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.message().contains("--page-tokens 32") && error.message().contains("--set kv.page_tokens=16"));
        assert!(Line::try_parse_from(["x", "--kv", "f16", "--profile", "tq3"]).is_err());
        let both = profile(&["--basis", "none", "--set", "kv.basis.k=\"none\""]);
        assert!(both.is_err(), "one basis for both sides is not one for each: {both:?}");
    }
}

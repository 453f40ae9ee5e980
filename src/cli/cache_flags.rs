//! Flags that make an ad-hoc profile, for every command that has a cache.

use super::arguments;
use clap::Args;
use kvarto::basis::BasisRegistry;
use kvarto::engine::Registry;
use kvarto::profile::Profile;
use kvarto::{Error, ErrorKind, Result};

/// What the pages of a cache are like.
#[derive(Clone, Debug, Args)]
pub struct CacheFlags {
    /// Formats of sealed pages: one for both sides, or k=FORMAT,v=FORMAT; `bench decode` and `bench prefill` also take
    /// mix:fp8=0.31,tq3, which spreads several over the pages
    #[arg(long, default_value = "f16", value_name = "FORMATS")]
    pub kv: String,
    /// Coordinates pages are stored in; the formats' preference if not given
    #[arg(long, value_name = "BASIS")]
    pub basis: Option<String>,
    /// Tokens of a page: 16, 32, 64 or 128
    #[arg(long, allow_negative_numbers = true, value_parser = arguments::count, default_value_t = 64, value_name = "N")]
    pub page_tokens: usize,
    /// First tokens whose pages stay at 16 bits
    #[arg(long, allow_negative_numbers = true, value_parser = arguments::count, default_value_t = 64, value_name = "N")]
    pub exact_sink: usize,
    /// Newest tokens whose pages stay at 16 bits
    #[arg(long, allow_negative_numbers = true, value_parser = arguments::count, default_value_t = 128, value_name = "N")]
    pub exact_tail: usize,
}

impl CacheFlags {
    /// The profile that the flags say.
    ///
    /// # Errors
    /// `Usage` naming the flag and the words it takes.
    pub fn profile(&self, registry: &Registry) -> Result<Profile> {
        let mut profile = Profile::parse_kv(&self.kv, &registry.formats)?;
        if let Some(basis) = &self.basis {
            BasisRegistry::builtin().by_name(basis).map_err(|e| e.context("--basis"))?;
            profile.k_basis = Some(basis.clone());
            profile.v_basis = Some(basis.clone());
        }
        if !kvarto::shape::PAGE_TOKENS.contains(&self.page_tokens) {
            let message = format!("--page-tokens {}", self.page_tokens);
            return Err(Error::new(ErrorKind::Usage, message, "use 16, 32, 64 or 128"));
        }
        profile.exact_sink_tokens = self.exact_sink;
        profile.exact_tail_tokens = self.exact_tail;
        Ok(profile)
    }
}

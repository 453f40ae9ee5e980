//! Flags that say how tokens are drawn, for every command that generates.

use super::arguments;
use clap::Args;
use kvarto::model::sampler::SamplerOptions;

/// How tokens are drawn.
#[derive(Clone, Debug, Args)]
pub struct SamplingFlags {
    /// Divides the logits before a draw; 0 takes the likeliest token
    #[arg(long, default_value_t = 0.8, allow_negative_numbers = true)]
    pub temperature: f32,
    /// Draw from this many likeliest tokens; 0 for all
    #[arg(long, allow_negative_numbers = true, value_parser = arguments::count, default_value_t = 40, value_name = "N")]
    pub top_k: usize,
    /// Draw from the likeliest tokens whose probabilities reach this; 1 for all
    #[arg(long, default_value_t = 0.95, allow_negative_numbers = true)]
    pub top_p: f32,
    /// Draw from tokens at least this share as likely as the likeliest; 0 for all
    #[arg(long, default_value_t = 0.05, allow_negative_numbers = true)]
    pub min_p: f32,
    /// Makes tokens of the last 64 less likely; 1 changes nothing
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    pub repeat_penalty: f32,
    /// The seed of the draws; one from the system if not given
    #[arg(long, allow_negative_numbers = true, value_parser = arguments::seed)]
    pub seed: Option<u64>,
}

impl SamplingFlags {
    /// The sampler's options.
    ///
    /// # Errors
    /// `Usage` naming a number that is out of range.
    pub fn options(&self) -> kvarto::Result<SamplerOptions> {
        let options = SamplerOptions {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repeat_penalty: self.repeat_penalty,
            seed: self.seed,
            ..SamplerOptions::default()
        };
        options.validate()?;
        Ok(options)
    }
}

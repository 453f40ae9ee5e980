//! What is kept of one profile on one window: enough to make every table anew.

use super::figures::CacheFigures;
use super::scores::RowScore;
use serde::{Deserialize, Serialize};

/// Version of the files that hold records.
pub const SCHEMA: u32 = 1;

/// What was judged, and on what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Subject {
    /// What reports call the profile.
    pub label: String,
    /// The profile, whole, as TOML.
    pub profile: String,
    /// Identities of the calibrations that its bases read.
    #[serde(default)]
    pub calibrations: Vec<String>,
    /// The model's name or path.
    pub model: String,
    /// SHA-256 of the model's file.
    pub model_sha256: String,
    /// Its architecture.
    pub architecture: String,
    /// The backend's API.
    pub backend: String,
    /// The device's name.
    pub adapter: String,
    /// The kernels' tier.
    pub tier: String,
    /// This program's version.
    pub version: String,
    /// How it was called.
    pub command: Vec<String>,
}

/// A window of a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WindowOf {
    /// The text's name.
    pub text: String,
    /// SHA-256 of its bytes.
    pub text_sha256: String,
    /// The window's number in the text.
    pub index: usize,
    /// Windows of this text.
    pub of: usize,
    /// Where in the text's tokens it begins.
    pub start: usize,
    /// Its tokens.
    pub tokens: usize,
    /// How many of its last tokens were scored.
    pub scored: usize,
}

/// Scores token by token, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TokenScores {
    /// Negative log-likelihoods, nats.
    pub nll: Vec<f64>,
    /// Those of the dense cache.
    pub nll_dense: Vec<f64>,
    /// KL(dense ‖ profile), nats.
    pub kl: Vec<f64>,
    /// 1 where both find the same token likeliest.
    pub top1: Vec<u8>,
    /// How many of the dense cache's five likeliest tokens are among the profile's five.
    pub top5: Vec<u8>,
}

impl TokenScores {
    /// Adds tokens.
    pub fn extend(&mut self, scores: &[RowScore]) {
        for score in scores {
            self.nll.push(score.nll);
            self.nll_dense.push(score.nll_reference);
            self.kl.push(score.kl);
            self.top1.push(u8::from(score.top1));
            self.top5.push(score.top5);
        }
    }

    /// Tokens scored.
    pub fn len(&self) -> usize {
        self.kl.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.kl.is_empty()
    }

    /// Whether all lists have the same length and hold what scores can be: probabilities of finite logits have NLLs and
    /// divergences of 0 (but for rounding) up to some hundreds.
    pub fn whole(&self) -> bool {
        let lists = [&self.nll, &self.nll_dense, &self.kl];
        lists.iter().all(|list| list.len() == self.len() && list.iter().all(|x| (-1e-3..1e6).contains(x)))
            && self.top1.len() == self.len()
            && self.top5.len() == self.len()
    }
}

/// One profile on one window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The profile, the model and the machine.
    pub subject: Subject,
    /// The window.
    pub window: WindowOf,
    /// How tokens were fed, as [`super::Mode`] prints it.
    pub mode: String,
    /// Windows that were stepped together, this one among them.
    pub batch: usize,
    /// The cache at the end of the batch, all its windows together.
    pub cache: CacheFigures,
    /// Tokens a second of steps with one row a window, all windows together.
    pub decode_tokens_per_s: Option<f64>,
    /// Tokens a second of all scored steps.
    pub scored_tokens_per_s: Option<f64>,
    /// The scores.
    pub tokens: TokenScores,
}

//! Sinks and the newest tokens; the rest is evicted (StreamingLLM, arXiv 2309.17453 §3.2, without its shift of
//! positions: keys keep the positions they were turned to).

use super::{Move, Outcome, Outlook, PageView, Policy};
use crate::error::Result;
use crate::parameters::{Parameters, Value};
use crate::profile::Making;

/// Evicts pages that lie behind the first `sink_tokens` and wholly before the newest `recent_tokens`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Streaming {
    /// Tokens from the sequence's start whose pages stay.
    pub sink_tokens: usize,
    /// Newest tokens whose pages stay.
    pub recent_tokens: usize,
    /// Tokens until the next page falls due.
    rests: u32,
}

impl Streaming {
    /// Keeps the pages of the first `sink_tokens` and of the newest `recent_tokens`.
    pub fn new(sink_tokens: usize, recent_tokens: usize) -> Self {
        Streaming { sink_tokens, recent_tokens, rests: 0 }
    }

    /// Reads its parameters: `sink_tokens` (64) and `recent_tokens` (1024).
    ///
    /// # Errors
    /// `Usage` for another parameter, or a number out of range.
    pub fn make(making: &Making<'_>) -> Result<Self> {
        let mut reader = making.parameters.reader("policy streaming");
        let sink_tokens = reader.count("sink_tokens", 64, 0..=1 << 30)?;
        let recent_tokens = reader.count("recent_tokens", 1024, 1..=1 << 30)?;
        reader.finish()?;
        Ok(Streaming::new(sink_tokens, recent_tokens))
    }
}

impl Policy for Streaming {
    fn name(&self) -> &str {
        "streaming"
    }

    fn parameters(&self) -> Parameters {
        let count = |n: usize| Value::Integer(n as i64);
        let tokens = Parameters::default().with("sink_tokens", count(self.sink_tokens));
        tokens.with("recent_tokens", count(self.recent_tokens))
    }

    fn decide(&mut self, pages: &[PageView]) -> Vec<Move> {
        let due = |p: &&PageView| {
            p.page * p.page_tokens >= self.sink_tokens && p.age_tokens >= self.recent_tokens && !p.anchor
        };
        let evict = |p: &PageView| Move::Evict {
            sequence: p.sequence,
            layer: p.layer,
            kv_head: p.kv_head,
            page: p.page,
            reason: "streaming",
        };
        // A page becomes due with the token that makes it `recent_tokens` old.
        let next = pages.iter().filter_map(|p| self.recent_tokens.checked_sub(p.age_tokens + 1)).min();
        self.rests = next.map_or(u32::MAX, |tokens| u32::try_from(tokens).unwrap_or(u32::MAX));
        pages.iter().filter(due).map(evict).collect()
    }

    fn rests(&self) -> Option<u32> {
        Some(self.rests)
    }

    fn outcome(&self, cache: &Outlook) -> Outcome {
        let size = cache.page_tokens as u64;
        let first = (self.sink_tokens as u64).div_ceil(size).max(cache.sealed.start);
        let end = (cache.tokens.saturating_sub(self.recent_tokens as u64) / size).min(cache.sealed.end);
        Outcome { evicted: end.saturating_sub(first).saturating_mul(cache.rows), ..Outcome::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::views;

    #[test]
    fn what_lies_between_sink_and_recent_tokens_goes() {
        let mut policy = Streaming::new(65, 200);
        for tokens in [0, 64, 200, 400, 640, 1000, 1001, 1023] {
            let pages = views(0..tokens / 64, tokens as usize, 1);
            let gone: Vec<usize> = policy
                .decide(&pages)
                .into_iter()
                .map(|m| match m {
                    Move::Evict { page, .. } => page,
                    other => panic!("{other:?}"),
                })
                .collect();
            // By the words of the rule: page p holds tokens 64 p to 64 p + 63.
            let wanted: Vec<usize> =
                (0..tokens as usize / 64).filter(|p| 64 * p >= 65 && 64 * (p + 1) + 200 <= tokens as usize).collect();
            assert_eq!(gone, wanted, "{tokens} tokens");
            let cache = Outlook { sealed: 0..tokens / 64, tokens, page_tokens: 64, rows: 3, overridden: false };
            assert_eq!(policy.outcome(&cache).evicted, 3 * wanted.len() as u64, "{tokens} tokens");
        }
    }
}

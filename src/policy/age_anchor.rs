//! Recent and anchor pages as they were sealed, older pages in fewer bits (Minima-KV, arXiv 2608.23834; its constants
//! are partly not published, and the profiles' are fitted to its figures).
//!
//! Anchors are the pages of the first `anchor_sink_tokens`, every `anchor_stride`-th page, and what the caller marks
//! ([`crate::engine::Engine::anchor`]); they stay. Of the others the newest stay, as many as `recent_tokens` reach and
//! as keep the pages that stay within `young_share` of all that the policy sees of a sequence's cache group; where that
//! is less, as many as `young_tokens` hold: of a short sequence few bits would be saved. That number grows no faster
//! than pages come, so no page that left would be wanted back: what is in which format depends on the sequence's length
//! alone, not on the steps by which it was reached.

use super::{Move, Outcome, Outlook, PageView, Policy};
use crate::engine::SeqId;
use crate::error::Result;
use crate::parameters::{Parameters, Value};
use crate::profile::Making;
use std::collections::BTreeMap;

/// The policy's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct AgeAnchor {
    /// Formats of young pages: those of sealing.
    young: (String, String),
    /// Formats of older pages.
    old: (String, String),
    recent_tokens: u64,
    anchor_sink_tokens: u64,
    /// 0 for none.
    anchor_stride: u64,
    /// Most pages that stay, of all; anchors come first, and stay even beyond it.
    young_share: f64,
    /// Tokens whose pages may stay whatever the share says.
    young_tokens: u64,
    /// Tokens until the next page is no longer recent.
    rests: u32,
}

impl AgeAnchor {
    /// Reads its parameters: `old_k`, `old_v` (`tq3`), `recent_tokens` (512), `anchor_sink_tokens` (64),
    /// `anchor_stride` (4; 0 for none), `young_share` (1) and `young_tokens` (0).
    ///
    /// # Errors
    /// `Usage` for another parameter, a format that is none, a number out of range, or a stride whose anchors alone
    /// exceed the share.
    pub fn make(making: &Making<'_>) -> Result<Self> {
        let mut reader = making.parameters.reader("policy age-anchor");
        let old = (reader.format("old_k", "tq3", making.formats)?, reader.format("old_v", "tq3", making.formats)?);
        let most = 0..=1 << 30;
        let recent_tokens = reader.count("recent_tokens", 512, most.clone())? as u64;
        let anchor_sink_tokens = reader.count("anchor_sink_tokens", 64, most.clone())? as u64;
        let anchor_stride = reader.count("anchor_stride", 4, most.clone())? as u64;
        let young_tokens = reader.count("young_tokens", 0, most)? as u64;
        let young_share = reader.number("young_share", 1.0, 0.0..=1.0)?;
        if anchor_stride > 0 && 1.0 / anchor_stride as f64 > young_share {
            let what = format!("{anchor_stride} makes a share of {} anchors", 1.0 / anchor_stride as f64);
            let remedy = format!("give a larger stride, or raise young_share (now {young_share})");
            return Err(reader.refuse("anchor_stride", what, remedy));
        }
        reader.finish()?;
        let young = (making.k.to_string(), making.v.to_string());
        Ok(AgeAnchor {
            young,
            old,
            recent_tokens,
            anchor_sink_tokens,
            anchor_stride,
            young_share,
            young_tokens,
            rests: 0,
        })
    }

    fn is_anchor(&self, page: u64, page_tokens: u64) -> bool {
        page * page_tokens < self.anchor_sink_tokens
            || self.anchor_stride > 0 && page.is_multiple_of(self.anchor_stride)
    }

    /// Pages that are no anchors and stay, of `pages` in `rows` rows with `anchors` in all: of each row the newest that
    /// many, and in the first so many rows one more.
    fn room(&self, pages: u64, anchors: u64, rows: u64, page_tokens: u64) -> (u64, u64) {
        // Far below 2^53: exact.
        let most = (self.young_share * pages as f64) as u64;
        let least = self.young_tokens / page_tokens.max(1) * rows;
        let room = most.max(least).saturating_sub(anchors);
        (room / rows.max(1), room % rows.max(1))
    }

    /// Anchors among pages `0..end`.
    fn anchors_before(&self, end: u64, page_tokens: u64) -> u64 {
        let sink = self.anchor_sink_tokens.div_ceil(page_tokens).min(end);
        let strided = |end: u64| if self.anchor_stride > 0 { end.div_ceil(self.anchor_stride) } else { 0 };
        sink + strided(end) - strided(sink)
    }
}

/// Pages by layer and KV head.
type Rows<'a> = BTreeMap<(usize, usize), Vec<&'a PageView>>;

impl Policy for AgeAnchor {
    fn name(&self) -> &str {
        "age-anchor"
    }

    fn parameters(&self) -> Parameters {
        let count = |n: u64| Value::Integer(n as i64);
        Parameters::default()
            .with("old_k", Value::Text(self.old.0.clone()))
            .with("old_v", Value::Text(self.old.1.clone()))
            .with("recent_tokens", count(self.recent_tokens))
            .with("anchor_sink_tokens", count(self.anchor_sink_tokens))
            .with("anchor_stride", count(self.anchor_stride))
            .with("young_share", Value::Number(self.young_share))
            .with("young_tokens", count(self.young_tokens))
    }

    fn targets(&self) -> Vec<(String, String)> {
        vec![self.old.clone()]
    }

    fn decide(&mut self, pages: &[PageView]) -> Vec<Move> {
        // Of each sequence's cache group, the pages of each row.
        let mut groups: BTreeMap<(SeqId, usize), Rows<'_>> = BTreeMap::new();
        for page in pages.iter().filter(|p| !p.overridden) {
            let rows = groups.entry((page.sequence, page.group)).or_default();
            rows.entry((page.layer, page.kv_head)).or_default().push(page);
        }
        let mut moves = Vec::new();
        for rows in groups.values_mut() {
            let anchor = |p: &PageView| p.anchor || self.is_anchor(p.page as u64, p.page_tokens as u64);
            let all = rows.values().map(|row| row.len() as u64).sum();
            let anchors = rows.values().flatten().filter(|p| anchor(p)).count() as u64;
            let size = rows.values().flatten().next().map_or(1, |page| page.page_tokens as u64);
            let (room, more) = self.room(all, anchors, rows.len() as u64, size);
            for (at, row) in (0..).zip(rows.values_mut()) {
                row.sort_unstable_by_key(|p| std::cmp::Reverse(p.page));
                let mut room = room + u64::from(at < more);
                for page in row.iter().filter(|p| !anchor(p)) {
                    if room > 0 && (page.age_tokens as u64) < self.recent_tokens {
                        room -= 1;
                    } else if (&*page.formats.0, &*page.formats.1) != (self.old.0.as_str(), self.old.1.as_str()) {
                        moves.push(Move::Convert {
                            sequence: page.sequence,
                            layer: page.layer,
                            kv_head: page.kv_head,
                            page: page.page,
                            k: self.old.0.clone(),
                            v: self.old.1.clone(),
                            reason: "old",
                        });
                    }
                }
            }
        }
        let next = pages.iter().filter_map(|p| self.recent_tokens.checked_sub(p.age_tokens as u64 + 1)).min();
        self.rests = next.map_or(u32::MAX, |tokens| u32::try_from(tokens).unwrap_or(u32::MAX));
        // Oldest pages first, in case a step has not room for all.
        moves.sort_by_key(|m| match m {
            Move::Convert { page, .. } | Move::Evict { page, .. } => *page,
        });
        moves
    }

    fn rests(&self) -> Option<u32> {
        Some(self.rests)
    }

    fn outcome(&self, cache: &Outlook) -> Outcome {
        if cache.overridden {
            return Outcome::default();
        }
        let (size, start, end) = (cache.page_tokens as u64, cache.sealed.start, cache.sealed.end);
        let anchors = |from: u64, to: u64| self.anchors_before(to, size) - self.anchors_before(from, size);
        let pages = end.saturating_sub(start);
        let (room, more) = self.room(pages * cache.rows, anchors(start, end) * cache.rows, cache.rows, size);
        // Page p is young enough while tokens − (p + 1) size < recent_tokens.
        let first = if self.recent_tokens == 0 { end } else { cache.tokens.saturating_sub(self.recent_tokens) / size };
        let first = if cache.tokens < self.recent_tokens { 0 } else { first }.clamp(start, end);
        let recent = (end - first) - anchors(first, end);
        let staying = room.min(recent) * cache.rows + if room < recent { more } else { 0 };
        let old = (pages - anchors(start, end)) * cache.rows - staying;
        Outcome { converted: vec![(self.old.clone(), old)], ..Outcome::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::FormatRegistry;
    use crate::policy::tests::views;

    fn policy(parameters: &Parameters) -> Result<AgeAnchor> {
        AgeAnchor::make(&Making { parameters, k: "fp8", v: "fp8", formats: &FormatRegistry::builtin() })
    }

    fn settings(recent: i64, sink: i64, stride: i64, share: f64) -> Parameters {
        Parameters::default()
            .with("recent_tokens", Value::Integer(recent))
            .with("anchor_sink_tokens", Value::Integer(sink))
            .with("anchor_stride", Value::Integer(stride))
            .with("young_share", Value::Number(share))
    }

    /// Pages of (row, page) that are old after the policy's moves.
    fn settle(policy: &mut AgeAnchor, pages: &mut [PageView]) {
        for m in policy.decide(pages) {
            let Move::Convert { kv_head, page, k, v, .. } = m else { panic!("{m:?}") };
            let found = pages.iter_mut().find(|p| p.kv_head == kv_head && p.page == page).expect("a page shown");
            assert_eq!(&*found.formats.0, "fp8", "old pages are not moved again");
            found.formats = (k.into(), v.into());
        }
    }

    #[test]
    fn growing_by_any_steps_ends_where_one_look_ends_and_where_the_closed_form_says() {
        for (recent, sink, stride, share, least) in [
            (5376, 64, 4, 0.3056, 0),
            (512, 64, 4, 1.0, 0),
            (0, 0, 0, 0.0, 0),
            (300, 200, 7, 0.2, 0),
            (1 << 30, 1, 3, 0.4, 0),
            (5376, 64, 0, 0.15, 1152),
            (1 << 30, 64, 5, 0.2, 700),
            (600, 0, 0, 0.1, 1 << 30),
        ] {
            let settings = settings(recent, sink, stride, share).with("young_tokens", Value::Integer(least));
            let mut policy = policy(&settings).unwrap();
            for (rows, by) in [(1, 1), (3, 1), (3, 5), (2, 64)] {
                let mut grown: Vec<PageView> = Vec::new();
                for count in (0..=150u64).step_by(by) {
                    let tokens = count as usize * 64 + 7;
                    let mut fresh = views(0..count, tokens, rows);
                    for page in &mut fresh {
                        if let Some(old) = grown.iter().find(|p| p.kv_head == page.kv_head && p.page == page.page) {
                            page.formats = old.formats.clone();
                        }
                    }
                    grown = fresh;
                    settle(&mut policy, &mut grown);
                    let mut at_once = views(0..count, tokens, rows);
                    settle(&mut policy, &mut at_once);
                    assert_eq!(grown, at_once, "{count} pages in {rows} rows by {by}: {policy:?}");
                    let old = grown.iter().filter(|p| &*p.formats.0 == "tq3").count() as u64;
                    let cache = Outlook {
                        sealed: 0..count,
                        tokens: tokens as u64,
                        page_tokens: 64,
                        rows: rows as u64,
                        overridden: false,
                    };
                    assert_eq!(policy.outcome(&cache).converted[0].1, old, "{count} pages in {rows} rows: {policy:?}");
                    let anchors = (0..count).filter(|&p| policy.is_anchor(p, 64)).count() as u64 * rows as u64;
                    let young = count * rows as u64 - old;
                    let most = (share * (count * rows as u64) as f64).max((least as u64 / 64 * rows as u64) as f64);
                    assert!(young == anchors || young as f64 <= most);
                }
            }
        }
    }

    #[test]
    fn marked_and_overridden_pages_stay() {
        let mut policy = policy(&settings(0, 0, 0, 0.0)).unwrap();
        let mut pages = views(0..9, 9 * 64, 2);
        pages[3].anchor = true;
        pages[4].overridden = true;
        settle(&mut policy, &mut pages);
        let young: Vec<usize> = (0..pages.len()).filter(|&i| &*pages[i].formats.0 == "fp8").collect();
        assert_eq!(young, [3, 4]);
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        let error = policy(&settings(512, 64, 3, 0.3056)).unwrap_err();
        assert!(error.message().contains("anchor_stride"), "{error}");
        let unknown = Parameters::default().with("old_k", Value::Text("tq9".into()));
        let error = policy(&unknown).unwrap_err();
        assert!(error.message().contains("old_k") && error.message().contains("tq9"), "{error}");
        assert!(policy(&Parameters::default().with("stride", Value::Integer(4))).is_err());
        assert!(policy(&settings(-1, 64, 4, 0.5)).is_err());
        assert!(policy(&settings(1, 64, 4, f64::NAN)).is_err());
    }
}

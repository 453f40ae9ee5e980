//! Pages of several formats, spread by a hash of their place: the load of a cache in the middle of its life.

use crate::error::{Error, ErrorKind, Result};
use crate::format::FormatRegistry;
use crate::policy::{Move, Outcome, Outlook, PageView, Policy};

/// A format and the share of sealed pages that take it.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// Format of both sides.
    pub format: String,
    /// From 0 to 1.
    pub share: f64,
}

/// Gives each sealed page one of several formats.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix(Vec<Share>);

impl Mix {
    /// Reads `fp8=0.31,tq3`: formats with their shares, the last one taking the rest.
    ///
    /// # Errors
    /// `Usage` for an unknown format, a share outside 0 to 1, shares above 1 in all, or a last format with a share.
    pub fn parse(text: &str, formats: &FormatRegistry) -> Result<Self> {
        let bad = |what: String| {
            Error::new(ErrorKind::Usage, format!("mix:{text}: {what}"), "write for example mix:fp8=0.31,tq3")
        };
        let mut shares = Vec::new();
        let mut left = 1.0f64;
        let words: Vec<&str> = text.split(',').collect();
        for (at, word) in words.iter().enumerate() {
            let (name, share) = match word.split_once('=') {
                None if at + 1 == words.len() => (*word, left),
                None => return Err(bad(format!("{word:?} has no share"))),
                Some(_) if at + 1 == words.len() => return Err(bad("the last format takes the rest".into())),
                Some((name, share)) => {
                    let share = share.parse::<f64>().map_err(|_| bad(format!("{share:?} is no number")))?;
                    (name, share)
                }
            };
            let (_, format) = formats.by_name(name.trim()).map_err(|e| bad(e.message().into()))?;
            // Written so that NaN fails.
            if !(0.0..=1.0).contains(&share) || share > left + 1e-9 {
                return Err(bad(format!("shares lie between 0 and 1, and so does their sum; {share} does not fit")));
            }
            left -= share;
            shares.push(Share { format: format.name().into(), share });
        }
        Ok(Mix(shares))
    }

    /// The formats and their shares.
    pub fn shares(&self) -> &[Share] {
        &self.0
    }

    /// The format of a page, by its place.
    fn format_of(&self, page: &PageView) -> &str {
        let place =
            (page.sequence.0 << 40) ^ ((page.layer as u64) << 30) ^ ((page.kv_head as u64) << 22) ^ page.page as u64;
        let hash = place.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = (hash ^ hash >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let mut at = (hash >> 11) as f64 / (1u64 << 53) as f64;
        for share in &self.0 {
            if at < share.share {
                return &share.format;
            }
            at -= share.share;
        }
        // Rounding of the shares' sum.
        self.0.last().map_or("f16", |s| &s.format)
    }
}

impl Policy for Mix {
    fn name(&self) -> &str {
        "mix"
    }

    fn targets(&self) -> Vec<(String, String)> {
        self.0.iter().map(|s| (s.format.clone(), s.format.clone())).collect()
    }

    /// By the shares, which a hash meets but about: with an eighth more of each than it should come to.
    fn outcome(&self, cache: &Outlook) -> Outcome {
        let pages = (cache.sealed.end - cache.sealed.start).saturating_mul(cache.rows) as f64;
        let about = |share: f64| ((pages * share * 1.125).ceil() as u64).min(pages as u64);
        let converted = self.0.iter().map(|s| ((s.format.clone(), s.format.clone()), about(s.share))).collect();
        Outcome { converted, evicted: 0 }
    }

    fn decide(&mut self, pages: &[PageView]) -> Vec<Move> {
        let wrong = pages.iter().filter_map(|page| {
            let format = self.format_of(page);
            (&*page.formats.0 != format || &*page.formats.1 != format).then(|| Move::Convert {
                sequence: page.sequence,
                layer: page.layer,
                kv_head: page.kv_head,
                page: page.page,
                k: format.into(),
                v: format.into(),
                reason: "mix",
            })
        });
        wrong.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_or_refused() {
        let formats = FormatRegistry::builtin();
        let mix = Mix::parse("fp8=0.31,tq3", &formats).unwrap();
        assert_eq!(mix.shares().iter().map(|s| s.format.as_str()).collect::<Vec<_>>(), ["fp8", "tq3"]);
        assert!((mix.shares()[1].share - 0.69).abs() < 1e-12);
        for bad in
            ["", "fp8=0.31", "fp8,tq3", "fp8=2,tq3", "fp8=-1,tq3", "fp8=nan,tq3", "fp8=0.6,f16=0.6,tq3", "x=0.1,tq3"]
        {
            assert_eq!(Mix::parse(bad, &formats).unwrap_err().kind(), ErrorKind::Usage, "{bad}");
        }
    }

    fn view(kv_head: usize, page: usize) -> PageView {
        PageView {
            sequence: crate::engine::SeqId(1),
            group: 0,
            layer: 0,
            kv_head,
            page,
            page_tokens: 64,
            formats: ("f16".into(), "f16".into()),
            age_tokens: 0,
            references: 1,
            pinned: false,
            anchor: false,
            overridden: false,
        }
    }

    #[test]
    fn pages_take_formats_by_their_shares_and_stay() {
        let mut mix = Mix::parse("fp8=0.31,tq3", &FormatRegistry::builtin()).unwrap();
        let mut pages: Vec<PageView> = (0..8).flat_map(|head| (0..1000).map(move |page| view(head, page))).collect();
        for m in mix.decide(&pages) {
            let Move::Convert { kv_head, page, k, v, .. } = m else { panic!("{m:?}") };
            pages[kv_head * 1000 + page].formats = (k.into(), v.into());
        }
        let fp8 = pages.iter().filter(|p| &*p.formats.0 == "fp8").count() as f64 / pages.len() as f64;
        assert!((fp8 - 0.31).abs() < 0.02, "{fp8}");
        assert!(pages.iter().all(|p| &*p.formats.0 != "f16"));
        assert!(mix.decide(&pages).is_empty());
    }

    #[test]
    fn the_outlook_has_room_for_what_is_decided() {
        let mix = Mix::parse("fp8=0.31,tq3", &FormatRegistry::builtin()).unwrap();
        let cache = Outlook { sealed: 0..1000, tokens: 64_000, page_tokens: 64, rows: 8, overridden: false };
        let outcome = mix.outcome(&cache);
        let of = |name: &str| outcome.converted.iter().find(|((k, _), _)| k == name).unwrap().1;
        let decided = (0..8usize)
            .flat_map(|head| (0..1000).map(move |at| (head, at)))
            .filter(|&(head, at)| mix.format_of(&view(head, at)) == "fp8")
            .count() as u64;
        assert!((decided..decided * 5 / 4).contains(&of("fp8")), "{outcome:?} for {decided}");
        assert!((8000 - decided..8001).contains(&of("tq3")), "{outcome:?} for {decided}");
    }
}

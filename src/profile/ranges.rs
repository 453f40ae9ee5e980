//! Ranges of layers or heads, as profiles write them: `0..2,-2..`.

use std::fmt;

/// A set of numbers below a count that is not known yet: half-open ranges, negative bounds from the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges(Vec<(Option<i64>, Option<i64>)>);

impl Ranges {
    /// Every number.
    pub fn all() -> Self {
        Ranges(vec![(None, None)])
    }

    /// Reads `*`, or `2`, `0..2`, `..2`, `-2..` and the like, separated by commas.
    ///
    /// # Errors
    /// What is wrong with which part, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.trim() == "*" {
            return Ok(Ranges::all());
        }
        let bound = |word: &str, part: &str| -> Result<Option<i64>, String> {
            match word.trim() {
                "" => Ok(None),
                word => {
                    let n: i32 = word.parse().map_err(|_| format!("{part:?} is not a range"))?;
                    Ok(Some(n.into()))
                }
            }
        };
        let mut ranges = Vec::new();
        for part in text.split(',') {
            let range = match part.split_once("..") {
                Some((start, end)) => (bound(start, part)?, bound(end, part)?),
                None => match bound(part, part)? {
                    // One from the end is the last: nothing stands behind it.
                    Some(-1) => (Some(-1), None),
                    Some(n) => (Some(n), Some(n + 1)),
                    None => return Err(format!("{text:?} names nothing between its commas")),
                },
            };
            if let (Some(start), Some(end)) = range
                && (start < 0) == (end < 0)
                && start >= end
            {
                return Err(format!("{part:?} is empty: a range ends before its second number"));
            }
            ranges.push(range);
        }
        Ok(Ranges(ranges))
    }

    /// Whether `index` of `count` is among them.
    pub fn contains(&self, index: usize, count: usize) -> bool {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let place = |bound: i64| if bound < 0 { count.saturating_add(bound) } else { bound };
        let Ok(index) = i64::try_from(index) else { return false };
        self.0.iter().any(|&(start, end)| place(start.unwrap_or(0)) <= index && end.is_none_or(|e| index < place(e)))
    }
}

impl From<std::ops::Range<usize>> for Ranges {
    fn from(range: std::ops::Range<usize>) -> Self {
        let bound = |n: usize| Some(i64::try_from(n).unwrap_or(i64::MAX));
        Ranges(vec![(bound(range.start), bound(range.end))])
    }
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Ranges::all() {
            return f.write_str("*");
        }
        for (i, (start, end)) in self.0.iter().enumerate() {
            let word = |bound: &Option<i64>| bound.map_or(String::new(), |b| b.to_string());
            write!(f, "{}{}..{}", if i > 0 { "," } else { "" }, word(start), word(end))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_count_from_either_end() {
        let of = |text: &str| {
            let ranges = Ranges::parse(text).unwrap();
            assert_eq!(Ranges::parse(&ranges.to_string()).unwrap(), ranges, "{text}");
            (0..8).filter(|&i| ranges.contains(i, 8)).collect::<Vec<_>>()
        };
        assert_eq!(of("0..2,-2.."), [0, 1, 6, 7]);
        assert_eq!(of("*"), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(of(".."), of("*"));
        assert_eq!(of("..-6"), [0, 1]);
        assert_eq!(of("3"), [3]);
        assert_eq!(of("-1"), [7]);
        assert_eq!(of("-3"), [5]);
        assert_eq!(of("2..-3,40.."), [2, 3, 4]);
        for bad in ["", "a", "1..b", "2..2", "-2..-3", "1,,2", "0..2;3", "99999999999", "1...3"] {
            assert!(Ranges::parse(bad).is_err(), "{bad:?}");
        }
    }
}

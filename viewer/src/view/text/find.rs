//! Finding words in a text.

use std::ops::Range;

/// What is looked for, and where it was found.
#[derive(Default)]
pub struct Find {
    /// The words.
    pub words: String,
    of: (String, u64),
    found: Vec<usize>,
    /// The one that is looked at.
    at: usize,
}

/// Places that are kept.
const MOST_FOUND: usize = 100_000;

impl Find {
    /// Looks in `text` of version `version`; capitals of ASCII do not count.
    pub fn update(&mut self, text: &str, version: u64) {
        if self.of.0 == self.words && self.of.1 == version {
            return;
        }
        if self.of.0 != self.words {
            self.at = 0;
        }
        self.of = (self.words.clone(), version);
        self.found.clear();
        if !self.words.is_empty() {
            let (text, words) = (text.to_ascii_lowercase(), self.words.to_ascii_lowercase());
            self.found.extend(text.match_indices(&words).map(|(at, _)| at).take(MOST_FOUND));
        }
        self.at = self.at.min(self.found.len().saturating_sub(1));
    }

    /// Bytes of the place that is looked at.
    pub fn current(&self) -> Option<Range<usize>> {
        let start = *self.found.get(self.at)?;
        Some(start..start + self.words.len())
    }

    /// Goes to the next place, or back; from the last to the first.
    pub fn turn(&mut self, forward: bool) {
        let count = self.found.len().max(1);
        self.at = if forward { self.at + 1 } else { self.at + count - 1 } % count;
    }

    /// Places that meet a range of bytes.
    pub fn within(&self, bytes: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let length = self.words.len();
        let from = self.found.partition_point(|start| start + length <= bytes.start);
        self.found[from..].iter().take_while(move |start| **start < bytes.end).map(move |start| *start..start + length)
    }

    /// `3 of 17`.
    pub fn count(&self) -> String {
        match (self.words.is_empty(), self.found.len()) {
            (true, _) => String::new(),
            (_, 0) => "not found".into(),
            (_, MOST_FOUND) => format!("{} of {MOST_FOUND} or more", self.at + 1),
            (_, count) => format!("{} of {count}", self.at + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_and_turned_through() {
        let mut find = Find { words: "an".into(), ..Find::default() };
        find.update("An ant and a plan", 1);
        assert_eq!(find.count(), "1 of 4");
        assert_eq!(find.current(), Some(0..2));
        find.turn(false);
        assert_eq!((find.count(), find.current()), ("4 of 4".into(), Some(15..17)));
        find.turn(true);
        assert_eq!(find.count(), "1 of 4");
        assert_eq!(find.within(4..8).collect::<Vec<_>>(), [3..5, 7..9]);
        find.words = "none".into();
        find.update("An ant and a plan", 1);
        assert_eq!((find.count(), find.current()), ("not found".into(), None));
        find.turn(true);
    }
}

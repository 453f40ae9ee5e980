//! A text in lines of a width. A text that grows is wrapped from its end on.

use std::collections::HashMap;
use std::ops::Range;

/// Most characters of a line, whatever their width: a line is laid out whole.
const MOST_CHARACTERS: usize = 2000;

/// Width that spaces may hang beyond a line.
const HANG: f32 = 40.0;

/// Where lines begin.
#[derive(Default)]
pub struct Flow {
    of: Option<(u32, String)>,
    starts: Vec<usize>,
    end: usize,
    widths: HashMap<char, f32>,
}

impl Flow {
    /// Wraps `text`, whose first `stays` bytes are those of the call before, at `width`. `measure` gives the width of a
    /// character in the font that is named `font`.
    pub fn update(&mut self, text: &str, stays: usize, width: f32, font: &str, measure: impl FnMut(char) -> f32) {
        let of = (width.to_bits(), font.to_string());
        if self.of.as_ref() != Some(&of) {
            *self = Flow { of: Some(of), ..Flow::default() };
        } else if stays == self.end && text.len() == self.end {
            return;
        }
        // A line's end is decided within the next one: what both hold must have stayed.
        let whole =
            self.starts.partition_point(|start| *start <= stays.min(self.end).min(text.len())).saturating_sub(2);
        self.starts.truncate(whole + 1);
        if self.starts.is_empty() {
            self.starts.push(0);
        }
        self.end = text.len();
        self.wrap(text, width.max(1.0), measure);
    }

    fn wrap(&mut self, text: &str, width: f32, mut measure: impl FnMut(char) -> f32) {
        let first = self.starts.last().copied().unwrap_or(0);
        let mut start = first;
        let (mut x, mut characters) = (0.0f32, 0);
        // Where the line may be broken, and the width up to there.
        let mut place: Option<(usize, f32)> = None;
        for (at, character) in text.get(first..).unwrap_or_default().char_indices() {
            let at = first + at;
            if character == '\n' {
                start = at + 1;
                self.starts.push(start);
                (x, characters, place) = (0.0, 0, None);
                continue;
            }
            let wide = *self.widths.entry(character).or_insert_with(|| measure(character));
            let hangs = character == ' ' && x <= width + HANG;
            if at > start && (x + wide > width && !hangs || characters >= MOST_CHARACTERS) {
                let (next, before) = place.take().unwrap_or((at, x));
                start = next;
                self.starts.push(start);
                x -= before;
                characters = text.get(start..at).map_or(0, |rest| rest.chars().count());
            }
            x += wide;
            characters += 1;
            if character == ' ' || character == '-' || character >= '\u{2e80}' {
                place = Some((at + character.len_utf8(), x));
            }
        }
    }

    /// Lines there are.
    pub fn lines(&self) -> usize {
        self.starts.len()
    }

    /// Bytes of a line.
    pub fn line(&self, number: usize) -> Range<usize> {
        let at = |number: usize| self.starts.get(number).copied().unwrap_or(self.end);
        at(number)..at(number + 1)
    }

    /// The line that a byte is in.
    pub fn line_of(&self, byte: usize) -> usize {
        self.starts.partition_point(|start| *start <= byte).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(flow: &Flow, text: &str) -> Vec<String> {
        (0..flow.lines()).map(|line| text[flow.line(line)].to_string()).collect()
    }

    #[test]
    fn lines_break_at_spaces_and_at_their_ends() {
        let mut flow = Flow::default();
        let text = "one two three\nabcdefghijklm x";
        flow.update(text, 0, 8.0, "font", |_| 1.0);
        assert_eq!(lines(&flow, text), ["one two ", "three\n", "abcdefgh", "ijklm x"]);
        assert_eq!([0, 7, 8, 14, 22].map(|byte| flow.line_of(byte)), [0, 0, 1, 2, 3]);
    }

    #[test]
    fn a_text_that_grows_or_changes_is_wrapped_as_one_at_once() {
        let text: String =
            (0..400u32).map(|n| ["a", "bb ", "ccccc", "\n", " ", "d-"][(n * n % 11 % 6) as usize]).collect();
        let mut grown = Flow::default();
        let mut before = 0;
        for end in (0..text.len()).step_by(7).chain([30, 200, 90, text.len(), 3]) {
            // All of them have the same beginning, as far as both go.
            grown.update(&text[..end], end.min(before), 9.0, "font", |_| 1.0);
            let mut fresh = Flow::default();
            fresh.update(&text[..end], 0, 9.0, "font", |_| 1.0);
            assert_eq!(grown.starts, fresh.starts, "{end}");
            before = end;
        }
        // Another end after the same beginning.
        let other = text[..100].to_string() + "xxxxxxxxxxxx yy\n z";
        grown.update(&text, before, 9.0, "font", |_| 1.0);
        grown.update(&other, 100, 9.0, "font", |_| 1.0);
        let mut fresh = Flow::default();
        fresh.update(&other, 0, 9.0, "font", |_| 1.0);
        assert_eq!(grown.starts, fresh.starts);
    }

    #[test]
    fn no_line_is_endless() {
        let mut flow = Flow::default();
        let text = "\u{301}".repeat(5000) + &" ".repeat(5000);
        flow.update(&text, 0, 100.0, "font", |c| if c == ' ' { 4.0 } else { 0.0 });
        assert!((0..flow.lines()).all(|line| text[flow.line(line)].chars().count() <= MOST_CHARACTERS));
    }
}

//! Tokens' pieces joined to a text that can be shown: characters that span pieces come out whole, what has no shape of
//! its own is named, and every byte of the text belongs to a token.

use kvarto::engine::TokenPiece;
use std::fmt::Write;
use std::ops::Range;

/// A text and its tokens.
#[derive(Clone, Debug, Default)]
pub struct Joined {
    text: String,
    /// Where each token begins in the text.
    starts: Vec<usize>,
    /// Whether each token ends with a whole character, whatever comes after it.
    whole: Vec<bool>,
    /// Id and length of each token, to see which ones stay.
    known: Vec<(u32, u32)>,
}

impl Joined {
    /// Takes the text that a sequence has now. The answer is how many bytes of the text before have stayed. Tokens of
    /// equal id and length are taken for equal.
    pub fn update(&mut self, pieces: &[Option<&TokenPiece>]) -> usize {
        let same = self.known.iter().zip(pieces).take_while(|(known, piece)| **known == key(**piece)).count();
        if same == self.known.len() && same == pieces.len() {
            return self.text.len();
        }
        let mut keep = same;
        while keep > 0 && !self.whole.get(keep - 1).copied().unwrap_or(false) {
            keep -= 1;
        }
        let stays = self.starts.get(keep).copied().unwrap_or(self.text.len());
        self.text.truncate(stays);
        self.starts.truncate(keep);
        self.whole.truncate(keep);
        self.known.truncate(keep);
        self.known.extend(pieces[keep..].iter().map(|piece| key(*piece)));
        // Tokens that the trace does not tell end characters.
        for run in pieces[keep..].chunk_by(|a, b| a.is_some() == b.is_some()) {
            if run.first().is_some_and(Option::is_some) {
                self.join(run);
                continue;
            }
            for _ in run {
                self.starts.push(self.text.len());
                self.whole.push(true);
                self.text.push('·');
            }
        }
        stays
    }

    /// Adds tokens that are told.
    fn join(&mut self, run: &[Option<&TokenPiece>]) {
        let (mut bytes, mut begins) = (Vec::new(), Vec::with_capacity(run.len()));
        for piece in run.iter().flatten() {
            begins.push(bytes.len());
            bytes.extend_from_slice(&piece.text);
        }
        let (mut at, mut next, mut whole) = (0, 0, true);
        for chunk in bytes.utf8_chunks() {
            for character in chunk.valid().chars() {
                self.reach(&begins, &mut next, at, whole);
                show(character, &mut self.text);
                at += character.len_utf8();
                whole = true;
            }
            for byte in chunk.invalid() {
                self.reach(&begins, &mut next, at, whole);
                // Writing to a text cannot fail.
                let _ = write!(self.text, "\\x{byte:02X}");
                at += 1;
                whole = false;
            }
        }
        self.reach(&begins, &mut next, at, whole);
        self.whole.push(whole);
    }

    /// Begins all tokens whose bytes begin at or before `at`, where characters are whole if `whole` says so.
    fn reach(&mut self, begins: &[usize], next: &mut usize, at: usize, whole: bool) {
        while let Some(begin) = begins.get(*next).filter(|begin| **begin <= at) {
            self.starts.push(self.text.len());
            if *next > 0 {
                self.whole.push(whole && *begin == at);
            }
            *next += 1;
        }
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// How many tokens there are.
    pub fn tokens(&self) -> usize {
        self.starts.len()
    }

    /// The bytes of a token; none of one that only ends a character.
    pub fn range(&self, token: usize) -> Range<usize> {
        let end = self.text.len();
        let at = |token: usize| self.starts.get(token).copied().unwrap_or(end);
        at(token)..at(token.saturating_add(1))
    }

    /// The token that a byte belongs to.
    pub fn token_at(&self, byte: usize) -> usize {
        self.starts.partition_point(|start| *start <= byte).saturating_sub(1)
    }
}

fn key(piece: Option<&TokenPiece>) -> (u32, u32) {
    piece.map_or((u32::MAX, u32::MAX), |piece| (piece.id, piece.text.len() as u32))
}

/// Adds a character as it is shown: a line's end has a mark before it, controls and marks of direction have names.
fn show(character: char, text: &mut String) {
    let code = u32::from(character);
    match character {
        '\n' => text.push_str("¶\n"),
        '\t' => text.push_str("»   "),
        '\u{0}'..='\u{1f}' => {
            text.push('^');
            text.push(char::from_u32(code + 64).unwrap_or('?'));
        }
        '\u{7f}'..='\u{9f}'
        | '\u{ad}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}' => {
            let _ = write!(text, "<U+{code:04X}>");
        }
        _ => text.push(character),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(texts: &[&[u8]]) -> Vec<TokenPiece> {
        texts.iter().enumerate().map(|(id, text)| TokenPiece { id: id as u32, text: text.to_vec() }).collect()
    }

    fn told(pieces: &[TokenPiece]) -> Vec<Option<&TokenPiece>> {
        pieces.iter().map(Some).collect()
    }

    #[test]
    fn characters_that_span_tokens_come_out_whole() {
        let all = pieces(&[b"a\xe2", b"\x82", b"\xacb", b"\n", b"\xff", b"\x07"]);
        let mut joined = Joined::default();
        joined.update(&told(&all));
        assert_eq!(joined.text(), "a€b¶\n\\xFF^G");
        let parts: Vec<&str> = (0..all.len()).map(|token| &joined.text()[joined.range(token)]).collect();
        assert_eq!(parts, ["a€", "", "b", "¶\n", "\\xFF", "^G"]);
        assert_eq!([0, 1, 4, 5].map(|byte| joined.token_at(byte)), [0, 0, 2, 3]);
    }

    #[test]
    fn a_text_that_grows_or_is_cut_is_the_one_joined_at_once() {
        let all = pieces(&[b"x", b"\xf0\x9f", b"\x98", b"\x80", b"yz", b"\xe2\x82", b"", b"q\xc3", b"\xa9", b"\xc3"]);
        let mut other = all.clone();
        other[8] = TokenPiece { id: 99, text: b"!".to_vec() };
        let mut grown = Joined::default();
        let ends = (0..=all.len()).chain((0..all.len()).rev()).chain([10, 4, 9, 1, 10, 2, 6]);
        for (turn, end) in ends.enumerate() {
            let list = if turn % 3 == 2 { &other } else { &all };
            let mut told = told(&list[..end]);
            if turn % 5 == 4 && end > 2 {
                told[2] = None;
            }
            let before = grown.text().to_string();
            let stays = grown.update(&told);
            let mut fresh = Joined::default();
            fresh.update(&told);
            assert_eq!(grown.text(), fresh.text(), "turn {turn}");
            assert_eq!(grown.starts, fresh.starts, "turn {turn}");
            assert_eq!(before[..stays], grown.text()[..stays]);
        }
    }
}

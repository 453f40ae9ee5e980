//! The lines of a kernel's text, and where one is.

/// Where a line is, for messages.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub file: &'a str,
    pub line: usize,
    pub text: &'a str,
}

/// Lines of a file.
#[derive(Clone, Copy)]
pub(super) struct Lines<'a> {
    pub file: &'a str,
    pub text: &'a [&'a str],
    /// The number of the first one, from 1.
    pub first: usize,
    /// How many includes are around them.
    pub depth: usize,
}

impl<'a> Lines<'a> {
    pub fn place(&self, at: usize) -> Place<'a> {
        Place { file: self.file, line: self.first + at, text: self.text[at].trim() }
    }

    /// The line of the `#endfor` that closes the `#for` at `at`.
    pub fn end_of_loop(&self, at: usize) -> Option<usize> {
        let mut open = 0;
        (at..self.text.len()).find(|&line| {
            match self.text[line].split_whitespace().next() {
                Some("#for") => open += 1,
                Some("#endfor") => open -= 1,
                _ => {}
            }
            open == 0
        })
    }
}

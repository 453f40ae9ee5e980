//! The user's lines: edited at a terminal, read as they are from a pipe.

use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use std::io::{BufRead, IsTerminal};

/// One line, or why there is none.
pub enum Line {
    /// What was said.
    Said(String),
    /// The end of the input.
    End,
    /// Ctrl-C.
    Interrupted,
}

/// Where lines come from.
pub enum Lines {
    /// A terminal, with editing and a history of this run.
    Terminal(Box<DefaultEditor>),
    /// Anything else.
    Pipe(std::io::Lines<std::io::StdinLock<'static>>),
}

impl Lines {
    /// The program's standard input.
    pub fn new() -> anyhow::Result<Self> {
        Ok(match std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
            true => Lines::Terminal(Box::new(DefaultEditor::new()?)),
            false => Lines::Pipe(std::io::stdin().lock().lines()),
        })
    }

    /// Whether someone types.
    pub fn terminal(&self) -> bool {
        matches!(self, Lines::Terminal(_))
    }

    /// The next line.
    pub fn next(&mut self) -> anyhow::Result<Line> {
        match self {
            Lines::Pipe(lines) => Ok(lines.next().transpose()?.map_or(Line::End, Line::Said)),
            Lines::Terminal(editor) => match editor.readline("> ") {
                Ok(line) => {
                    editor.add_history_entry(line.as_str())?;
                    Ok(Line::Said(line))
                }
                Err(ReadlineError::Eof) => Ok(Line::End),
                Err(ReadlineError::Interrupted) => Ok(Line::Interrupted),
                Err(error) => Err(error.into()),
            },
        }
    }
}

//! Sinks and the newest pages (StreamingLLM, arXiv 2309.17453 §3.2, with nothing evicted).

use super::{Question, Selector};
use crate::error::Result;
use crate::parameters::{Parameters, Value};
use crate::profile::Making;

/// Reads the exact sink and the newest `tokens` tokens, in whole pages.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Newest tokens read.
    pub tokens: usize,
}

impl Default for Window {
    fn default() -> Self {
        Window { tokens: 1024 }
    }
}

impl Window {
    /// Reads its parameter `tokens`.
    ///
    /// # Errors
    /// `Usage` for another parameter, or a number out of range.
    pub fn make(making: &Making<'_>) -> Result<Self> {
        let mut reader = making.parameters.reader("selector window");
        let tokens = reader.count("tokens", Window::default().tokens, 1..=1 << 30)?;
        reader.finish()?;
        Ok(Window { tokens })
    }
}

impl Selector for Window {
    fn name(&self) -> &str {
        "window"
    }

    fn summary(&self) -> &str {
        "the sink and the newest tokens"
    }

    fn parameters(&self) -> Parameters {
        Parameters::default().with("tokens", Value::Integer(self.tokens as i64))
    }

    fn reads(&self, question: &Question, page: usize) -> bool {
        // By the earliest row, so that no row of a tile loses a token of its own window.
        let end = (page + 1) * question.page_tokens;
        end + self.tokens > question.first_position as usize + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::reads;

    #[test]
    fn sink_tail_and_window_are_read_and_nothing_else() {
        let question = Question {
            layer: 0,
            kv_head: 0,
            first_position: 999,
            last_position: 999,
            pages: 16,
            page_tokens: 64,
            sink_pages: 1,
            tail_pages: 2,
        };
        let window = Window { tokens: 256 };
        let read: Vec<usize> = (0..16).filter(|&p| reads(&window, &question, p)).collect();
        // Tokens 744..1000 lie in pages 11..16.
        assert_eq!(read, [0, 11, 12, 13, 14, 15]);
    }
}

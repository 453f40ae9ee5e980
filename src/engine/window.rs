//! Pages behind a window: when they go, and how far back a sequence can be cut after that.

use super::sequence::Rows;
use super::{Engine, Event, SeqId};
use crate::error::{Error, ErrorKind, Result};
use std::ops::Range;

impl Engine {
    /// Positions that each cache group holds of a sequence: all of them in a `Full` group; in a `Window` group from
    /// the first page on that a row to come may still see.
    ///
    /// # Errors
    /// `Shape` for an unknown sequence.
    pub fn held(&self, seq: SeqId) -> Result<Vec<Range<u32>>> {
        let sequence = self.sequence(seq)?;
        Ok(self.groups.iter().enumerate().map(|(i, g)| sequence.held(i, g.shape.page_tokens)).collect())
    }

    /// Lets go of pages that lie wholly behind the window of every row to come. Such rows stand at the committed
    /// length or after it, or `rewind_tokens` and one before it when tokens are taken back.
    pub(super) fn free_behind(&mut self, seq: SeqId) -> Result<()> {
        for index in 0..self.groups.len() {
            let group = &mut self.groups[index];
            let Some(window) = group.window else { continue };
            let size = group.shape.page_tokens;
            let Some(sequence) = self.sequences.get_mut(&seq) else { return Err(super::unknown(seq)) };
            let needed = (sequence.committed as usize).saturating_sub(window).saturating_sub(group.rewind_tokens);
            let held = &mut sequence.groups[index];
            let (before, first) = (held.first, needed / size);
            if first <= before {
                continue;
            }
            // Rows of a group are equally long, and the last page holds the newest token, which a window includes.
            let gone: Vec<_> = held.pages.iter_mut().map(|row| row.drain(..first - before).collect()).collect();
            held.first = first;
            let gone = Rows { pages: gone, first: before, ..Rows::default() };
            let pinned = !sequence.pins.is_empty();
            gone.all().for_each(|page| group.pool.release(page));
            self.drop_stale(index);
            if pinned {
                self.mark_pins(index, &gone, before);
            }
            self.listeners.send(Event::PagesLeftBehind { sequence: seq, group: index, pages: before..first });
            self.announce_freed("left behind");
        }
        Ok(())
    }

    /// Refuses a length whose next row would miss tokens of its window, or stand in a page that was evicted.
    pub(super) fn check_window(&self, what: &str, seq: SeqId, logical: u32) -> Result<()> {
        // An empty sequence begins anew: its first row sees itself alone.
        if logical == 0 {
            return Ok(());
        }
        let sequence = self.sequence(seq)?;
        for (index, group) in self.groups.iter().enumerate() {
            let size = group.shape.page_tokens;
            let page = logical as usize / size;
            if !(logical as usize).is_multiple_of(size)
                && let Some(row) = sequence.groups[index].evicted_row(page)
            {
                let (layer, head) = (group.shape.layers[row / group.shape.kv_heads], row % group.shape.kv_heads);
                return Err(Error::new(
                    ErrorKind::Shape,
                    format!("{what}({logical}): page {page} of layer {layer}, head {head} was evicted"),
                    format!("cut at a page's start, such as {}, or keep more", page * size),
                ));
            }
            let Some(window) = group.window else { continue };
            let held = sequence.held(index, group.shape.page_tokens);
            let needed = (logical as usize + 1).saturating_sub(window);
            if (held.start as usize) > needed {
                let least = held.start as usize + window - 1;
                return Err(Error::new(
                    ErrorKind::Shape,
                    format!(
                        "{what}({logical}): the window of {window} tokens needs positions from {needed} on, cache group \
                         {index} holds them from {} on",
                        held.start
                    ),
                    format!(
                        "keep at least {least} tokens, or none; fork earlier, or raise rewind_tokens (now {})",
                        group.rewind_tokens
                    ),
                ));
            }
        }
        Ok(())
    }
}

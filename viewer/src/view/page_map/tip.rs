//! What a tooltip says of a page.

use super::brightness::newest_masses;
use super::lists::Held;
use crate::store::{Place, Store};
use crate::view::axis::thousands;
use kvarto::engine::SeqId;
use kvarto::page::flags;
use std::ops::Range;

/// Most characters of a page's text, and of a line of it.
const MOST_TEXT: usize = 100;
const LINE_TEXT: usize = 52;

/// The text of the page that was asked for last.
#[derive(Default)]
pub struct PageText {
    key: Option<(SeqId, u32, u64)>,
    text: String,
}

impl PageText {
    /// The text of some tokens at the cursor; empty where the trace has none.
    pub fn of(&mut self, store: &Store, sequence: SeqId, tokens: Range<u32>, logical: u32) -> &str {
        // Text that stands changes no more within an epoch; that of the last page grows.
        let age = if tokens.end < logical { store.epoch } else { store.revision | 1 << 63 };
        let key = Some((sequence, tokens.start, age));
        if self.key != key {
            self.key = key;
            let all = store.chronicle.lineage.text(sequence, store.events_done());
            let part = all.get(tokens.start as usize..).unwrap_or_default();
            let pieces = part.iter().take(tokens.len()).flatten();
            let bytes: Vec<u8> = pieces.flat_map(|piece| piece.text.iter().copied()).collect();
            let text = String::from_utf8_lossy(&bytes).replace(char::is_control, " ");
            self.text = text.chars().take(MOST_TEXT).collect();
            if text.chars().count() > MOST_TEXT {
                self.text.push('…');
            }
        }
        &self.text
    }
}

/// Whether some range holds one of these tokens.
fn touches(ranges: &[Range<u32>], tokens: &Range<u32>) -> bool {
    ranges.iter().any(|range| range.start < tokens.end && tokens.start < range.end)
}

/// Lines of a tooltip: a name and what it is.
pub fn lines(store: &Store, held: &Held<'_>, place: Place, text: &mut PageText) -> Vec<(&'static str, String)> {
    let first = place.number.saturating_mul(held.page_tokens);
    let end = first.saturating_add(held.page_tokens).min(held.facts.logical.max(first));
    let mut lines = Vec::new();
    let last = end.saturating_sub(1).max(first);
    lines.push(("tokens", format!("{} to {}", thousands(first.into()), thousands(last.into()))));
    let layer_head = store.layer_and_head(place.group, place.row);
    if let Some((layer, head)) = layer_head {
        lines.push(("where", format!("layer {layer} · KV head {head} · page {}", place.number)));
    }
    let tokens = first..end.max(first.saturating_add(1));
    match store.page_at(place) {
        Some(page) => {
            lines.push(("formats", format!("K {} · V {}", page.formats.0, page.formats.1)));
            let dims = store.header.groups.get(place.group).map(|g| u64::from(g.k_dim) + u64::from(g.v_dim));
            let values = dims.unwrap_or(0) * u64::from(held.page_tokens);
            let bits = match values {
                0 => String::new(),
                values => format!(" · {:.2} bits a value of a full page", page.bytes as f64 * 8.0 / values as f64),
            };
            lines.push(("size", format!("{} bytes{bits}", thousands(page.bytes))));
            let state = if page.flags & flags::SEALED != 0 { "sealed" } else { "open" };
            lines.push(("state", format!("{state} · generation {} · tier: device", page.generation)));
            let [k, v] = page.slots;
            lines.push(("slots", format!("K {k} · V {v} · segment group {}", page.segment_group)));
            let owners = store.owners(place);
            lines.push(("owners", format!("{owners} {}", if owners == 1 { "sequence" } else { "sequences, shared" })));
        }
        None if place.number < held.base() => lines.push(("state", "behind the window: let go of".into())),
        None => lines.push(("state", "evicted: a hole in the list".into())),
    }
    let marks = [(&held.facts.anchors, "anchored"), (&held.facts.pins, "pinned")];
    let marks: Vec<&str> = marks.iter().filter(|(ranges, _)| touches(ranges, &tokens)).map(|(_, word)| *word).collect();
    if !marks.is_empty() {
        lines.push(("marks", marks.join(" · ")));
    }
    if let Some((layer, head)) = layer_head {
        let masses = newest_masses(store, held);
        let mass = masses.get(&layer).and_then(|(_, mass)| {
            let at = place.number.checked_sub(mass.first_page)? as usize;
            Some((*mass.shares.get(head as usize)?.get(at)?, mass.step))
        });
        if let Some((share, step)) = mass {
            lines.push(("mass", format!("{:.4} % of attention, sampled in step {step}", share * 100.0)));
        }
    }
    let words = text.of(store, place.sequence, tokens, held.facts.logical);
    let letters: Vec<char> = words.chars().collect();
    for (at, part) in letters.chunks(LINE_TEXT).enumerate() {
        lines.push((if at == 0 { "text" } else { "" }, part.iter().collect()));
    }
    lines
}

//! What is known of a page, in words and units.

use super::super::Scene;
use crate::palette::{Palette, dim};
use crate::store::{Place, Store};
use crate::units;
use eframe::egui;
use kvarto::engine::PageFacts;
use kvarto::page::flags;
use std::ops::Range;

/// The facts that were shown last.
#[derive(Default)]
pub struct Facts {
    of: Option<(String, Place, u64, usize)>,
    lines: Vec<(&'static str, String)>,
}

impl Facts {
    /// Draws the facts, names at the left.
    pub fn show(&mut self, ui: &mut egui::Ui, scene: &Scene<'_>, place: Place, page: &PageFacts) {
        let store = scene.store;
        let of = (store.name.clone(), place, store.revision, store.chronicle.faults.items().len());
        if self.of.as_ref() != Some(&of) {
            self.lines = lines(store, place, page);
            self.of = Some(of);
        }
        egui::Grid::new("facts").num_columns(2).spacing([14.0, 3.0]).show(ui, |ui| {
            for (what, value) in &self.lines {
                ui.weak(*what);
                if *what == "Formats" {
                    ui.horizontal(|ui| {
                        for (side, format) in [("K", &page.formats.0), ("V", &page.formats.1)] {
                            ui.label(side);
                            swatch(ui, scene.palette, format);
                            ui.label(format.as_ref());
                        }
                    });
                } else {
                    ui.add(egui::Label::new(value.as_str()).wrap());
                }
                ui.end_row();
            }
        });
    }
}

/// A format's colour and pattern.
fn swatch(ui: &mut egui::Ui, palette: Palette, format: &str) {
    let (rect, _) = ui.allocate_exact_size(egui::vec2(16.0, 12.0), egui::Sense::hover());
    let painter = ui.painter_at(rect);
    painter.rect_filled(rect, 0.0, palette.format(format));
    let (pattern, dark) = (palette.pattern(format), dim(palette.format(format), 0.7));
    for y in 0..12 {
        for x in (0..16).filter(|x| pattern.darker(*x, y)) {
            let at = rect.min + egui::vec2(x as f32, y as f32);
            painter.rect_filled(egui::Rect::from_min_size(at, egui::vec2(1.0, 1.0)), 0.0, dark);
        }
    }
}

/// The facts as names and values.
pub fn lines(store: &Store, place: Place, page: &PageFacts) -> Vec<(&'static str, String)> {
    let size = u64::from(store.page_tokens(place.group));
    let first = u64::from(page.number) * size;
    let filled = filled(store, place);
    let tokens = match filled {
        0 => format!("none of {size} filled"),
        n => format!("{} to {}, {n} of {size} filled", units::count(first), units::count(first + n - 1)),
    };
    let values = store
        .header
        .groups
        .get(place.group)
        .map_or(0, |group| size * (u64::from(group.k_dim) + u64::from(group.v_dim)));
    let each = match values {
        0 => String::new(),
        values => format!(", {:.3} bits a value", page.bytes as f64 * 8.0 / values as f64),
    };
    let owners = match store.owners(place) {
        1 => "held by this sequence alone".into(),
        n => format!("shared by {n} sequences"),
    };
    let mut lines = vec![
        ("Tokens", tokens),
        ("Formats", format!("K {}, V {}", page.formats.0, page.formats.1)),
        ("Bytes", format!("{} B{each}", units::count(page.bytes))),
        ("State", words_of(page.flags)),
        ("Owners", owners),
        ("Marks", marks(store, place, first..first + size)),
        ("Slots", format!("K {}, V {}, in segment group {}", page.slots[0], page.slots[1], page.segment_group)),
        (
            "Descriptor",
            format!("number {}, generation {}", units::count(page.page.into()), units::count(page.generation.into())),
        ),
    ];
    if let Some((rms, largest)) = fault(store, page) {
        let side = |n: usize| format!("{:.4} relative rms, {:.4} at most", rms[n], largest[n]);
        lines.push(("Error of K", side(0)));
        lines.push(("Error of V", side(1)));
    } else {
        lines.push(("Error", "exact values not held in this trace".into()));
    }
    lines
}

/// Tokens of the page that the sequence has.
pub fn filled(store: &Store, place: Place) -> u64 {
    let size = u64::from(store.page_tokens(place.group));
    let logical = store.state.sequences.get(&place.sequence).map_or(0, |held| u64::from(held.logical));
    logical.saturating_sub(u64::from(place.number) * size).min(size)
}

/// Relative rms and largest difference of K and V, where they were measured for the page as it is.
fn fault(store: &Store, page: &PageFacts) -> Option<([f32; 2], [f32; 2])> {
    let of = |fault: &crate::store::chronicle::PageFault| {
        (fault.group, fault.page, fault.generation) == (page.group, page.page, page.generation)
    };
    let fault = store.chronicle.faults.items().iter().rev().find(|fault| of(&fault.what))?;
    Some((fault.what.relative_rms, fault.what.largest))
}

fn words_of(bits: u16) -> String {
    const KNOWN: [(u16, &str); 5] = [
        (flags::PINNED, "kept in its format by the caller"),
        (flags::REOPENED, "reopened from a sealed page"),
        (flags::POSITIONS, "explicit positions"),
        (flags::LIVE, "some tokens masked"),
        (flags::SYNTHETIC, "made-up rows"),
    ];
    let mut words = vec![if bits & flags::SEALED != 0 { "sealed".to_string() } else { "open, being filled".into() }];
    words.extend(KNOWN.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, word)| word.to_string()));
    let rest = bits & !KNOWN.iter().fold(flags::SEALED, |all, (bit, _)| all | bit);
    if rest != 0 {
        words.push(format!("unknown flags {rest:#06x}"));
    }
    words.join(", ")
}

/// Pins and anchors that the page's tokens are in.
fn marks(store: &Store, place: Place, tokens: Range<u64>) -> String {
    let Some(held) = store.state.sequences.get(&place.sequence) else { return "none".into() };
    let mut marks = Vec::new();
    for (word, ranges) in [("pinned", &held.pins), ("anchor", &held.anchors)] {
        let meets = |r: &&Range<u32>| u64::from(r.start) < tokens.end && u64::from(r.end) > tokens.start;
        if let Some(range) = ranges.iter().find(meets) {
            marks.push(format!("{word} (tokens {} to {})", range.start, range.end.saturating_sub(1)));
        }
    }
    if marks.is_empty() { "none".into() } else { marks.join(", ") }
}

/// Why there is no page at a place.
pub fn absent(store: &Store, place: Place) -> &'static str {
    let Some(sequence) = store.state.sequences.get(&place.sequence) else {
        return "The sequence does not live at this step.";
    };
    let Some(row) = sequence.groups.get(place.group).and_then(|held| Some((held.first, held.rows.get(place.row)?)))
    else {
        return "The sequence has no such list of pages.";
    };
    match place.number.checked_sub(row.0) {
        None => "The page was left behind the window of its layers.",
        Some(at) if (at as usize) < row.1.len() => "The page was evicted: it is not resident at this step.",
        Some(_) => "The sequence has not got so far at this step.",
    }
}

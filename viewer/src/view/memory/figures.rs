//! The figures at the cursor.

use super::classes::{self, Class};
use super::clock;
use super::what_if::WhatIf;
use crate::palette::Palette;
use crate::store::Store;
use crate::store::figures::Bits;
use crate::units;
use crate::view::Scene;
use eframe::egui::{self, Align, Layout, Rect, RichText, Sense, Vec2};

/// Figures at the cursor, counted anew when the cache has changed.
#[derive(Default)]
pub struct Figures {
    bits: Option<(u64, Option<Bits>)>,
    what_if: WhatIf,
}

/// Pairs of formats that are listed.
const MOST_PAIRS: usize = 24;

impl Figures {
    /// Draws them in all of `ui`.
    pub fn show(&mut self, ui: &mut egui::Ui, scene: &Scene<'_>) {
        let store = scene.store;
        egui::ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
            // Room for the bar.
            ui.set_max_width((ui.available_width() - 12.0).max(60.0));
            ui.spacing_mut().item_spacing.y = 2.0;
            total(ui, scene);
            ui.add_space(4.0);
            self.values(ui, store);
            ui.add_space(4.0);
            pairs(ui, store);
            ui.add_space(6.0);
            let bits = self.bits.as_ref().and_then(|(_, bits)| bits.map(|bits| bits.resident));
            self.what_if.show(ui, store, bits);
        });
    }

    fn values(&mut self, ui: &mut egui::Ui, store: &Store) {
        if self.bits.as_ref().is_none_or(|(revision, _)| *revision != store.revision) {
            self.bits = Some((store.revision, store.bits()));
        }
        let tokens = store.state.sequences.values().map(|held| u64::from(held.logical)).sum::<u64>();
        let sequences = store.state.sequences.len() as u64;
        let words = format!("{} in {}", units::count(tokens), units::counted(sequences, "sequence", "sequences"));
        row(ui, "cached tokens", &words, "Tokens that forks share count in each of them.");
        let Some(bits) = self.bits.as_ref().and_then(|(_, bits)| *bits) else {
            row(ui, "bits a value", "unknown", "Nothing is cached, or the trace's header does not say the shape.");
            return;
        };
        let figure = |bits: f64| format!("{bits:.2} bits a value");
        row(ui, "resident", &figure(bits.resident), "Slots in use by cached values; 16 without compression.");
        let read = bits.read.map_or("no step known".into(), figure);
        row(ui, "read", &read, "Pages that the newest step of decoding read, by cached values.");
        row(ui, "metadata", &figure(bits.metadata), "Descriptors, tables, side planes, means, by cached values.");
        row(ui, "cached values", &units::count(bits.values), "Those that several sequences share count once.");
    }
}

/// What the allocator counts, and that the classes add up to it.
fn total(ui: &mut egui::Ui, scene: &Scene<'_>) {
    let (memory, just_told) = clock::at_cursor(scene.store);
    let (all, parts) = (memory.total(), classes::of(memory, true));
    let sum = classes::sum(&parts);
    ui.horizontal(|ui| {
        ui.label(RichText::new(units::bytes(all)).heading().strong());
        ui.label(format!("in all, after step {}", units::count(scene.store.state.step)));
    });
    check(ui, "classes below, added up", sum, "allocator's count", all, true);
    let pages = scene.store.state.page_bytes();
    check(ui, "live pages", pages, "slots in use", memory.used_slot_bytes(), just_told);
    ui.add_space(3.0);
    for (class, bytes) in &parts {
        class_row(ui, class, *bytes, all, scene.palette);
    }
}

/// Two counts of the same bytes: said to be equal, or the difference, in the colour of errors where both are of the same
/// moment.
fn check(ui: &mut egui::Ui, one: &str, bytes: u64, other: &str, expected: u64, same_moment: bool) {
    let words = if bytes == expected {
        RichText::new(format!("{one} = {other}: {} B", units::count(bytes))).small().weak()
    } else {
        let difference = units::bytes(bytes.abs_diff(expected));
        let more = if bytes > expected { "more" } else { "less" };
        let words = format!("{one}: {} B, {difference} {more} than the {other}", units::count(bytes));
        if same_moment {
            RichText::new(words).small().strong().color(ui.visuals().error_fg_color)
        } else {
            RichText::new(format!("{words}, which were told before")).small().weak()
        }
    };
    ui.label(words);
}

fn class_row(ui: &mut egui::Ui, class: &Class, bytes: u64, all: u64, palette: Palette) {
    let share = bytes as f64 / all.max(1) as f64;
    let drawn = ui.horizontal(|ui| {
        swatch(ui, class, palette);
        ui.label(class.name());
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            ui.add_sized(
                [48.0, 14.0],
                egui::Label::new(RichText::new(units::percent(share)).weak()).halign(Align::RIGHT),
            );
            ui.label(units::bytes(bytes));
        });
    });
    drawn.response.on_hover_text(format!("{}\n{} B", class.words(), units::count(bytes)));
}

/// A name and what it comes to.
fn row(ui: &mut egui::Ui, name: &str, value: &str, words: &str) {
    let drawn = ui.horizontal(|ui| {
        ui.label(name);
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| ui.label(value));
    });
    drawn.response.on_hover_text(words);
}

/// The colour and pattern of a class.
fn swatch(ui: &mut egui::Ui, class: &Class, palette: Palette) {
    let (rect, _) = ui.allocate_exact_size(Vec2::new(16.0, 12.0), Sense::hover());
    let (color, darker, pattern) = class.look(palette);
    let painter = ui.painter_at(rect);
    painter.rect_filled(rect, 0.0, color);
    let mut mesh = egui::Mesh::default();
    for (x, y) in (0..16).flat_map(|x| (0..12).map(move |y| (x, y))).filter(|(x, y)| pattern.darker(*x, *y)) {
        let at = rect.min + Vec2::new(x as f32, y as f32);
        mesh.add_colored_rect(Rect::from_min_size(at, Vec2::splat(1.0)), darker);
    }
    painter.add(egui::Shape::mesh(mesh));
}

/// Pages by their formats.
fn pairs(ui: &mut egui::Ui, store: &Store) {
    let pages = &store.state.pages;
    let all = pages.len() as u64;
    let counts = pages.formats().iter().enumerate().map(|(at, pair)| (pages.count_of(at) as u64, pair));
    let mut counts: Vec<_> = counts.filter(|(count, _)| *count > 0).collect();
    counts.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    row(ui, "pages by format of K / V", &units::count(all), "A page that several sequences hold counts once.");
    for (count, (k, v)) in counts.iter().take(MOST_PAIRS) {
        ui.horizontal(|ui| {
            ui.add_space(22.0);
            ui.label(format!("{k} / {v}"));
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                let share = RichText::new(units::percent(*count as f64 / all.max(1) as f64)).weak();
                ui.add_sized([48.0, 14.0], egui::Label::new(share).halign(Align::RIGHT));
                ui.label(units::count(*count));
            });
        });
    }
    if counts.len() > MOST_PAIRS {
        ui.weak(format!("and {} pairs of formats more", counts.len() - MOST_PAIRS));
    }
}

/// What is under the pointer.
pub fn tip(ui: &mut egui::Ui, when: &str, parts: &[(Class, u64)], palette: Palette) {
    ui.set_max_width(230.0);
    ui.strong(format!("{} {when}", units::bytes(classes::sum(parts))));
    for (class, bytes) in parts.iter().rev() {
        ui.horizontal(|ui| {
            swatch(ui, class, palette);
            ui.label(class.name());
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| ui.label(units::bytes(*bytes)));
        });
    }
    ui.weak("Click to go there.");
}

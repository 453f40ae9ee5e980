//! One page: its bits, its values, its history, its text.

mod bits;
mod facts;
mod history;
mod values;
mod words;

use super::{Act, Scene, Table, View};
use crate::store::{Place, Store};
use crate::units;
use eframe::egui;
use kvarto::engine::PageFacts;

/// One page: its bits, its values, its history, its text.
#[derive(Default)]
pub struct Inspector {
    facts: facts::Facts,
    history: history::History,
    bits: bits::Bits,
    values: values::Values,
    words: words::Words,
}

/// Width from which there are two columns.
const WIDE: f32 = 820.0;

impl View for Inspector {
    fn id(&self) -> &'static str {
        "inspector"
    }

    fn title(&self) -> &'static str {
        "Inspector"
    }

    fn show(&mut self, ui: &mut egui::Ui, scene: &Scene<'_>, acts: &mut Vec<Act>) {
        let Some(place) = scene.selection.page else {
            nothing_selected(ui, scene, acts);
            return;
        };
        let page = scene.store.page_at(place);
        head(ui, scene.store, place, acts);
        self.history.find(scene.store, place, page.as_ref().map(|page| page.page));
        egui::ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
            if ui.available_width() < WIDE {
                self.told(ui, scene, place, page.as_ref(), acts);
                self.stored(ui, scene, place, page.as_ref(), acts);
                return;
            }
            ui.columns(2, |columns| {
                if let [left, right] = columns {
                    left.vertical(|ui| self.told(ui, scene, place, page.as_ref(), acts));
                    right.vertical(|ui| self.stored(ui, scene, place, page.as_ref(), acts));
                }
            });
        });
    }

    fn table(&self, scene: &Scene<'_>) -> Option<Table> {
        let place = scene.selection.page?;
        let page = scene.store.page_at(place);
        let mut history = history::History::default();
        history.find(scene.store, place, page.as_ref().map(|page| page.page));
        history.table(scene.store).or_else(|| {
            let rows = facts::lines(scene.store, place, page.as_ref()?);
            let rows = rows.into_iter().map(|(what, value)| vec![what.to_string(), value]).collect();
            Some(Table { head: vec!["fact".into(), "value".into()], rows })
        })
    }
}

impl Inspector {
    /// What the trace tells of the page: facts, text, history.
    fn told(
        &mut self,
        ui: &mut egui::Ui,
        scene: &Scene<'_>,
        place: Place,
        page: Option<&PageFacts>,
        acts: &mut Vec<Act>,
    ) {
        match page {
            Some(page) => self.facts.show(ui, scene, place, page),
            None => drop(ui.label(facts::absent(scene.store, place))),
        }
        self.words.show(ui, scene, place, acts);
        self.history.show(ui, scene.store, acts);
    }

    /// What the page is stored as: bits and values.
    fn stored(
        &mut self,
        ui: &mut egui::Ui,
        scene: &Scene<'_>,
        place: Place,
        page: Option<&PageFacts>,
        acts: &mut Vec<Act>,
    ) {
        let Some(page) = page else { return };
        self.values.show(ui, scene, place, page, acts);
        self.bits.show(ui, scene, place, page);
    }
}

/// A heading of a section, and a weak word after it.
fn section(ui: &mut egui::Ui, title: &str, note: &str) {
    ui.add_space(8.0);
    ui.horizontal_wrapped(|ui| {
        ui.strong(title);
        if !note.is_empty() {
            ui.weak(note);
        }
    });
    ui.separator();
}

fn nothing_selected(ui: &mut egui::Ui, scene: &Scene<'_>, acts: &mut Vec<Act>) {
    ui.vertical_centered(|ui| {
        ui.add_space(24.0);
        ui.label("Click a page in the page map, or a token in the text.");
        ui.add_space(8.0);
        if let Some(place) = first_page(scene)
            && ui.button("Show the first page").clicked()
        {
            acts.push(Act::Select(Some(place)));
        }
    });
}

/// The first page that the selected sequence holds in the selected list of pages, or in the first one.
fn first_page(scene: &Scene<'_>) -> Option<Place> {
    let (sequence, group) = (scene.selection.sequence?, scene.selection.group);
    let row = scene.selection.row.unwrap_or(0);
    let held = scene.store.state.sequences.get(&sequence)?.groups.get(group)?;
    let at = held.rows.get(row)?.iter().position(Option::is_some)?;
    Some(Place { sequence, group, row, number: held.first.saturating_add(u32::try_from(at).ok()?) })
}

/// Names the page; buttons for its neighbours.
fn head(ui: &mut egui::Ui, store: &Store, place: Place, acts: &mut Vec<Act>) {
    ui.horizontal_wrapped(|ui| {
        let number = units::count(place.number.into());
        match store.layer_and_head(place.group, place.row) {
            Some((layer, head)) => ui.heading(format!("Layer {layer} · KV head {head} · page {number}")),
            None => ui.heading(format!("List {} · page {number}", place.row)),
        };
        ui.weak(format!("sequence {}, group {}", place.sequence.0, place.group));
        let pages = store.state.sequences.get(&place.sequence).and_then(|held| held.groups.get(place.group));
        let held = pages.and_then(|held| Some((held.first, held.rows.get(place.row)?.len())));
        let (first, count) = held.unwrap_or_default();
        let end = first.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        let before = place.number.checked_sub(1).filter(|number| *number >= first);
        let after = place.number.checked_add(1).filter(|number| *number < end);
        for (sign, number, what) in [("<", before, "The page before"), (">", after, "The page after")] {
            if ui.add_enabled(number.is_some(), egui::Button::new(sign)).on_hover_text(what).clicked() {
                acts.push(Act::Select(number.map(|number| Place { number, ..place })));
            }
        }
    });
}

//! Two traces on one clock: what differs between their caches at the same step.

mod curves;
mod figures;
mod map;
mod rows;

use super::{Act, Scene, Table, View};
use crate::samples;
use crate::store::Store;
use crate::units;
use eframe::egui::{self, Color32};
use std::path::{Path, PathBuf};

/// Two traces on one clock.
#[derive(Default)]
pub struct Compare {
    path: String,
    map: map::Map,
    figures: [figures::Figures; 2],
    curves: [curves::Curve; 2],
}

/// Width from which figures and curves stand beside each other.
const WIDE: f32 = 760.0;

impl View for Compare {
    fn id(&self) -> &'static str {
        "compare"
    }

    fn title(&self) -> &'static str {
        "Compare"
    }

    fn show(&mut self, ui: &mut egui::Ui, scene: &Scene<'_>, acts: &mut Vec<Act>) {
        let Some(other) = scene.other else {
            self.offer(ui, acts);
            return;
        };
        egui::ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
            head(ui, scene, other, acts);
            let shared = rows::Shared::of(scene, other);
            for words in rows::differences(scene, other, &shared) {
                ui.weak(words);
            }
            ui.add_space(4.0);
            self.map.show(ui, scene, other, &shared, acts);
            ui.add_space(8.0);
            if ui.available_width() < WIDE {
                self.told(ui, scene, other);
                curves::show(ui, scene, other, &mut self.curves, acts);
                return;
            }
            ui.columns(2, |columns| {
                if let [left, right] = columns {
                    left.vertical(|ui| self.told(ui, scene, other));
                    right.vertical(|ui| curves::show(ui, scene, other, &mut self.curves, acts));
                }
            });
        });
    }

    fn table(&self, scene: &Scene<'_>) -> Option<Table> {
        let other = scene.other?;
        let mut sides = [figures::Figures::default(), figures::Figures::default()];
        sides[0].update(scene.store, scene.selection.sequence);
        sides[1].update(other, scene.selection.sequence);
        let line = |[name, a, b, difference]: [String; 4]| vec![name, a, b, difference];
        let rows = figures::lines(&sides).into_iter().map(line).collect();
        Some(Table { head: ["figure", "a", "b", "difference (a - b)"].map(String::from).to_vec(), rows })
    }
}

impl Compare {
    /// Explains itself and asks for a second trace.
    fn offer(&mut self, ui: &mut egui::Ui, acts: &mut Vec<Act>) {
        ui.add_space(16.0);
        ui.vertical_centered(|ui| {
            ui.strong("Two traces on one clock");
            ui.label("A second trace is shown at the same step as this one: which pages take more bytes,");
            ui.label("have other formats or larger errors, and what memory and time come to.");
            ui.add_space(10.0);
            // As wide as its parts, so that it stands in the middle.
            let width = (ui.available_width() - 190.0).clamp(80.0, 420.0);
            ui.allocate_ui(egui::vec2(width + 180.0, ui.spacing().interact_size.y), |ui| {
                ui.horizontal(|ui| {
                    let name = ui.label("Second trace").id;
                    let edit =
                        egui::TextEdit::singleline(&mut self.path).desired_width(width).hint_text("a .kvtr file");
                    let edit = ui.add(edit).labelled_by(name);
                    let entered = edit.lost_focus() && ui.input(|input| input.key_pressed(egui::Key::Enter));
                    let path = self.path.trim();
                    let clicked = ui.add_enabled(!path.is_empty(), egui::Button::new("Compare")).clicked();
                    if (clicked || entered) && !path.is_empty() {
                        acts.push(Act::Compare(PathBuf::from(path)));
                    }
                })
            });
            ui.add_space(6.0);
            type Sample = fn() -> Result<PathBuf, String>;
            let offers: [(&str, Sample); 2] =
                [("The sample: Minima-KV", samples::minima), ("The sample: a chat with a fork", samples::chat)];
            for (words, sample) in offers {
                if ui.button(words).clicked() {
                    acts.push(sample().map_or_else(Act::Tell, Act::Compare));
                }
            }
        });
    }

    fn told(&mut self, ui: &mut egui::Ui, scene: &Scene<'_>, other: &Store) {
        let [a, b] = &mut self.figures;
        a.update(scene.store, scene.selection.sequence);
        b.update(other, scene.selection.sequence);
        figures::show(ui, scene, &self.figures);
    }
}

/// The colour of a trace in this view.
fn color(scene: &Scene<'_>, number: usize) -> Color32 {
    scene.palette.difference(if number == 0 { 1.0 } else { -1.0 })
}

/// A trace's model and profile.
fn name(store: &Store) -> String {
    let model = store.header.model.as_ref().map_or(store.header.command.as_str(), |model| model.name.as_str());
    match store.header.profile.as_str() {
        "" => model.to_string(),
        profile => format!("{model} · {profile}"),
    }
}

/// Names both traces and says where they stand.
fn head(ui: &mut egui::Ui, scene: &Scene<'_>, other: &Store, acts: &mut Vec<Act>) {
    for (number, (letter, store)) in [("A", scene.store), ("B", other)].into_iter().enumerate() {
        ui.horizontal_wrapped(|ui| {
            let (rect, _) = ui.allocate_exact_size(egui::vec2(10.0, 10.0), egui::Sense::hover());
            ui.painter().rect_filled(rect, 2.0, color(scene, number));
            ui.strong(format!("{letter}: {}", name(store))).on_hover_text(&store.name);
            let file = Path::new(&store.name).file_name().map_or(store.name.clone(), |file| file.display().to_string());
            ui.weak(file);
            let (step, last) = (units::count(store.state.step), units::count(store.chronicle.last_step));
            ui.label(format!("at step {step} of {last}"));
            if store.scanned < 1.0 {
                ui.weak(format!("being read: {:.0} %", store.scanned * 100.0));
            } else if number == 1 && store.chronicle.last_step < scene.store.state.step {
                ui.weak("it ends here");
            }
            if number == 1 && ui.button("End comparison").clicked() {
                acts.push(Act::EndCompare);
            }
        });
    }
}

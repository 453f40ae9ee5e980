//! Where a trace was made, how it ends, which kernels ran; and what this machine can run.

mod facts;
mod probe;

use super::{Act, Scene, Table, View};
use eframe::egui::{self, RichText, Vec2};
use facts::Section;
use kvarto::trace::Ending;
use probe::{Found, Probe};
use std::collections::BTreeSet;

/// Width of names, in points.
const NAMES: f32 = 112.0;

/// Where a trace was made, and what this machine can run.
#[derive(Default)]
pub struct Device {
    /// The trace that kernels are of.
    trace: String,
    /// How many times were looked through, and the kernels in them.
    kernels: (usize, BTreeSet<String>),
    probe: Option<Probe>,
}

impl Device {
    fn machine(&mut self, ui: &mut egui::Ui, scene: &Scene<'_>) {
        heading(ui, "This machine");
        if let Some(probe) = &mut self.probe {
            probe.listen();
        }
        ui.horizontal_wrapped(|ui| match &mut self.probe {
            Some(probe) if probe.running => {
                if ui.button("Stop").clicked() {
                    probe.stop();
                }
                ui.label(&probe.doing);
            }
            probe => {
                let words = "Lists adapters, compiles the kernels and runs a small cache in every format on each, as \
                             `kvarto doctor` does. It may take minutes; the window goes on.";
                if ui.button("Look at this machine").on_hover_text(words).clicked() {
                    let context = ui.ctx().clone();
                    *probe = Some(Probe::begin(move || context.request_repaint()));
                }
                match probe {
                    Some(probe) => ui.label(&probe.doing),
                    None => ui.weak("What can run here: adapters, kernels, a self-test of every format."),
                };
            }
        });
        for found in self.probe.iter().flat_map(|probe| &probe.found) {
            adapter(ui, found, scene);
        }
    }
}

/// An adapter and what came of it.
fn adapter(ui: &mut egui::Ui, found: &Found, scene: &Scene<'_>) {
    let warn = ui.visuals().warn_fg_color;
    ui.add_space(4.0);
    ui.horizontal_wrapped(|ui| {
        ui.strong(&found.word);
        ui.label(&found.name);
    });
    match (&found.refusal, &found.outcome) {
        (Some(why), _) => drop(ui.label(RichText::new(format!("refused: {why}")).color(warn))),
        (None, None) => drop(ui.weak("not looked at yet")),
        (None, Some(outcome)) => {
            ui.horizontal_wrapped(|ui| {
                let word = if outcome.passed { "pass" } else { "NOT ALL PASS" };
                let color = if outcome.passed { ui.visuals().strong_text_color() } else { scene.palette.alarm() };
                ui.label(RichText::new(word).strong().color(color));
                ui.label(&outcome.words);
            });
            for fault in &outcome.faults {
                ui.label(RichText::new(fault).color(warn));
            }
            let details = format!("details of {}", found.word);
            egui::CollapsingHeader::new(details).id_salt(&found.word).show(ui, |ui| {
                found.lines.iter().chain(&outcome.formats).for_each(|(name, value)| row(ui, name, value, false));
            });
        }
    }
}

fn heading(ui: &mut egui::Ui, words: &str) {
    ui.add_space(8.0);
    ui.label(RichText::new(words).strong().size(15.0));
    ui.separator();
}

/// A name and its value, which takes as many lines as it needs.
fn row(ui: &mut egui::Ui, name: &str, value: &str, alarm: bool) {
    ui.horizontal_top(|ui| {
        let (rect, _) = ui.allocate_exact_size(Vec2::new(NAMES, 18.0), egui::Sense::hover());
        let layout = egui::Layout::left_to_right(egui::Align::Center);
        // What is drawn in it leaves its width as it is.
        let mut place = ui.new_child(egui::UiBuilder::new().max_rect(rect).layout(layout));
        place.add(egui::Label::new(RichText::new(name).weak()).truncate());
        ui.vertical(|ui| {
            ui.add_space(1.0);
            let text = if alarm { RichText::new(value).color(ui.visuals().error_fg_color) } else { value.into() };
            ui.add(egui::Label::new(text).wrap());
        });
    });
}

impl View for Device {
    fn id(&self) -> &'static str {
        "device"
    }

    fn title(&self) -> &'static str {
        "Device"
    }

    fn show(&mut self, ui: &mut egui::Ui, scene: &Scene<'_>, _acts: &mut Vec<Act>) {
        let store = scene.store;
        let times = store.chronicle.kernels.samples().len();
        if self.trace != store.name || times < self.kernels.0 {
            (self.trace, self.kernels) = (store.name.clone(), (0, BTreeSet::new()));
        }
        facts::add_kernels(&mut self.kernels.1, store, self.kernels.0);
        self.kernels.0 = times;
        egui::ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
            ui.set_max_width((ui.available_width() - 12.0).clamp(120.0, 900.0));
            ui.spacing_mut().item_spacing.y = 2.0;
            let bad_ending = matches!(store.ending, Some(Ending::Cut(_) | Ending::Damaged(_)));
            for (title, rows) in facts::sections(store, &self.kernels.1) {
                heading(ui, title);
                for (name, value) in &rows {
                    let lost = name == "events lost" && value != "0";
                    row(ui, name, value, name == "fault" || lost || name == "ending" && bad_ending);
                }
                if title == "Cache" && !store.header.profile_text.is_empty() {
                    egui::CollapsingHeader::new("text of the profile").default_open(true).show(ui, |ui| {
                        let area = egui::ScrollArea::both().max_height(220.0).auto_shrink([false, true]);
                        area.id_salt("profile").show(ui, |ui| {
                            let text = RichText::new(&store.header.profile_text).monospace();
                            ui.add(egui::Label::new(text).extend());
                        });
                    });
                }
            }
            self.machine(ui, scene);
        });
    }

    fn table(&self, scene: &Scene<'_>) -> Option<Table> {
        let mut kernels = BTreeSet::new();
        facts::add_kernels(&mut kernels, scene.store, 0);
        let sections: Vec<Section> = facts::sections(scene.store, &kernels);
        let mut rows: Vec<Vec<String>> = Vec::new();
        for (title, lines) in sections {
            rows.extend(lines.into_iter().map(|(name, value)| vec![format!("{title}: {name}"), value]));
        }
        rows.push(vec!["Cache: text of the profile".into(), scene.store.header.profile_text.clone()]);
        for found in self.probe.iter().flat_map(|probe| &probe.found) {
            let value = match (&found.refusal, &found.outcome) {
                (Some(why), _) => format!("{}, refused: {why}", found.name),
                (None, None) => found.name.clone(),
                (None, Some(outcome)) => {
                    format!(
                        "{}, {}: {}",
                        found.name,
                        if outcome.passed { "pass" } else { "not all pass" },
                        outcome.words
                    )
                }
            };
            rows.push(vec![format!("This machine: {}", found.word), value]);
        }
        Some(Table { head: vec!["what".into(), "value".into()], rows })
    }
}

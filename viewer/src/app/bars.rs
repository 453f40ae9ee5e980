//! The bar above, messages below.

use super::App;
use super::sources::Opening;
use crate::icons::{self, Icon};
use crate::{layout, palette, samples};
use eframe::egui;
use std::path::Path;

impl App {
    pub(super) fn top(&mut self, ui: &mut egui::Ui) {
        ui.add_space(3.0);
        ui.horizontal(|ui| {
            ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
                if ui.button("?").on_hover_text("Keys (H)").clicked() {
                    self.help = !self.help;
                }
                if icons::button(ui, Icon::Contrast, "Light or dark", "Light or dark").clicked() {
                    self.settings.dark = !self.settings.dark;
                }
                if icons::button(ui, Icon::Layout, "Usual layout", "The usual layout").clicked() {
                    self.tree = layout::usual();
                }
                self.legend(ui);
                ui.with_layout(egui::Layout::left_to_right(egui::Align::Center), |ui| {
                    self.menu(ui);
                    self.choices(ui);
                });
            });
        });
        if let Some(mut line) = self.path_line.take() {
            let mut keep = true;
            ui.horizontal(|ui| {
                ui.label("Trace");
                let edit = ui.add(egui::TextEdit::singleline(&mut line).desired_width(500.0).hint_text("a .kvtr file"));
                edit.request_focus();
                let entered = ui.input(|input| input.key_pressed(egui::Key::Enter));
                if ui.button("Open").clicked() || entered {
                    keep = false;
                    self.open(Path::new(line.trim()), Opening::Play);
                }
                if ui.button("Compare with it").clicked() {
                    keep = false;
                    self.compare(Path::new(line.trim()));
                }
                if ui.button("Cancel").clicked() {
                    keep = false;
                }
            });
            self.path_line = keep.then_some(line);
        }
        ui.add_space(2.0);
    }

    fn menu(&mut self, ui: &mut egui::Ui) {
        let (mut wanted, mut sample) = (None, None);
        ui.menu_button("Open", |ui| {
            if ui.button("A file…   (Ctrl+O, or drop it here)").clicked() {
                self.path_line = Some(String::new());
                ui.close();
            }
            ui.separator();
            if ui.button("The sample: Minima-KV at 4,000 tokens").clicked() {
                sample = Some(samples::minima());
                ui.close();
            }
            if ui.button("The sample: a chat with a fork").clicked() {
                sample = Some(samples::chat());
                ui.close();
            }
            ui.separator();
            for path in &self.settings.recent {
                if ui.button(path.display().to_string()).clicked() {
                    wanted = Some(path.clone());
                    ui.close();
                }
            }
        });
        if let Some(path) = wanted {
            self.open(&path, Opening::Play);
        }
        if let Some(sample) = sample {
            self.open_sample(sample, Opening::Play);
        }
    }

    fn choices(&mut self, ui: &mut egui::Ui) {
        let store = &self.player.store;
        let title = store.header.model.as_ref().map_or(store.header.command.clone(), |model| model.name.clone());
        // The boxes keep their room.
        let boxes = if store.state.groups.len() > 1 { 230.0 } else { 125.0 };
        let room = (ui.available_width() - boxes).max(24.0);
        ui.scope(|ui| {
            ui.set_max_width(room);
            let words = match title.is_empty() {
                // Nothing is read yet.
                true => store.name.chars().take(200).collect(),
                false => format!("{title} · {}", store.header.profile).chars().take(200).collect::<String>(),
            };
            let words = egui::RichText::new(words).strong();
            ui.add(egui::Label::new(words).truncate()).on_hover_text(&store.name);
        });
        let name = self.selection.sequence.map_or("no sequence".into(), |s| format!("sequence {}", s.0));
        let sequences = egui::ComboBox::from_id_salt("sequence").selected_text(name).show_ui(ui, |ui| {
            for (sequence, held) in &store.state.sequences {
                let fork = store.chronicle.lineage.of(*sequence).and_then(|life| life.from);
                let from = fork.map_or(String::new(), |(from, at)| format!(", forked from {} at {at}", from.0));
                let words = format!("sequence {}: {} tokens{from}", sequence.0, held.logical);
                ui.selectable_value(&mut self.selection.sequence, Some(*sequence), words);
            }
        });
        icons::name_choice(&sequences, "Sequence");
        if store.state.groups.len() > 1 {
            let words = format!("group {}", self.selection.group);
            let groups = egui::ComboBox::from_id_salt("group").selected_text(words).show_ui(ui, |ui| {
                for (group, facts) in store.state.groups.iter().enumerate() {
                    let kind = store.header.groups.get(group).map_or("", |header| header.kind.as_str());
                    let words = format!("group {group}: {} layers, {kind}", facts.layers.len());
                    ui.selectable_value(&mut self.selection.group, group, words);
                }
            });
            icons::name_choice(&groups, "Cache group");
        }
    }

    fn legend(&self, ui: &mut egui::Ui) {
        let palette = self.palette();
        let mut formats: Vec<&str> = self.player.store.chronicle.formats.iter().collect();
        formats.sort_unstable_by(|a, b| b.cmp(a));
        // What names the trace and chooses in it comes first.
        let room = ((ui.available_width() - 380.0) / 52.0).clamp(0.0, 12.0) as usize;
        for format in formats.into_iter().take(room) {
            let short: String = format.chars().filter(|c| !c.is_control()).take(10).collect();
            ui.label(egui::RichText::new(short).small());
            let (rect, _) = ui.allocate_exact_size(egui::vec2(16.0, 12.0), egui::Sense::hover());
            let painter = ui.painter_at(rect);
            painter.rect_filled(rect, 0.0, palette.format(format));
            let (pattern, dark) = (palette.pattern(format), palette::dim(palette.format(format), 0.7));
            for y in 0..12 {
                for x in (0..16).filter(|x| pattern.darker(*x, y)) {
                    let at = rect.min + egui::vec2(x as f32, y as f32);
                    painter.rect_filled(egui::Rect::from_min_size(at, egui::vec2(1.0, 1.0)), 0.0, dark);
                }
            }
        }
    }

    pub(super) fn notices(&mut self, ui: &mut egui::Ui) {
        let mut gone = None;
        for (at, message) in self.messages.iter().enumerate().rev().take(4) {
            ui.horizontal(|ui| {
                if icons::button(ui, Icon::Close, "Close message", "Close").clicked() {
                    gone = Some(at);
                }
                ui.add(egui::Label::new(egui::RichText::new(message).color(ui.visuals().warn_fg_color)).truncate());
            });
        }
        if let Some(at) = gone {
            self.messages.remove(at);
        }
        if self.messages.len() > 4 {
            ui.weak(format!("and {} more", self.messages.len() - 4));
        }
    }
}

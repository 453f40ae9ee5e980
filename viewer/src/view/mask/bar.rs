//! The bar above the mask: which list is looked at, what the newest step read, and what colours mean.

use super::Mask;
use super::lines::Whose;
use super::paint::Inks;
use super::pattern;
use crate::view::{Act, Scene};
use eframe::egui::{self, RichText, Sense, vec2};

impl Mask {
    /// Draws it.
    pub(super) fn bar(&mut self, ui: &mut egui::Ui, scene: &Scene<'_>, whose: Whose, acts: &mut Vec<Act>) {
        let store = scene.store;
        let facts = store.state.groups.get(whose.group);
        let (layers, heads) = facts.map_or((&[][..], 1), |facts| (&facts.layers[..], facts.kv_heads.max(1) as usize));
        let place = whose.row.map(|row| (row / heads, row % heads));
        ui.horizontal_wrapped(|ui| {
            let name = ui.label("Layer");
            let layer_word = |at: usize| layers.get(at).map_or("?".into(), |layer| format!("layer {layer}"));
            let now = place.map_or("mean of all".into(), |(layer, _)| layer_word(layer));
            let shown = egui::ComboBox::from_id_salt("mask layer").width(96.0).selected_text(now).show_ui(ui, |ui| {
                if ui.selectable_label(place.is_none(), "mean of all").clicked() {
                    acts.push(Act::Row(None));
                }
                for at in 0..layers.len().min(whose.rows.div_ceil(heads)) {
                    let chosen = place.is_some_and(|(layer, _)| layer == at);
                    if ui.selectable_label(chosen, layer_word(at)).clicked() {
                        acts.push(Act::Row(Some(at * heads + place.map_or(0, |(_, head)| head))));
                    }
                }
            });
            shown.response.labelled_by(name.id);
            if let Some((layer, head)) = place.filter(|_| heads > 1) {
                let name = ui.label("KV head");
                let now = head.to_string();
                let shown =
                    egui::ComboBox::from_id_salt("mask head").width(40.0).selected_text(now).show_ui(ui, |ui| {
                        for at in 0..heads.min(whose.rows) {
                            if ui.selectable_label(head == at, at.to_string()).clicked() {
                                acts.push(Act::Row(Some(layer * heads + at)));
                            }
                        }
                    });
                shown.response.labelled_by(name.id);
            }
            let changed = self.back > 0.0 || self.height.is_some();
            if ui.add_enabled(changed, egui::Button::new("Newest")).on_hover_text("See the newest steps").clicked() {
                (self.back, self.height) = (0.0, None);
            }
            if let Some(line) = self.lines.lines.last() {
                let words = pattern::words(&line.read, whose.row, whose.rows);
                ui.label(RichText::new(format!("Step {}: {words}", line.read.step)).strong());
            } else {
                ui.label(RichText::new("No step of this sequence before the cursor").weak());
            }
        });
        let inks = Inks::of(scene.palette);
        ui.horizontal_wrapped(|ui| {
            for (color, word) in [(inks.read, "read"), (inks.unread, "not read"), (inks.gone, "evicted")] {
                let (rect, _) = ui.allocate_exact_size(vec2(14.0, 10.0), Sense::hover());
                let painter = ui.painter_at(rect);
                painter.rect_filled(rect, 1.0, color);
                if word == "evicted" {
                    for n in 0..5 {
                        let from = rect.left_bottom() + vec2(5.0 * n as f32 - 6.0, 0.0);
                        let stroke = egui::Stroke::new(1.5, color.lerp_to_gamma(inks.hatch, 0.55));
                        painter.line_segment([from, from + vec2(10.0, -10.0)], stroke);
                    }
                }
                ui.label(RichText::new(word).small());
            }
            let keys = "wheel: older and newer steps · Ctrl and wheel: higher lines · click on a page: inspect it · \
                        click on a step's number or bars: go there";
            ui.label(RichText::new(keys).weak().small());
        });
    }
}

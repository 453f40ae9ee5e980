//! Which pages each step read: steps down, pages across, and beside each step how good its choice was.

mod cover;
mod gone;
mod lines;
mod paint;
mod pattern;
#[cfg(test)]
mod tests;
mod words;

use super::axis::{nice, positions, thousands};
use super::{Act, Scene, Table, View, not_in_this_trace};
use crate::store::{Place, Store};
use eframe::egui::{self, Align2, Color32, FontId, Pos2, Rect, RichText, Sense, TextureHandle, TextureOptions, vec2};
use gone::Gone;
use lines::{Lines, Whose};
use paint::{Inks, Painter, Picture, SIDE_GAP};

/// Room for numbers of steps at the left, for words above and for positions below.
const LEFT: f32 = 52.0;
const ABOVE: f32 = 16.0;
const BELOW: f32 = 32.0;
/// Width of a column of shares.
const SIDE: f32 = 58.0;
/// Heights of a step.
const LEAST: f32 = 2.0;
const LARGEST: f32 = 16.0;
/// Pixels of a picture above which it has half of the window's resolution.
const MOST_PIXELS: f32 = 2.6e6;

/// What a picture shows: where it is equal, it is not drawn again.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Drawn {
    whose: Whose,
    revision: u64,
    events: u64,
    gone: u64,
    size: [usize; 3],
    first: usize,
    dark: bool,
}

/// Which pages each step read.
#[derive(Default)]
pub struct Mask {
    lines: Lines,
    gone: Gone,
    painter: Painter,
    texture: Option<TextureHandle>,
    drawn: Option<Drawn>,
    /// Steps between the newest one and the last that is seen.
    back: f32,
    /// Points of a step, where somebody has chosen.
    height: Option<f32>,
}

/// Where things are.
struct Frame {
    /// Mask and shares.
    mask: Rect,
    /// Columns of shares.
    sides: usize,
    /// Points of a step.
    height: f32,
    /// The first step that is seen, and how many.
    seen: std::ops::Range<usize>,
    /// Steps that there is room for.
    room: usize,
}

/// What is looked at, if the sequence is there.
fn whose(scene: &Scene<'_>) -> Option<Whose> {
    let (sequence, group) = (scene.selection.sequence?, scene.selection.group);
    let rows = scene.store.state.sequences.get(&sequence)?.groups.get(group)?.rows.len();
    let row = scene.selection.row.filter(|row| *row < rows);
    Some(Whose { sequence, group, row, rows })
}

impl View for Mask {
    fn id(&self) -> &'static str {
        "mask"
    }

    fn title(&self) -> &'static str {
        "Sparsity mask"
    }

    fn show(&mut self, ui: &mut egui::Ui, scene: &Scene<'_>, acts: &mut Vec<Act>) {
        let store = scene.store;
        if store.chronicle.reads.samples().is_empty() {
            return not_in_this_trace(ui, "Reads of pages", "A trace of an engine has them where it takes steps.");
        }
        let Some(whose) = whose(scene) else {
            return not_in_this_trace(ui, "Reads of pages", "No sequence holds pages at the cursor.");
        };
        self.lines.update(store, whose);
        let behind = self.gone.update(store, (whose.sequence, whose.group, whose.row));
        self.bar(ui, scene, whose, acts);
        let size = ui.available_size().max(vec2(1.0, 1.0));
        let (whole, response) = ui.allocate_exact_size(size, Sense::click_and_drag());
        let sides = if whole.width() >= 620.0 { 3 } else { usize::from(whole.width() >= 320.0) };
        let mut mask = Rect::from_min_max(whole.min + vec2(LEFT, ABOVE), whole.max - vec2(2.0, BELOW));
        mask.max.x -= SIDE * sides as f32;
        if mask.width() < 16.0 || mask.height() < 8.0 {
            return;
        }
        let frame = self.steer(ui, &response, mask, sides);
        let missing = self.draw(ui, scene, whose, &frame, behind);
        if missing || behind {
            ui.ctx().request_repaint();
        }
        self.around(ui, scene, whose, &frame, whole);
        self.point(ui, scene, whose, &frame, &response, acts);
    }

    fn table(&self, scene: &Scene<'_>) -> Option<Table> {
        words::table(scene.store, whose(scene)?)
    }
}

impl Mask {
    fn bar(&mut self, ui: &mut egui::Ui, scene: &Scene<'_>, whose: Whose, acts: &mut Vec<Act>) {
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

    /// Scrolls and zooms; what is seen.
    fn steer(&mut self, ui: &egui::Ui, response: &egui::Response, mask: Rect, sides: usize) -> Frame {
        let all = self.lines.all.max(1) as f32;
        let usual = (mask.height() / all).clamp(LEAST, LARGEST).floor();
        let mut height = self.height.unwrap_or(usual);
        let lines = self.lines.lines.len();
        if response.contains_pointer() {
            let (scroll, zoom) = ui.input(|input| (input.smooth_scroll_delta(), input.zoom_delta()));
            if zoom != 1.0 && zoom.is_finite() {
                height = (height * zoom).clamp(1.0, LARGEST);
                self.height = Some(height);
            }
            let dragged = if response.dragged() { response.drag_delta().y } else { 0.0 };
            self.back += (scroll.y + dragged) / height.max(1.0);
        }
        let height = height.round().max(1.0);
        let room = ((mask.height() / height) as usize).max(1);
        self.back = self.back.clamp(0.0, lines.saturating_sub(room) as f32);
        let end = lines - (self.back as usize).min(lines);
        let seen = end.saturating_sub(room)..end;
        let mask = Rect::from_min_size(mask.min, vec2(mask.width(), height * room as f32));
        Frame { mask, sides, height, seen, room }
    }

    /// Draws the picture, anew where anything changed; whether it is not whole yet.
    fn draw(&mut self, ui: &egui::Ui, scene: &Scene<'_>, whose: Whose, frame: &Frame, behind: bool) -> bool {
        let mut points = ui.ctx().pixels_per_point();
        let whole = Rect::from_min_size(frame.mask.min, frame.mask.size() + vec2(SIDE * frame.sides as f32, 0.0));
        if whole.area() * points * points > MOST_PIXELS {
            points /= 2.0;
        }
        let pixels = |side: f32| ((side * points).round() as usize).clamp(1, 8192);
        let most = ui.input(|input| input.max_texture_side).max(64);
        let side = pixels(SIDE);
        let width = pixels(frame.mask.width()).min(most - (side * frame.sides).min(most - 1));
        let height = pixels(frame.height).min((most / frame.room).max(1));
        let drawn = Some(Drawn {
            whose,
            revision: scene.store.revision,
            events: scene.store.chronicle.events,
            gone: self.gone.version,
            size: [width, height, frame.room],
            first: frame.seen.start,
            dark: scene.palette.dark,
        });
        let mut missing = false;
        if self.drawn != drawn || self.texture.is_none() || behind {
            let picture = Picture {
                whose,
                lines: self.lines.lines.get(frame.seen.clone()).unwrap_or_default(),
                room: frame.room.min(most),
                columns: self.lines.columns,
                width,
                side: (side, frame.sides),
                height,
                inks: Inks::of(scene.palette),
                qualities: &self.lines.qualities,
            };
            let (image, not_yet) = self.painter.picture(&picture, &self.gone, behind);
            missing = not_yet;
            match &mut self.texture {
                Some(texture) => texture.set(image, TextureOptions::NEAREST),
                none => *none = Some(ui.ctx().load_texture("mask", image, TextureOptions::NEAREST)),
            }
            self.drawn = drawn.filter(|_| !missing);
        }
        if let Some(texture) = &self.texture {
            let uv = Rect::from_min_max(Pos2::ZERO, Pos2::new(1.0, 1.0));
            ui.painter_at(whole).image(texture.id(), whole, uv, Color32::WHITE);
        }
        missing
    }

    /// Axes, names of shares, and marks of what is looked at.
    fn around(&self, ui: &egui::Ui, scene: &Scene<'_>, whose: Whose, frame: &Frame, whole: Rect) {
        let painter = ui.painter_at(whole);
        let (mask, ink) = (frame.mask, scene.palette.ink());
        let weak = ink.gamma_multiply(0.75);
        let columns = f64::from(self.lines.columns);
        positions(&painter, mask, 0.0, columns, scene.store.page_tokens(whose.group), ink);
        let small = FontId::proportional(10.5);
        painter.text(mask.left_top() - vec2(8.0, 2.0), Align2::RIGHT_BOTTOM, "step", small.clone(), weak);
        let every = nice(f64::from(14.0 / frame.height)) as usize;
        for (at, line) in self.lines.lines.get(frame.seen.clone()).unwrap_or_default().iter().enumerate() {
            if at % every == 0 {
                let pos = mask.left_top() + vec2(-8.0, (at as f32 + 0.5) * frame.height);
                painter.text(pos, Align2::RIGHT_CENTER, thousands(line.read.step), small.clone(), weak);
            }
        }
        let sampled = !self.lines.qualities.is_empty();
        for (at, word) in ["share read", "mass kept", "recall"].into_iter().take(frame.sides).enumerate() {
            let left = mask.right() + SIDE * at as f32 + SIDE_GAP as f32;
            let right = left + SIDE - SIDE_GAP as f32;
            painter.text(Pos2::new(left, mask.top() - 2.0), Align2::LEFT_BOTTOM, word, small.clone(), weak);
            for x in [left, right - 0.5] {
                painter.vline(x, mask.y_range(), egui::Stroke::new(1.0, ink.gamma_multiply(0.25)));
            }
            let below = mask.bottom() + 5.0;
            let font = FontId::proportional(9.5);
            painter.text(Pos2::new(left, below), Align2::LEFT_TOP, "0", font.clone(), weak);
            painter.text(Pos2::new(right, below), Align2::RIGHT_TOP, "100 %", font.clone(), weak);
            if at > 0 && !sampled {
                let pos = Pos2::new((left + right) / 2.0, mask.top() + 24.0);
                painter.text(pos, Align2::CENTER_CENTER, "not in\nthis trace", font, ink.gamma_multiply(0.55));
            }
        }
        let scale = mask.width() / columns as f32;
        let place = |from: f64, to: f64| {
            let x = |number: f64| mask.left() + (number as f32 * scale).clamp(-1e6, 1e6);
            Rect::from_x_y_ranges(x(from)..=x(to).max(x(from) + 1.0), mask.y_range()).intersect(mask)
        };
        let marks = ui.painter_at(mask);
        if let Some(brush) = &scene.selection.brush {
            let band = place(brush.start.into(), brush.end.max(brush.start).into());
            marks.rect_filled(band, 0.0, scene.palette.accent().gamma_multiply(0.15));
        }
        for (page, strength) in [(scene.selection.page, 0.9), (scene.selection.hover, 0.5)] {
            let own = page.filter(|page| page.sequence == whose.sequence && page.group == whose.group);
            let own = own.filter(|page| whose.row.is_none_or(|row| row == page.row));
            if let Some(page) = own {
                let number = f64::from(page.number);
                let stroke = egui::Stroke::new(1.0, scene.palette.accent().gamma_multiply(strength));
                marks.rect_stroke(place(number, number + 1.0), 0.0, stroke, egui::StrokeKind::Inside);
            }
        }
    }

    /// Tooltip and clicks.
    fn point(
        &self,
        ui: &egui::Ui,
        scene: &Scene<'_>,
        whose: Whose,
        frame: &Frame,
        response: &egui::Response,
        acts: &mut Vec<Act>,
    ) {
        let Some(pos) = response.hover_pos().filter(|pos| frame.mask.y_range().contains(pos.y)) else { return };
        let at = ((pos.y - frame.mask.top()) / frame.height).max(0.0) as usize;
        let seen = self.lines.lines.get(frame.seen.clone()).unwrap_or_default();
        let Some(line) = seen.get(at) else { return };
        let column = (pos.x - frame.mask.left()) / frame.mask.width() * self.lines.columns as f32;
        let page = frame.mask.x_range().contains(pos.x).then_some(column.max(0.0) as u32);
        let place = page.filter(|page| line.read.visible.contains(page)).map(|number| Place {
            sequence: whose.sequence,
            group: whose.group,
            row: whose.row.unwrap_or(0),
            number,
        });
        acts.extend(place.map(Act::Hover));
        if response.clicked() {
            acts.push(match (page, place) {
                (Some(_), place) => Act::Select(place),
                (None, _) => Act::Seek(seek_to(scene.store, line)),
            });
        }
        if response.dragged() {
            return;
        }
        let lines = words::lines(scene.store, whose, line, &self.lines.qualities, page, &self.gone);
        let id = response.id.with("tip");
        let tip = egui::Tooltip::always_open(ui.ctx().clone(), ui.layer_id(), id, egui::PopupAnchor::Pointer);
        tip.gap(14.0).width(430.0).show(|ui| {
            egui::Grid::new("step").num_columns(2).spacing(vec2(10.0, 2.0)).show(ui, |ui| {
                for (name, words) in lines {
                    ui.label(RichText::new(name).weak());
                    ui.add(egui::Label::new(words).extend());
                    ui.end_row();
                }
            });
        });
    }
}

/// The event to go to so that a step is the newest one.
fn seek_to(store: &Store, line: &lines::Line) -> u64 {
    store.chronicle.after_step(line.read.step).unwrap_or(0).max(line.event + 1)
}

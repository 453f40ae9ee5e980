//! Every page of a sequence: rows are layers and KV heads, columns are pages by position.
//!
//! The picture is one texture, mixed from a grid that is kept here and follows the cache by the pages that changed.

mod brightness;
mod flash;
mod follow;
mod frame;
mod grid;
mod inks;
mod lists;
mod paint;
mod runs;
#[cfg(test)]
mod tests;
mod tip;
mod zoom;

use super::axis::thousands;
use super::{Act, Scene, Table, View, not_in_this_trace};
use crate::store::{Place, Store};
use brightness::Brightness;
use eframe::egui::{self, Color32, Pos2, Rect, RichText, Sense, TextureHandle, TextureOptions, vec2};
use follow::Followed;
use frame::{ABOVE, BELOW, Frame, LEFT};
use grid::{GONE, Ink};
use lists::Held;
use paint::Look;
use zoom::{Fold, Zoom};

/// Pixels of a picture above which it has half of the window's resolution.
const MOST_PIXELS: f32 = 2.6e6;

/// Sides of a cell from which it has room for a count.
const COUNT_ROOM: [f64; 2] = [26.0, 15.0];

/// What a picture shows: where it is equal, it is not drawn again.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Drawn {
    version: u64,
    zoom: Zoom,
    size: [usize; 2],
    fold: Fold,
    mode: Brightness,
    dark: bool,
    revision: u64,
    events: u64,
}

/// Every page of a sequence.
#[derive(Default)]
pub struct PageMap {
    fold: Fold,
    /// Whether somebody has chosen how lists fold; else it goes by the room.
    folded: bool,
    brightness: Brightness,
    /// The part that is seen; all of it where there is none.
    zoom: Option<Zoom>,
    data: Followed,
    texture: Option<TextureHandle>,
    drawn: Option<Drawn>,
    /// The column where a brush began.
    brush_from: Option<u32>,
    text: tip::PageText,
}

/// Columns that there is room for: those that the sequence has by the end of the trace, unless that is far away.
fn columns_ahead(store: &Store, held: &Held<'_>, columns: usize) -> usize {
    let now = held.base() as usize + columns;
    let steps = store.chronicle.steps.samples().iter().rev().take(64);
    let last = steps.flat_map(|step| &step.what.sequences).find(|rows| rows.sequence == held.sequence);
    let tokens = last.map_or(0, |rows| u64::from(rows.first_position) + u64::from(rows.rows));
    let end = tokens.div_ceil(u64::from(held.page_tokens)) as usize;
    end.min(now.saturating_mul(4).next_power_of_two().max(64)).max(now).max(1)
}

impl View for PageMap {
    fn id(&self) -> &'static str {
        "page-map"
    }

    fn title(&self) -> &'static str {
        "Page map"
    }

    fn show(&mut self, ui: &mut egui::Ui, scene: &Scene<'_>, acts: &mut Vec<Act>) {
        let Some(held) = Held::of(scene.store, scene.selection) else {
            return not_in_this_trace(ui, "Pages", "No sequence holds pages at the cursor.");
        };
        let mode = if self.brightness.in_trace(scene.store) { self.brightness } else { Brightness::None };
        if self.data.follow(scene.store, &held, scene.palette, mode) {
            ui.ctx().request_repaint();
        }
        self.bar(ui, scene, &held, mode);
        let (whole, response) =
            ui.allocate_exact_size(ui.available_size().max(vec2(1.0, 1.0)), Sense::click_and_drag());
        let rect = Rect::from_min_max(whole.min + vec2(LEFT, ABOVE), whole.max - vec2(2.0, BELOW + 2.0));
        if rect.width() < 16.0 || rect.height() < 8.0 {
            return;
        }
        if !self.folded && self.zoom.is_none() {
            self.fold = Fold::fitting(rect.height(), self.data.grid.rows(), held.heads);
        }
        let columns = columns_ahead(scene.store, &held, self.data.grid.columns());
        let lines = self.fold.lines(self.data.grid.rows(), held.heads);
        let zoom = self.steer(ui, &response, rect, columns, lines, acts);
        // Where lines do not fill the room, the axis stands right below them.
        let used = (lines as f64 * zoom.scale[1]).min(f64::from(rect.height())) as f32;
        let rect = Rect::from_min_size(rect.min, vec2(rect.width(), used.max(8.0)));
        let rows = self.data.grid.rows();
        let frame = Frame { rect, zoom, fold: self.fold, rows, held: &held, ink: scene.palette.ink() };
        self.draw(ui, scene, mode, &frame);
        let painter = ui.painter_at(whole);
        frame.left(&painter, scene);
        frame.below(&painter);
        frame.lanes(&painter, &self.data.marks);
        self.counts(&ui.painter_at(rect), scene, &frame);
        frame.outlines(&ui.painter_at(rect.expand(4.0)), scene);
        self.point(ui, scene, &frame, &response, acts);
    }

    fn table(&self, scene: &Scene<'_>) -> Option<Table> {
        runs::table(scene.store, scene.selection)
    }
}

impl PageMap {
    fn bar(&mut self, ui: &mut egui::Ui, scene: &Scene<'_>, held: &Held<'_>, mode: Brightness) {
        ui.horizontal_wrapped(|ui| {
            ui.label("Rows");
            for (fold, word, words) in Fold::ALL {
                if ui.selectable_label(self.fold == fold, word).on_hover_text(words).clicked() {
                    (self.fold, self.folded, self.zoom) = (fold, true, None);
                }
            }
            ui.separator();
            let name = ui.label("Brightness");
            let combo = egui::ComboBox::from_id_salt("brightness").width(112.0).selected_text(mode.word());
            let shown = combo.show_ui(ui, |ui| {
                for choice in Brightness::ALL {
                    let there = choice.in_trace(scene.store);
                    let word = choice.word();
                    let words = if there { word.to_string() } else { format!("{word} · not in this trace") };
                    let entry = egui::Button::selectable(mode == choice, words);
                    if ui.add_enabled(there, entry).on_hover_text(choice.meaning()).clicked() {
                        self.brightness = choice;
                    }
                }
            });
            shown.response.labelled_by(name.id);
            if ui.add_enabled(self.zoom.is_some(), egui::Button::new("See all")).clicked() {
                self.zoom = None;
            }
            let (columns, rows) = (self.data.grid.columns() as u64, self.data.grid.rows() as u64);
            let mut words = format!("{} pages in {} lists", thousands(columns), thousands(rows));
            if held.left_out() {
                words.push_str(", more are not drawn");
            }
            if self.data.grid.behind() {
                words.push_str(" · catching up");
            }
            ui.label(RichText::new(words).weak());
            let keys = "Upper half of a cell: K format, lower half: V format.\nOutline and upper lane: anchored tokens. \
                        Dashes and lower lane: pinned ones. Notch: shared by several sequences.\nWhite flash: converted; \
                        red flash: evicted, in the last 6 steps.\nWheel: zoom · drag: pan · double click: see all · \
                        Shift and drag: brush · click: inspect · click on a label: look at that list.";
            ui.label(RichText::new("K above V · what is what?").weak()).on_hover_text(keys);
        });
        if mode != Brightness::None {
            ui.add(egui::Label::new(RichText::new(mode.meaning()).weak().small()).truncate());
        }
    }

    /// Zooms, pans and brushes; the part that is seen.
    fn steer(
        &mut self,
        ui: &egui::Ui,
        response: &egui::Response,
        rect: Rect,
        columns: usize,
        lines: usize,
        acts: &mut Vec<Act>,
    ) -> Zoom {
        let all = Zoom::all(rect.size(), columns, lines);
        let mut zoom = self.zoom.unwrap_or(all);
        let mut moved = false;
        if let Some(pos) = response.hover_pos().filter(|_| response.contains_pointer()) {
            let (scroll, pinch) = ui.input(|input| (input.smooth_scroll_delta(), input.zoom_delta()));
            let factor = f64::from((scroll.y / 200.0).exp() * pinch);
            if factor != 1.0 && factor.is_finite() {
                zoom = zoom.by(factor, pos - rect.min, all);
                moved = true;
            }
            if scroll.x != 0.0 {
                zoom = zoom.moved(vec2(scroll.x, 0.0));
                moved = true;
            }
        }
        let column = |zoom: Zoom, pos: Pos2| zoom.at(rect, pos)[0].clamp(0.0, columns as f64) as u32;
        let shift = ui.input(|input| input.modifiers.shift);
        if response.drag_started() && shift {
            self.brush_from = ui.input(|input| input.pointer.press_origin()).map(|pos| column(zoom, pos));
        }
        match (self.brush_from, response.interact_pointer_pos()) {
            (Some(from), Some(pos)) if response.dragged() => {
                let to = column(zoom, pos);
                acts.push(Act::Brush(Some(from.min(to)..from.max(to).saturating_add(1))));
            }
            (None, _) if response.dragged() => {
                zoom = zoom.moved(response.drag_delta());
                moved = true;
            }
            _ => {}
        }
        if response.drag_stopped() {
            self.brush_from = None;
        }
        if moved {
            zoom = zoom.within(rect.size(), columns, lines);
            self.zoom = (zoom != all).then_some(zoom);
        }
        if response.double_clicked() {
            self.zoom = None;
        }
        self.zoom.map_or(all, |zoom| zoom.within(rect.size(), columns, lines))
    }

    /// Draws the picture, anew where anything changed.
    fn draw(&mut self, ui: &egui::Ui, scene: &Scene<'_>, mode: Brightness, frame: &Frame<'_>) {
        let &Frame { rect, zoom, held, .. } = frame;
        let Some(inks) = &self.data.inks else { return };
        let mut points = ui.ctx().pixels_per_point();
        if rect.area() * points * points > MOST_PIXELS {
            points /= 2.0;
        }
        let most = ui.input(|input| input.max_texture_side);
        let pixels = |side: f32| ((side * points).round() as usize).clamp(1, most.max(1));
        let size = [pixels(rect.width()), pixels(rect.height())];
        let drawn = Drawn {
            version: self.data.grid.version,
            zoom,
            size,
            fold: self.fold,
            mode,
            dark: scene.palette.dark,
            revision: scene.store.revision,
            events: scene.store.chronicle.events,
        };
        if self.drawn != Some(drawn) || self.texture.is_none() {
            let look = Look {
                grid: &self.data.grid,
                ink: Ink { inks, shaded: self.data.shaded },
                fold: self.fold,
                heads: held.heads,
                zoom: Zoom { scale: zoom.scale.map(|scale| scale * f64::from(points)), ..zoom },
                base: held.base(),
                flashes: &self.data.flashes,
                marks: &self.data.marks,
                palette: scene.palette,
            };
            let (image, visited) = look.picture(size);
            self.data.grid.visited += visited;
            match &mut self.texture {
                Some(texture) => texture.set(image, TextureOptions::NEAREST),
                none => *none = Some(ui.ctx().load_texture("page map", image, TextureOptions::NEAREST)),
            }
            self.drawn = Some(drawn);
        }
        if let Some(texture) = &self.texture {
            let whole = Rect::from_min_max(Pos2::ZERO, Pos2::new(1.0, 1.0));
            ui.painter_at(rect).image(texture.id(), rect, whole, Color32::WHITE);
        }
    }

    /// Counts of owners in shared pages that are large enough.
    fn counts(&self, painter: &egui::Painter, scene: &Scene<'_>, frame: &Frame<'_>) {
        let &Frame { rect, zoom, held, .. } = frame;
        if self.fold != Fold::Heads || zoom.scale[0] < COUNT_ROOM[0] || zoom.scale[1] < COUNT_ROOM[1] {
            return;
        }
        let [left, top] = zoom.at(rect, rect.min);
        let [right, bottom] = zoom.at(rect, rect.max);
        for row in top as usize..(bottom.ceil() as usize).min(self.data.grid.rows()) {
            for number in left as u64..right.ceil() as u64 {
                let Some(at) = number.checked_sub(held.base().into()) else { continue };
                let cell = self.data.grid.cell(row, at as usize);
                if cell.owners > 1 && cell.pair < GONE {
                    let (column, line) = (number as f64, row as f64);
                    let place = zoom.rect(rect, [column, column + 1.0], [line, line + 1.0]);
                    let words = format!("×{}", cell.owners);
                    let galley = painter.layout_no_wrap(words, egui::FontId::proportional(10.0), scene.palette.ink());
                    let back = Rect::from_center_size(place.center(), galley.size() + vec2(4.0, 0.0));
                    painter.rect_filled(back, 2.0, scene.palette.nothing().gamma_multiply(0.8));
                    painter.galley(back.min + vec2(2.0, 0.0), galley, scene.palette.ink());
                }
            }
        }
    }

    /// The page at a point; of a folded line the first list that has one there.
    fn place_at(&self, frame: &Frame<'_>, pos: Pos2) -> Option<Place> {
        let &Frame { rect, zoom, held, .. } = frame;
        let [column, line] = zoom.at(rect, pos);
        let rows = self.data.grid.rows();
        let inside = rect.contains(pos) && column >= 0.0 && line >= 0.0;
        let lines = self.fold.lines(rows, held.heads);
        if !inside || line as usize >= lines || column >= f64::from(held.base()) + self.data.grid.columns() as f64 {
            return None;
        }
        let number = column as u32;
        let mut list = self.fold.rows(line as usize, rows, held.heads);
        let first = list.start;
        let at = number.checked_sub(held.base()).map(|at| at as usize);
        let row = list.find(|row| at.is_some_and(|at| matches!(held.page(*row, at), Some(Some(_))))).unwrap_or(first);
        Some(Place { sequence: held.sequence, group: held.group, row, number })
    }

    /// Tooltip and clicks.
    fn point(
        &mut self,
        ui: &egui::Ui,
        scene: &Scene<'_>,
        frame: &Frame<'_>,
        response: &egui::Response,
        acts: &mut Vec<Act>,
    ) {
        let &Frame { rect, zoom, held, .. } = frame;
        let Some(pos) = response.hover_pos() else { return };
        if pos.x < rect.left() {
            if response.clicked() && self.fold != Fold::All && rect.y_range().contains(pos.y) {
                let line = zoom.at(rect, pos)[1] as usize;
                let row = self.fold.rows(line, self.data.grid.rows(), held.heads).start;
                acts.push(Act::Row((scene.selection.row != Some(row)).then_some(row)));
            }
            return;
        }
        let Some(place) = self.place_at(frame, pos) else {
            if response.clicked() {
                acts.push(Act::Select(None));
            }
            return;
        };
        acts.push(Act::Hover(place));
        if response.clicked() {
            acts.push(Act::Select(Some(place)));
        }
        if response.dragged() {
            return;
        }
        let lines = tip::lines(scene.store, held, place, &mut self.text);
        let tip = egui::Tooltip::always_open(
            ui.ctx().clone(),
            ui.layer_id(),
            response.id.with("tip"),
            egui::PopupAnchor::Pointer,
        );
        tip.gap(14.0).width(430.0).show(|ui| {
            egui::Grid::new("page").num_columns(2).spacing(vec2(10.0, 2.0)).show(ui, |ui| {
                for (name, words) in lines {
                    ui.label(RichText::new(name).weak());
                    ui.add(egui::Label::new(words).extend());
                    ui.end_row();
                }
            });
        });
    }
}

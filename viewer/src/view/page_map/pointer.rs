//! What the pointer does with the map: tooltips and clicks; and counts in cells.

use super::frame::Frame;
use super::grid::GONE;
use super::zoom::Fold;
use super::{PageMap, tip};
use crate::store::Place;
use crate::view::{Act, Scene};
use eframe::egui::{self, Pos2, Rect, RichText, vec2};

/// Sides of a cell from which it has room for a count.
const COUNT_ROOM: [f64; 2] = [26.0, 15.0];

impl PageMap {
    /// Counts of owners in shared pages that are large enough.
    pub(super) fn counts(&self, painter: &egui::Painter, scene: &Scene<'_>, frame: &Frame<'_>) {
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
    pub(super) fn point(
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

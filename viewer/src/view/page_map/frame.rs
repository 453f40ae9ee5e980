//! What is drawn around and over the picture: axes, outlines, counts.

use super::lists::{ANCHORED, Held, PINNED};
use super::zoom::{Fold, Zoom};
use crate::store::{Place, Store};
use crate::view::axis::{nice, positions};
use crate::view::{Scene, Selection};
use eframe::egui::{Align2, Color32, FontId, Painter, Pos2, Rect, Stroke, StrokeKind, vec2};

/// Room for labels of lists at the left, and of positions below.
pub const LEFT: f32 = 52.0;
/// Room below.
pub const BELOW: f32 = 30.0;
/// Room above, for lanes of marks.
pub const ABOVE: f32 = 8.0;

/// Where things are.
pub struct Frame<'a> {
    /// The picture.
    pub rect: Rect,
    /// Its part of the map.
    pub zoom: Zoom,
    /// How lists make lines.
    pub fold: Fold,
    /// Lists that are drawn.
    pub rows: usize,
    /// The sequence's lists.
    pub held: &'a Held<'a>,
    /// Text.
    pub ink: Color32,
}

impl Frame<'_> {
    fn lines(&self) -> usize {
        self.fold.lines(self.rows, self.held.heads)
    }

    /// Words for a line; short ones where there is no room for heads.
    fn label(&self, store: &Store, line: usize, with_head: bool) -> String {
        let row = self.fold.rows(line, self.rows, self.held.heads).start;
        match (self.fold, store.layer_and_head(self.held.group, row)) {
            (Fold::All, _) => "all".into(),
            (_, None) => format!("row {row}"),
            (Fold::Heads, Some((layer, head))) if with_head && self.held.heads > 1 => format!("L{layer} h{head}"),
            (_, Some((layer, _))) => format!("L{layer}"),
        }
    }

    /// Labels of lines at the left, as many as fit. The list that is looked at is marked.
    pub fn left(&self, painter: &Painter, scene: &Scene<'_>) {
        let high = self.zoom.scale[1] as f32;
        let heads = if self.fold == Fold::Heads { self.held.heads } else { 1 };
        let each = high >= 12.0;
        let step = if each { 1 } else { nice(f64::from(14.0 / (high * heads as f32).max(1e-6))) as usize * heads };
        let first = (self.zoom.corner[1].max(0.0) as usize) / step.max(1) * step.max(1);
        let font = FontId::proportional(10.5);
        for line in (first..self.lines()).step_by(step.max(1)) {
            let span = if each { 1.0 } else { heads as f64 };
            let place = self.zoom.rect(self.rect, [0.0, 0.0], [line as f64, line as f64 + span]);
            if place.top() > self.rect.bottom() {
                break;
            }
            let y = place.center().y;
            if y < self.rect.top() || y > self.rect.bottom() {
                continue;
            }
            let row = self.fold.rows(line, self.rows, self.held.heads);
            let chosen = scene.selection.row.is_some_and(|chosen| row.contains(&chosen)) && self.fold != Fold::All;
            let color = if chosen { scene.palette.accent() } else { self.ink.gamma_multiply(0.75) };
            let at = Pos2::new(self.rect.left() - 8.0, y);
            painter.text(at, Align2::RIGHT_CENTER, self.label(scene.store, line, each), font.clone(), color);
        }
        if let Some(row) = scene.selection.row.filter(|row| *row < self.rows && self.fold != Fold::All) {
            let line = self.fold.line(row, self.held.heads) as f64;
            let place = self.zoom.rect(self.rect, [0.0, 0.0], [line, line + 1.0]);
            let bar = Rect::from_x_y_ranges(
                self.rect.left() - 5.0..=self.rect.left() - 2.0,
                place.top()..=place.bottom().max(place.top() + 2.0),
            );
            painter.rect_filled(bar.intersect(self.rect.expand(6.0)), 0.0, scene.palette.accent());
        }
    }

    /// Positions of tokens below.
    pub fn below(&self, painter: &Painter) {
        let columns = f64::from(self.rect.width()) / self.zoom.scale[0];
        positions(painter, self.rect, self.zoom.corner[0], columns, self.held.page_tokens, self.ink);
    }

    /// Lanes above: where tokens are anchored, and where pinned.
    pub fn lanes(&self, painter: &Painter, marks: &[u8]) {
        let base = f64::from(self.held.base());
        for (lane, bit) in [(0, ANCHORED), (1, PINNED)] {
            let top = self.rect.top() - 7.0 + 3.5 * lane as f32;
            // Runs of marked columns; those that would overlap in the picture are one.
            let mut runs: Vec<(f32, f32)> = Vec::new();
            let mut from = (self.zoom.corner[0] - base).max(0.0) as usize;
            while let Some(skip) = marks.get(from..).and_then(|rest| rest.iter().position(|mark| mark & bit != 0)) {
                let start = from + skip;
                let run = marks[start..].iter().take_while(|mark| **mark & bit != 0).count();
                let place = [base + start as f64, base + (start + run) as f64];
                let place = self.zoom.rect(self.rect, place, [0.0, 0.0]);
                if place.left() >= self.rect.right() {
                    break;
                }
                match runs.last_mut() {
                    Some((_, right)) if place.left() < *right => *right = place.right().max(*right),
                    _ => runs.push((place.left(), place.right().max(place.left() + 1.0))),
                }
                from = start + run;
            }
            for (left, right) in runs {
                let run = Rect::from_x_y_ranges(left..=right, top..=top + 2.5).intersect(self.rect.expand(8.0));
                let color = if bit == ANCHORED { self.ink } else { self.ink.gamma_multiply(0.5) };
                painter.rect_filled(run, 0.0, color);
            }
        }
    }

    /// Where a place of the sequence is drawn, if it is of these lists.
    fn place(&self, place: Place) -> Option<Rect> {
        let own = place.sequence == self.held.sequence && place.group == self.held.group && place.row < self.rows;
        let line = self.fold.line(place.row, self.held.heads) as f64;
        let column = f64::from(place.number);
        let rect = self.zoom.rect(self.rect, [column, column + 1.0], [line, line + 1.0]);
        let large = Rect::from_center_size(rect.center(), rect.size().max(vec2(5.0, 5.0)));
        (own && large.intersects(self.rect)).then_some(large)
    }

    /// Outlines of what is selected, hovered and brushed.
    pub fn outlines(&self, painter: &Painter, scene: &Scene<'_>) {
        let Selection { page, hover, brush, .. } = scene.selection;
        let accent = scene.palette.accent();
        let back = if scene.palette.dark { Color32::BLACK } else { Color32::WHITE };
        if let Some(brush) = brush {
            let columns = [f64::from(brush.start), f64::from(brush.end.max(brush.start))];
            let lines = [self.zoom.corner[1], self.zoom.corner[1] + 1e6];
            let place = self.zoom.rect(self.rect, columns, lines).intersect(self.rect);
            if place.is_positive() {
                painter.rect_filled(place, 0.0, accent.gamma_multiply(0.12));
                painter.rect_stroke(place, 0.0, Stroke::new(1.0, accent), StrokeKind::Inside);
            }
        }
        for (what, width) in [(hover, 1.0), (page, 2.0)] {
            let Some(place) = what.and_then(|place| self.place(place)) else { continue };
            painter.rect_stroke(place.expand(width), 1.0, Stroke::new(width + 2.0, back), StrokeKind::Middle);
            painter.rect_stroke(place.expand(width), 1.0, Stroke::new(width, accent), StrokeKind::Middle);
        }
    }
}

//! What plots over time share: places, ticks, lines.

use eframe::egui::{self, Align2, Color32, FontId, Painter, Pos2, Rect, Stroke, Vec2};
use std::ops::RangeInclusive;

/// Room below a plot for the words of its axis, in points.
pub const BELOW: f32 = 20.0;

/// A plot and the figures that stand beside it, or below it where there is little room.
pub fn split(rect: Rect, panel: f32) -> (Rect, Rect) {
    const GAP: f32 = 8.0;
    if rect.width() >= panel * 1.9 {
        rect.split_left_right_at_x(rect.right() - panel).map_gap(Vec2::new(GAP, 0.0))
    } else {
        let height = (rect.height() * 0.5).max(rect.height().min(110.0));
        rect.split_top_bottom_at_y(rect.top() + height).map_gap(Vec2::new(0.0, GAP))
    }
}

/// Two rectangles that touch, moved apart.
trait Gap {
    fn map_gap(self, gap: Vec2) -> (Rect, Rect);
}

impl Gap for (Rect, Rect) {
    fn map_gap(self, gap: Vec2) -> (Rect, Rect) {
        let (first, second) = self;
        (Rect::from_min_max(first.min, first.max - gap), second)
    }
}

/// Places of ticks at round numbers (1, 2 or 5 times a power of ten): at most `most` of them, or none of a range that is
/// no range.
pub fn ticks(range: RangeInclusive<f64>, most: f32, whole: bool) -> Vec<f64> {
    let (from, to) = range.into_inner();
    let span = to - from;
    if !span.is_finite() || span <= 0.0 || most < 1.0 {
        return Vec::new();
    }
    let rough = span / f64::from(most);
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * power).find(|step| *step >= rough).unwrap_or(rough);
    multiples(from, to, if whole { step.max(1.0) } else { step })
}

/// The same at round numbers of bytes, powers of two.
pub fn byte_ticks(most_bytes: f64, most: f32) -> Vec<f64> {
    if !most_bytes.is_finite() || most_bytes <= 0.0 || most < 1.0 {
        return Vec::new();
    }
    multiples(0.0, most_bytes, (most_bytes / f64::from(most)).log2().ceil().exp2().max(1.0))
}

fn multiples(from: f64, to: f64, step: f64) -> Vec<f64> {
    const MOST: usize = 200;
    let first = (from / step).ceil();
    (0..MOST).map(|n| (first + n as f64) * step).take_while(|at| *at <= to).collect()
}

/// Seconds on an axis whose ticks are `step` apart.
pub fn seconds(at: f64, step: f64) -> String {
    if step >= 1.0 {
        format!("{at:.0} s")
    } else if step >= 0.001 {
        let digits = (-step.log10()).ceil().clamp(1.0, 3.0) as usize;
        format!("{at:.digits$} s")
    } else {
        format!("{:.3} ms", at * 1e3)
    }
}

/// Draws the ticks of a horizontal axis below `plot`, with faint lines through it.
pub fn across(
    painter: &Painter,
    plot: Rect,
    range: RangeInclusive<f64>,
    whole: bool,
    words: &dyn Fn(f64, f64) -> String,
    ink: Color32,
) {
    let (from, to) = (*range.start(), *range.end());
    let marks = ticks(range, plot.width() / 80.0, whole);
    let step = if marks.len() > 1 { marks[1] - marks[0] } else { to - from };
    for at in marks {
        let x = plot.left() + ((at - from) / (to - from)) as f32 * plot.width();
        painter.vline(x, plot.y_range(), Stroke::new(1.0, ink.gamma_multiply(0.12)));
        painter.vline(x, plot.bottom()..=plot.bottom() + 3.0, Stroke::new(1.0, ink.gamma_multiply(0.6)));
        let text = painter.layout_no_wrap(words(at, step), FontId::proportional(11.0), ink.gamma_multiply(0.75));
        let half = text.size().x / 2.0;
        let left = (x - half).clamp(plot.left() - 2.0, (plot.right() - 2.0 * half).max(plot.left()));
        painter.galley(Pos2::new(left, plot.bottom() + 4.0), text, ink);
    }
}

/// Draws where the cursor is.
pub fn cursor(painter: &Painter, plot: Rect, x: f32, accent: Color32) {
    if plot.x_range().contains(x) {
        painter.vline(x, plot.y_range(), Stroke::new(1.5, accent));
        let (top, side) = (Pos2::new(x, plot.top()), 4.5);
        let points = vec![top + Vec2::new(-side, 0.0), top + Vec2::new(side, 0.0), top + Vec2::new(0.0, side * 1.4)];
        painter.add(egui::Shape::convex_polygon(points, accent, Stroke::NONE));
    }
}

/// Small words at a corner of a plot, on a ground that lets them be read.
pub fn words(painter: &Painter, at: Pos2, align: Align2, text: &str, ink: Color32, ground: Color32) {
    let galley = painter.layout_no_wrap(text.into(), FontId::proportional(11.0), ink);
    let rect = align.anchor_size(at, galley.size());
    painter.rect_filled(rect.expand2(Vec2::new(3.0, 0.0)), 2.0, ground.gamma_multiply(0.8));
    painter.galley(rect.min, galley, ink);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(ticks(0.0..=10.0, 5.0, true), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(0.0..=2.0, 8.0, true), [0.0, 1.0, 2.0]);
        assert_eq!(ticks(3.0..=3.0, 5.0, false), [0.0; 0]);
        assert_eq!(ticks(f64::NAN..=3.0, 5.0, false), [0.0; 0]);
        assert_eq!(byte_ticks(3.0 * 1048576.0, 3.0), [0.0, 1048576.0, 2097152.0, 3145728.0]);
        assert!(byte_ticks(1.8e19, 4.0).len() <= 5);
        assert_eq!([seconds(2.0, 1.0), seconds(0.25, 0.05), seconds(0.0005, 0.0001)], ["2 s", "0.25 s", "0.500 ms"]);
    }

    #[test]
    fn figures_stand_beside_or_below() {
        let wide = split(Rect::from_min_size(Pos2::ZERO, Vec2::new(900.0, 300.0)), 300.0);
        assert_eq!((wide.0.right(), wide.1.left(), wide.1.right()), (592.0, 600.0, 900.0));
        let tall = split(Rect::from_min_size(Pos2::ZERO, Vec2::new(400.0, 600.0)), 300.0);
        assert_eq!((tall.0.bottom(), tall.1.top(), tall.1.width()), (292.0, 300.0, 400.0));
    }
}

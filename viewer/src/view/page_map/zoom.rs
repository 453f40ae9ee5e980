//! Which part of the map is seen, and how lists are folded.

use eframe::egui::{Pos2, Rect, Vec2};

/// How lists of pages make lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fold {
    /// A line a layer and head.
    #[default]
    Heads,
    /// A line a layer.
    Layers,
    /// One line.
    All,
}

impl Fold {
    /// All, with their words.
    pub const ALL: [(Fold, &'static str, &'static str); 3] = [
        (Fold::Heads, "heads", "A line for each layer and KV head"),
        (Fold::Layers, "layers", "A line for each layer: the mean of its heads"),
        (Fold::All, "all", "One line: the mean of all layers and heads"),
    ];

    /// The finest one whose lines have room for both sides of a page.
    pub fn fitting(height: f32, rows: usize, heads: usize) -> Self {
        let room = rows as f32 * LEGIBLE <= height;
        if room || heads <= 1 { Fold::Heads } else { Fold::Layers }
    }

    /// Lines of `rows` lists with `heads` heads a layer.
    pub fn lines(self, rows: usize, heads: usize) -> usize {
        match self {
            Fold::Heads => rows,
            Fold::Layers => rows.div_ceil(heads.max(1)),
            Fold::All => rows.min(1),
        }
    }

    /// Lists of a line.
    pub fn rows(self, line: usize, rows: usize, heads: usize) -> std::ops::Range<usize> {
        let (from, to) = match self {
            Fold::Heads => (line, line.saturating_add(1)),
            Fold::Layers => (line.saturating_mul(heads.max(1)), line.saturating_add(1).saturating_mul(heads.max(1))),
            Fold::All => (0, rows),
        };
        from.min(rows)..to.min(rows)
    }

    /// The line of a list.
    pub fn line(self, row: usize, heads: usize) -> usize {
        match self {
            Fold::Heads => row,
            Fold::Layers => row / heads.max(1),
            Fold::All => 0,
        }
    }
}

/// Points of a line from which halves of cells are told apart well.
const LEGIBLE: f32 = 6.0;

/// Largest sides of a cell where everything is seen, and where somebody looks closely.
const PLEASANT: [f64; 2] = [22.0, 26.0];
const LARGEST: [f64; 2] = [160.0, 72.0];

/// A part of the map: the page and line at its corner, and points a page and a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Zoom {
    /// Page and line at the upper left corner.
    pub corner: [f64; 2],
    /// Points of a page and of a line.
    pub scale: [f64; 2],
}

impl Zoom {
    /// All of `columns` and `lines` in `size` points.
    pub fn all(size: Vec2, columns: usize, lines: usize) -> Self {
        let scale = |points: f32, count: usize, most: f64| (f64::from(points.max(1.0)) / count.max(1) as f64).min(most);
        // In a large window a cell may be wide.
        let wide = PLEASANT[0].max(f64::from(size.x) / 64.0);
        let high = if lines <= 1 { 2.0 * LARGEST[1] } else { PLEASANT[1] };
        // Lines are equally high where that costs little.
        let whole = |points: f64| if points >= 3.0 { points.floor() } else { points };
        Zoom { corner: [0.0, 0.0], scale: [scale(size.x, columns, wide), whole(scale(size.y, lines, high))] }
    }

    /// Nearer or farther, with the place at `at` points from the corner kept where it is, but no farther than `all`.
    pub fn by(self, factor: f64, at: Vec2, all: Zoom) -> Self {
        let at = [f64::from(at.x), f64::from(at.y)];
        let mut next = self;
        for axis in 0..2 {
            let most = LARGEST[axis].max(all.scale[axis]);
            let scale = (self.scale[axis] * factor).clamp(all.scale[axis], most);
            let place = self.corner[axis] + at[axis] / self.scale[axis];
            next.scale[axis] = scale;
            next.corner[axis] = place - at[axis] / scale;
        }
        next
    }

    /// Moved by points.
    pub fn moved(self, by: Vec2) -> Self {
        let [x, y] = self.corner;
        let corner = [x - f64::from(by.x) / self.scale[0], y - f64::from(by.y) / self.scale[1]];
        Zoom { corner, ..self }
    }

    /// Kept within `columns` and `lines`.
    pub fn within(self, size: Vec2, columns: usize, lines: usize) -> Self {
        let keep = |axis: usize, points: f32, count: usize| {
            let seen = f64::from(points) / self.scale[axis];
            self.corner[axis].clamp(0.0, (count as f64 - seen).max(0.0))
        };
        Zoom { corner: [keep(0, size.x, columns), keep(1, size.y, lines)], ..self }
    }

    /// Column and line at a point of `rect`.
    pub fn at(self, rect: Rect, pos: Pos2) -> [f64; 2] {
        let off = pos - rect.min;
        [self.corner[0] + f64::from(off.x) / self.scale[0], self.corner[1] + f64::from(off.y) / self.scale[1]]
    }

    /// Where columns `from..to` and lines `top..bottom` are drawn.
    pub fn rect(self, rect: Rect, columns: [f64; 2], lines: [f64; 2]) -> Rect {
        let x = |column: f64| rect.left() + ((column - self.corner[0]) * self.scale[0]).clamp(-1e6, 1e6) as f32;
        let y = |line: f64| rect.top() + ((line - self.corner[1]) * self.scale[1]).clamp(-1e6, 1e6) as f32;
        Rect::from_min_max(Pos2::new(x(columns[0]), y(lines[0])), Pos2::new(x(columns[1]), y(lines[1])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zooming_keeps_the_place_under_the_pointer() {
        let size = Vec2::new(1000.0, 500.0);
        let rect = Rect::from_min_size(Pos2::ZERO, size);
        let all = Zoom::all(size, 100_000, 96);
        let pointer = Vec2::new(640.0, 120.0);
        let before = all.at(rect, pointer.to_pos2());
        let near = all.by(300.0, pointer, all);
        let after = near.at(rect, pointer.to_pos2());
        assert!((before[0] - after[0]).abs() < 1e-6 && (before[1] - after[1]).abs() < 1e-6);
        assert_eq!(near.by(1e-9, pointer, all).within(size, 100_000, 96), all);
    }

    #[test]
    fn folded_lines_hold_every_list_once() {
        for fold in [Fold::Heads, Fold::Layers, Fold::All] {
            let lines = fold.lines(10, 4);
            let rows: Vec<usize> = (0..lines).flat_map(|line| fold.rows(line, 10, 4)).collect();
            assert_eq!(rows, (0..10).collect::<Vec<_>>());
            assert!((0..10).all(|row| fold.rows(fold.line(row, 4), 10, 4).contains(&row)));
            assert!(fold.rows(usize::MAX, 10, 0).len() <= 10);
        }
    }
}

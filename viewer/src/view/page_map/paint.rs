//! The map as one picture.

use super::flash::Flash;
use super::grid::{BLOCK, Cell, GONE, Grid, Ink, LEVELS, Mean, NOTHING};
use super::inks::{Rgb, Sum};
use super::lists::{ANCHORED, PINNED};
use super::zoom::{Fold, Zoom};
use crate::palette::{Palette, dim};
use eframe::egui::{Color32, ColorImage};
use std::ops::Range;

/// Lists that are mixed for one picture: of more, every so many.
const MOST_LISTS: usize = 768;
/// Pixels of a cell from which it has a gap beside it, marks, and patterns.
const GAPS_FROM: usize = 6;
const MARKS_FROM: usize = 6;
const PATTERNS_FROM: usize = 8;

/// What is drawn.
pub struct Look<'a> {
    /// Pages.
    pub grid: &'a Grid,
    /// Colours.
    pub ink: Ink<'a>,
    /// How lists make lines.
    pub fold: Fold,
    /// KV heads of a layer.
    pub heads: usize,
    /// The part that is seen, in pixels.
    pub zoom: Zoom,
    /// Number of the first page of the grid.
    pub base: u32,
    /// What flashes.
    pub flashes: &'a [Flash],
    /// Marks by column of the grid.
    pub marks: &'a [u8],
    /// Colours of marks.
    pub palette: Palette,
}

/// Pages of one column of pixels.
#[derive(Clone, Copy, PartialEq)]
enum Span {
    /// Before the lists, or after them.
    Outside(u16),
    /// Cells (level 0), or blocks of a level.
    Blocks(usize, usize, usize),
}

fn color([r, g, b]: Rgb) -> Color32 {
    Color32::from_rgb(r, g, b)
}

impl Look<'_> {
    /// The picture, and how many cells and blocks were looked at for it.
    pub fn picture(&self, size: [usize; 2]) -> (ColorImage, usize) {
        let [width, height] = size;
        let ground = self.palette.nothing();
        let mut pixels = vec![ground; width * height];
        let mut visited = 0;
        let spans: Vec<Span> = (0..width).map(|x| self.span(x)).collect();
        let rows = self.grid.rows();
        let lines = self.fold.lines(rows, self.heads);
        let (mut k, mut v) = (vec![ground; width], vec![ground; width]);
        if self.zoom.scale[1] < 2.0 {
            for y in 0..height {
                let at = |y: usize| (self.zoom.corner[1] + y as f64 / self.zoom.scale[1]) as usize;
                let (from, to) = (at(y).min(lines), at(y + 1).max(at(y) + 1).min(lines));
                if from < to {
                    let first = self.fold.rows(from, rows, self.heads).start;
                    let last = self.fold.rows(to - 1, rows, self.heads).end;
                    visited += self.mix(first..last, height, &spans, &mut k, &mut v);
                    let line = &mut pixels[y * width..(y + 1) * width];
                    for ((pixel, k), v) in line.iter_mut().zip(&k).zip(&v) {
                        *pixel = k.lerp_to_gamma(*v, 0.5);
                    }
                }
            }
        } else {
            let seen = self.lines(height, lines);
            for line in seen.clone() {
                let place = self.line_pixels(line, height);
                if place.is_empty() {
                    continue;
                }
                visited += self.mix(self.fold.rows(line, rows, self.heads), seen.len(), &spans, &mut k, &mut v);
                let middle = place.start.midpoint(place.end);
                for y in place {
                    let from = if y < middle { &k } else { &v };
                    pixels[y * width..(y + 1) * width].copy_from_slice(from);
                }
            }
            self.details(&mut pixels, size, seen);
        }
        self.flash(&mut pixels, size);
        (ColorImage::new(size, pixels), visited)
    }

    /// Pages under a column of pixels.
    fn span(&self, x: usize) -> Span {
        let page = |x: f64| self.zoom.corner[0] + x / self.zoom.scale[0] - f64::from(self.base);
        let columns = self.grid.columns();
        let middle = page(x as f64 + 0.5);
        if middle < 0.0 {
            return Span::Outside(GONE);
        }
        if self.zoom.scale[0] >= 1.0 {
            let at = middle as usize;
            return if at < columns { Span::Blocks(0, at, at + 1) } else { Span::Outside(NOTHING) };
        }
        let (from, to) = (page(x as f64).max(0.0) as usize, page(x as f64 + 1.0).max(0.0) as usize);
        if from >= columns {
            return Span::Outside(NOTHING);
        }
        let pages = 1.0 / self.zoom.scale[0];
        // Two to nine cells or blocks a pixel.
        let level = (1..=LEVELS).rev().find(|level| 2.0 * (BLOCK.pow(*level as u32) as f64) <= pages).unwrap_or(0);
        let unit = BLOCK.pow(level as u32);
        let (from, to) = (from / unit, to.min(columns).div_ceil(unit));
        Span::Blocks(level, from, to.max(from + 1))
    }

    /// Mixes lists into a line of K and one of V.
    fn mix(&self, rows: Range<usize>, lines: usize, spans: &[Span], k: &mut [Color32], v: &mut [Color32]) -> usize {
        let step = (rows.len() * lines.max(1)).div_ceil(MOST_LISTS).clamp(1, rows.len().max(1));
        let mut visited = 0;
        let mut last: Option<(Span, Mean)> = None;
        for (x, span) in spans.iter().enumerate() {
            let colors = match (*span, last) {
                (span, Some((known, colors))) if span == known => colors,
                (Span::Outside(what), _) => self.ink.inks.of(what),
                (Span::Blocks(level, from, to), _) => {
                    let mut sum = Sum::default();
                    for row in rows.clone().step_by(step) {
                        visited += to - from;
                        for at in from..to {
                            match level {
                                0 => sum.add(self.ink.of(self.grid.cell(row, at))),
                                level => sum
                                    .add(self.grid.block(row, level, at).unwrap_or_else(|| self.ink.inks.of(NOTHING))),
                            }
                        }
                    }
                    sum.mean().unwrap_or_else(|| self.ink.inks.of(NOTHING))
                }
            };
            last = Some((*span, colors));
            (k[x], v[x]) = (color(colors[0]), color(colors[1]));
        }
        visited
    }

    fn y(&self, line: usize, height: usize) -> usize {
        ((line as f64 - self.zoom.corner[1]) * self.zoom.scale[1]).round().clamp(0.0, height as f64) as usize
    }

    fn x(&self, column: usize, width: usize) -> usize {
        let page = column as f64 + f64::from(self.base);
        ((page - self.zoom.corner[0]) * self.zoom.scale[0] - 0.5).ceil().clamp(0.0, width as f64) as usize
    }

    fn lines(&self, height: usize, lines: usize) -> Range<usize> {
        let from = (self.zoom.corner[1].max(0.0) as usize).min(lines);
        let to = (self.zoom.corner[1] + height as f64 / self.zoom.scale[1]).ceil().max(0.0) as usize;
        from..to.clamp(from, lines)
    }

    /// Pixels of a line without the gap below it, which is wider between layers.
    fn line_pixels(&self, line: usize, height: usize) -> Range<usize> {
        let (from, to) = (self.y(line, height), self.y(line + 1, height));
        let layer_ends = self.fold == Fold::Heads && self.heads > 1 && (line + 1).is_multiple_of(self.heads);
        let gap = match self.zoom.scale[1] as usize {
            pixels if pixels < GAPS_FROM => 0,
            pixels if layer_ends && pixels >= 9 => 2,
            _ => 1,
        };
        from..to.saturating_sub(gap).max(from)
    }

    /// Gaps, patterns and marks of cells that are large enough.
    fn details(&self, pixels: &mut [Color32], size: [usize; 2], lines: Range<usize>) {
        let [width, height] = size;
        let (across, down) = (self.zoom.scale[0] as usize, self.zoom.scale[1] as usize);
        if across < GAPS_FROM {
            return;
        }
        let first = (self.zoom.corner[0] - f64::from(self.base)).max(0.0) as usize;
        let last = self.zoom.corner[0] + width as f64 / self.zoom.scale[0] - f64::from(self.base);
        let columns = first..(last.max(0.0).ceil() as usize).min(self.grid.columns());
        let rows = self.grid.rows();
        for line in lines {
            let down_pixels = self.line_pixels(line, height);
            let middle = down_pixels.start.midpoint(down_pixels.end);
            for column in columns.clone() {
                let (from, to) = (self.x(column, width), self.x(column + 1, width));
                let across_pixels = from..to.saturating_sub(1).max(from);
                let Some(cell) = self.same(self.fold.rows(line, rows, self.heads), column) else { continue };
                if across >= PATTERNS_FROM && down >= PATTERNS_FROM && cell.pair < GONE {
                    self.pattern(pixels, width, &across_pixels, &down_pixels, middle, cell);
                }
                if down >= MARKS_FROM && cell.pair < NOTHING {
                    let mark = self.marks.get(column).copied().unwrap_or(0);
                    self.mark(pixels, width, &across_pixels, &down_pixels, mark, cell);
                }
            }
        }
        for column in columns {
            let to = self.x(column + 1, width);
            if to > 0 && self.x(column, width) < to {
                let gap = pixels.iter_mut().skip(to - 1).step_by(width);
                gap.for_each(|pixel| *pixel = self.palette.nothing());
            }
        }
    }

    /// The cell that all these lists have at a column; `None` where they differ.
    fn same(&self, rows: Range<usize>, column: usize) -> Option<Cell> {
        let first = self.grid.cell(rows.start, column);
        let same = |row| self.grid.cell(row, column).pair == first.pair;
        (rows.len() <= 64 && rows.clone().all(same)).then_some(first)
    }

    fn pattern(
        &self,
        pixels: &mut [Color32],
        width: usize,
        across: &Range<usize>,
        down: &Range<usize>,
        middle: usize,
        cell: Cell,
    ) {
        let patterns = self.ink.inks.patterns(cell.pair);
        let from = [down.start, middle];
        let darker = self.ink.of(cell).map(|rgb| dim(color(rgb), 0.72));
        for y in down.clone() {
            let side = usize::from(y >= middle);
            for x in across.clone() {
                if patterns[side].darker(x - across.start, y - from[side]) {
                    pixels[y * width + x] = darker[side];
                }
            }
        }
    }

    /// Outlines of anchored pages, dashes around pinned ones, a notch in shared ones.
    fn mark(
        &self,
        pixels: &mut [Color32],
        width: usize,
        across: &Range<usize>,
        down: &Range<usize>,
        mark: u8,
        cell: Cell,
    ) {
        if across.is_empty() || down.is_empty() {
            return;
        }
        let ink = self.palette.ink();
        if mark & (ANCHORED | PINNED) != 0 {
            for y in down.clone() {
                let edge = y == down.start || y + 1 == down.end;
                let step = if edge { 1 } else { across.len().saturating_sub(1).max(1) };
                for x in across.clone().step_by(step) {
                    if mark & ANCHORED != 0 || (x + y) % 4 < 2 {
                        pixels[y * width + x] = ink;
                    }
                }
            }
        }
        if cell.owners > 1 {
            let side = (across.len().min(down.len()) / 3).max(2);
            for (up, y) in down.clone().rev().take(side).enumerate() {
                for x in across.clone().rev().take(side.saturating_sub(up)) {
                    pixels[y * width + x] = ink;
                }
            }
        }
    }

    fn flash(&self, pixels: &mut [Color32], size: [usize; 2]) {
        let [width, height] = size;
        for flash in self.flashes.iter().rev() {
            let Some(column) = flash.number.checked_sub(self.base).map(|at| at as usize) else { continue };
            let line = self.fold.line(flash.row, self.heads);
            let (from, top) = (self.x(column, width), self.y(line, height));
            let (to, bottom) = (self.x(column + 1, width), self.line_pixels(line, height).end);
            let out = f64::from(flash.number) + 1.0 <= self.zoom.corner[0] || line as f64 + 1.0 <= self.zoom.corner[1];
            if out || from >= width || top >= height {
                continue;
            }
            let (to, bottom) = (to.max(from + 1), bottom.max(top + 1));
            let into = if flash.evicted { self.palette.alarm() } else { self.palette.flash() };
            for y in top..bottom {
                for x in from..to {
                    let pixel = &mut pixels[y * width + x];
                    *pixel = pixel.lerp_to_gamma(into, flash.strength * 0.8);
                }
            }
        }
    }
}

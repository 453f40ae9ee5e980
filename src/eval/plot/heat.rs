//! Heat maps: shares of cases by length and depth, one map a profile.

use super::super::folder::Folder;
use super::{Picture, fault, ink, write};
use crate::error::Result;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

/// A grid of shares from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct HeatMap {
    /// What stands above.
    pub title: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Names of the rows.
    pub rows: Vec<String>,
    /// `[row][column]`; `None` where nothing was measured.
    pub cells: Vec<Vec<Option<f64>>>,
}

/// Cells' size, pixels.
const CELL: (i32, i32) = (84, 34);
/// Room left of the cells and above them.
const EDGE: (i32, i32) = (150, 78);

struct Sheet<'a> {
    maps: &'a [HeatMap],
    x_name: &'a str,
}

/// Draws maps side by side as `NAME.png` and `NAME.svg`; `x_name` says what columns are.
///
/// # Errors
/// `File` for a picture that cannot be drawn or written.
pub fn heat_map(maps: &[HeatMap], x_name: &str, folder: &Folder, name: &str) -> Result<()> {
    let sheet = Sheet { maps, x_name };
    let width: i32 = maps.iter().map(map_width).sum::<i32>() + 20;
    let height = maps.iter().map(|m| m.rows.len() as i32 * CELL.1).max().unwrap_or(0) + EDGE.1 + 44;
    write(folder, name, (width.max(200) as u32, height as u32), &sheet)
}

fn map_width(map: &HeatMap) -> i32 {
    EDGE.0 + map.columns.len() as i32 * CELL.0 + 20
}

impl Picture for Sheet<'_> {
    fn png(&self, area: DrawingArea<BitMapBackend<'_>, Shift>) -> Result<()> {
        self.draw(&area)
    }

    fn svg(&self, area: DrawingArea<SVGBackend<'_>, Shift>) -> Result<()> {
        self.draw(&area)
    }
}

impl Sheet<'_> {
    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Result<()> {
        area.fill(&WHITE).map_err(fault)?;
        let mut left = 10;
        for map in self.maps {
            self.map(area, map, left)?;
            left += map_width(map);
        }
        area.present().map_err(fault)
    }

    fn map<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>, map: &HeatMap, left: i32) -> Result<()> {
        let style = |size: u32, h: HPos, colour: &RGBColor| ink(size, *colour, h, VPos::Center);
        let text = |words: &str, at: (i32, i32), style: TextStyle<'_>| area.draw_text(words, &style, at).map_err(fault);
        text(&map.title, (left + 4, 20), style(18, HPos::Left, &BLACK))?;
        let (x0, y0) = (left + EDGE.0, EDGE.1);
        for (at, column) in map.columns.iter().enumerate() {
            let x = x0 + at as i32 * CELL.0 + CELL.0 / 2;
            text(column, (x, y0 - 14), style(15, HPos::Center, &BLACK))?;
        }
        text(self.x_name, (x0, y0 - 36), style(15, HPos::Left, &RGBColor(90, 90, 90)))?;
        for (row, (name, cells)) in map.rows.iter().zip(&map.cells).enumerate() {
            let y = y0 + row as i32 * CELL.1;
            text(name, (x0 - 8, y + CELL.1 / 2), style(15, HPos::Right, &BLACK))?;
            for (at, cell) in cells.iter().enumerate() {
                let x = x0 + at as i32 * CELL.0;
                let corners = [(x + 1, y + 1), (x + CELL.0 - 1, y + CELL.1 - 1)];
                let fill = cell.map_or(RGBColor(235, 235, 235), shade);
                area.draw(&Rectangle::new(corners, fill.filled())).map_err(fault)?;
                if let Some(share) = cell {
                    let dark = if *share < 0.45 { WHITE } else { BLACK };
                    let middle = (x + CELL.0 / 2, y + CELL.1 / 2);
                    text(&format!("{:.0} %", share * 100.0), middle, style(15, HPos::Center, &dark))?;
                }
            }
        }
        Ok(())
    }
}

/// From dark violet by teal to yellow, lighter all the way: it reads in grey as well.
fn shade(share: f64) -> RGBColor {
    const STOPS: [(f64, f64, f64); 5] =
        [(68.0, 1.0, 84.0), (59.0, 82.0, 139.0), (33.0, 145.0, 140.0), (94.0, 201.0, 98.0), (253.0, 231.0, 37.0)];
    let at = share.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
    let (low, high) = (STOPS[at.floor() as usize], STOPS[at.ceil() as usize]);
    let mix = |a: f64, b: f64| (a + (b - a) * at.fract()).round() as u8;
    RGBColor(mix(low.0, high.0), mix(low.1, high.1), mix(low.2, high.2))
}

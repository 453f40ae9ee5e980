use super::grid::{BLOCK, Cell, EMPTY, GONE, Grid, Ink, LEVELS, Lists, REFRESH_CELLS};
use super::inks::Inks;
use super::paint::Look;
use super::zoom::{Fold, Zoom};
use crate::palette::Palette;
use eframe::egui::vec2;

/// Lists of a cache that never was: page `at` of list `row` is what a hash says, unless it was changed.
struct Made {
    rows: usize,
    columns: usize,
    changed: std::collections::BTreeMap<(usize, usize), u16>,
}

impl Lists for Made {
    fn rows(&self) -> usize {
        self.rows
    }

    fn len(&self, row: usize) -> usize {
        self.columns - row % 3
    }

    fn cell(&self, row: usize, at: usize) -> Cell {
        let usual = ((row / 4 + at / 1000) % 4) as u16;
        Cell { pair: self.changed.get(&(row, at)).copied().unwrap_or(usual), owners: 1, shade: 0 }
    }
}

const DARK: Palette = Palette { dark: true };

fn inks() -> Inks {
    let pair = |k: &str, v: &str| (k.into(), v.into());
    Inks::new(DARK, &[pair("f16", "f16"), pair("fp8", "tq4"), pair("tq3", "tq2"), pair("q8_0", "q4_0")])
}

fn built(lists: &Made, ink: Ink<'_>) -> (Grid, usize) {
    let mut grid = Grid::default();
    grid.begin_anew(lists);
    let mut frames = 0;
    while grid.behind() {
        grid.visited = 0;
        grid.refresh(lists, ink);
        assert!(grid.visited <= REFRESH_CELLS + 16 * lists.rows, "{}", grid.visited);
        frames += 1;
    }
    (grid, frames)
}

fn look<'a>(grid: &'a Grid, ink: Ink<'a>, zoom: Zoom) -> Look<'a> {
    Look { grid, ink, fold: Fold::Heads, heads: 4, zoom, base: 0, flashes: &[], marks: &[], palette: DARK }
}

#[test]
fn a_patched_grid_of_ten_million_pages_is_a_rebuilt_one_and_a_frame_touches_few() {
    let inks = inks();
    let ink = Ink { inks: &inks, shaded: false };
    let mut lists = Made { rows: 96, columns: 100_000, changed: Default::default() };
    let (mut grid, frames) = built(&lists, ink);
    assert!(frames > 50, "slices, not one frame: {frames}");
    // Pages here and there get other formats, are evicted, or are new at the end.
    lists.columns += 5;
    let mut seed = 7usize;
    let mut patches = Vec::new();
    for n in 0..2000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let place = ((seed >> 33) % 96, (seed >> 13) % 99_990);
        lists.changed.insert(place, if n % 5 == 0 { GONE } else { (n % 4) as u16 });
        patches.push(place);
    }
    for row in 0..96 {
        patches.extend((lists.len(row) - 5..lists.len(row)).map(|at| (row, at)));
    }
    grid.visited = 0;
    for (row, at) in &patches {
        grid.patch(*row, *at, &lists, ink);
    }
    assert_eq!(grid.visited, patches.len());
    let (rebuilt, _) = built(&lists, ink);
    assert!(grid == rebuilt, "patched and rebuilt differ");
    // All of it at 1280 × 600: nine blocks a pixel and list at most, where there are a thousand pages of a pixel.
    let size = vec2(1280.0, 600.0);
    let all = Zoom::all(size, grid.columns(), 96);
    let (_, visited) = look(&grid, ink, all).picture([1280, 600]);
    assert!(visited <= 96 * 1280 * 10, "{visited}");
    assert!(visited > 96 * 1280 * 2, "{visited}");
    // So at any zoom, and however lists are folded.
    for factor in [3.0, 9.0, 40.0, 300.0, 4000.0] {
        for fold in [Fold::Heads, Fold::Layers, Fold::All] {
            let zoom = all.by(factor, size / 2.0, all).within(size, grid.columns(), 96);
            let look = Look { fold, ..look(&grid, ink, zoom) };
            let (_, visited) = look.picture([1280, 600]);
            assert!(visited <= 96 * 1280 * 10, "{factor}: {visited}");
        }
    }
}

#[test]
fn blocks_are_means_of_their_pages() {
    let inks = inks();
    let ink = Ink { inks: &inks, shaded: false };
    let lists = Made { rows: 1, columns: 256, changed: (128..256).map(|at| ((0, at), GONE)).collect() };
    let (grid, _) = built(&lists, ink);
    let [f16, gone] = [ink.of(grid.cell(0, 0))[0], ink.of(grid.cell(0, 255))[0]];
    assert_eq!(grid.blocks(0, 1)[0][0], f16);
    assert_eq!(grid.blocks(0, 2)[15][0], gone);
    let whole = grid.blocks(0, LEVELS)[0][0];
    for c in 0..3 {
        let mean = (i32::from(f16[c]) + i32::from(gone[c])) / 2;
        assert!((i32::from(whole[c]) - mean).abs() <= 2, "{whole:?}");
    }
    assert_eq!(grid.blocks(0, 1).len(), 256 / BLOCK);
    assert!(grid.blocks(7, 1).is_empty() && grid.blocks(0, 9).is_empty());
    assert_eq!(grid.cell(7, 7), EMPTY);
}

#[test]
fn shades_dim_pages_and_their_blocks() {
    let inks = inks();
    let ink = Ink { inks: &inks, shaded: true };
    let lists = Made { rows: 1, columns: 64, changed: Default::default() };
    let (mut grid, _) = built(&lists, ink);
    let dark = grid.blocks(0, 2)[0];
    grid.shade(0, &[255; 64], ink);
    let bright = grid.blocks(0, 2)[0];
    assert_eq!(bright[0], inks.of(0)[0]);
    let sum = |rgb: [u8; 3]| rgb.iter().map(|c| u32::from(*c)).sum::<u32>();
    assert!(sum(dark[0]) < sum(bright[0]) / 2);
    // A patch keeps the shade of its place.
    grid.patch(0, 3, &lists, ink);
    assert_eq!(grid.cell(0, 3).shade, 255);
}

#[test]
fn a_cell_has_k_above_and_v_below() {
    let inks = inks();
    let ink = Ink { inks: &inks, shaded: false };
    let lists = Made { rows: 4, columns: 2000, changed: Default::default() };
    let (grid, _) = built(&lists, ink);
    let zoom = Zoom { corner: [1000.0, 0.0], scale: [4.0, 20.0] };
    let (image, _) = look(&grid, ink, zoom).picture([100, 90]);
    let at = |x: usize, y: usize| image.pixels[y * 100 + x];
    assert_eq!(at(50, 4), DARK.format("fp8"));
    assert_eq!(at(50, 14), DARK.format("tq4"));
    assert_eq!(at(50, 85), DARK.nothing(), "below the last list");
    let (image, _) = look(&grid, ink, Zoom { corner: [1990.0, 0.0], scale: [4.0, 20.0] }).picture([100, 90]);
    assert_eq!(image.pixels[4 * 100 + 90], DARK.nothing(), "after the last page");
}

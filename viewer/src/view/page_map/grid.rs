//! What the map is drawn from: four bytes a page, and mean colours of 4, 16, 64 and 256 pages, so that a picture of all
//! pages touches few of them. It follows the cache by the pages that were touched, and anew in slices where that is not enough.

use super::inks::{Inks, Rgb, mean};
use std::ops::Range;

/// Pages of a block, and blocks of one of the next level.
pub const BLOCK: usize = 4;

/// Levels of blocks.
pub const LEVELS: usize = 4;

/// Columns that are read anew at once.
const CHUNK: usize = 16;

/// Cells that are read anew in one frame.
pub const REFRESH_CELLS: usize = 80_000;

/// Touched pages that are taken in in one frame.
pub const PATCH_CELLS: usize = 30_000;

/// A page of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Place of its formats in [`kvarto::trace::PageTable::formats`], [`GONE`] or [`NOTHING`].
    pub pair: u16,
    /// Sequences that hold it, at most 255.
    pub owners: u8,
    /// How bright it is, where a brightness is chosen.
    pub shade: u8,
}

/// A page that was evicted.
pub const GONE: u16 = u16::MAX - 1;
/// No page, and never one so far.
pub const NOTHING: u16 = u16::MAX;

/// An empty place.
pub const EMPTY: Cell = Cell { pair: NOTHING, owners: 0, shade: 0 };

/// Mean colours of the K and the V sides of pages.
pub type Mean = [Rgb; 2];

/// Where cells come from.
pub trait Lists {
    /// Lists of pages.
    fn rows(&self) -> usize;
    /// Pages of a list.
    fn len(&self, row: usize) -> usize;
    /// The page at a place of a list; its shade is left alone.
    fn cell(&self, row: usize, at: usize) -> Cell;
}

/// A list of pages.
#[derive(Clone, Debug, Default, PartialEq)]
struct Row {
    cells: Vec<Cell>,
    levels: [Vec<Mean>; LEVELS],
}

/// All lists of a sequence in a cache group.
#[derive(Clone, Debug, Default)]
pub struct Grid {
    rows: Vec<Row>,
    columns: usize,
    /// The chunk of columns that is read anew next, and how many are left.
    next: usize,
    left: usize,
    /// Cells and blocks that the newest frame looked at.
    pub visited: usize,
    /// Grows with every change.
    pub version: u64,
}

/// How a colour is found for a cell.
#[derive(Clone, Copy)]
pub struct Ink<'a> {
    /// Colours.
    pub inks: &'a Inks,
    /// Whether shades count.
    pub shaded: bool,
}

impl Ink<'_> {
    /// Colours of K and V of a cell.
    pub fn of(self, cell: Cell) -> Mean {
        let colors = self.inks.of(cell.pair);
        if !self.shaded || cell.pair >= GONE {
            return colors;
        }
        colors.map(|color| self.inks.shaded(color, cell.shade))
    }
}

impl Grid {
    /// Lists.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Pages of the longest list.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Whether some of it is still to be read anew.
    pub fn behind(&self) -> bool {
        self.left > 0
    }

    /// The page at a place.
    pub fn cell(&self, row: usize, column: usize) -> Cell {
        self.rows.get(row).and_then(|row| row.cells.get(column)).copied().unwrap_or(EMPTY)
    }

    /// Mean colours of a list's blocks of level 1 (4 pages) to [`LEVELS`].
    pub fn blocks(&self, row: usize, level: usize) -> &[Mean] {
        let levels = self.rows.get(row).map(|row| &row.levels[..]).unwrap_or_default();
        level.checked_sub(1).and_then(|at| levels.get(at)).map_or(&[], Vec::as_slice)
    }

    /// Forgets all pages.
    pub fn clear(&mut self) {
        *self = Grid { version: self.version + 1, ..Grid::default() };
    }

    /// From now on every page is read anew, in slices.
    pub fn begin_anew(&mut self, lists: &impl Lists) {
        self.rows.resize_with(lists.rows(), Row::default);
        self.columns = (0..lists.rows()).map(|row| lists.len(row)).max().unwrap_or(0);
        for (at, row) in self.rows.iter_mut().enumerate() {
            row.cells.truncate(lists.len(at));
            let mut len = row.cells.len();
            for level in &mut row.levels {
                len = len.div_ceil(BLOCK);
                level.truncate(len);
            }
        }
        self.left = self.columns.div_ceil(CHUNK);
        self.next = self.next.min(self.left.saturating_sub(1));
        self.version += 1;
    }

    /// Reads a slice anew. Chunks go round, so that even where everything changes in every frame each gets its turn.
    pub fn refresh(&mut self, lists: &impl Lists, ink: Ink<'_>) {
        let chunks = self.columns.div_ceil(CHUNK);
        let mut cells = REFRESH_CELLS;
        while self.left > 0 && chunks > 0 && cells > 0 {
            let from = self.next % chunks * CHUNK;
            for row in 0..self.rows.len() {
                let end = lists.len(row).min(from + CHUNK);
                for at in from..end {
                    self.put(row, at, lists.cell(row, at));
                }
                self.mix(row, from..end, ink);
            }
            let done = self.rows.len().max(1) * CHUNK;
            cells = cells.saturating_sub(done);
            self.visited += done;
            self.left -= 1;
            self.next = (from / CHUNK + 1) % chunks;
            self.version += 1;
        }
    }

    /// Takes in a page that was touched.
    pub fn patch(&mut self, row: usize, at: usize, lists: &impl Lists, ink: Ink<'_>) {
        if row >= self.rows.len() || at >= lists.len(row) {
            return;
        }
        self.put(row, at, lists.cell(row, at));
        self.mix(row, at..at + 1, ink);
        self.columns = self.columns.max(at + 1);
        self.visited += 1;
        self.version += 1;
    }

    /// Sets the shades of a list.
    pub fn shade(&mut self, row: usize, shades: &[u8], ink: Ink<'_>) {
        let Some(held) = self.rows.get_mut(row) else { return };
        for (cell, shade) in held.cells.iter_mut().zip(shades) {
            cell.shade = *shade;
        }
        let len = held.cells.len();
        self.visited += len;
        self.mix(row, 0..len, ink);
        self.version += 1;
    }

    fn put(&mut self, row: usize, at: usize, cell: Cell) {
        let cells = &mut self.rows[row].cells;
        if at >= cells.len() {
            cells.resize(at + 1, EMPTY);
        }
        cells[at] = Cell { shade: cells[at].shade, ..cell };
    }

    /// Makes the blocks over some columns anew, level by level.
    fn mix(&mut self, row: usize, columns: Range<usize>, ink: Ink<'_>) {
        let Row { cells, levels } = &mut self.rows[row];
        let (mut from, mut to) = (columns.start, columns.end);
        for level in 0..LEVELS {
            (from, to) = (from / BLOCK, to.div_ceil(BLOCK));
            let (below, here) = levels.split_at_mut(level);
            let here = &mut here[0];
            if here.len() < to {
                here.resize(to, ink.inks.of(NOTHING));
            }
            for (at, block) in here.iter_mut().enumerate().take(to).skip(from) {
                let children = at * BLOCK..(at + 1) * BLOCK;
                let fresh = match below.last() {
                    None => mean(part(cells, children).iter().map(|cell| ink.of(*cell))),
                    Some(below) => mean(part(below, children).iter().copied()),
                };
                *block = fresh.unwrap_or(*block);
            }
        }
    }
}

/// The items of a range, as far as they are there.
fn part<T>(items: &[T], range: Range<usize>) -> &[T] {
    &items[range.start.min(items.len())..range.end.min(items.len())]
}

impl PartialEq for Grid {
    /// Equal pages and colours, however they were come by.
    fn eq(&self, other: &Self) -> bool {
        self.rows == other.rows && self.columns == other.columns
    }
}

//! The map's data as it follows the cursor: pages, colours, shades, marks, flashes. What a frame may take is bounded.

use super::brightness::{Brightness, Shades};
use super::flash::{Flash, flashes};
use super::grid::{Grid, Ink, PATCH_CELLS};
use super::inks::Inks;
use super::lists::Held;
use crate::palette::Palette;
use crate::store::Store;
use kvarto::engine::SeqId;

/// Whose pages: sequence, cache group, number of the first page of the lists.
type Whose = (SeqId, usize, u32);

/// What inks were made for: dark, formats, epoch.
type InksOf = (bool, usize, u64);

/// All that the map is drawn from.
#[derive(Default)]
pub struct Followed {
    /// Pages.
    pub grid: Grid,
    /// Colours.
    pub inks: Option<Inks>,
    /// Whether shades count.
    pub shaded: bool,
    /// Marks by column of the grid.
    pub marks: Vec<u8>,
    /// What flashes.
    pub flashes: Vec<Flash>,
    shades: Shades,
    whose: Option<Whose>,
    inks_of: Option<InksOf>,
    epoch: u64,
    touched: u64,
    flashes_at: Option<(u64, u64)>,
    marked: Option<(Whose, u64)>,
}

impl Followed {
    /// Comes nearer to the cursor; whether it is not there yet.
    pub fn follow(&mut self, store: &Store, held: &Held<'_>, palette: Palette, mode: Brightness) -> bool {
        self.grid.visited = 0;
        let formats = store.state.pages.formats();
        let whose = (held.sequence, held.group, held.base());
        let inks_of = (palette.dark, formats.len(), store.epoch);
        let other = self.whose != Some(whose);
        let repaint = self.inks_of.is_none_or(|(dark, ..)| dark != palette.dark);
        if self.inks_of != Some(inks_of) {
            self.inks = Some(Inks::new(palette, formats));
            self.inks_of = Some(inks_of);
        }
        let Some(inks) = &self.inks else { return false };
        self.shaded = mode != Brightness::None;
        let ink = Ink { inks, shaded: self.shaded };
        if other {
            self.grid.clear();
            self.shades.clear();
            self.whose = Some(whose);
        }
        if other || repaint || self.epoch != store.epoch {
            self.grid.begin_anew(held);
            (self.epoch, self.touched) = (store.epoch, store.touched_count());
        }
        let touched = store.touched_since(self.touched);
        let taken = &touched[..touched.len().min(PATCH_CELLS)];
        for page in taken.iter().filter(|page| page.group == held.group) {
            let row = store.row_of(page.group, page.layer, page.kv_head);
            let at = page.number.checked_sub(held.base());
            if let (Some(row), Some(at)) = (row, at) {
                self.grid.patch(row, at as usize, held, ink);
            }
        }
        self.touched += taken.len() as u64;
        self.grid.refresh(held, ink);
        let shades_behind = self.shades.update(mode, store, held, &mut self.grid, ink);
        let columns = self.grid.columns();
        if self.marked != Some((whose, store.epoch)) || self.marks.len() != columns {
            self.marks = held.marks(columns);
            self.marked = Some((whose, store.epoch));
        }
        let at = Some((store.revision, store.chronicle.events));
        if self.flashes_at != at || other {
            self.flashes = flashes(store, held);
            self.flashes_at = at;
        }
        shades_behind || self.grid.behind() || taken.len() < touched.len()
    }
}

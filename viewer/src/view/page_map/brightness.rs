//! How bright pages are: by attention, reads, age or error.

use super::grid::{Grid, Ink, Lists};
use super::lists::Held;
use crate::store::{Change, Store};
use kvarto::engine::{MassFacts, ReadFacts};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What brightness says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Brightness {
    /// Nothing: all pages are bright.
    #[default]
    None,
    /// Share of attention.
    Mass,
    /// How many of the last reads had it.
    Reads,
    /// Time since its last change.
    Age,
    /// Distance from the exact rows.
    Error,
}

/// Reads before the cursor that are counted.
pub const LAST_READS: usize = 32;
/// Samples that are looked through for those of a sequence.
const MOST_LOOKS: usize = 4096;
/// Pages whose shade is made in one frame.
pub const SHADE_CELLS: usize = 200_000;
/// Changes and errors that are taken in in one frame.
const TAKE: usize = 100_000;

impl Brightness {
    /// All.
    pub const ALL: [Brightness; 5] =
        [Brightness::None, Brightness::Mass, Brightness::Reads, Brightness::Age, Brightness::Error];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Brightness::None => "none",
            Brightness::Mass => "attention mass",
            Brightness::Reads => "reads",
            Brightness::Age => "age",
            Brightness::Error => "error",
        }
    }

    /// What bright and dark mean.
    pub fn meaning(self) -> &'static str {
        match self {
            Brightness::None => "All pages are as bright.",
            Brightness::Mass => {
                "Newest sampled share of attention; bright: the list's largest share, dark: a 10,000th of it or less."
            }
            Brightness::Reads => "Share of the last 32 reads before the cursor that read the page.",
            Brightness::Age => "Steps since the page was made or converted; bright: just now, half: 8 steps ago.",
            Brightness::Error => {
                "Relative RMS error of K or V, the larger; bright: 1, half: 0.01, dark: 0.0001, or not measured."
            }
        }
    }

    /// Whether the trace, as far as it was read, has it.
    pub fn in_trace(self, store: &Store) -> bool {
        match self {
            Brightness::None => true,
            Brightness::Mass => !store.chronicle.masses.samples().is_empty(),
            Brightness::Reads => !store.chronicle.reads.samples().is_empty(),
            Brightness::Age => !store.chronicle.changes.items().is_empty(),
            Brightness::Error => !store.chronicle.faults.items().is_empty(),
        }
    }
}

/// The newest mass of each model layer before the cursor, and when it was told.
pub fn newest_masses(store: &Store, held: &Held<'_>) -> BTreeMap<u32, (u64, Arc<MassFacts>)> {
    let done = store.events_done();
    let layers = store.state.groups.get(held.group).map_or(0, |facts| facts.layers.len());
    let mut masses = BTreeMap::new();
    for sample in store.chronicle.masses.until(|at| at.when.event >= done).iter().rev().take(MOST_LOOKS) {
        let mass = &sample.what;
        if mass.sequence == held.sequence && mass.group == held.group {
            masses.entry(mass.layer).or_insert_with(|| (sample.when.event, mass.clone()));
            if masses.len() >= layers {
                break;
            }
        }
    }
    masses
}

/// Makes shades, a few lists a frame.
#[derive(Default)]
pub struct Shades {
    mode: Brightness,
    /// What the shades of each list were made of.
    stamps: Vec<(u64, u64)>,
    next: usize,
    seen: Option<u64>,
    epoch: u64,
    masses: BTreeMap<u32, (u64, Arc<MassFacts>)>,
    reads: Vec<Arc<ReadFacts>>,
    newest_read: u64,
    /// Step of the last change of a page, by list and page.
    ages: Vec<Vec<u32>>,
    /// Errors by list and page: index, generation, relative RMS.
    faults: Vec<BTreeMap<usize, (u32, u32, f32)>>,
    /// Changes or errors that were taken in, and steps before them.
    taken: u64,
    steps: usize,
}

impl Shades {
    /// Begins anew: for other lists.
    pub fn clear(&mut self) {
        *self = Shades { mode: self.mode, ..Shades::default() };
    }

    /// Brings shades nearer to what they should be at the cursor; whether some are not there yet.
    pub fn update(&mut self, mode: Brightness, store: &Store, held: &Held<'_>, grid: &mut Grid, inks: Ink<'_>) -> bool {
        if (mode, store.epoch) != (self.mode, self.epoch) {
            (self.mode, self.epoch, self.seen, self.taken, self.steps) = (mode, store.epoch, None, 0, 0);
            self.ages.clear();
            self.faults.clear();
        }
        let mut behind = false;
        if self.seen != Some(store.revision) {
            behind = self.look(store, held);
            self.seen = (!behind).then_some(store.revision);
        }
        self.stamps.resize(grid.rows(), (0, 0));
        let mut cells = SHADE_CELLS;
        for _ in 0..grid.rows() {
            if cells == 0 {
                return true;
            }
            self.next = (self.next + 1) % grid.rows().max(1);
            let (row, wanted) = (self.next, self.stamp(self.next, store, held));
            if self.stamps[row] != wanted {
                let shades = self.fill(row, store, held);
                grid.shade(row, &shades, inks);
                self.stamps[row] = wanted;
                cells = cells.saturating_sub(shades.len().max(1));
            }
        }
        behind
    }

    fn look(&mut self, store: &Store, held: &Held<'_>) -> bool {
        match self.mode {
            Brightness::None => false,
            Brightness::Mass => {
                self.masses = newest_masses(store, held);
                false
            }
            Brightness::Reads => {
                let done = store.events_done();
                let reads = store.chronicle.reads.until(|at| at.when.event >= done).iter().rev().take(MOST_LOOKS);
                let own = reads.filter(|at| at.what.sequence == held.sequence && at.what.group == held.group);
                let own: Vec<_> = own.take(LAST_READS).collect();
                self.newest_read = own.first().map_or(0, |at| at.when.event + 1);
                self.reads = own.iter().map(|at| at.what.clone()).collect();
                false
            }
            Brightness::Age => self.take_changes(store, held),
            Brightness::Error => self.take_faults(store, held),
        }
    }

    fn take_changes(&mut self, store: &Store, held: &Held<'_>) -> bool {
        let (done, changes) = (store.events_done(), &store.chronicle.changes);
        self.ages.resize(held.rows(), Vec::new());
        let steps = store.chronicle.steps.samples();
        let list = changes.until(|at| at.when.event >= done);
        let from = self.taken.saturating_sub(changes.forgotten()).min(list.len() as u64) as usize;
        for at in list[from..].iter().take(TAKE) {
            let change = &at.what;
            while steps.get(self.steps).is_some_and(|step| step.when.event < at.when.event) {
                self.steps += 1;
            }
            let step = steps.get(self.steps).map_or(store.state.step.saturating_add(1), |step| step.what.step);
            if usize::from(change.group) != held.group || change.change == Change::Evicted {
                continue;
            }
            let row = store.row_of(held.group, change.layer.into(), change.kv_head.into());
            let column = change.number.checked_sub(held.base()).map(|at| at as usize);
            let (Some(row), Some(column)) = (row, column) else { continue };
            let Some(ages) = self.ages.get_mut(row) else { continue };
            if held.page(row, column) == Some(Some(change.page)) {
                if ages.len() <= column {
                    ages.resize(column + 1, 0);
                }
                ages[column] = u32::try_from(step).unwrap_or(u32::MAX).saturating_add(1);
            }
        }
        let taken = (list.len() - from).min(TAKE);
        self.taken = changes.forgotten() + (from + taken) as u64;
        from + taken < list.len()
    }

    fn take_faults(&mut self, store: &Store, held: &Held<'_>) -> bool {
        let (done, faults) = (store.events_done(), &store.chronicle.faults);
        self.faults.resize(held.rows(), BTreeMap::new());
        let list = faults.until(|at| at.when.event >= done);
        let from = self.taken.saturating_sub(faults.forgotten()).min(list.len() as u64) as usize;
        for at in list[from..].iter().take(TAKE) {
            let fault = &at.what;
            let stored = store.state.pages.stored(held.group, fault.page).filter(|_| fault.group == held.group);
            let Some(stored) = stored.filter(|stored| stored.generation == fault.generation) else { continue };
            let row = store.row_of(held.group, stored.layer, stored.kv_head);
            let column = stored.number.checked_sub(held.base()).map(|at| at as usize);
            let (Some(row), Some(column)) = (row, column) else { continue };
            let worst = fault.relative_rms[0].max(fault.relative_rms[1]);
            if let Some(list) = self.faults.get_mut(row) {
                list.insert(column, (fault.page, fault.generation, worst));
            }
        }
        let taken = (list.len() - from).min(TAKE);
        self.taken = faults.forgotten() + (from + taken) as u64;
        from + taken < list.len()
    }

    /// What the shades of a list depend on.
    fn stamp(&self, row: usize, store: &Store, held: &Held<'_>) -> (u64, u64) {
        let mass = |row: usize| {
            let (layer, _) = store.layer_and_head(held.group, row)?;
            self.masses.get(&layer).map(|(event, _)| *event + 1)
        };
        let len = held.len(row) as u64 + 1;
        match self.mode {
            Brightness::None => (0, 0),
            Brightness::Mass => (mass(row).unwrap_or(0), len << 3 | 1),
            Brightness::Reads => (self.newest_read, len << 3 | 2),
            Brightness::Age => (store.state.step ^ self.taken << 32, len << 3 | 3),
            Brightness::Error => (store.touched_count() ^ self.taken << 32, len << 3 | 4),
        }
    }

    fn fill(&self, row: usize, store: &Store, held: &Held<'_>) -> Vec<u8> {
        let mut shades = vec![0u8; held.len(row)];
        let to_byte = |share: f32| (share.clamp(0.0, 1.0) * 255.0) as u8;
        let decades = |share: f32| if share > 0.0 { to_byte(1.0 + share.log10() / 4.0) } else { 0 };
        match self.mode {
            Brightness::None => {}
            Brightness::Mass => {
                let place = store.layer_and_head(held.group, row);
                let mass = place.and_then(|(layer, head)| Some((&self.masses.get(&layer)?.1, head as usize)));
                let Some((mass, head)) = mass else { return shades };
                let Some(list) = mass.shares.get(head) else { return shades };
                let most = list.iter().copied().fold(0.0f32, f32::max);
                let off = i64::from(mass.first_page) - i64::from(held.base());
                let skip = usize::try_from(-off).unwrap_or(0);
                let at = usize::try_from(off).unwrap_or(0).min(shades.len());
                for (shade, share) in shades[at..].iter_mut().zip(list.iter().skip(skip)) {
                    *shade = decades(share / most);
                }
            }
            Brightness::Reads => {
                let mut ends = vec![0i32; shades.len() + 1];
                let at = |number: u32| (number.saturating_sub(held.base()) as usize).min(shades.len());
                for read in &self.reads {
                    for range in read.of_row(row).ranges() {
                        ends[at(range.start)] += 1;
                        ends[at(range.end)] -= 1;
                    }
                }
                let mut sum = 0;
                for (shade, end) in shades.iter_mut().zip(&ends) {
                    sum += end;
                    *shade = to_byte(sum as f32 / self.reads.len().max(1) as f32);
                }
            }
            Brightness::Age => {
                let now = u32::try_from(store.state.step).unwrap_or(u32::MAX).saturating_add(1);
                for (shade, step) in shades.iter_mut().zip(self.ages.get(row).map_or(&[][..], Vec::as_slice)) {
                    if *step > 0 {
                        *shade = to_byte(8.0 / (8.0 + now.saturating_sub(*step) as f32));
                    }
                }
            }
            Brightness::Error => {
                for (&at, &(page, generation, rms)) in self.faults.get(row).into_iter().flatten() {
                    let stored = store.state.pages.stored(held.group, page);
                    let same = stored.is_some_and(|stored| stored.generation == generation);
                    if let Some(shade) = shades.get_mut(at).filter(|_| same && held.page(row, at) == Some(Some(page))) {
                        *shade = if rms.is_nan() { 255 } else { decades(rms) };
                    }
                }
            }
        }
        shades
    }
}

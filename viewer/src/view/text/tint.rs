//! What tokens are coloured by.

use super::super::Scene;
use crate::palette::{Pattern, dim};
use crate::store::{Place, Store};
use eframe::egui::Color32;
use kvarto::engine::{Reads, SeqId};
use std::ops::Range;

/// What tokens are coloured by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The K format of their page.
    #[default]
    Format,
    /// Where their page is.
    Tier,
    /// Attention that their page was given.
    Mass,
    /// Lists that read their page.
    Reads,
}

impl Choice {
    /// All, with their words.
    pub const ALL: [(Choice, &str); 4] =
        [(Choice::Format, "format"), (Choice::Tier, "tier"), (Choice::Mass, "attention"), (Choice::Reads, "reads")];
}

/// Numbers of pages beyond which nothing is gathered: a damaged trace may say any.
const MOST_PAGES: u32 = 1 << 20;

/// Shares by page in the newest step before the cursor that tells any.
#[derive(Default)]
pub struct Shares {
    of: Option<(String, u64, SeqId, usize, Option<usize>, Choice)>,
    /// The step.
    pub step: Option<u64>,
    /// The largest share.
    pub most: f32,
    by_page: Vec<f32>,
}

impl Shares {
    /// Gathers them for a choice that has any.
    pub fn update(&mut self, scene: &Scene<'_>, sequence: SeqId, choice: Choice) {
        let (store, selection) = (scene.store, scene.selection);
        let of = (store.name.clone(), store.revision, sequence, selection.group, selection.row, choice);
        if self.of.as_ref() == Some(&of) {
            return;
        }
        *self = Shares { of: Some(of), ..Shares::default() };
        match choice {
            Choice::Mass => self.masses(store, sequence, selection.group, selection.row),
            Choice::Reads => self.reads(store, sequence, selection.group, selection.row),
            _ => {}
        }
        self.most = self.by_page.iter().copied().filter(|share| share.is_finite()).fold(0.0, f32::max);
    }

    fn masses(&mut self, store: &Store, sequence: SeqId, group: usize, row: Option<usize>) {
        let done = store.events_done();
        let wanted = row.map(|row| store.layer_and_head(group, row));
        let mut lists = 0u32;
        for mass in store.chronicle.masses.until(|mass| mass.when.event >= done).iter().rev() {
            let mass = &mass.what;
            if self.step.is_some_and(|step| mass.step != step) {
                break;
            }
            if (mass.sequence, mass.group) != (sequence, group) {
                continue;
            }
            self.step = Some(mass.step);
            for (head, shares) in mass.shares.iter().enumerate() {
                if wanted.is_some_and(|at| at != Some((mass.layer, head as u32))) {
                    continue;
                }
                lists += 1;
                for (at, share) in shares.iter().enumerate() {
                    let number = u64::from(mass.first_page) + at as u64;
                    self.add(number..number + 1, *share);
                }
            }
        }
        self.by_page.iter_mut().for_each(|share| *share /= lists.max(1) as f32);
    }

    fn reads(&mut self, store: &Store, sequence: SeqId, group: usize, row: Option<usize>) {
        let done = store.events_done();
        let reads = store.chronicle.reads.until(|read| read.when.event >= done).iter().rev();
        let Some(newest) = reads.map(|read| &read.what).find(|read| (read.sequence, read.group) == (sequence, group))
        else {
            return;
        };
        self.step = Some(newest.step);
        let lists = match (&newest.read, row) {
            (Reads::Rows(rows), None) => (0..rows.len()).collect(),
            (_, row) => vec![row.unwrap_or(0)],
        };
        let part = 1.0 / lists.len().max(1) as f32;
        for list in lists {
            for range in newest.of_row(list).ranges() {
                self.add(range.start.into()..range.end.into(), part);
            }
        }
    }

    fn add(&mut self, pages: Range<u64>, share: f32) {
        let bound = |page: u64| page.min(MOST_PAGES.into()) as usize;
        let (start, end) = (bound(pages.start), bound(pages.end));
        if self.by_page.len() < end {
            self.by_page.resize(end, 0.0);
        }
        self.by_page.get_mut(start..end).unwrap_or_default().iter_mut().for_each(|sum| *sum += share);
    }

    /// The share of a page.
    pub fn at(&self, page: u32) -> f32 {
        self.by_page.get(page as usize).copied().unwrap_or(0.0)
    }
}

/// The colour and pattern of a page's tokens.
pub fn of(scene: &Scene<'_>, shares: &Shares, choice: Choice, place: Place) -> (Color32, Pattern) {
    let palette = scene.palette;
    let page = || scene.store.page_at(place);
    match choice {
        Choice::Format => match page() {
            Some(page) => (soft(scene, palette.format(&page.formats.0)), palette.pattern(&page.formats.0)),
            None => (palette.gone(), Pattern::Solid),
        },
        Choice::Tier => match page() {
            Some(_) => (soft(scene, device(scene)), Pattern::Solid),
            None => (palette.gone(), Pattern::Solid),
        },
        Choice::Mass | Choice::Reads if shares.step.is_none() => (palette.nothing(), Pattern::Solid),
        Choice::Mass => {
            let share = shares.at(place.number);
            let scaled = if shares.most > 0.0 { share / shares.most } else { share };
            (palette.ramp(scaled), Pattern::Solid)
        }
        Choice::Reads => match shares.at(place.number) {
            share if share <= 0.0 => (palette.gone(), Pattern::Solid),
            share => (palette.ramp(share), Pattern::Solid),
        },
    }
}

/// The colour of pages on the device.
pub fn device(scene: &Scene<'_>) -> Color32 {
    scene.palette.format("f16")
}

/// A colour nearer to the background, so that text on it is calm.
pub fn soft(scene: &Scene<'_>, color: Color32) -> Color32 {
    let ground = if scene.palette.dark { 27.0 } else { 248.0 };
    let mix = |c: u8| (f32::from(c) * 0.55 + ground * 0.45) as u8;
    Color32::from_rgb(mix(color.r()), mix(color.g()), mix(color.b()))
}

/// The other shade of a colour, so that neighbouring pages differ.
pub fn shaded(color: Color32) -> Color32 {
    dim(color, 0.88)
}

/// Black or white, whichever is read better on a colour.
pub fn ink(ground: Color32) -> Color32 {
    let light = 0.299 * f32::from(ground.r()) + 0.587 * f32::from(ground.g()) + 0.114 * f32::from(ground.b());
    if light > 128.0 { Color32::from_gray(10) } else { Color32::from_gray(240) }
}

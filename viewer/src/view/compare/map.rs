//! The difference map: lists of pages down, pages across, a texel a page or several. It is gone through in parts, so
//! that no frame takes long, however many pages there are.

use super::super::{Act, Scene};
use super::rows::{Row, Shared};
use crate::store::{Place, Store};
use crate::units::{self, bytes};
use eframe::egui::{self, Color32, ColorImage, Rect, TextureHandle, TextureOptions, pos2, vec2};
use kvarto::engine::{Formats, PageFacts};
use kvarto::trace::StoredPage;
use std::collections::HashMap;

/// What a texel shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    /// Bytes of A's pages less those of B's.
    #[default]
    Bytes,
    /// Whether formats differ.
    Formats,
    /// Relative rms of A's pages less that of B's, where both are told.
    Errors,
}

const MODES: [(Mode, &str); 3] = [(Mode::Bytes, "bytes"), (Mode::Formats, "formats"), (Mode::Errors, "errors")];

/// Columns of pages that are looked at in a frame.
const A_FRAME: u64 = 15_000;

/// Texels of a row.
const MOST_TEXELS: u64 = 2048;

/// What a pass goes through.
#[derive(Clone, PartialEq)]
struct Plan {
    names: [String; 2],
    shared: Shared,
    mode: Mode,
    /// Columns of a texel.
    fold: u64,
}

/// A pass that has begun.
struct Pass {
    plan: Plan,
    revisions: [u64; 2],
    /// Texels done, row by row.
    done: u64,
    /// Differences; no number where nothing can be compared.
    cells: Vec<f32>,
}

/// What was drawn last.
struct Drawn {
    plan: Plan,
    revisions: [u64; 2],
    dark: bool,
    texture: TextureHandle,
    largest: f32,
    cells: Vec<f32>,
}

/// Page and generation, by which errors are told.
type Errors = HashMap<(usize, u32, u32), f32>;

/// The difference map.
#[derive(Default)]
pub struct Map {
    mode: Mode,
    pass: Option<Pass>,
    drawn: Option<Drawn>,
    errors: [(String, usize, Errors); 2],
}

impl Map {
    /// Goes on with what is to be drawn, and draws what is done.
    pub fn show(&mut self, ui: &mut egui::Ui, scene: &Scene<'_>, other: &Store, shared: &Shared, acts: &mut Vec<Act>) {
        ui.horizontal_wrapped(|ui| {
            ui.strong("Difference by page");
            for (mode, words) in MODES {
                ui.selectable_value(&mut self.mode, mode, words);
            }
        });
        let texels = shared.columns.min(MOST_TEXELS);
        if shared.rows.is_empty() || texels == 0 {
            ui.weak("No pages that can be compared at this step.");
            return;
        }
        if self.mode == Mode::Errors && [scene.store, other].iter().any(|s| s.chronicle.faults.items().is_empty()) {
            ui.weak("Errors of pages: not in both traces (--trace-pages N measures them).");
            return;
        }
        let names = [scene.store.name.clone(), other.name.clone()];
        let fold = shared.columns.div_ceil(MOST_TEXELS);
        self.work(ui.ctx(), scene, other, Plan { names, shared: shared.clone(), mode: self.mode, fold });
        let Some(drawn) = &self.drawn else { return };
        drawn.legend(ui, scene);
        drawn.image(ui, scene, other, acts);
    }

    /// Begins a pass where something has changed, and goes on with it.
    fn work(&mut self, context: &egui::Context, scene: &Scene<'_>, other: &Store, plan: Plan) {
        let revisions = [scene.store.revision, other.revision];
        let stale = |of: &Plan, at: &[u64; 2]| *of != plan || *at != revisions;
        // A sequence that grows does not begin a pass anew: it could never end.
        let same = |of: &Plan| of.names == plan.names && of.mode == plan.mode && of.shared.rows == plan.shared.rows;
        if self
            .pass
            .as_ref()
            .is_some_and(|pass| !same(&pass.plan) || pass.plan.shared.sequences != plan.shared.sequences)
        {
            self.pass = None;
        }
        if self.pass.is_none() && self.drawn.as_ref().is_none_or(|drawn| stale(&drawn.plan, &drawn.revisions)) {
            let texels = plan.shared.columns.div_ceil(plan.fold) * plan.shared.rows.len() as u64;
            let cells = Vec::with_capacity(usize::try_from(texels).unwrap_or(0));
            self.pass = Some(Pass { plan, revisions, done: 0, cells });
        }
        let dark = scene.palette.dark;
        if let Some(mut pass) = self.pass.take() {
            if pass.plan.mode == Mode::Errors {
                self.errors(scene.store, other);
            }
            if pass.go_on([scene.store, other], [&self.errors[0].2, &self.errors[1].2]) {
                self.finish(context, scene, pass);
            } else {
                self.pass = Some(pass);
                context.request_repaint();
            }
        } else if let Some(drawn) = &mut self.drawn
            && drawn.dark != dark
        {
            let image = drawn.picture(scene);
            drawn.texture.set(image, TextureOptions::NEAREST);
            drawn.dark = dark;
        }
    }

    /// Errors by page, where more of them have come.
    fn errors(&mut self, a: &Store, b: &Store) {
        for ((name, count, errors), store) in self.errors.iter_mut().zip([a, b]) {
            let faults = store.chronicle.faults.items();
            if *name == store.name && *count == faults.len() {
                continue;
            }
            let mean = |rms: [f32; 2]| (rms[0] + rms[1]) / 2.0;
            *errors = faults
                .iter()
                .map(|fault| &fault.what)
                .map(|fault| ((fault.group, fault.page, fault.generation), mean(fault.relative_rms)))
                .collect();
            (*name, *count) = (store.name.clone(), faults.len());
        }
    }

    fn finish(&mut self, context: &egui::Context, scene: &Scene<'_>, pass: Pass) {
        let largest = pass.cells.iter().filter(|cell| cell.is_finite()).fold(0.0f32, |most, cell| most.max(cell.abs()));
        let (dark, blank) = (scene.palette.dark, ColorImage::filled([1, 1], Color32::BLACK));
        let texture = match self.drawn.take() {
            Some(drawn) => drawn.texture,
            None => context.load_texture("difference map", blank, TextureOptions::NEAREST),
        };
        let Pass { plan, revisions, cells, .. } = pass;
        let mut drawn = Drawn { plan, revisions, dark, texture, largest, cells };
        let image = drawn.picture(scene);
        drawn.texture.set(image, TextureOptions::NEAREST);
        self.drawn = Some(drawn);
    }
}

impl Pass {
    /// Does a frame's part. Whether all is done.
    fn go_on(&mut self, stores: [&Store; 2], errors: [&Errors; 2]) -> bool {
        let Plan { shared, mode, fold, .. } = &self.plan;
        let width = shared.columns.div_ceil(*fold);
        let all = width * shared.rows.len() as u64;
        let end = (self.done + (A_FRAME / fold).max(1)).min(all);
        for texel in self.done..end {
            let Some(row) = shared.rows.get((texel / width) as usize) else { break };
            let first = texel % width * fold;
            let (mut sum, mut count) = (0.0, 0u32);
            for column in first..(first + fold).min(shared.columns) {
                if let Some(difference) = compared(stores, shared, *row, column, *mode, errors) {
                    sum += difference;
                    count += 1;
                }
            }
            let mean = if *mode == Mode::Bytes { sum } else { sum / count.max(1) as f32 };
            self.cells.push(if count == 0 { f32::NAN } else { mean });
        }
        self.done = end;
        end == all
    }
}

/// The difference between the pages of a column.
fn compared(
    stores: [&Store; 2],
    shared: &Shared,
    row: Row,
    column: u64,
    mode: Mode,
    errors: [&Errors; 2],
) -> Option<f32> {
    let of = |n: usize| {
        let (group, list) = if n == 0 { (shared.group, row.a) } else { row.b };
        let size = u64::from(stores[n].page_tokens(group).max(1));
        let held = stores[n].state.sequences.get(&shared.sequences[n]?)?.groups.get(group)?;
        let at = (column * u64::from(shared.unit) / size).checked_sub(held.first.into())? as usize;
        let pages = held.rows.get(list)?.get(at..)?;
        let count = (u64::from(shared.unit) / size).max(1) as usize;
        Some(Here { store: stores[n], group, pages: pages.get(..count).unwrap_or(pages) })
    };
    let (a, b) = (of(0), of(1));
    let first = |here: &Option<Here<'_>>| here.as_ref().and_then(|here| here.stored().next().map(|(page, _)| page));
    let (first_a, first_b) = (first(&a), first(&b));
    match mode {
        Mode::Bytes => {
            let sum = |here: Option<Here<'_>>| {
                here.map_or(0, |here| here.stored().fold(0u64, |sum, (_, page)| sum.saturating_add(page.bytes)))
            };
            (first_a.is_some() || first_b.is_some()).then(|| sum(a) as f32 - sum(b) as f32)
        }
        Mode::Formats => match (a.zip(first_a), b.zip(first_b)) {
            (None, None) => None,
            (Some((a, page_a)), Some((b, page_b))) => Some(f32::from(u8::from(a.formats(page_a) != b.formats(page_b)))),
            _ => Some(1.0),
        },
        Mode::Errors => {
            let error = |n: usize, here: Option<Here<'_>>| {
                let here = here?;
                let (page, stored) = here.stored().next()?;
                errors[n].get(&(here.group, page, stored.generation)).copied()
            };
            Some(error(0, a)? - error(1, b)?)
        }
    }
}

/// The pages of a list that stand in a column.
struct Here<'a> {
    store: &'a Store,
    group: usize,
    pages: &'a [Option<u32>],
}

impl<'a> Here<'a> {
    fn stored(&self) -> impl Iterator<Item = (u32, &'a StoredPage)> {
        let pages = &self.store.state.pages;
        self.pages.iter().flatten().filter_map(|page| Some((*page, pages.stored(self.group, *page)?)))
    }

    fn formats(&self, page: u32) -> Option<&'a Formats> {
        let pages = &self.store.state.pages;
        pages.formats().get(pages.stored(self.group, page)?.formats())
    }
}

impl Drawn {
    fn width(&self) -> usize {
        self.plan.shared.columns.div_ceil(self.plan.fold) as usize
    }

    fn picture(&self, scene: &Scene<'_>) -> ColorImage {
        let (palette, largest) = (scene.palette, self.largest);
        let paint = |cell: &f32| match self.plan.mode {
            _ if cell.is_nan() => palette.nothing(),
            Mode::Formats => palette.ramp(*cell),
            _ => palette.difference(if largest > 0.0 { cell / largest } else { 0.0 }),
        };
        let (width, height) = (self.width().max(1), self.plan.shared.rows.len().max(1));
        let mut pixels: Vec<Color32> = self.cells.iter().map(paint).collect();
        pixels.resize(width * height, palette.nothing());
        ColorImage::new([width, height], pixels)
    }

    /// What colours mean.
    fn legend(&self, ui: &mut egui::Ui, scene: &Scene<'_>) {
        let palette = scene.palette;
        let keys = match self.plan.mode {
            Mode::Bytes => {
                let most = bytes(self.largest as u64);
                vec![
                    (palette.difference(-1.0), format!("B takes up to {most} more")),
                    (palette.difference(0.0), "the same".into()),
                    (palette.difference(1.0), format!("A takes up to {most} more")),
                ]
            }
            Mode::Formats => vec![
                (palette.ramp(0.0), "the same K and V formats".into()),
                (palette.ramp(1.0), "others, or only in one".into()),
            ],
            Mode::Errors => vec![
                (palette.difference(-1.0), format!("B's relative rms is up to {:.4} larger", self.largest)),
                (palette.difference(0.0), "the same".into()),
                (palette.difference(1.0), format!("A's is up to {:.4} larger", self.largest)),
            ],
        };
        ui.horizontal_wrapped(|ui| {
            for (color, words) in keys.into_iter().chain([(palette.nothing(), "nothing to compare".into())]) {
                let (rect, _) = ui.allocate_exact_size(vec2(12.0, 10.0), egui::Sense::hover());
                ui.painter().rect_filled(rect, 1.0, color);
                ui.label(egui::RichText::new(words).small());
            }
        });
        let shared = &self.plan.shared;
        let lists = |row: Option<&Row>| row.and_then(|row| scene.store.layer_and_head(shared.group, row.a));
        let (first, last) = (lists(shared.rows.first()), lists(shared.rows.last()));
        let span =
            first.zip(last).map_or(String::new(), |((first, _), (last, _))| format!(", layers {first} to {last}"));
        let columns = units::count(shared.columns.saturating_sub(1));
        let words = format!(
            "Down: {} lists of layers and KV heads{span}. Across: pages 0 to {columns}, of {} tokens.",
            shared.rows.len(),
            shared.unit
        );
        ui.label(egui::RichText::new(words).small().weak());
    }

    /// The map itself: hovering tells, a click selects.
    fn image(&self, ui: &mut egui::Ui, scene: &Scene<'_>, other: &Store, acts: &mut Vec<Act>) {
        let shared = &self.plan.shared;
        let rows = shared.rows.len().max(1);
        let most = (ui.clip_rect().height() * 0.4).max(240.0);
        let height = (rows as f32 * 10.0).clamp(24.0, most);
        let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), height), egui::Sense::click());
        let whole = Rect::from_min_max(pos2(0.0, 0.0), pos2(1.0, 1.0));
        ui.painter().image(self.texture.id(), rect, whole, Color32::WHITE);
        let columns = (self.width() as u64 * self.plan.fold).max(1) as f32;
        if let Some(hover) = scene.selection.hover.filter(|hover| Some(hover.sequence) == shared.sequences[0]) {
            let token = u64::from(hover.number) * u64::from(scene.store.page_tokens(hover.group));
            let x = rect.left() + (token / u64::from(shared.unit)) as f32 / columns * rect.width();
            if rect.x_range().contains(x) {
                let ink = egui::Stroke::new(1.0, scene.palette.accent());
                ui.painter().vline(x, rect.top()..=rect.top() + 5.0, ink);
                ui.painter().vline(x, rect.bottom() - 5.0..=rect.bottom(), ink);
            }
        }
        let Some(pointer) = response.hover_pos() else { return };
        let at = (pointer - rect.min) / rect.size();
        let column = ((at.x * columns).max(0.0) as u64).min(shared.columns.saturating_sub(1));
        let Some(row) = shared.rows.get((at.y.max(0.0) * rows as f32) as usize) else { return };
        let place = |n: usize| {
            let (store, (group, row)) = if n == 0 { (scene.store, (shared.group, row.a)) } else { (other, row.b) };
            let number = column * u64::from(shared.unit) / u64::from(store.page_tokens(group).max(1));
            Some(Place { sequence: shared.sequences[n]?, group, row, number: u32::try_from(number).ok()? })
        };
        let (a, b) = (place(0), place(1));
        if let Some(a) = a {
            acts.push(Act::Hover(a));
            if response.clicked() {
                acts.push(Act::Select(Some(a)));
            }
        }
        let words = |store: &Store, place: Option<Place>| {
            let page: Option<PageFacts> = place.and_then(|place| store.page_at(place));
            page.map_or("no page".into(), |page| {
                format!("{}/{}, {}", page.formats.0, page.formats.1, bytes(page.bytes))
            })
        };
        let (layer, head) = scene.store.layer_and_head(shared.group, row.a).unwrap_or_default();
        let title =
            format!("Layer {layer}, KV head {head}, tokens from {}", units::count(column * u64::from(shared.unit)));
        let (a, b) = (words(scene.store, a), words(other, b));
        response.on_hover_text_at_pointer(format!("{title}\nA: {a}\nB: {b}"));
    }
}

//! Steps over time, and beside them moves, kernels, bandwidth and conversions.

mod facts;
mod figures;
mod lanes;
mod looks;
mod picture;

use super::{Act, Scene, Table, View, not_in_this_trace};
use crate::plotting;
use crate::store::Store;
use eframe::egui::{self, Color32, Rect, Sense, UiBuilder, Vec2};
use facts::{Extent, Facts};
use figures::KernelSums;
use lanes::Drawing;
use picture::Picture;

/// Width of the figures beside the lanes, in points.
const PANEL: f32 = 316.0;

/// Width of the lanes' names.
const LEFT: f32 = 118.0;

/// Seconds between gatherings while a trace grows.
const PATIENCE: f64 = 0.25;

/// The shortest time that lanes show, seconds.
const SHORTEST: f64 = 1e-5;

/// Steps over time.
#[derive(Default)]
pub struct Timeline {
    facts: Facts,
    /// How much of which trace they are of.
    of: Option<(String, Extent)>,
    gathered_at: f64,
    /// Seconds that it took.
    took: f64,
    /// Grows with each gathering.
    version: u64,
    /// Seconds at the edges; all where there are none.
    range: Option<(f64, f64)>,
    /// The cursor in the frame before, seconds.
    cursor: f64,
    drawn: Option<(Drawn, Picture)>,
    sums: KernelSums,
}

/// What shapes were made of.
#[derive(Clone, Copy, PartialEq)]
struct Drawn {
    version: u64,
    range: (f64, f64),
    rect: Rect,
    scale: f32,
    dark: bool,
}

impl Timeline {
    fn gather(&mut self, ui: &egui::Ui, store: &Store) {
        let extent = Extent::of(&store.chronicle);
        let same_trace = self.of.as_ref().is_some_and(|(name, _)| *name == store.name);
        if same_trace && self.of.as_ref().is_some_and(|(_, known)| *known == extent) {
            return;
        }
        let (now, since) = (ui.input(|input| input.time), self.gathered_at);
        // A trace that grows: the more there is to gather, the more seldom.
        let patience = PATIENCE.max(self.took * 20.0);
        if same_trace && (0.0..patience).contains(&(now - since)) {
            ui.ctx().request_repaint_after_secs(patience as f32);
            return;
        }
        if !same_trace {
            (self.range, self.facts) = (None, Facts::default());
        }
        let begin = std::time::Instant::now();
        let facts = Facts::of(&store.chronicle, &self.facts);
        if facts.kernels != self.facts.kernels || !same_trace {
            self.sums.forget();
        }
        self.facts = facts;
        self.took = begin.elapsed().as_secs_f64();
        self.of = Some((store.name.clone(), extent));
        self.gathered_at = now;
        self.version += 1;
    }

    fn bar(&mut self, ui: &mut egui::Ui, scene: &Scene<'_>) {
        ui.horizontal(|ui| {
            if ui.add_enabled(self.range.is_some(), egui::Button::new("all")).on_hover_text("The whole trace").clicked()
            {
                self.range = None;
            }
            let hint = "Wheel: zoom. Drag: move. Click: go to the step.";
            let key = |ui: &mut egui::Ui, color: Color32, words: &str, rule: &str| {
                let (rect, response) = ui.allocate_exact_size(Vec2::new(12.0, 12.0), Sense::hover());
                ui.painter().rect_filled(rect, 2.0, color);
                response.on_hover_text(rule);
                ui.label(words).on_hover_text(rule);
            };
            let palette = scene.palette;
            key(ui, looks::decode(palette), "decode", "Each sequence has one row.");
            key(ui, looks::prefill(palette), "prefill", "A sequence has more than one row.");
            key(ui, palette.alarm(), "stall", &figures::stall_rule());
            key(ui, palette.ink(), "moves wait", figures::waiting_rule());
            ui.add(egui::Label::new(egui::RichText::new(hint).weak()).truncate());
        });
    }

    fn lanes(&mut self, ui: &mut egui::Ui, rect: Rect, scene: &Scene<'_>, acts: &mut Vec<Act>) {
        let store = scene.store;
        let left = LEFT.min(rect.width() * 0.35);
        let inner = Rect::from_min_max(
            egui::pos2((rect.left() + left).round(), rect.top().round() + 4.0),
            egui::pos2(rect.right().floor() - 2.0, rect.bottom().floor() - plotting::BELOW),
        );
        if inner.width() < 24.0 || inner.height() < 40.0 {
            return;
        }
        let response = ui.interact(inner, ui.scope_id().with("lanes"), Sense::click_and_drag());
        response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Canvas, true, "Steps over time"));
        let all = self.facts.span();
        let start_ns = store.chronicle.start_ns.unwrap_or(0);
        let cursor = store.cursor.map_or(all.0, |at| (at.ns as f64 - start_ns as f64) / 1e9);
        self.move_range(ui, inner, &response, all, cursor);
        let range = self.range.unwrap_or(all);
        let drawing = Drawing {
            facts: &self.facts,
            chronicle: &store.chronicle,
            copy_rate: store.header.copy_bytes_per_s.filter(|rate| rate.is_finite() && *rate > 0.0),
            palette: scene.palette,
            range,
            rect: inner,
        };
        let scale = ui.pixels_per_point();
        let drawn = Drawn { version: self.version, range, rect: inner, scale, dark: scene.palette.dark };
        if self.drawn.as_ref().is_none_or(|(known, _)| *known != drawn) {
            self.drawn = Some((drawn, drawing.picture()));
        }
        if let Some((_, picture)) = &self.drawn {
            picture.paint(ui.painter());
        }
        drawing.axis(ui.painter(), cursor);
        let steps = store.chronicle.steps.samples();
        let step = |at: egui::Pos2| {
            let at = drawing.step_at(at.x)?;
            Some((drawing.facts.bars.get(at)?, steps.get(at)?))
        };
        if let Some((_, step)) = response.interact_pointer_pos().filter(|_| response.clicked()).and_then(step) {
            acts.push(Act::Seek(step.when.event.saturating_add(1)));
        }
        let hovered = response.hover_pos().filter(|_| !response.dragged()).and_then(step);
        if let Some((bar, step)) = hovered {
            response.on_hover_ui_at_pointer(|ui| figures::tip(ui, bar, step, drawing.copy_rate, drawing.facts));
        }
    }

    /// Zooms by the wheel, moves with the pointer, and follows the cursor where it leaves the range.
    fn move_range(&mut self, ui: &egui::Ui, rect: Rect, response: &egui::Response, all: (f64, f64), cursor: f64) {
        let (from, to) = self.range.unwrap_or(all);
        let mut wanted = (from, to);
        if let Some(at) = response.hover_pos() {
            let (scroll, zoom) = ui.input(|input| (input.smooth_scroll_delta(), input.zoom_delta()));
            let factor = f64::from((-scroll.y * 0.005).exp() / zoom.max(1e-3));
            if factor.is_finite() && (factor - 1.0).abs() > 1e-6 {
                let share = f64::from((at.x - rect.left()) / rect.width());
                let length = ((to - from) * factor).clamp(SHORTEST, all.1 - all.0);
                let fixed = from + (to - from) * share;
                wanted = (fixed - length * share, fixed + length * (1.0 - share));
            }
        }
        let each = (to - from) / f64::from(rect.width());
        let moved = if response.dragged() { -f64::from(response.drag_delta().x) * each } else { 0.0 };
        wanted = (wanted.0 + moved, wanted.1 + moved);
        let went = cursor != self.cursor;
        self.cursor = cursor;
        if went && self.range.is_some() && !response.dragged() && !(wanted.0..=wanted.1).contains(&cursor) {
            let length = wanted.1 - wanted.0;
            wanted = (cursor - length * 0.2, cursor + length * 0.8);
        }
        if wanted != (from, to) {
            let length = (wanted.1 - wanted.0).clamp(SHORTEST.min(all.1 - all.0), all.1 - all.0);
            let from = wanted.0.clamp(all.0, (all.1 - length).max(all.0));
            self.range = (length < (all.1 - all.0) * 0.999).then_some((from, from + length));
        }
    }
}

impl View for Timeline {
    fn id(&self) -> &'static str {
        "timeline"
    }

    fn title(&self) -> &'static str {
        "Timeline"
    }

    fn show(&mut self, ui: &mut egui::Ui, scene: &Scene<'_>, acts: &mut Vec<Act>) {
        if scene.store.chronicle.steps.samples().is_empty() {
            not_in_this_trace(ui, "Steps", "An engine tells each when it is done.");
            return;
        }
        self.gather(ui, scene.store);
        self.bar(ui, scene);
        let (plot, panel) = plotting::split(ui.available_rect_before_wrap(), PANEL);
        self.lanes(ui, plot, scene, acts);
        let builder = UiBuilder::new().max_rect(panel).id_salt("figures");
        ui.scope_builder(builder, |ui| figures::show(ui, scene, &self.facts, &mut self.sums));
    }

    fn table(&self, scene: &Scene<'_>) -> Option<Table> {
        let head = [
            "step",
            "end (s)",
            "kind",
            "stalled",
            "rows",
            "sequences",
            "read (bytes)",
            "host (ns)",
            "moved (bytes)",
            "policy (ns)",
            "waiting moves",
            "splits",
            "converted (pages)",
            "evicted (pages)",
            "bandwidth (bytes/s)",
            "bandwidth by",
        ];
        // Those at hand are of what is shown; a table may be asked for without any window.
        let facts = Facts::of(&scene.store.chronicle, &Facts::default());
        let steps = scene.store.chronicle.steps.samples().iter().zip(&facts.bars);
        let rows: Vec<Vec<String>> = steps.map(|step| row(step, facts.device_time)).collect();
        (!rows.is_empty()).then(|| Table { head: head.map(String::from).to_vec(), rows })
    }
}

/// A row of the table.
fn row((step, bar): (&crate::store::At<kvarto::engine::StepFacts>, &facts::Bar), device_time: bool) -> Vec<String> {
    let what = &step.what;
    let sequence = |rows: &kvarto::engine::SequenceRows| {
        let stands = if rows.committed { "" } else { "?" };
        format!("{}: {} from {}{stands}", rows.sequence.0, rows.rows, rows.first_position)
    };
    vec![
        what.step.to_string(),
        format!("{:.6}", bar.end),
        if bar.prefill { "prefill" } else { "decode" }.into(),
        bar.stalled.to_string(),
        what.rows.to_string(),
        what.sequences.iter().map(sequence).collect::<Vec<_>>().join("; "),
        what.read_bytes.to_string(),
        what.host_ns.to_string(),
        what.moved_bytes.to_string(),
        what.policy_ns.to_string(),
        what.waiting_moves.to_string(),
        what.splits.to_string(),
        bar.conversions.to_string(),
        bar.evictions.to_string(),
        bar.bandwidth.map_or(String::new(), |rate| format!("{rate:.0}")),
        if device_time { "time of the kernel decode" } else { "host time" }.into(),
    ]
}

//! Bytes by class over time, the figures at the cursor, and what other profiles would take.

mod area;
mod classes;
mod clock;
mod figures;
mod what_if;

use super::{Act, Scene, Table, View, not_in_this_trace};
use crate::plotting;
use area::{Area, Wish};
use classes::Class;
use clock::Clock;
use eframe::egui::{self, Rect, Sense, UiBuilder, emath::GuiRounding};
use figures::Figures;
use std::collections::BTreeSet;

/// Width of the figures beside the plot, in points.
const PANEL: f32 = 316.0;

/// Width of the axis of bytes.
const LEFT: f32 = 58.0;

/// Bytes by class over time.
#[derive(Default)]
pub struct Memory {
    everything: bool,
    clock: Clock,
    area: Area,
    figures: Figures,
    /// The event that was sought last, while the pointer is held.
    sought: Option<u64>,
}

impl Memory {
    fn bar(&mut self, ui: &mut egui::Ui) {
        ui.horizontal(|ui| {
            ui.selectable_value(&mut self.everything, false, "pages only")
                .on_hover_text("Slots in use, by side and format");
            ui.selectable_value(&mut self.everything, true, "everything")
                .on_hover_text("Free slots, tables, scratch, weights too: all that the allocator counts");
            ui.separator();
            ui.selectable_value(&mut self.clock, Clock::Steps, "steps");
            ui.selectable_value(&mut self.clock, Clock::Seconds, "seconds");
        });
    }

    fn plot(&mut self, ui: &mut egui::Ui, rect: Rect, scene: &Scene<'_>, acts: &mut Vec<Act>) {
        let store = scene.store;
        let scale = ui.pixels_per_point();
        let inner = Rect::from_min_max(
            egui::pos2(rect.left() + LEFT, rect.top() + 4.0),
            egui::pos2(rect.right() - 2.0, rect.bottom() - plotting::BELOW),
        );
        if inner.width() < 24.0 || inner.height() < 24.0 {
            return;
        }
        let plot = inner.round_to_pixels(scale);
        let budget = store.state.memory.budget_bytes.or(store.header.kv_budget_bytes);
        let wish = Wish { clock: self.clock, everything: self.everything, budget };
        self.area.show(ui, plot, store, scene.palette, wish);
        let end = self.clock.end(&store.chronicle);
        let x = plot.left() + (self.clock.cursor(store) / end).clamp(0.0, 1.0) as f32 * plot.width();
        plotting::cursor(ui.painter(), plot, x, scene.palette.accent());
        let response = ui.interact(plot, ui.scope_id().with("plot"), Sense::click_and_drag());
        response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Canvas, true, "Memory over time"));
        let place = |at: egui::Pos2| end * f64::from(((at.x - plot.left()) / plot.width()).clamp(0.0, 1.0));
        if let Some(at) = response.interact_pointer_pos().filter(|_| response.dragged() || response.clicked()) {
            let event = self.clock.seek(&store.chronicle, place(at));
            if self.sought != Some(event) {
                self.sought = Some(event);
                acts.push(Act::Seek(event));
            }
        } else {
            self.sought = None;
        }
        if let Some(at) = response.hover_pos().filter(|_| !response.dragged()) {
            let x = place(at);
            if let Some((_, memory)) = self.clock.memory(&store.chronicle, x) {
                let parts = classes::of(memory, self.everything);
                let when = match self.clock {
                    Clock::Steps => format!("after step {}", x as u64),
                    Clock::Seconds => format!("at {x:.3} s"),
                };
                response.on_hover_ui_at_pointer(|ui| figures::tip(ui, &when, &parts, scene.palette));
            }
        }
    }
}

impl View for Memory {
    fn id(&self) -> &'static str {
        "memory"
    }

    fn title(&self) -> &'static str {
        "Memory"
    }

    fn show(&mut self, ui: &mut egui::Ui, scene: &Scene<'_>, acts: &mut Vec<Act>) {
        if scene.store.chronicle.memory.samples().is_empty() {
            not_in_this_trace(ui, "Bytes of memory", "An engine tells them after the first step.");
            return;
        }
        self.bar(ui);
        let (plot, panel) = plotting::split(ui.available_rect_before_wrap(), PANEL);
        self.plot(ui, plot, scene, acts);
        let builder = UiBuilder::new().max_rect(panel).id_salt("figures");
        ui.scope_builder(builder, |ui| self.figures.show(ui, scene));
    }

    fn table(&self, scene: &Scene<'_>) -> Option<Table> {
        let chronicle = &scene.store.chronicle;
        let samples = chronicle.memory.samples();
        let mut all: BTreeSet<Class> = BTreeSet::new();
        let rows: Vec<Vec<(Class, u64)>> = samples.iter().map(|sample| classes::of(&sample.what, true)).collect();
        for row in &rows {
            all.extend(row.iter().map(|(class, _)| class.clone()));
        }
        let mut head = vec!["step".to_string(), "seconds".into()];
        head.extend(all.iter().map(|class| format!("{} (bytes)", class.name())));
        head.push("total (bytes)".into());
        let row = |(sample, classes): (&crate::store::At<kvarto::engine::MemoryClasses>, &Vec<(Class, u64)>)| {
            let step = chronicle.steps.until(|step| step.when.event > sample.when.event).last();
            let mut row = vec![step.map_or(0, |step| step.what.step).to_string()];
            row.push(format!("{:.6}", clock::seconds(chronicle, sample.when.ns)));
            let bytes = |class: &Class| classes.iter().find(|(known, _)| known == class).map_or(0, |(_, bytes)| *bytes);
            row.extend(all.iter().map(|class| bytes(class).to_string()));
            row.push(sample.what.total().to_string());
            row
        };
        (!rows.is_empty()).then(|| Table { head, rows: samples.iter().zip(&rows).map(row).collect() })
    }
}

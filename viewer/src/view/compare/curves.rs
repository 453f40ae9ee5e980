//! Bytes of pages of both traces over steps.

use super::super::{Act, Scene};
use super::color;
use crate::store::Store;
use eframe::egui;
use egui_plot::{Line, LineStyle, Plot, PlotPoint, VLine};

/// Points of a curve.
#[derive(Default)]
pub struct Curve {
    of: Option<(String, usize, bool)>,
    points: Vec<PlotPoint>,
}

/// Most points of a curve: more than a screen has columns.
const MOST_POINTS: usize = 4000;

impl Curve {
    /// Takes the curve from a trace. While that is being read, only where it has grown by a part.
    fn update(&mut self, store: &Store) {
        let (length, read) = (store.chronicle.memory.samples().len(), store.scanned >= 1.0);
        let fresh = |of: &(String, usize, bool)| {
            let enough = length >= of.1 && (length == of.1 || !read && length < of.1 + of.1 / 16 + 16);
            of.0 == store.name && of.2 == read && enough
        };
        if self.of.as_ref().is_some_and(fresh) {
            return;
        }
        self.of = Some((store.name.clone(), length, read));
        self.points.clear();
        let steps = store.chronicle.steps.samples();
        let stride = length.div_ceil(MOST_POINTS).max(1);
        let mut at = 0;
        for (number, memory) in store.chronicle.memory.samples().iter().enumerate() {
            while steps.get(at).is_some_and(|step| step.when.event < memory.when.event) {
                at += 1;
            }
            if number % stride == 0 || number + 1 == length {
                let step = steps.get(at).or(steps.last()).map_or(0, |step| step.what.step);
                let mib = memory.what.used_slot_bytes() as f64 / f64::from(1 << 20);
                self.points.push(PlotPoint::new(step as f64, mib));
            }
        }
    }
}

/// Draws both curves and the cursor; a click goes to a step.
pub fn show(ui: &mut egui::Ui, scene: &Scene<'_>, other: &Store, curves: &mut [Curve; 2], acts: &mut Vec<Act>) {
    ui.horizontal_wrapped(|ui| {
        ui.strong("Bytes of pages over steps");
        ui.weak("A solid, B dashed · click to go to a step");
    });
    let stores = [scene.store, other];
    for (curve, store) in curves.iter_mut().zip(stores) {
        curve.update(store);
    }
    if curves.iter().all(|curve| curve.points.is_empty()) {
        ui.weak("Bytes of memory: not in these traces.");
        return;
    }
    let step = scene.store.state.step as f64;
    let unit =
        |mib: f64| if mib != 0.0 && mib.abs() < 10.0 { format!("{mib:.2} MiB") } else { format!("{mib:.0} MiB") };
    let plot = Plot::new("curves")
        .height((ui.clip_rect().height() * 0.3).max(210.0))
        .include_y(0.0)
        .allow_scroll(false)
        .allow_drag(false)
        .allow_zoom(false)
        .allow_boxed_zoom(false)
        .x_axis_label("step")
        .y_axis_formatter(move |mark, _| unit(mark.value));
    let shown = plot.show(ui, |plot| {
        for (number, curve) in curves.iter().enumerate() {
            let style = if number == 0 { LineStyle::Solid } else { LineStyle::dashed_dense() };
            let line = Line::new(["A", "B"][number], curve.points.as_slice());
            plot.line(line.color(color(scene, number)).style(style).width(2.0).allow_band(false));
        }
        plot.vline(VLine::new("cursor", step).color(scene.palette.ink()).width(1.0));
        plot.pointer_coordinate()
    });
    if shown.response.clicked()
        && let Some(at) = shown.inner
        && let Some(event) = scene.store.chronicle.after_step(at.x.round().max(0.0) as u64)
    {
        acts.push(Act::Seek(event));
    }
}

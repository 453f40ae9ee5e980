//! Steps, kernels and moves with their times.

use super::{Act, Scene, Table, View};
use eframe::egui;

/// Steps, kernels and moves with their times.
#[derive(Default)]
pub struct Timeline {}

impl View for Timeline {
    fn id(&self) -> &'static str {
        "timeline"
    }

    fn title(&self) -> &'static str {
        "Timeline"
    }

    fn show(&mut self, ui: &mut egui::Ui, _scene: &Scene<'_>, _acts: &mut Vec<Act>) {
        ui.label("Timeline");
    }

    fn table(&self, _scene: &Scene<'_>) -> Option<Table> {
        None
    }
}

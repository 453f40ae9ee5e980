//! Two traces on one clock.

use super::{Act, Scene, Table, View};
use eframe::egui;

/// Two traces on one clock.
#[derive(Default)]
pub struct Compare {}

impl View for Compare {
    fn id(&self) -> &'static str {
        "compare"
    }

    fn title(&self) -> &'static str {
        "Compare"
    }

    fn show(&mut self, ui: &mut egui::Ui, _scene: &Scene<'_>, _acts: &mut Vec<Act>) {
        ui.label("Compare");
    }

    fn table(&self, _scene: &Scene<'_>) -> Option<Table> {
        None
    }
}

//! One page: its bits, its values, its history, its text.

use super::{Act, Scene, Table, View};
use eframe::egui;

/// One page: its bits, its values, its history, its text.
#[derive(Default)]
pub struct Inspector {}

impl View for Inspector {
    fn id(&self) -> &'static str {
        "inspector"
    }

    fn title(&self) -> &'static str {
        "Inspector"
    }

    fn show(&mut self, ui: &mut egui::Ui, _scene: &Scene<'_>, _acts: &mut Vec<Act>) {
        ui.label("Inspector");
    }

    fn table(&self, _scene: &Scene<'_>) -> Option<Table> {
        None
    }
}

//! Bytes by class over time.

use super::{Act, Scene, Table, View};
use eframe::egui;

/// Bytes by class over time.
#[derive(Default)]
pub struct Memory {}

impl View for Memory {
    fn id(&self) -> &'static str {
        "memory"
    }

    fn title(&self) -> &'static str {
        "Memory"
    }

    fn show(&mut self, ui: &mut egui::Ui, _scene: &Scene<'_>, _acts: &mut Vec<Act>) {
        ui.label("Memory");
    }

    fn table(&self, _scene: &Scene<'_>) -> Option<Table> {
        None
    }
}

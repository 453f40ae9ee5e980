//! What ran the trace, and what this machine has.

use super::{Act, Scene, Table, View};
use eframe::egui;

/// What ran the trace, and what this machine has.
#[derive(Default)]
pub struct Device {}

impl View for Device {
    fn id(&self) -> &'static str {
        "device"
    }

    fn title(&self) -> &'static str {
        "Device"
    }

    fn show(&mut self, ui: &mut egui::Ui, _scene: &Scene<'_>, _acts: &mut Vec<Act>) {
        ui.label("Device");
    }

    fn table(&self, _scene: &Scene<'_>) -> Option<Table> {
        None
    }
}

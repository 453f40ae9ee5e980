//! Which pages each step read.

use super::{Act, Scene, Table, View};
use eframe::egui;

/// Which pages each step read.
#[derive(Default)]
pub struct Mask {}

impl View for Mask {
    fn id(&self) -> &'static str {
        "mask"
    }

    fn title(&self) -> &'static str {
        "Sparsity mask"
    }

    fn show(&mut self, ui: &mut egui::Ui, _scene: &Scene<'_>, _acts: &mut Vec<Act>) {
        ui.label("Sparsity mask");
    }

    fn table(&self, _scene: &Scene<'_>) -> Option<Table> {
        None
    }
}

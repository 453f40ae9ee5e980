//! Every page of a sequence: rows are layers and KV heads, columns are pages by position.

use super::{Act, Scene, Table, View};
use eframe::egui;

/// Every page of a sequence: rows are layers and KV heads, columns are pages by position.
#[derive(Default)]
pub struct PageMap {}

impl View for PageMap {
    fn id(&self) -> &'static str {
        "page-map"
    }

    fn title(&self) -> &'static str {
        "Page map"
    }

    fn show(&mut self, ui: &mut egui::Ui, _scene: &Scene<'_>, _acts: &mut Vec<Act>) {
        ui.label("Page map");
    }

    fn table(&self, _scene: &Scene<'_>) -> Option<Table> {
        None
    }
}

//! Tokens, coloured by their pages.

use super::{Act, Scene, Table, View};
use eframe::egui;

/// Tokens, coloured by their pages.
#[derive(Default)]
pub struct Text {}

impl View for Text {
    fn id(&self) -> &'static str {
        "text"
    }

    fn title(&self) -> &'static str {
        "Text"
    }

    fn show(&mut self, ui: &mut egui::Ui, _scene: &Scene<'_>, _acts: &mut Vec<Act>) {
        ui.label("Text");
    }

    fn table(&self, _scene: &Scene<'_>) -> Option<Table> {
        None
    }
}

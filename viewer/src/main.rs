//! Shows what a Kvarto cache is made of.
//!
//! This version draws the layouts: for a format, side and geometry, which bits of a page hold which token. The live
//! cache comes with the engine's event stream.

#![forbid(unsafe_code)]

mod layout_view;

use eframe::egui;

struct Viewer {
    layout: layout_view::LayoutView,
}

impl eframe::App for Viewer {
    fn ui(&mut self, ui: &mut egui::Ui, _frame: &mut eframe::Frame) {
        egui::CentralPanel::default().show(ui, |ui| self.layout.show(ui));
    }
}

fn main() -> eframe::Result {
    let options = eframe::NativeOptions {
        viewport: egui::ViewportBuilder::default().with_title("Kvarto viewer").with_inner_size([1280.0, 800.0]),
        ..Default::default()
    };
    eframe::run_native(
        "kvarto-viewer",
        options,
        Box::new(|_| Ok(Box::new(Viewer { layout: layout_view::LayoutView::default() }))),
    )
}

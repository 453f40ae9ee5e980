//! The program's window.

use crate::app::App;
use eframe::{egui, wgpu};

struct Window(App);

impl eframe::App for Window {
    fn ui(&mut self, ui: &mut egui::Ui, _frame: &mut eframe::Frame) {
        self.0.ui(ui);
    }

    fn on_exit(&mut self) {
        self.0.keep();
    }
}

/// Shows a window until it is closed. `make` also gets the window's device.
///
/// # Errors
/// Without a display or an adapter, in words.
pub fn show(
    make: impl FnOnce(&egui::Context, Option<(wgpu::Device, wgpu::Queue)>) -> App + 'static,
) -> Result<(), String> {
    let options = eframe::NativeOptions {
        viewport: egui::ViewportBuilder::default().with_title("Kvarto viewer").with_inner_size([1280.0, 800.0]),
        ..Default::default()
    };
    let made = eframe::run_native(
        "kvarto-viewer",
        options,
        Box::new(move |creation| {
            let device = creation.wgpu_render_state.as_ref().map(|state| (state.device.clone(), state.queue.clone()));
            Ok(Box::new(Window(make(&creation.egui_ctx, device))))
        }),
    );
    made.map_err(|e| format!("no window: {e}; --screenshot draws without one"))
}

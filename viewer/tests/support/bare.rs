//! Windows without a rasteriser, and files for them.

use super::PATIENCE;
use eframe::egui::{self, Pos2};
use kvarto_viewer::app::App;
use kvarto_viewer::settings::Settings;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Points of a window.
pub const SIZE: [f32; 2] = [1280.0, 800.0];

/// A window without a rasteriser: frames are laid out and thrown away.
pub struct Bare {
    context: egui::Context,
    /// The window's contents.
    pub app: App,
    frames: u32,
}

impl Bare {
    /// Around these contents.
    pub fn new(app: App) -> Self {
        Bare { context: egui::Context::default(), app, frames: 0 }
    }

    /// One frame.
    pub fn frame(&mut self) {
        let input = egui::RawInput {
            screen_rect: Some(egui::Rect::from_min_size(Pos2::ZERO, SIZE.into())),
            time: Some(f64::from(self.frames) / 60.0),
            ..Default::default()
        };
        self.frames += 1;
        let Bare { context, app, .. } = self;
        let mut output = context.run_ui(input, |ui| app.ui(ui));
        output.textures_delta.clear();
        let _ = context.tessellate(output.shapes, output.pixels_per_point);
    }

    /// Frames until something is true.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&App) -> bool) {
        let start = Instant::now();
        while !done(&self.app) {
            assert!(start.elapsed() < PATIENCE, "{what}: {:?}", self.app.messages);
            self.frame();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A window without a trace.
pub fn empty() -> App {
    App::new(&egui::Context::default(), Settings::default(), None)
}

/// A sample's bytes.
pub fn bytes(path: Result<PathBuf, String>) -> Vec<u8> {
    std::fs::read(path.expect("a sample")).expect("it can be read")
}

/// A file with these bytes.
pub fn temporary(bytes: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().suffix(".kvtr").tempfile().expect("a temporary file");
    std::fs::write(file.path(), bytes).expect("it can be written");
    file
}

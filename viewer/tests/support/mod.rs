//! What tests of the window share.
#![allow(dead_code)] // each test program uses a part of it

pub mod bare;

use eframe::egui::{self, Vec2};
use egui_kittest::{Harness, SnapshotOptions};
use kvarto_viewer::app::{App, Opening};
use kvarto_viewer::samples;
use kvarto_viewer::settings::Settings;
use std::path::Path;
use std::time::Duration;

/// How long a trace may take to be read.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Whether something here can draw; where pictures are required, it is a fault that nothing can.
pub fn can_draw() -> bool {
    let required = std::env::var("KVARTO_REQUIRE").is_ok_and(|words| words.split(',').any(|word| word == "vulkan"));
    match kvarto_viewer::offscreen::Canvas::new([64, 64], 1.0) {
        Ok(_) => true,
        Err(why) if required => panic!("{why}"),
        Err(why) => {
            eprintln!("skipped: {why}");
            false
        }
    }
}

/// A window with a trace at the end of step `step`, or its last one.
pub fn app(path: &Path, step: Option<u64>) -> App {
    let mut app = App::new(&egui::Context::default(), Settings::default(), None);
    app.open(path, Opening::Stand);
    app.settle(step, PATIENCE).expect("a trace");
    app
}

/// The same with the sample of Minima-KV.
pub fn minima(step: Option<u64>) -> App {
    app(&samples::minima().expect("a sample"), step)
}

/// The same with the sample of a chat.
pub fn chat(step: Option<u64>) -> App {
    app(&samples::chat().expect("a sample"), step)
}

/// Draws the window when asked to; with `view` that view alone.
pub fn harness<'a>(mut app: App, view: Option<&str>, size: [f32; 2]) -> Harness<'a, App> {
    if let Some(view) = view {
        app.alone(view);
    }
    let mut harness = Harness::builder()
        .with_size(Vec2::from(size))
        .with_max_steps(60)
        .allow_missing_glyphs()
        .wgpu()
        .build_ui_state(|ui, app: &mut App| app.ui(ui), app);
    harness.run_steps(4);
    harness
}

/// Compares a picture with the kept one: `UPDATE_SNAPSHOTS=1` keeps it anew. A few texels of text may differ between
/// versions of the software rasteriser.
pub fn picture(harness: &mut Harness<'_, App>, name: &str) {
    let options = SnapshotOptions::new().threshold(0.8).max_failed_pixels(60);
    harness.snapshot_options(name, &options);
}

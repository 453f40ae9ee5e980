//! `--screenshot` and `--export`: what a window would show, as files.

use crate::app::{App, Opening};
use crate::arguments::Arguments;
use crate::export::{self, Kind};
use crate::offscreen::Canvas;
use crate::samples;
use crate::settings::Settings;
use eframe::egui;
use std::path::Path;
use std::time::Duration;

/// How long a trace may take to be read.
const PATIENCE: Duration = Duration::from_secs(120);

/// Makes the files that are asked for.
///
/// # Errors
/// In words: a trace that cannot be read, an unknown view, no adapter, a file that cannot be written.
pub fn make(arguments: &Arguments) -> Result<(), String> {
    let context = egui::Context::default();
    let settings = Settings { dark: !arguments.light, ..Settings::default() };
    let mut app = App::new(&context, settings, None);
    if let Some(view) = &arguments.view {
        if !app.view_ids().contains(&view.as_str()) {
            return Err(format!("there is no view {view}; there are {}", app.view_ids().join(", ")));
        }
        app.alone(view);
    }
    let path = arguments.trace.clone().or_else(samples::minima).ok_or("no trace: give one with --trace")?;
    app.open(&path, Opening::Stand);
    if let Some(other) = &arguments.compare {
        app.compare(other);
        if let Some(view) = &arguments.view {
            app.alone(view);
        }
    }
    app.settle(arguments.at, PATIENCE)?;
    if let (Some(Kind::Csv), Some(view)) = (arguments.export, &arguments.view) {
        let table = app.table(view).ok_or_else(|| format!("{view} shows nothing that is a table"))?;
        let path = named(arguments, view, Kind::Csv, app.player.store.state.step);
        export::write_csv(&table, &path)?;
        println!("{}", path.display());
    }
    let picture = match (arguments.export, &arguments.view) {
        (Some(Kind::Png), Some(view)) => Some(named(arguments, view, Kind::Png, app.player.store.state.step)),
        _ => None,
    };
    let files: Vec<&Path> = arguments.screenshot.iter().chain(&picture).map(|path| path.as_path()).collect();
    if files.is_empty() {
        return Ok(());
    }
    let canvas = Canvas::new(arguments.size, arguments.scale)?;
    for file in files {
        canvas.save(&context, |ui| app.ui(ui), file)?;
        println!("{}", file.display());
    }
    Ok(())
}

fn named(arguments: &Arguments, view: &str, kind: Kind, step: u64) -> std::path::PathBuf {
    arguments.output.clone().unwrap_or_else(|| export::fresh_name(view, step, kind))
}

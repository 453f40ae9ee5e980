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
    let path = match &arguments.trace {
        Some(path) => path.clone(),
        None => samples::minima()?,
    };
    let read = [Some(&path), arguments.compare.as_ref()];
    for written in arguments.screenshot.iter().chain(&arguments.output) {
        let written_to = std::fs::canonicalize(written).ok();
        let same = |read: &&std::path::PathBuf| written_to.is_some() && std::fs::canonicalize(read).ok() == written_to;
        if read.into_iter().flatten().any(|read| same(&read)) {
            return Err(format!("{}: that is the trace that is read; write to another file", written.display()));
        }
    }
    app.open(&path, Opening::Stand);
    if let Some(other) = &arguments.compare {
        app.compare(other);
        if let Some(view) = &arguments.view {
            app.alone(view);
        }
    }
    app.settle(arguments.at, PATIENCE)?;
    let last = app.player.store.chronicle.last_step;
    if let Some(at) = arguments.at.filter(|at| *at > last) {
        return Err(format!("--at {at}: the trace ends with step {last}"));
    }
    if let (Some(Kind::Csv), Some(view)) = (arguments.export, &arguments.view) {
        let table = app.table(view).ok_or_else(|| nothing(view))?;
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

/// Why a view has no table.
fn nothing(view: &str) -> String {
    let hint = match view {
        "compare" => ": give a second trace with --compare",
        "live" => ": a model runs in a window alone",
        "inspector" => ": a page has to be clicked in a window",
        _ => "",
    };
    format!("{view} shows nothing that is a table{hint}")
}

fn named(arguments: &Arguments, view: &str, kind: Kind, step: u64) -> std::path::PathBuf {
    arguments.output.clone().unwrap_or_else(|| export::fresh_name(view, step, kind))
}

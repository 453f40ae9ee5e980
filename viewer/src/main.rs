//! The `kvarto-viewer` program.

use clap::Parser;
use kvarto_viewer::app::{App, Opening};
use kvarto_viewer::arguments::Arguments;
use kvarto_viewer::settings::Settings;
use kvarto_viewer::{pictures, samples, window};
use std::process::ExitCode;

fn main() -> ExitCode {
    env_logger::init();
    let arguments = Arguments::parse();
    let done = if arguments.screenshot.is_some() || arguments.export.is_some() {
        pictures::make(&arguments)
    } else {
        show(arguments)
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn show(arguments: Arguments) -> Result<(), String> {
    window::show(move |context| {
        let place = Settings::place();
        let mut settings = place.as_deref().map(Settings::load).unwrap_or_default();
        settings.dark &= !arguments.light;
        let mut app = App::new(context, settings, place);
        match arguments.trace.clone().or_else(samples::minima) {
            Some(path) => app.open(&path, if arguments.at.is_some() { Opening::Stand } else { Opening::Play }),
            None => app.messages.push("the sample trace cannot be unpacked: give one with --trace".into()),
        }
        app.begin(&arguments);
        app
    })
}

//! The `kvarto-viewer` program.

use clap::Parser;
use kvarto_viewer::app::{App, Opening};
use kvarto_viewer::arguments::Arguments;
use kvarto_viewer::settings::Settings;
use kvarto_viewer::{benchmark, pictures, samples, window};
use std::process::ExitCode;

fn main() -> ExitCode {
    env_logger::init();
    let arguments = Arguments::parse();
    let done = if arguments.bench {
        benchmark::run(arguments.size, arguments.scale)
    } else if arguments.screenshot.is_some() || arguments.export.is_some() {
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
    window::show(move |context, device| {
        let place = Settings::place();
        let mut settings = place.as_deref().map(Settings::load).unwrap_or_default();
        settings.dark &= !arguments.light;
        let mut app = App::new(context, settings, place);
        let opening = if arguments.at.is_some() { Opening::Stand } else { Opening::Play };
        if arguments.live {
            app.start_live(arguments.live_options(device.filter(|_| arguments.share_device)));
        } else if let Some(peer) = &arguments.connect {
            app.connect(peer);
        } else if let Some(path) = &arguments.trace {
            app.open(path, opening);
        } else {
            app.open_sample(samples::minima(), opening);
        }
        app.begin(&arguments);
        app
    })
}

//! A fetch's progress on a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use kvarto::model::store::{Progress, Stage};

const TEMPLATE: &str = "{msg:>11} {wide_bar} {bytes:>10} of {total_bytes} {eta:>4}";

/// A bar on standard error; silent where that is no terminal.
pub struct Bar(ProgressBar);

impl Default for Bar {
    fn default() -> Self {
        Self::new()
    }
}

impl Bar {
    /// A bar that shows nothing until a stage begins.
    pub fn new() -> Self {
        Bar(ProgressBar::hidden()).with_style()
    }

    fn with_style(self) -> Self {
        // The template is a constant of ours; were it wrong, the default bar would serve.
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            self.0.set_style(style);
        }
        self
    }

    /// Takes the bar off the screen.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Progress for Bar {
    fn stage(&self, stage: Stage, total_bytes: u64) {
        self.0.set_draw_target(indicatif::ProgressDrawTarget::stderr());
        self.0.reset();
        self.0.set_length(total_bytes);
        self.0.set_message(stage.as_str());
        // Redrawn while a download stands still, so that it does not look dead.
        self.0.enable_steady_tick(Duration::from_millis(200));
    }

    fn advance(&self, done_bytes: u64) {
        // pip keeps its own files beside the download: never show more than all.
        self.0.set_position(done_bytes.min(self.0.length().unwrap_or(done_bytes)));
    }

    fn notice(&self, text: &str) {
        self.0.suspend(|| crate::cli::output::say(text));
    }
}

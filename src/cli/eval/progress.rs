//! An evaluation's progress on a terminal, and the wish to stop it.

use super::super::interrupt;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kvarto::Result;
use kvarto::eval::Progress;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const TEMPLATE: &str = "{msg:24!} {wide_bar} {percent:>3} % {eta:>4} left";

/// A bar on standard error with the time that remains; silent where that is no terminal.
pub struct Meter {
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
}

impl Meter {
    /// Shows nothing until there is work, and listens to Ctrl-C.
    ///
    /// # Errors
    /// `File` where the system lets nobody listen.
    pub fn new() -> Result<Self> {
        let stop = interrupt::wish_to_stop()?;
        let bar = ProgressBar::hidden();
        // The template is a constant of ours; were it wrong, the default bar would serve.
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        Ok(Meter { bar, stop })
    }

    /// Begins `work` units of work.
    pub fn begin(&self, work: u64) {
        self.bar.set_draw_target(ProgressDrawTarget::stderr());
        self.bar.reset();
        self.bar.set_length(work);
        self.bar.enable_steady_tick(Duration::from_millis(250));
    }

    /// Takes the bar off the screen.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Progress for Meter {
    fn stage(&mut self, what: &str) {
        self.bar.set_message(crate::cli::output::escaped(what));
    }

    fn advance(&mut self, tokens: u64) {
        self.bar.inc(tokens);
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

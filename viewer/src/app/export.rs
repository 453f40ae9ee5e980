//! Views as files, out of a window.

use super::App;
use crate::export::{self, Kind};
use eframe::egui;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

/// A picture of a view that is being taken.
pub(super) struct Picture {
    view: String,
    path: PathBuf,
    receiver: Receiver<Arc<egui::ColorImage>>,
}

impl App {
    /// Writes a view, and says where.
    pub(super) fn export(&mut self, view: &str, kind: Kind, context: &egui::Context) {
        let path = export::fresh_name(view, self.player.store.state.step, kind);
        match kind {
            Kind::Csv => {
                let written = match self.table(view) {
                    Some(table) => export::write_csv(&table, &path),
                    None => Err(format!("{view} shows nothing that is a table")),
                };
                self.messages.push(written.map_or_else(|why| why, |()| format!("{} was written", path.display())));
            }
            Kind::Png => {
                let (sender, receiver) = channel();
                self.picture_of = Some(Picture { view: view.into(), path, receiver });
                let wake = self.wake.clone();
                context.request_screenshot(move |image| {
                    // Nobody waits for it where the program has ended.
                    let _ = sender.send(image);
                    wake();
                });
            }
        }
    }

    /// Writes a picture that was taken since.
    pub(super) fn save_picture(&mut self, context: &egui::Context) {
        let Some(image) = self.picture_of.as_ref().and_then(|picture| picture.receiver.try_recv().ok()) else { return };
        let Some(Picture { view, path, .. }) = self.picture_of.take() else { return };
        let part = match self.tiles.get(&view) {
            Some(tile) => image.region(tile, Some(context.pixels_per_point())),
            None => (*image).clone(),
        };
        let written = export::write_png(part.size, part.as_raw(), &path);
        self.messages.push(written.map_or_else(|why| why, |()| format!("{} was written", path.display())));
    }
}

//! Keys, and the overlay that lists them.

use crate::app::App;
use crate::transport;
use eframe::egui::{self, Key};

/// What a key asks for beyond playing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Show or hide the list of keys.
    Help,
    /// Ask for a file.
    OpenLine,
    /// Let go of what is selected.
    Unselect,
    /// Bring a view to the front.
    View(usize),
}

const LIST: [(&str, &str); 12] = [
    ("Space", "play or pause"),
    ("Left, right", "one step back or forward"),
    ("Shift+left, right", "ten steps"),
    ("Home, End", "the beginning, the end"),
    ("+, -", "faster, slower"),
    ("F", "stay at the end of a trace that grows"),
    ("1 to 9", "bring a view to the front"),
    ("Ctrl+O", "open a file"),
    ("H", "this list"),
    ("Esc", "let go of what is selected"),
    ("Wheel, drag", "in the page map: zoom, move; Shift+drag marks pages"),
    ("Double click", "in the page map: all pages again"),
];

/// Obeys the keys of this frame.
pub fn take(context: &egui::Context, app: &mut App) {
    // Who writes a text does not mean to play.
    if context.egui_wants_keyboard_input() {
        return;
    }
    let pressed = |key| context.input(|input| input.key_pressed(key) && !input.modifiers.command);
    let shift = context.input(|input| input.modifiers.shift);
    if context.input(|input| input.modifiers.command && input.key_pressed(Key::O)) {
        app.obey(Wish::OpenLine);
    }
    if pressed(Key::H) || pressed(Key::Questionmark) {
        app.obey(Wish::Help);
    }
    if pressed(Key::Escape) {
        app.obey(Wish::Unselect);
    }
    const DIGITS: [Key; 9] =
        [Key::Num1, Key::Num2, Key::Num3, Key::Num4, Key::Num5, Key::Num6, Key::Num7, Key::Num8, Key::Num9];
    if let Some(number) = DIGITS.into_iter().position(pressed) {
        app.obey(Wish::View(number));
    }
    let player = &mut app.player;
    let step = player.store.state.step;
    if pressed(Key::Space) {
        transport::toggle(player);
    }
    if pressed(Key::ArrowRight) {
        if shift {
            player.playing = false;
            player.seek_step(step + 10);
        } else {
            player.step_forward();
        }
    }
    if pressed(Key::ArrowLeft) {
        if shift {
            player.playing = false;
            player.seek_step(step.saturating_sub(10));
        } else {
            player.step_back();
        }
    }
    if pressed(Key::Home) {
        player.seek(0);
    }
    if pressed(Key::End) {
        player.seek(player.store.chronicle.events);
    }
    if pressed(Key::F) {
        player.follow = !player.follow;
        player.playing |= player.follow;
    }
    let faster = i64::from(pressed(Key::Plus) || pressed(Key::Equals)) - i64::from(pressed(Key::Minus));
    if faster != 0 {
        let at = transport::SPEEDS.iter().position(|(speed, _)| *speed == player.speed).unwrap_or(2) as i64;
        player.speed = transport::SPEEDS[(at + faster).clamp(0, transport::SPEEDS.len() as i64 - 1) as usize].0;
    }
}

/// Draws the list while it is wished. Whether it was closed.
pub fn help(context: &egui::Context, shown: &mut bool) -> bool {
    if !*shown {
        return false;
    }
    let modal = egui::Modal::new(egui::Id::unique("keys")).show(context, |ui| {
        ui.heading("Keys");
        egui::Grid::new("keys").num_columns(2).spacing([24.0, 4.0]).show(ui, |ui| {
            for (keys, words) in LIST {
                ui.monospace(keys);
                ui.label(words);
                ui.end_row();
            }
        });
    });
    modal.should_close()
}

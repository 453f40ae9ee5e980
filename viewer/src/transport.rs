//! The bar below: play, pause, step, speed, scrub.

use crate::icons::{self, Icon};
use crate::player::{Player, Speed};
use eframe::egui;
use kvarto::trace::Ending;

/// Speeds that the bar and the keys offer.
pub const SPEEDS: [(Speed, &str); 9] = [
    (Speed::Steps(1.0), "1 step/s"),
    (Speed::Steps(5.0), "5 steps/s"),
    (Speed::Steps(30.0), "30 steps/s"),
    (Speed::Steps(120.0), "120 steps/s"),
    (Speed::Steps(600.0), "600 steps/s"),
    (Speed::Time(0.25), "time × 0.25"),
    (Speed::Time(1.0), "time × 1"),
    (Speed::Time(4.0), "time × 4"),
    (Speed::Most, "fastest"),
];

/// Draws the bar.
pub fn bar(ui: &mut egui::Ui, player: &mut Player) {
    ui.horizontal(|ui| {
        if icons::button(ui, Icon::First, "First", "To the beginning (Home)").clicked() {
            player.seek(0);
        }
        if icons::button(ui, Icon::StepBack, "Back", "One step back (left arrow)").clicked() {
            player.step_back();
        }
        let (icon, label) = if player.playing { (Icon::Pause, "Pause") } else { (Icon::Play, "Play") };
        if icons::button(ui, icon, label, &format!("{label} (space)")).clicked() {
            toggle(player);
        }
        if icons::button(ui, Icon::StepForward, "Forward", "One step forward (right arrow)").clicked() {
            player.step_forward();
        }
        if icons::button(ui, Icon::Last, "Last", "To the end (End)").clicked() {
            player.seek(player.store.chronicle.events);
        }
        let now = SPEEDS.iter().find(|(speed, _)| *speed == player.speed).map_or("other", |(_, words)| words);
        let speeds = egui::ComboBox::from_id_salt("speed").width(104.0).selected_text(now).show_ui(ui, |ui| {
            for (speed, words) in SPEEDS {
                ui.selectable_value(&mut player.speed, speed, words);
            }
        });
        icons::name_choice(&speeds, "Speed");
        if !matches!(player.store.ending, Some(Ending::Finished)) || player.follow {
            ui.toggle_value(&mut player.follow, "follow").on_hover_text("Stay at the newest event (F)");
        }
        scrub(ui, player);
    });
}

/// Plays or pauses; at the end it begins again.
pub fn toggle(player: &mut Player) {
    if !player.playing && player.at_end() && matches!(player.store.ending, Some(Ending::Finished)) {
        player.seek(0);
    }
    player.playing = !player.playing;
}

fn scrub(ui: &mut egui::Ui, player: &mut Player) {
    let (events, done) = (player.store.chronicle.events, player.store.events_done());
    let ns = player.store.cursor.map_or(0, |at| at.ns).saturating_sub(player.store.chronicle.start_ns.unwrap_or(0));
    let lost: u64 = player.store.chronicle.lost.items().iter().map(|lost| lost.what).sum();
    let lost = if lost > 0 { format!(" · {lost} lost") } else { String::new() };
    let words = format!(
        "step {} of {} · {:.3} s · event {done} of {events}{lost}",
        player.store.state.step,
        player.store.chronicle.last_step,
        ns as f64 / 1e9,
    );
    let width = (ui.available_width() - 330.0).max(80.0);
    let size = egui::vec2(width, 22.0);
    let (rect, response) = ui.allocate_exact_size(size, egui::Sense::click_and_drag());
    response.widget_info(|| egui::WidgetInfo::slider(true, done as f64, "Scrub"));
    let painter = ui.painter_at(rect);
    let line = rect.shrink2(egui::vec2(0.0, 8.0));
    let visuals = ui.visuals();
    painter.rect_filled(line, 3.0, visuals.extreme_bg_color);
    let part = |share: f64| line.left() + line.width() * share.clamp(0.0, 1.0) as f32;
    let scanned = egui::Rect::from_min_max(line.min, egui::pos2(part(player.store.scanned.into()), line.bottom()));
    painter.rect_filled(scanned, 3.0, visuals.widgets.inactive.bg_fill);
    let share = if events == 0 { 0.0 } else { done as f64 / events as f64 };
    let filled = egui::Rect::from_min_max(line.min, egui::pos2(part(share), line.bottom()));
    painter.rect_filled(filled, 3.0, visuals.selection.bg_fill);
    painter.circle_filled(egui::pos2(part(share), line.center().y), 7.0, visuals.strong_text_color());
    if let Some(at) = response.interact_pointer_pos().filter(|_| response.dragged() || response.clicked()) {
        let share = f64::from((at.x - line.left()) / line.width().max(1.0)).clamp(0.0, 1.0);
        player.playing = false;
        player.follow = false;
        player.seek((share * events as f64).round() as u64);
    }
    ui.add(egui::Label::new(words).truncate());
}

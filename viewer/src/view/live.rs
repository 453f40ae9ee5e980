//! A model that runs here: a prompt box, the answer as it comes, and how fast it goes.

use super::{Act, Scene, Table, View};
use crate::icons;
use crate::live::{LiveStatus, LiveWish, Pace, Phase};
use eframe::egui;
use kvarto::profile::builtin;

/// A model that runs here.
pub struct Live {
    model: String,
    profile: String,
    prompt: String,
    fresh: bool,
    chat: bool,
    rate: u32,
}

impl Default for Live {
    fn default() -> Self {
        Live {
            model: "smollm2-135m".into(),
            profile: "minima-kv".into(),
            prompt: String::new(),
            fresh: false,
            chat: true,
            rate: 4,
        }
    }
}

impl View for Live {
    fn id(&self) -> &'static str {
        "live"
    }

    fn title(&self) -> &'static str {
        "Live"
    }

    fn show(&mut self, ui: &mut egui::Ui, scene: &Scene<'_>, acts: &mut Vec<Act>) {
        let Some((status, pace)) = scene.live else { return self.offer(ui, acts) };
        ui.horizontal_wrapped(|ui| {
            ui.strong(&status.model);
            ui.label(format!(
                "under {} on {}",
                status.profile,
                if status.backend.is_empty() { "…" } else { &status.backend }
            ));
        });
        match &status.phase {
            Phase::Starting(what, share) => {
                ui.add(egui::ProgressBar::new(share.unwrap_or(0.0)).animate(true).text(what.as_str()));
                return;
            }
            Phase::Failed(why) => {
                ui.colored_label(ui.visuals().error_fg_color, why);
                return self.offer(ui, acts);
            }
            Phase::Ready | Phase::Busy => {}
        }
        let busy = status.phase == Phase::Busy;
        self.controls(ui, scene, (status, pace, busy), acts);
        if let Some(why) = &status.refused {
            ui.colored_label(ui.visuals().warn_fg_color, why);
        }
        ui.separator();
        let below = 96.0;
        let height = (ui.available_height() - below).max(60.0);
        let area = egui::ScrollArea::vertical().max_height(height).min_scrolled_height(height).stick_to_bottom(true);
        area.auto_shrink([false, false]).show(ui, |ui| turns(ui, status));
        ui.separator();
        self.prompt_box(ui, busy, acts);
    }

    fn table(&self, scene: &Scene<'_>) -> Option<Table> {
        let (status, _) = scene.live?;
        let head = ["sequence", "prompt", "answer", "figures"].map(String::from).to_vec();
        let row = |turn: &crate::live::Turn| {
            let figures = turn.figures.clone().unwrap_or_default();
            vec![turn.sequence.to_string(), turn.prompt.clone(), turn.answer.clone(), figures]
        };
        Some(Table { head, rows: status.turns.iter().map(row).collect() })
    }
}

impl Live {
    /// What to run, where nothing runs.
    fn offer(&mut self, ui: &mut egui::Ui, acts: &mut Vec<Act>) {
        ui.label("Run a model here, and see its cache while it writes.");
        egui::Grid::new("live").num_columns(2).spacing([12.0, 6.0]).show(ui, |ui| {
            ui.label("Model");
            ui.add(egui::TextEdit::singleline(&mut self.model).hint_text("a name, or a .gguf file"));
            ui.end_row();
            ui.label("Profile");
            profiles(ui, &mut self.profile);
            ui.end_row();
        });
        if ui.button("Start").clicked() {
            acts.push(Act::StartLive { model: self.model.trim().into(), profile: self.profile.trim().into() });
        }
        ui.weak("A model that is not there yet is fetched first: smollm2-135m has 94 MiB.");
    }

    fn controls(
        &mut self,
        ui: &mut egui::Ui,
        scene: &Scene<'_>,
        (status, pace, busy): (&LiveStatus, Pace, bool),
        acts: &mut Vec<Act>,
    ) {
        ui.horizontal_wrapped(|ui| {
            for (word, wanted, hint) in [
                ("run", Pace::Run, "As fast as the device can"),
                ("slow", Pace::Slow(self.rate), "A few steps a second"),
                ("step", Pace::Steps, "One step at a time"),
            ] {
                if ui.selectable_label(pace == wanted, word).on_hover_text(hint).clicked() {
                    acts.push(Act::Live(LiveWish::Pace(wanted)));
                }
            }
            if let Pace::Slow(now) = pace {
                let slider = egui::Slider::new(&mut self.rate, 1..=30).suffix(" steps/s");
                if ui.add(slider).changed() || now != self.rate {
                    acts.push(Act::Live(LiveWish::Pace(Pace::Slow(self.rate))));
                }
            }
            if pace == Pace::Steps && ui.add_enabled(busy, egui::Button::new("Next step")).clicked() {
                acts.push(Act::Live(LiveWish::Step));
            }
            if ui.add_enabled(busy, egui::Button::new("Stop")).clicked() {
                acts.push(Act::Live(LiveWish::Stop));
            }
        });
        ui.horizontal_wrapped(|ui| {
            ui.label("Profile of new sequences");
            profiles(ui, &mut self.profile);
            let other = self.profile != status.profile;
            if ui.add_enabled(other && !busy, egui::Button::new("Change")).clicked() {
                acts.push(Act::Live(LiveWish::Profile(self.profile.trim().into())));
            }
            let held = scene.selection.sequence.and_then(|sequence| scene.store.state.sequences.get(&sequence));
            if let Some(held) = held.filter(|held| held.logical > 0) {
                let words = format!("Fork sequence {} here, after {} tokens", held.sequence.0, held.logical);
                let button = ui.add_enabled(!busy, egui::Button::new(words));
                if button.on_hover_text("What the cursor shows becomes the beginning of a new sequence").clicked() {
                    acts.push(Act::Live(LiveWish::Fork { sequence: held.sequence.0, tokens: held.logical }));
                }
            }
        });
    }

    fn prompt_box(&mut self, ui: &mut egui::Ui, busy: bool, acts: &mut Vec<Act>) {
        ui.horizontal(|ui| {
            ui.checkbox(&mut self.fresh, "new sequence");
            ui.add_enabled(self.fresh, egui::Checkbox::new(&mut self.chat, "chat"))
                .on_hover_text("As a turn in the model's template; else as a text to go on with");
        });
        let edit = egui::TextEdit::multiline(&mut self.prompt).desired_rows(2).hint_text("Write, then Ctrl+Enter");
        let edit = ui.add_sized([ui.available_width(), 44.0], edit);
        let entered =
            edit.has_focus() && ui.input(|input| input.modifiers.command && input.key_pressed(egui::Key::Enter));
        let ready = !busy && !self.prompt.trim().is_empty();
        if ui.add_enabled(ready, egui::Button::new("Send")).clicked() || entered && ready {
            let text = std::mem::take(&mut self.prompt);
            let text = text.trim_end_matches('\n').to_string();
            acts.push(Act::Live(LiveWish::Prompt { text, fresh: self.fresh, chat: self.chat }));
        }
    }
}

fn profiles(ui: &mut egui::Ui, profile: &mut String) {
    let choice = egui::ComboBox::from_id_salt("profile").selected_text(profile.as_str());
    let choice = choice.show_ui(ui, |ui| {
        for name in builtin::names() {
            ui.selectable_value(profile, name.into(), name);
        }
    });
    icons::name_choice(&choice, "Profile");
}

fn turns(ui: &mut egui::Ui, status: &LiveStatus) {
    if status.turns.is_empty() {
        ui.weak("Ask something below.");
    }
    for turn in &status.turns {
        ui.label(egui::RichText::new(format!("sequence {}", turn.sequence)).small().weak());
        ui.label(egui::RichText::new(&turn.prompt).strong());
        ui.label(&turn.answer);
        if let Some(figures) = &turn.figures {
            ui.label(egui::RichText::new(figures).small().weak());
        }
        ui.add_space(6.0);
    }
}

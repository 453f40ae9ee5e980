//! Tokens, coloured by their pages.

mod find;
mod flow;
mod lines;
mod tint;

use super::{Act, Scene, Table, View, not_in_this_trace};
use crate::palette::{Palette, Pattern};
use crate::store::pieces::Joined;
use crate::store::{Place, Store};
use crate::units;
use eframe::egui;
use kvarto::engine::SeqId;
use std::collections::BTreeMap;
use tint::Choice;

/// Tokens, coloured by their pages.
pub struct Text {
    choice: Choice,
    monospace: bool,
    follow: bool,
    find: find::Find,
    of: Option<(String, SeqId, u64)>,
    joined: Joined,
    ids: Vec<Option<u32>>,
    /// Bytes of the text that stayed since it was wrapped.
    stays: usize,
    /// Grows with every change of the text.
    version: u64,
    flow: flow::Flow,
    shares: tint::Shares,
    patterns: BTreeMap<Pattern, egui::TextureHandle>,
    /// The selected page in the frame before, to see that another one was selected elsewhere.
    selected: Option<Place>,
    at_end: bool,
    /// The byte that is to be brought into sight.
    wanted: Option<usize>,
}

impl Default for Text {
    fn default() -> Self {
        Text {
            choice: Choice::Format,
            monospace: false,
            follow: true,
            find: find::Find::default(),
            of: None,
            joined: Joined::default(),
            ids: Vec::new(),
            stays: 0,
            version: 0,
            flow: flow::Flow::default(),
            shares: tint::Shares::default(),
            patterns: BTreeMap::new(),
            selected: None,
            at_end: true,
            wanted: None,
        }
    }
}

impl View for Text {
    fn id(&self) -> &'static str {
        "text"
    }

    fn title(&self) -> &'static str {
        "Text"
    }

    fn show(&mut self, ui: &mut egui::Ui, scene: &Scene<'_>, acts: &mut Vec<Act>) {
        if !scene.store.chronicle.lineage.has_text() {
            not_in_this_trace(ui, "Text of tokens", "`kvarto generate` and `kvarto chat` with --trace keep it.");
            return;
        }
        let Some(sequence) = scene.selection.sequence else {
            ui.weak("No sequence lives at this step.");
            return;
        };
        self.take(scene.store, sequence);
        self.shares.update(scene, sequence, self.choice);
        self.controls(ui);
        self.legend(ui, scene);
        ui.add_space(2.0);
        self.lines(ui, scene, sequence, acts);
    }

    fn table(&self, scene: &Scene<'_>) -> Option<Table> {
        let store = scene.store;
        let sequence = scene.selection.sequence.or_else(|| store.state.sequences.keys().next().copied())?;
        let text = store.chronicle.lineage.text(sequence, store.events_done());
        let mut joined = Joined::default();
        joined.update(&text);
        let (group, row) = (scene.selection.group, scene.selection.row.unwrap_or(0));
        let size = store.page_tokens(group).max(1) as usize;
        let mut rows = Vec::with_capacity(text.len());
        for (at, piece) in text.iter().enumerate() {
            let number = u32::try_from(at / size).unwrap_or(u32::MAX);
            let page = store.page_at(Place { sequence, group, row, number });
            let formats =
                page.map_or_else(Default::default, |page| [page.formats.0.to_string(), page.formats.1.to_string()]);
            let [k, v] = formats;
            let id = piece.map_or(String::new(), |piece| piece.id.to_string());
            let shown = joined.text().get(joined.range(at)).unwrap_or_default();
            rows.push(vec![at.to_string(), id, shown.into(), number.to_string(), k, v]);
        }
        let head = ["position", "id", "text", "page", "K format", "V format"];
        (!rows.is_empty()).then(|| Table { head: head.map(String::from).to_vec(), rows })
    }
}

impl Text {
    /// Takes the text of the sequence at the cursor, where it is another than before.
    fn take(&mut self, store: &Store, sequence: SeqId) {
        let done = store.events_done();
        let stamp = store.chronicle.lineage.text_stamp(sequence, done);
        let same = |of: &(String, SeqId, u64)| of.0 == store.name && (of.1, of.2) == (sequence, stamp);
        if self.of.as_ref().is_some_and(same) {
            return;
        }
        if self.of.as_ref().is_none_or(|of| of.0 != store.name) {
            (self.joined, self.stays) = (Joined::default(), 0);
        }
        let text = store.chronicle.lineage.text(sequence, done);
        self.stays = self.stays.min(self.joined.update(&text));
        self.ids.clear();
        self.ids.extend(text.iter().map(|piece| piece.map(|piece| piece.id)));
        self.version += 1;
        self.of = Some((store.name.clone(), sequence, stamp));
    }

    fn controls(&mut self, ui: &mut egui::Ui) {
        ui.horizontal_wrapped(|ui| {
            ui.weak("Colour by");
            for (choice, words) in Choice::ALL {
                ui.selectable_value(&mut self.choice, choice, words);
            }
        });
        ui.horizontal_wrapped(|ui| {
            let name = ui.weak("Search").id;
            let edit = egui::TextEdit::singleline(&mut self.find.words).desired_width(90.0).hint_text("words");
            let response = ui.add(edit).labelled_by(name);
            let entered = response.lost_focus() && ui.input(|input| input.key_pressed(egui::Key::Enter));
            self.find.update(self.joined.text(), self.version);
            let back = ui.add(egui::Button::new("<").small()).on_hover_text("The place before").clicked();
            let next = ui.add(egui::Button::new(">").small()).on_hover_text("The next place (Enter)").clicked();
            if entered || back || next {
                let backward = back || entered && ui.input(|input| input.modifiers.shift);
                self.find.turn(!backward);
            }
            if entered {
                response.request_focus();
            }
            if entered || back || next || response.changed() {
                self.wanted = self.find.current().map(|place| place.start);
            }
            let count = self.find.count();
            if !count.is_empty() {
                ui.label(count);
            }
            ui.separator();
            let follow = ui.toggle_value(&mut self.follow, "follow").on_hover_text("Stay at the end while it grows");
            self.at_end |= follow.changed() && self.follow;
            ui.toggle_value(&mut self.monospace, "monospace");
        });
    }

    fn legend(&self, ui: &mut egui::Ui, scene: &Scene<'_>) {
        let palette = scene.palette;
        let list = match scene.selection.row.or((self.choice == Choice::Format).then_some(0)) {
            Some(row) => scene.store.layer_and_head(scene.selection.group, row),
            None => None,
        };
        let list = list.map_or("all layers and heads".into(), |(layer, head)| format!("layer {layer}, KV head {head}"));
        ui.horizontal_wrapped(|ui| match self.choice {
            Choice::Format => {
                ui.label(egui::RichText::new(format!("K format, {list}:")).small());
                for format in k_formats(scene.store) {
                    key(ui, palette, tint::soft(scene, palette.format(format)), palette.pattern(format), format);
                }
                key(ui, palette, palette.gone(), Pattern::Solid, "no page");
            }
            Choice::Tier => {
                key(ui, palette, tint::soft(scene, tint::device(scene)), Pattern::Solid, "device");
                key(ui, palette, palette.gone(), Pattern::Solid, "evicted, or no page yet");
            }
            Choice::Mass | Choice::Reads => match (self.shares.step, self.choice) {
                (None, Choice::Mass) => {
                    let how = "Attention by page: not in this trace up to here (--trace-mass N samples it)";
                    ui.label(egui::RichText::new(how).small());
                }
                (None, _) => {
                    ui.label(egui::RichText::new("Reads: not in this trace up to here").small());
                }
                (Some(step), Choice::Mass) => {
                    let words = format!("Attention of a page in step {}, mean of {list}:", units::count(step));
                    ui.label(egui::RichText::new(words).small());
                    key(ui, palette, palette.ramp(0.0), Pattern::Solid, "0 %");
                    key(ui, palette, palette.ramp(0.5), Pattern::Solid, &format!("{:.2} %", self.shares.most * 50.0));
                    key(ui, palette, palette.ramp(1.0), Pattern::Solid, &format!("{:.2} %", self.shares.most * 100.0));
                }
                (Some(step), _) => {
                    let words = format!("Read in step {} by {list}:", units::count(step));
                    ui.label(egui::RichText::new(words).small());
                    key(ui, palette, palette.gone(), Pattern::Solid, "none");
                    key(ui, palette, palette.ramp(0.5), Pattern::Solid, "half of them");
                    key(ui, palette, palette.ramp(1.0), Pattern::Solid, "all");
                }
            },
        });
        let left_out = scene.store.chronicle.lineage.left_out();
        if left_out > 0 {
            ui.weak(format!("The trace has {} tokens more than are kept.", units::count(left_out)));
        }
    }
}

/// K formats that pages have or had.
fn k_formats(store: &Store) -> Vec<&str> {
    let mut formats: Vec<&str> = store.state.pages.formats().iter().map(|pair| pair.0.as_ref()).take(200).collect();
    formats.sort_unstable();
    formats.dedup();
    formats.truncate(12);
    formats
}

/// A colour of the legend and its words, which stay together.
fn key(ui: &mut egui::Ui, palette: Palette, color: egui::Color32, pattern: Pattern, words: &str) {
    let font = egui::TextStyle::Small.resolve(ui.style());
    let galley = ui.painter().layout_no_wrap(words.to_string(), font, ui.visuals().text_color());
    let size = egui::vec2(18.0 + galley.size().x, galley.size().y.max(10.0));
    let (rect, response) = ui.allocate_exact_size(size, egui::Sense::hover());
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Label, true, words));
    let painter = ui.painter_at(rect);
    let patch = egui::Rect::from_min_size(rect.left_center() - egui::vec2(0.0, 5.0), egui::vec2(14.0, 10.0));
    painter.rect_filled(patch, 0.0, color);
    for y in 0..10 {
        for x in (0..14).filter(|x| pattern.darker(*x, y)) {
            let at = patch.min + egui::vec2(x as f32, y as f32);
            painter.rect_filled(egui::Rect::from_min_size(at, egui::vec2(1.0, 1.0)), 0.0, lines::darker(palette));
        }
    }
    painter.galley(egui::pos2(rect.left() + 18.0, rect.center().y - galley.size().y / 2.0), galley, palette.ink());
}

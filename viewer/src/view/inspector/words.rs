//! The text of a page's tokens.

use super::super::{Act, Scene};
use super::section;
use crate::palette::dim;
use crate::store::Place;
use crate::store::pieces::Joined;
use eframe::egui::{self, text::LayoutJob};
use kvarto::engine::SeqId;

/// The text of the sequence that was shown last.
#[derive(Default)]
pub struct Words {
    of: Option<(String, SeqId, u64)>,
    joined: Joined,
    ids: Vec<Option<u32>>,
}

impl Words {
    /// Draws the page's tokens, every second one on a shade.
    pub fn show(&mut self, ui: &mut egui::Ui, scene: &Scene<'_>, place: Place, acts: &mut Vec<Act>) {
        let store = scene.store;
        let size = store.page_tokens(place.group) as usize;
        let (lineage, done) = (&store.chronicle.lineage, store.events_done());
        let stamp = lineage.text_stamp(place.sequence, done);
        let same = |of: &(String, SeqId, u64)| of.0 == store.name && (of.1, of.2) == (place.sequence, stamp);
        if !self.of.as_ref().is_some_and(same) {
            let text = lineage.text(place.sequence, done);
            self.joined.update(&text);
            self.ids = text.iter().map(|piece| piece.map(|piece| piece.id)).collect();
            self.of = Some((store.name.clone(), place.sequence, stamp));
        }
        let first = (place.number as usize).saturating_mul(size);
        let end = first.saturating_add(size).min(self.joined.tokens());
        section(ui, "Text", if first < end { "of its tokens" } else { "" });
        if first >= end {
            let why =
                if lineage.has_text() { "No text of these tokens at this step." } else { "Text: not in this trace." };
            ui.weak(why);
            return;
        }
        let font = egui::TextStyle::Body.resolve(ui.style());
        let ink = scene.palette.ink();
        let shade = if scene.palette.dark { egui::Color32::from_gray(52) } else { egui::Color32::from_gray(222) };
        let mut job = LayoutJob::default();
        job.wrap.max_width = ui.available_width();
        for token in first..end {
            let mut format = egui::TextFormat::simple(font.clone(), ink);
            if token % 2 == 1 {
                format.background = shade;
            }
            if self.ids.get(token).is_some_and(Option::is_none) {
                format.color = dim(ink, 0.6);
            }
            job.append(self.joined.text().get(self.joined.range(token)).unwrap_or_default(), 0.0, format);
        }
        let galley = ui.fonts_mut(|fonts| fonts.layout_job(job));
        let (rect, response) = ui.allocate_exact_size(galley.size(), egui::Sense::hover());
        ui.painter().galley(rect.min, galley.clone(), ink);
        let Some(pointer) = response.hover_pos() else { return };
        acts.push(Act::Hover(place));
        let character = galley.cursor_from_pos(pointer - rect.min).index;
        let begin = self.joined.range(first).start;
        let page = self.joined.text().get(begin..self.joined.range(end - 1).end).unwrap_or_default();
        let byte =
            page.char_indices().nth(usize::from(character)).map_or(page.len().saturating_sub(1), |(byte, _)| byte);
        let token = self.joined.token_at(begin + byte);
        let id = self.ids.get(token).copied().flatten().map_or("not told".to_string(), |id| id.to_string());
        response.on_hover_text_at_pointer(format!("position {token}, token id {id}"));
    }
}

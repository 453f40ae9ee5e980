//! The lines in sight: laid out, painted, pointed at.

use super::super::{Act, Scene};
use super::tint::Choice;
use super::{Text, tint};
use crate::palette::{Palette, Pattern};
use crate::store::Place;
use crate::units;
use eframe::egui::text::{CCursor, LayoutJob};
use eframe::egui::{self, Color32, ColorImage, Galley, Pos2, Rect, Stroke, StrokeKind, TextureOptions, pos2, vec2};
use kvarto::engine::SeqId;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Room above and below a line's text.
const ROOM: f32 = 3.0;

/// Room for the scroll bar.
const BAR: f32 = 12.0;

/// Texels after which all patterns repeat.
const PERIOD: usize = 60;

/// What a pattern lays over a colour.
pub fn darker(palette: Palette) -> Color32 {
    Color32::from_black_alpha(if palette.dark { 48 } else { 26 })
}

/// A part of a line that one page holds.
struct Part {
    bytes: Range<usize>,
    page: u32,
    /// Whether the page begins and ends with it.
    ends: [bool; 2],
    color: Color32,
    pattern: Pattern,
}

/// What is marked, in numbers of pages.
struct Marks {
    selected: Option<Range<u32>>,
    hovered: Option<Range<u32>>,
    brush: Option<Range<u32>>,
}

/// What all lines share.
struct Looks<'a> {
    scene: &'a Scene<'a>,
    sequence: SeqId,
    font: &'a egui::FontId,
    marks: Marks,
    row: f32,
}

impl Text {
    /// Draws the lines in sight of the scroll area.
    pub fn lines(&mut self, ui: &mut egui::Ui, scene: &Scene<'_>, sequence: SeqId, acts: &mut Vec<Act>) {
        let style = if self.monospace { egui::TextStyle::Monospace } else { egui::TextStyle::Body };
        let font = style.resolve(ui.style());
        let (width, height) = (ui.available_width() - BAR, ui.available_height());
        let name = format!("{font:?} {}", ui.pixels_per_point());
        ui.fonts_mut(|fonts| {
            let measure = |character| fonts.glyph_width(&font, character);
            self.flow.update(self.joined.text(), self.stays, width, &name, measure);
        });
        self.stays = self.joined.text().len();
        let row = ui.fonts_mut(|fonts| fonts.row_height(&font)).max(1.0) + 2.0 * ROOM;
        let all = self.flow.lines() as f32 * row;
        let mut area = egui::ScrollArea::vertical().auto_shrink(false);
        self.want_selected(scene);
        // Only a hand leaves the end, or a wish to see something else.
        let turned = ui.input(|input| input.smooth_scroll_delta().y != 0.0 || input.pointer.any_down());
        let moved = self.wanted.is_some() || turned && ui.rect_contains_pointer(ui.available_rect_before_wrap());
        if let Some(byte) = self.wanted.take() {
            let offset = self.flow.line_of(byte) as f32 * row - height / 3.0;
            area = area.vertical_scroll_offset(offset.clamp(0.0, (all - height).max(0.0)));
        } else if self.follow && self.at_end && !moved {
            area = area.vertical_scroll_offset((all - height).max(0.0));
        }
        let output = area.show_viewport(ui, |ui, sight| {
            ui.set_height(all);
            let top = ui.max_rect().min;
            let first = (sight.min.y / row).max(0.0) as usize;
            let last = ((sight.max.y / row).max(0.0) as usize + 1).min(self.flow.lines());
            let looks = Looks { scene, sequence, font: &font, marks: self.marks(scene, sequence), row };
            let mut drawn = Vec::with_capacity(last.saturating_sub(first));
            for line in first..last {
                let at = top + vec2(0.0, line as f32 * row);
                drawn.push((line, at, self.line(ui, &looks, line, at)));
            }
            self.point(ui, scene, sequence, &drawn, row, acts);
        });
        let at_end = output.state.unclamped_offset().y + output.inner_rect.height() + row >= output.content_size.y;
        if moved || !self.follow {
            self.at_end = at_end;
        }
    }

    /// Brings a page into sight that was selected elsewhere.
    fn want_selected(&mut self, scene: &Scene<'_>) {
        let page = scene.selection.page;
        if page == self.selected {
            return;
        }
        self.selected = page;
        let Some(place) = page.filter(|place| Some(place.sequence) == scene.selection.sequence) else { return };
        let first = (place.number as usize).saturating_mul(scene.store.page_tokens(place.group) as usize);
        if first < self.joined.tokens() {
            self.wanted = Some(self.joined.range(first).start);
        }
    }

    fn marks(&self, scene: &Scene<'_>, sequence: SeqId) -> Marks {
        let size = scene.store.page_tokens(scene.selection.group).max(1);
        // A page of another cache group may have another number of tokens.
        let here = |place: Option<Place>| {
            let place = place.filter(|place| place.sequence == sequence)?;
            let other = scene.store.page_tokens(place.group).max(1);
            let first = place.number.saturating_mul(other);
            Some(first / size..(first.saturating_add(other - 1) / size).saturating_add(1))
        };
        Marks {
            selected: here(scene.selection.page),
            hovered: here(scene.selection.hover),
            brush: scene.selection.brush.clone(),
        }
    }

    /// The parts of a line by page.
    fn parts(&self, scene: &Scene<'_>, sequence: SeqId, line: usize) -> Vec<Part> {
        let (group, row) = (scene.selection.group, scene.selection.row.unwrap_or(0));
        let size = scene.store.page_tokens(group).max(1) as usize;
        let bytes = self.flow.line(line);
        let mut parts = Vec::new();
        let mut at = bytes.start;
        while at < bytes.end {
            let page = self.joined.token_at(at) / size;
            let begin = self.joined.range(page * size).start;
            let end = self.joined.range((page + 1) * size).start;
            let until = if end > at { end.min(bytes.end) } else { bytes.end };
            let number = u32::try_from(page).unwrap_or(u32::MAX);
            let (color, pattern) = tint::of(scene, &self.shares, self.choice, Place { sequence, group, row, number });
            // Shades of a scale mean something: there the gaps between pages must do.
            let scale = matches!(self.choice, Choice::Mass | Choice::Reads);
            let color = if page % 2 == 1 && !scale { tint::shaded(color) } else { color };
            let ends = [begin >= at, end <= until];
            parts.push(Part { bytes: at..until, page: number, ends, color, pattern });
            at = until;
        }
        parts
    }

    fn line(&mut self, ui: &egui::Ui, looks: &Looks<'_>, line: usize, at: Pos2) -> Arc<Galley> {
        let Looks { scene, sequence, font, marks, row } = looks;
        let parts = self.parts(scene, *sequence, line);
        let bytes = self.flow.line(line);
        let text = self.joined.text().get(bytes.clone()).unwrap_or_default();
        let shown = text.trim_end_matches('\n');
        let mut job = LayoutJob::default();
        for part in &parts {
            let from = (part.bytes.start - bytes.start).min(shown.len());
            let to = (part.bytes.end - bytes.start).min(shown.len());
            let format = egui::TextFormat::simple((*font).clone(), tint::ink(part.color));
            job.append(shown.get(from..to).unwrap_or_default(), 0.0, format);
        }
        let galley = ui.fonts_mut(|fonts| fonts.layout_job(job));
        let x = |byte: usize| {
            let before = shown.get(..byte.saturating_sub(bytes.start).min(shown.len())).unwrap_or(shown);
            at.x + galley.pos_from_cursor(CCursor::new(before.chars().count())).min.x
        };
        let painter = ui.painter();
        let accent = scene.palette.accent();
        for part in parts {
            // Pages have a small gap between them.
            let (left, right) = (f32::from(u8::from(part.ends[0])), f32::from(u8::from(part.ends[1])));
            let rect = Rect::from_min_max(
                pos2(x(part.bytes.start) + left, at.y + 1.0),
                pos2(x(part.bytes.end) - right, at.y + row - 1.0),
            );
            if rect.width() <= 0.0 {
                continue;
            }
            painter.rect_filled(rect, 2.0, part.color);
            if part.pattern != Pattern::Solid {
                let origin = ui.max_rect().min;
                let uv = Rect::from_min_max(
                    ((rect.min - origin) / PERIOD as f32).to_pos2(),
                    ((rect.max - origin) / PERIOD as f32).to_pos2(),
                );
                painter.image(texture(&mut self.patterns, ui.ctx(), part.pattern), rect, uv, darker(scene.palette));
            }
            let holds = |pages: &Option<Range<u32>>| pages.as_ref().is_some_and(|pages| pages.contains(&part.page));
            if holds(&marks.brush) {
                painter.hline(rect.x_range(), rect.bottom(), Stroke::new(2.0, accent));
            }
            if holds(&marks.selected) {
                painter.rect_stroke(rect, 2.0, Stroke::new(2.0, accent), StrokeKind::Inside);
            } else if holds(&marks.hovered) {
                painter.rect_stroke(rect, 2.0, Stroke::new(1.0, accent), StrokeKind::Inside);
            }
        }
        let current = self.find.current();
        for place in self.find.within(bytes.clone()) {
            let from = x(place.start.max(bytes.start));
            let rect = Rect::from_min_max(pos2(from, at.y + 1.0), pos2(x(place.end.min(bytes.end)), at.y + row - 1.0));
            let strong = current.as_ref() == Some(&place);
            let (color, thick) = (ui.visuals().warn_fg_color, if strong { 2.5 } else { 1.0 });
            painter.rect_stroke(rect, 2.0, Stroke::new(thick, color), StrokeKind::Outside);
        }
        painter.galley(at + vec2(0.0, ROOM), galley.clone(), scene.palette.ink());
        galley
    }

    /// What the pointer does: the token under it, and its page.
    fn point(
        &mut self,
        ui: &mut egui::Ui,
        scene: &Scene<'_>,
        sequence: SeqId,
        drawn: &[(usize, Pos2, Arc<Galley>)],
        row: f32,
        acts: &mut Vec<Act>,
    ) {
        let area = ui.max_rect().intersect(ui.clip_rect());
        let response = ui.interact(area, ui.scope_id().with("tokens"), egui::Sense::click());
        let Some(pointer) = response.hover_pos() else { return };
        let under = |(_, at, galley): &&(usize, Pos2, Arc<Galley>)| {
            (at.y..at.y + row).contains(&pointer.y) && pointer.x < at.x + galley.size().x
        };
        let Some((line, at, galley)) = drawn.iter().find(under) else { return };
        let bytes = self.flow.line(*line);
        let text = self.joined.text().get(bytes.clone()).unwrap_or_default();
        // The character whose left edge is the last one before the pointer.
        let near = usize::from(galley.cursor_from_pos(vec2(pointer.x - at.x, galley.size().y / 2.0)).index);
        let past = galley.pos_from_cursor(CCursor::new(near)).min.x > pointer.x - at.x;
        let character = near.saturating_sub(usize::from(past));
        let Some((byte, _)) = text.char_indices().nth(character) else { return };
        let token = self.joined.token_at(bytes.start + byte);
        let (group, list) = (scene.selection.group, scene.selection.row.unwrap_or(0));
        let size = scene.store.page_tokens(group).max(1) as usize;
        let place = Place { sequence, group, row: list, number: u32::try_from(token / size).unwrap_or(u32::MAX) };
        acts.push(Act::Hover(place));
        if response.clicked() {
            acts.push(Act::Select(Some(place)));
            // It is in sight already.
            self.selected = Some(place);
        }
        let share = self.shares.step.map(|_| self.shares.at(place.number) * 100.0);
        let choice = self.choice;
        response.on_hover_ui_at_pointer(|ui| {
            let id = self.ids.get(token).copied().flatten().map_or("not told".into(), |id| id.to_string());
            let piece = self.joined.text().get(self.joined.range(token)).unwrap_or_default();
            ui.strong(format!("\"{}\"", piece.trim_end_matches('\n')));
            ui.label(format!("position {}, token id {id}", units::count(token as u64)));
            match scene.store.page_at(place) {
                Some(page) => ui.label(format!("page {}: K {}, V {}", place.number, page.formats.0, page.formats.1)),
                None => ui.label(format!("page {}: not resident", place.number)),
            };
            match (choice, share) {
                (Choice::Mass, Some(share)) => {
                    drop(ui.label(format!("{share:.2} % of the attention went to the page")))
                }
                (Choice::Reads, Some(share)) => drop(ui.label(format!("{share:.0} % of the lists read the page"))),
                _ => {}
            }
        });
    }
}

/// The texture of a pattern: white where a colour is to be darker.
fn texture(
    patterns: &mut BTreeMap<Pattern, egui::TextureHandle>,
    context: &egui::Context,
    pattern: Pattern,
) -> egui::TextureId {
    let made = patterns.entry(pattern).or_insert_with(|| {
        let texel = |at| match pattern.darker(at % PERIOD, at / PERIOD) {
            true => Color32::WHITE,
            false => Color32::TRANSPARENT,
        };
        let image = ColorImage::new([PERIOD, PERIOD], (0..PERIOD * PERIOD).map(texel).collect());
        context.load_texture(format!("text {pattern:?}"), image, TextureOptions::NEAREST_REPEAT)
    });
    made.id()
}

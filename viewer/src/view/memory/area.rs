//! The stacked areas, as one texture: a column of texels is a moment.

use super::classes::{self, Class};
use super::clock::Clock;
use crate::palette::Palette;
use crate::plotting;
use crate::store::{Chronicle, Store};
use eframe::egui::{
    self, Align2, Color32, ColorImage, FontId, Painter, Pos2, Rect, Stroke, TextureHandle, TextureOptions,
};
use std::sync::Arc;

/// What a texture was made of.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Made {
    samples: (usize, u64),
    steps: (usize, u64),
    last_step: u64,
    end_ns: u64,
    size: [usize; 2],
    scale: f32,
    wish: Wish,
    dark: bool,
}

/// What is to be drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wish {
    /// What the axis counts.
    pub clock: Clock,
    /// Whether all bytes are shown, or slots in use alone.
    pub everything: bool,
    /// Bound on the slots in use.
    pub budget: Option<u64>,
}

/// The areas, made anew only when what they show has changed.
#[derive(Default)]
pub struct Area {
    made: Option<Made>,
    made_at: f64,
    texture: Option<TextureHandle>,
    /// Bytes at the upper edge.
    top: f64,
}

/// Seconds between textures while a trace grows.
const PATIENCE: f64 = 0.2;

impl Area {
    /// Draws the areas in `plot`, with axes to the left of and below it.
    pub fn show(&mut self, ui: &egui::Ui, plot: Rect, store: &Store, palette: Palette, wish: Wish) {
        let painter = ui.painter();
        let scale = ui.pixels_per_point();
        let most = ui.input(|input| input.max_texture_side).clamp(64, 8192);
        let texels = |points: f32| ((points * scale).round() as usize).clamp(1, most);
        let chronicle = &store.chronicle;
        let wanted = Made {
            samples: (chronicle.memory.samples().len(), chronicle.memory.stride()),
            steps: (chronicle.steps.samples().len(), chronicle.steps.stride()),
            last_step: chronicle.last_step,
            end_ns: chronicle.end.ns,
            size: [texels(plot.width()), texels(plot.height())],
            scale,
            wish,
            dark: palette.dark,
        };
        if self.made != Some(wanted) {
            let now = ui.input(|input| input.time);
            let only_grown = self.made.is_some_and(|made| {
                let Made { samples, steps, last_step, end_ns, .. } = wanted;
                Made { samples, steps, last_step, end_ns, ..made } == wanted
            });
            if only_grown && (0.0..PATIENCE).contains(&(now - self.made_at)) {
                ui.ctx().request_repaint_after_secs(PATIENCE as f32);
            } else {
                self.make(ui, chronicle, wanted, palette);
                (self.made, self.made_at) = (Some(wanted), now);
            }
        }
        painter.rect_filled(plot, 0.0, palette.nothing());
        if let Some(texture) = &self.texture {
            let all = Rect::from_min_max(Pos2::ZERO, Pos2::new(1.0, 1.0));
            painter.image(texture.id(), plot, all, Color32::WHITE);
        }
        self.axes(painter, plot, chronicle, palette, wish);
    }

    fn make(&mut self, ui: &egui::Ui, chronicle: &Chronicle, made: Made, palette: Palette) {
        let [width, height] = made.size;
        let Wish { clock, everything, budget } = made.wish;
        let columns = columns(chronicle, clock, everything, width);
        let highest = columns.iter().flatten().map(|column| classes::sum(column)).max().unwrap_or(0) as f64;
        let budget = budget.map_or(0.0, |budget| budget as f64);
        // A budget far above what is used is told in words instead.
        self.top = (if budget <= highest * 2.0 { highest.max(budget) } else { highest }).max(1.0) * 1.06;
        let mut image = ColorImage::filled([width, height], Color32::TRANSPARENT);
        let texels_a_byte = height as f64 / self.top;
        let ground = palette.nothing();
        let step = made.scale.max(1.0).round() as usize;
        let mut looks: Vec<(Class, (Color32, Color32, crate::palette::Pattern))> = Vec::new();
        for (x, column) in columns.iter().enumerate() {
            let Some(column) = column else { continue };
            let (mut bytes, mut from) = (0.0, 0);
            for (class, size) in column.iter() {
                let (color, darker, pattern) = match looks.iter().find(|(known, _)| known == class) {
                    Some((_, look)) => *look,
                    None => {
                        let look = class.look(palette);
                        looks.push((class.clone(), look));
                        look
                    }
                };
                bytes += *size as f64;
                let to = ((bytes * texels_a_byte).round() as usize).min(height);
                for y in from..to {
                    let dark = pattern.darker(x / step, y / step);
                    image.pixels[(height - 1 - y) * width + x] = if dark { darker } else { color };
                }
                // A line between neighbours, where there is room.
                if to >= from + 4 {
                    image.pixels[(height - to) * width + x] = ground;
                }
                from = to.max(from);
            }
        }
        match &mut self.texture {
            Some(texture) => texture.set(image, TextureOptions::NEAREST),
            None => self.texture = Some(ui.ctx().load_texture("memory", image, TextureOptions::NEAREST)),
        }
    }

    fn axes(&self, painter: &Painter, plot: Rect, chronicle: &Chronicle, palette: Palette, wish: Wish) {
        let Wish { clock, budget, .. } = wish;
        let ink = palette.ink();
        let y = |bytes: f64| plot.bottom() - (bytes / self.top.max(1.0)) as f32 * plot.height();
        for bytes in plotting::byte_ticks(self.top, plot.height() / 44.0) {
            let text = crate::units::bytes(bytes as u64).replace(".00 ", " ").replace(".0 ", " ");
            painter.hline(plot.x_range(), y(bytes), Stroke::new(1.0, ink.gamma_multiply(0.12)));
            let at = Pos2::new(plot.left() - 6.0, y(bytes).max(plot.top() + 6.0));
            painter.text(at, Align2::RIGHT_CENTER, text, FontId::proportional(11.0), ink.gamma_multiply(0.75));
        }
        let words = |at: f64, step: f64| match clock {
            Clock::Steps if at == 0.0 => "step 0".into(),
            Clock::Steps => format!("{at:.0}"),
            Clock::Seconds => plotting::seconds(at, step),
        };
        plotting::across(painter, plot, 0.0..=clock.end(chronicle), clock == Clock::Steps, &words, ink);
        painter.rect_stroke(plot, 0.0, Stroke::new(1.0, ink.gamma_multiply(0.3)), egui::StrokeKind::Outside);
        if let Some(budget) = budget {
            let text = format!("budget of slots in use: {}", crate::units::bytes(budget));
            let (at, align, text) = if budget as f64 <= self.top {
                let at = y(budget as f64);
                painter.extend(egui::Shape::dashed_line(
                    &[Pos2::new(plot.left(), at), Pos2::new(plot.right(), at)],
                    Stroke::new(1.5, palette.alarm()),
                    8.0,
                    4.0,
                ));
                let below = at - 16.0 < plot.top();
                (at, if below { Align2::LEFT_TOP } else { Align2::LEFT_BOTTOM }, text)
            } else {
                (plot.top(), Align2::LEFT_TOP, format!("{text}, above this picture"))
            };
            let at = Pos2::new(plot.left() + 8.0, at);
            plotting::words(painter, at, align, &text, ink, palette.nothing());
        }
    }
}

/// Bytes by class at a moment.
type Column = Arc<Vec<(Class, u64)>>;

/// Bytes by class of each column: those told last before its right edge. Neighbours with the same sample share one.
fn columns(chronicle: &Chronicle, clock: Clock, everything: bool, width: usize) -> Vec<Option<Column>> {
    let end = clock.end(chronicle);
    let mut last: Option<(usize, Column)> = None;
    let mut columns = Vec::with_capacity(width);
    for x in 0..width {
        // Just inside the column, so that a step begins with its own column.
        let at = end * (x as f64 + 0.999) / width as f64;
        let found = clock.memory(chronicle, at);
        let column = found.map(|(sample, memory)| match &last {
            Some((known, column)) if *known == sample => column.clone(),
            _ => {
                let column = Arc::new(classes::of(memory, everything));
                last = Some((sample, column.clone()));
                column
            }
        });
        columns.push(column);
    }
    columns
}

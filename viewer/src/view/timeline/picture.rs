//! Shapes and words that are kept from frame to frame.

use eframe::egui::{Align2, Color32, FontId, Painter, Pos2, Shape, Vec2};

/// What lanes come to, but for the axis: kept while nothing of it changes.
#[derive(Default)]
pub struct Picture {
    /// Grounds, bars and curves.
    pub shapes: Vec<Shape>,
    /// Laid out in each frame, since fonts may be packed anew.
    pub words: Vec<Words>,
}

/// Words at a place.
pub struct Words {
    /// Where.
    pub at: Pos2,
    /// Which corner of theirs is there.
    pub align: Align2,
    /// What they say.
    pub text: String,
    /// Points.
    pub size: f32,
    /// Their colour.
    pub color: Color32,
    /// What lies below them, so that they can be read over bars.
    pub ground: Color32,
}

impl Picture {
    /// Draws it.
    pub fn paint(&self, painter: &Painter) {
        painter.extend(self.shapes.iter().cloned());
        for Words { at, align, text, size, color, ground } in &self.words {
            let galley = painter.layout_no_wrap(text.clone(), FontId::proportional(*size), *color);
            let place = align.anchor_size(*at, galley.size());
            painter.rect_filled(place.expand2(Vec2::new(2.0, 0.0)), 2.0, ground.gamma_multiply(0.75));
            painter.galley(place.min, galley, *color);
        }
    }
}

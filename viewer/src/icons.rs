//! Small buttons whose signs are drawn, since the default font has none, and names for what has no words.

use eframe::egui::{self, Pos2, Rect, Shape, Stroke, Vec2};

/// What a button shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icon {
    /// A triangle.
    Play,
    /// Two bars.
    Pause,
    /// A bar and a triangle to the left.
    StepBack,
    /// A triangle to the right and a bar.
    StepForward,
    /// A bar and two triangles to the left.
    First,
    /// Two triangles to the right and a bar.
    Last,
    /// A disc, half of it filled.
    Contrast,
    /// Three tiles.
    Layout,
    /// A cross.
    Close,
}

/// Draws a button. `label` is what readers of the screen hear, `hint` what the pointer shows.
pub fn button(ui: &mut egui::Ui, icon: Icon, label: &str, hint: &str) -> egui::Response {
    let size = match icon {
        Icon::Close => Vec2::splat(16.0),
        _ => Vec2::new(26.0, 22.0),
    };
    let (rect, response) = ui.allocate_exact_size(size, egui::Sense::click());
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, ui.is_enabled(), label));
    let visuals = ui.style().interact(&response);
    let painter = ui.painter();
    if icon != Icon::Close || response.hovered() {
        painter.rect_filled(rect, visuals.corner_radius, visuals.weak_bg_fill);
    }
    painter.extend(shapes(icon, Rect::from_center_size(rect.center(), Vec2::splat(12.0)), visuals.fg_stroke.color));
    response.on_hover_text(hint)
}

/// Names a box of choices for readers of the screen: it has no label of its own.
pub fn name_choice<R>(choice: &egui::InnerResponse<R>, name: &str) {
    let said = || egui::WidgetInfo::labeled(egui::Role::ComboBox, choice.response.enabled(), name);
    choice.response.widget_info(said);
}

fn shapes(icon: Icon, r: Rect, ink: egui::Color32) -> Vec<Shape> {
    let at = |x: f32, y: f32| Pos2::new(r.left() + x * r.width(), r.top() + y * r.height());
    let bar = |x: f32| Shape::rect_filled(Rect::from_min_max(at(x, 0.0), at(x + 0.18, 1.0)), 0.0, ink);
    let triangle =
        |from: f32, to: f32| Shape::convex_polygon(vec![at(from, 0.0), at(to, 0.5), at(from, 1.0)], ink, Stroke::NONE);
    let line = Stroke::new(1.5, ink);
    match icon {
        Icon::Play => vec![triangle(0.1, 1.0)],
        Icon::Pause => vec![bar(0.12), bar(0.66)],
        Icon::StepBack => vec![bar(0.05), triangle(0.95, 0.25)],
        Icon::StepForward => vec![triangle(0.05, 0.75), bar(0.78)],
        Icon::First => vec![bar(0.0), triangle(0.6, 0.2), triangle(1.05, 0.65)],
        Icon::Last => vec![triangle(-0.05, 0.35), triangle(0.4, 0.8), bar(0.82)],
        Icon::Contrast => {
            let half = (0..=16).map(|n| {
                let turn = std::f32::consts::PI * (n as f32 / 16.0 - 0.5);
                at(0.5 + 0.5 * turn.cos(), 0.5 + 0.5 * turn.sin())
            });
            vec![
                Shape::circle_stroke(r.center(), r.width() / 2.0, line),
                Shape::convex_polygon(half.collect(), ink, Stroke::NONE),
            ]
        }
        Icon::Layout => [(0.0, 0.0, 0.6, 0.55), (0.0, 0.65, 0.6, 1.0), (0.7, 0.0, 1.0, 1.0)]
            .into_iter()
            .map(|(x, y, to_x, to_y)| {
                let tile = Rect::from_min_max(at(x, y), at(to_x, to_y));
                Shape::rect_stroke(tile, 1.0, Stroke::new(1.0, ink), egui::StrokeKind::Middle)
            })
            .collect(),
        Icon::Close => {
            let (a, b) = (0.15, 0.85);
            vec![Shape::line_segment([at(a, a), at(b, b)], line), Shape::line_segment([at(a, b), at(b, a)], line)]
        }
    }
}

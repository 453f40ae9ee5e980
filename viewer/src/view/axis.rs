//! Axes of views whose columns are pages by position.

use eframe::egui::{Align2, Color32, FontId, Painter, Pos2, Rect, Stroke};

/// The smallest of 1, 2 and 5 times a power of ten that is at least `least`.
pub fn nice(least: f64) -> u64 {
    let mut unit = 1u64;
    loop {
        for times in [1, 2, 5] {
            let step = unit.saturating_mul(times);
            if step as f64 >= least || step > u64::MAX / 10 {
                return step;
            }
        }
        unit = unit.saturating_mul(10);
    }
}

/// A number with its thousands apart.
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut words = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            words.push(',');
        }
        words.push(digit);
    }
    words
}

/// Positions of tokens below `rect`, which shows `columns` pages of `page_tokens` from page `first` on.
pub fn positions(painter: &Painter, rect: Rect, first: f64, columns: f64, page_tokens: u32, ink: Color32) {
    let size = f64::from(page_tokens.max(1));
    let points = f64::from(rect.width()) / columns.max(1e-9);
    let step = nice(72.0 * size / points);
    let start = (first.max(0.0) * size) as u64 / step * step;
    let font = FontId::proportional(10.5);
    let weak = ink.gamma_multiply(0.75);
    let mut free = rect.left() - 52.0;
    for at in (0..100).map(|n| start.saturating_add(step.saturating_mul(n))) {
        let x = rect.left() + ((at as f64 / size - first) * points).clamp(-1e6, 1e6) as f32;
        if x > rect.right() + 1.0 {
            break;
        }
        if x < rect.left() - 1.0 {
            continue;
        }
        painter.vline(x, rect.bottom() + 1.0..=rect.bottom() + 4.0, Stroke::new(1.0, weak));
        let words = thousands(at);
        let half = words.len() as f32 * 3.0;
        let middle = x.clamp(rect.left() - 40.0 + half, (rect.right() - half).max(rect.left()));
        if middle - half > free {
            let at = Pos2::new(middle, rect.bottom() + 5.0);
            free = painter.text(at, Align2::CENTER_TOP, words, font.clone(), weak).right() + 6.0;
        }
    }
    let at = Pos2::new(rect.center().x, rect.bottom() + 30.0);
    let words = format!("position of a page's first token · a page is {page_tokens} tokens");
    painter.text(at, Align2::CENTER_BOTTOM, words, FontId::proportional(10.0), ink.gamma_multiply(0.6));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_axes_are_round() {
        for (least, step) in [(0.1, 1), (1.5, 2), (3.0, 5), (70.0, 100), (4_999.0, 5_000)] {
            assert_eq!(nice(least), step);
        }
        assert!(nice(f64::INFINITY) > 0 && nice(f64::NAN) > 0);
        assert_eq!((thousands(999), thousands(1_234_567)), ("999".into(), "1,234,567".into()));
    }
}

//! Colours of pairs of formats, looked up once for many pages.

use super::grid::{GONE, Mean, NOTHING};
use crate::palette::{Palette, Pattern};
use eframe::egui::Color32;
use kvarto::engine::Formats;

/// Red, green and blue.
pub type Rgb = [u8; 3];

/// Colours and patterns by the place of a pair of formats.
#[derive(Clone, Debug, PartialEq)]
pub struct Inks {
    pairs: Vec<Mean>,
    patterns: Vec<[Pattern; 2]>,
    gone: Mean,
    nothing: Mean,
    /// What pages without brightness fade into.
    ground: Rgb,
}

fn rgb(color: Color32) -> Rgb {
    [color.r(), color.g(), color.b()]
}

impl Inks {
    /// Those of `formats`.
    pub fn new(palette: Palette, formats: &[Formats]) -> Self {
        let pairs = formats.iter().map(|(k, v)| [rgb(palette.format(k)), rgb(palette.format(v))]);
        let patterns = formats.iter().map(|(k, v)| [palette.pattern(k), palette.pattern(v)]);
        Inks {
            pairs: pairs.collect(),
            patterns: patterns.collect(),
            gone: [rgb(palette.gone()); 2],
            nothing: [rgb(palette.nothing()); 2],
            ground: rgb(palette.nothing()),
        }
    }

    /// Colours of K and V.
    pub fn of(&self, pair: u16) -> Mean {
        match pair {
            GONE => self.gone,
            NOTHING => self.nothing,
            pair => self.pairs.get(usize::from(pair)).copied().unwrap_or(self.gone),
        }
    }

    /// Patterns of K and V.
    pub fn patterns(&self, pair: u16) -> [Pattern; 2] {
        self.patterns.get(usize::from(pair)).copied().unwrap_or([Pattern::Solid; 2])
    }

    /// A colour at a brightness: at 0 a sixth of it is left.
    pub fn shaded(&self, color: Rgb, shade: u8) -> Rgb {
        let part = 42 + u32::from(shade) * 213 / 255;
        let mix = |c: usize| (u32::from(color[c]) * part + u32::from(self.ground[c]) * (255 - part)) / 255;
        [mix(0) as u8, mix(1) as u8, mix(2) as u8]
    }
}

/// Sums of colours, for means.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    sides: [[u32; 3]; 2],
    count: u32,
}

impl Sum {
    /// Adds colours of K and V.
    pub fn add(&mut self, colors: Mean) {
        for (sum, color) in self.sides.iter_mut().zip(colors) {
            for (sum, c) in sum.iter_mut().zip(color) {
                *sum += u32::from(c);
            }
        }
        self.count += 1;
    }

    /// The mean; `None` of nothing.
    pub fn mean(&self) -> Option<Mean> {
        let part = 1.0 / self.count as f32;
        let mean = |sum: u32| (sum as f32 * part + 0.5) as u8;
        (self.count > 0).then(|| self.sides.map(|side| side.map(mean)))
    }
}

/// The mean of colours; `None` of none.
pub fn mean(colors: impl Iterator<Item = Mean>) -> Option<Mean> {
    let mut sum = Sum::default();
    colors.for_each(|color| sum.add(color));
    sum.mean()
}

//! Colours of steps and kernels.

use super::facts::Bar;
use crate::palette::Palette;
use eframe::egui::Color32;

/// The colour of a step.
pub fn step(palette: Palette, bar: &Bar) -> Color32 {
    match bar {
        Bar { stalled: true, .. } => palette.alarm(),
        Bar { prefill: true, .. } => prefill(palette),
        _ => decode(palette),
    }
}

/// The colour of steps that decode.
pub fn decode(palette: Palette) -> Color32 {
    if palette.dark { Color32::from_rgb(0x4f, 0x93, 0xd1) } else { Color32::from_rgb(0x2f, 0x74, 0xb5) }
}

/// The colour of steps in which a sequence has several rows.
pub fn prefill(palette: Palette) -> Color32 {
    if palette.dark { Color32::from_rgb(0xb3, 0xa4, 0xd6) } else { Color32::from_rgb(0x9b, 0x86, 0xbd) }
}

/// The colour of a kernel by its place among all, longest first.
pub fn kernel(palette: Palette, place: usize) -> Color32 {
    const HUES: [[u8; 3]; 7] = [
        [0x5a, 0x7f, 0xa8],
        [0xe6, 0x9f, 0x00],
        [0x00, 0x9e, 0x73],
        [0xcc, 0x79, 0xa7],
        [0x9a, 0xc8, 0xe6],
        [0xb0, 0x74, 0x5a],
        [0xc9, 0xc2, 0x5a],
    ];
    HUES.get(place).map_or(palette.other(4), |[r, g, b]| Color32::from_rgb(*r, *g, *b))
}

//! Colours and patterns that colour-blind eyes tell apart, the same in every view.

use eframe::egui::Color32;

/// A pattern over a colour: which texels are drawn darker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pattern {
    /// None.
    Solid,
    /// Lines that rise to the right.
    Rising,
    /// Lines that fall to the right.
    Falling,
    /// Single texels.
    Dots,
    /// Horizontal lines.
    Rows,
    /// Vertical lines.
    Columns,
    /// Both.
    Grid,
    /// Two by two texels in turn.
    Checks,
}

impl Pattern {
    const ALL: [Pattern; 8] = [
        Pattern::Solid,
        Pattern::Rising,
        Pattern::Falling,
        Pattern::Dots,
        Pattern::Rows,
        Pattern::Columns,
        Pattern::Grid,
        Pattern::Checks,
    ];

    /// Whether the texel at a place is a darker one.
    pub fn darker(self, x: usize, y: usize) -> bool {
        match self {
            Pattern::Solid => false,
            Pattern::Rising => (x + y) % 6 < 2,
            Pattern::Falling => (x + 5 * y) % 6 < 2,
            Pattern::Dots => x % 4 < 2 && y % 4 < 2,
            Pattern::Rows => y % 4 < 1,
            Pattern::Columns => x % 4 < 1,
            Pattern::Grid => x % 5 < 1 || y % 5 < 1,
            Pattern::Checks => (x / 3 + y / 3).is_multiple_of(2),
        }
    }
}

/// Colours by format, and those of states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Palette {
    /// Whether it is for a dark background.
    pub dark: bool,
}

/// Okabe and Ito's hues, by what they stand for here.
const KNOWN: [(&str, [u8; 3], Pattern); 12] = [
    ("f32", [0x00, 0x4a, 0x7c], Pattern::Grid),
    ("f16", [0x00, 0x72, 0xb2], Pattern::Solid),
    ("bf16", [0x2c, 0x8c, 0xc4], Pattern::Columns),
    ("fp8", [0x56, 0xb4, 0xe9], Pattern::Rising),
    ("q8_0", [0x8f, 0xcf, 0xf2], Pattern::Rows),
    ("tq4", [0x00, 0x9e, 0x73], Pattern::Falling),
    ("q4_0", [0xf0, 0xe4, 0x42], Pattern::Rows),
    ("tq3", [0xe6, 0x9f, 0x00], Pattern::Dots),
    ("tq3n", [0xf2, 0xbe, 0x4d], Pattern::Columns),
    ("q3_affine", [0xcc, 0x79, 0xa7], Pattern::Checks),
    ("tq2", [0xd5, 0x5e, 0x00], Pattern::Grid),
    ("", [0x99, 0x99, 0x99], Pattern::Solid),
];

impl Palette {
    fn known(format: &str) -> Option<&'static (&'static str, [u8; 3], Pattern)> {
        KNOWN.iter().find(|(name, ..)| *name == format)
    }

    fn number(format: &str) -> usize {
        format.bytes().fold(7usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte)))
    }

    /// A format's colour; formats that are not built in have one made from their name.
    pub fn format(self, format: &str) -> Color32 {
        let [r, g, b] = match Self::known(format) {
            Some((_, rgb, _)) => *rgb,
            None => {
                let n = Self::number(format);
                [96 + (n % 128) as u8, 96 + (n / 128 % 128) as u8, 96 + (n / 16_384 % 128) as u8]
            }
        };
        Color32::from_rgb(r, g, b)
    }

    /// A format's pattern.
    pub fn pattern(self, format: &str) -> Pattern {
        match Self::known(format) {
            Some((_, _, pattern)) => *pattern,
            None => Pattern::ALL[1 + Self::number(format) % 7],
        }
    }

    /// A place where a page was and is no more.
    pub fn gone(self) -> Color32 {
        if self.dark { Color32::from_gray(38) } else { Color32::from_gray(222) }
    }

    /// Nothing at all.
    pub fn nothing(self) -> Color32 {
        if self.dark { Color32::from_gray(18) } else { Color32::from_gray(248) }
    }

    /// Text and lines.
    pub fn ink(self) -> Color32 {
        if self.dark { Color32::from_gray(220) } else { Color32::from_gray(30) }
    }

    /// What is selected or hovered.
    pub fn accent(self) -> Color32 {
        if self.dark { Color32::from_rgb(255, 255, 255) } else { Color32::from_rgb(0, 0, 0) }
    }

    /// A conversion that has just happened.
    pub fn flash(self) -> Color32 {
        Color32::from_rgb(255, 255, 255)
    }

    /// An eviction that has just happened, stalls and faults.
    pub fn alarm(self) -> Color32 {
        Color32::from_rgb(0xd5, 0x2e, 0x2e)
    }

    /// Memory that is no page: by its place in a list.
    pub fn other(self, number: usize) -> Color32 {
        const GRAYS: [[u8; 3]; 7] = [
            [0x66, 0x4c, 0x8e],
            [0x9b, 0x86, 0xbd],
            [0xb0, 0x74, 0x5a],
            [0x7a, 0x8c, 0x5e],
            [0x8a, 0x8a, 0x8a],
            [0x5a, 0x5a, 0x5a],
            [0xbb, 0xbb, 0xbb],
        ];
        let [r, g, b] = GRAYS[number % GRAYS.len()];
        Color32::from_rgb(r, g, b)
    }

    /// A share from 0 to 1 as a colour whose lightness grows: of the family of cividis, made for colour-blind eyes. What is
    /// no number is drawn as an alarm.
    pub fn ramp(self, share: f32) -> Color32 {
        if share.is_nan() {
            return self.alarm();
        }
        const STOPS: [[f32; 3]; 5] = [
            [0.0, 32.0, 77.0],
            [65.0, 77.0, 107.0],
            [124.0, 123.0, 120.0],
            [188.0, 175.0, 111.0],
            [255.0, 234.0, 70.0],
        ];
        let at = share.clamp(0.0, 1.0) * 4.0;
        let from = (at as usize).min(3);
        let part = at - from as f32;
        let mix = |c: usize| (STOPS[from][c] + (STOPS[from + 1][c] - STOPS[from][c]) * part) as u8;
        Color32::from_rgb(mix(0), mix(1), mix(2))
    }

    /// A signed share from −1 to 1: blue, the background, orange.
    pub fn difference(self, share: f32) -> Color32 {
        if share.is_nan() {
            return self.alarm();
        }
        let share = share.clamp(-1.0, 1.0);
        let far = if share < 0.0 { [0.0, 114.0, 178.0] } else { [230.0, 120.0, 0.0] };
        let near = if self.dark { 40.0 } else { 235.0 };
        let mix = |c: usize| (near + (far[c] - near) * share.abs()) as u8;
        Color32::from_rgb(mix(0), mix(1), mix(2))
    }
}

/// A colour times a factor.
pub fn dim(color: Color32, factor: f32) -> Color32 {
    let scale = |c: u8| (f32::from(c) * factor).clamp(0.0, 255.0) as u8;
    Color32::from_rgb(scale(color.r()), scale(color.g()), scale(color.b()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_differ_by_colour_and_neighbours_by_pattern() {
        let palette = Palette { dark: true };
        for (at, (a, rgb, pattern)) in KNOWN.iter().enumerate() {
            for (b, other, pattern_b) in &KNOWN[at + 1..] {
                let apart: i32 = rgb.iter().zip(other).map(|(x, y)| (i32::from(*x) - i32::from(*y)).abs()).sum();
                assert!(apart > 60 || pattern != pattern_b, "{a} and {b}");
            }
        }
        assert_ne!(palette.pattern("fp8"), palette.pattern("tq3"));
        assert_ne!(palette.format("mine"), palette.format("yours"));
        assert_eq!(palette.ramp(f32::NAN), palette.alarm());
    }
}

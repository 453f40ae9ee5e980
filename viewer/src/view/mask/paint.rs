//! The mask as one picture: pages across, steps down, shares beside them.

use super::cover::Cover;
use super::gone::Gone;
use super::lines::{Line, Whose};
use super::pattern::read_ranges;
use crate::palette::{Palette, Pattern};
use eframe::egui::{Color32, ColorImage};
use kvarto::engine::Reads;
use std::collections::BTreeMap;

/// Ranges, pages and pixels that are gone through for new lines in one frame.
pub const MOST_WORK: usize = 3_000_000;

/// Colours of pages by what became of them in a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Inks {
    /// Read.
    pub read: Color32,
    /// Visible, there, and not read.
    pub unread: Color32,
    /// Visible, and not there.
    pub gone: Color32,
    /// Lines over what is not there.
    pub hatch: Color32,
    /// Not visible.
    pub nothing: Color32,
    /// Mass kept, and recall.
    pub quality: [Color32; 2],
}

impl Inks {
    /// Those of a theme.
    pub fn of(palette: Palette) -> Self {
        let gray = if palette.dark { 84 } else { 184 };
        Inks {
            read: palette.format(if palette.dark { "fp8" } else { "f16" }),
            unread: Color32::from_gray(gray),
            gone: palette.gone(),
            hatch: palette.alarm(),
            nothing: palette.nothing(),
            quality: [palette.format("tq4"), palette.format("tq3")],
        }
    }
}

/// A line's pixels, and those where lines are drawn over it.
struct Painted {
    plain: Vec<Color32>,
    hatched: Vec<Color32>,
}

/// What lines are painted for: where it changes, all are painted anew.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Key {
    whose: Whose,
    width: usize,
    columns: u32,
    inks: Inks,
}

/// Lines that were painted.
#[derive(Default)]
pub struct Painter {
    key: Option<Key>,
    lines: BTreeMap<u64, Painted>,
    /// Ranges, pages and pixels that the newest picture went through for new lines.
    pub work: usize,
}

/// What is drawn.
pub struct Picture<'a> {
    /// Whose reads.
    pub whose: Whose,
    /// Steps, oldest first.
    pub lines: &'a [Line],
    /// Steps that there is room for.
    pub room: usize,
    /// Pages across.
    pub columns: u32,
    /// Pixels of the mask and of each column of shares.
    pub width: usize,
    /// Pixels of a column of shares, and how many there are.
    pub side: (usize, usize),
    /// Pixels of a step.
    pub height: usize,
    /// Colours.
    pub inks: Inks,
    /// Mass kept and recall by step.
    pub qualities: &'a BTreeMap<u64, [f32; 2]>,
}

impl Painter {
    /// The picture; whether lines are missing in it that the next frame will have. While `behind`, not all evictions
    /// are known, and lines are not kept.
    pub fn picture(&mut self, picture: &Picture<'_>, gone: &Gone, behind: bool) -> (ColorImage, bool) {
        let &Picture { whose, lines, width, columns, inks, .. } = picture;
        let key = Some(Key { whose, width, columns, inks });
        if self.key != key || behind {
            (self.key, self.lines) = (key, BTreeMap::new());
        }
        let (side, sides) = picture.side;
        let whole = width + side * sides;
        let mut pixels = vec![inks.nothing; whole * picture.height * picture.room];
        let mut missing = false;
        self.work = 0;
        // The newest first: they are looked at.
        for line in lines.iter().rev() {
            if self.lines.contains_key(&line.event) {
                continue;
            }
            if self.work > MOST_WORK {
                missing = true;
                break;
            }
            let painted = self.paint(picture, line, gone);
            self.lines.insert(line.event, painted);
        }
        let oldest = lines.first().map_or(0, |line| line.event);
        self.lines = self.lines.split_off(&oldest);
        let gap = usize::from(picture.height >= 5);
        for (at, line) in lines.iter().enumerate().take(picture.room) {
            let shares = picture.shares(line);
            for y in 0..picture.height - gap {
                let from = (at * picture.height + y) * whole;
                let Some(row) = pixels.get_mut(from..from + whole) else { break };
                let (mask, beside) = row.split_at_mut(width);
                if let Some(painted) = self.lines.get(&line.event) {
                    let y = at * picture.height + y;
                    for (x, pixel) in mask.iter_mut().enumerate() {
                        let hatched = Pattern::Rising.darker(x, y);
                        *pixel = if hatched { painted.hatched[x] } else { painted.plain[x] };
                    }
                }
                for ((share, color), beside) in shares.iter().zip(inks.shares()).zip(beside.chunks_mut(side.max(1))) {
                    let Some(share) = share else { continue };
                    let room = beside.len().saturating_sub(SIDE_GAP);
                    let length = (share.clamp(0.0, 1.0) * room as f64).round() as usize;
                    beside.iter_mut().skip(SIDE_GAP).take(length).for_each(|pixel| *pixel = color);
                }
            }
        }
        (ColorImage::new([whole, picture.height * picture.room], pixels), missing)
    }

    fn paint(&mut self, picture: &Picture<'_>, line: &Line, gone: &Gone) -> Painted {
        let &Picture { whose, width, columns, inks, .. } = picture;
        let scale = width as f64 / f64::from(columns.max(1));
        let place = |number: u32| f64::from(number) * scale;
        let [mut seen, mut read, mut lost] = [(); 3].map(|()| Cover::new(width));
        let visible = &line.read.visible;
        seen.add(place(visible.start), place(visible.end), 1.0);
        let every = whose.row.is_none() && matches!(line.read.read, Reads::Rows(_));
        let rows = if every { 0..whose.rows } else { whose.row.unwrap_or(0)..whose.row.unwrap_or(0) + 1 };
        let weight = 1.0 / rows.len().max(1) as f32;
        for row in rows {
            for range in read_ranges(&line.read, row) {
                read.add(place(range.start), place(range.end), weight);
                self.work += 1;
            }
        }
        let lists = if whose.row.is_some() { 1 } else { whose.rows };
        for (run, share) in gone.before(line.event, lists) {
            lost.add(place(run.start.max(visible.start)), place(run.end.min(visible.end)), share);
        }
        self.work += gone.len() + width;
        let shares = seen.shares().zip(read.shares()).zip(lost.shares());
        let (mut plain, mut hatched) = (Vec::with_capacity(width), Vec::with_capacity(width));
        for (x, ((seen, read), lost)) in shares.enumerate() {
            let read = read.min(seen);
            let lost = lost.min(seen - read);
            let parts =
                [(inks.read, read), (inks.gone, lost), (inks.unread, seen - read - lost), (inks.nothing, 1.0 - seen)];
            let between = scale >= 5.0 && ((x + 1) as f64 / scale).floor() > (x as f64 / scale).floor();
            let color = if between { inks.nothing } else { mix(parts) };
            plain.push(color);
            hatched.push(if between { color } else { color.lerp_to_gamma(inks.hatch, lost * 0.55) });
        }
        Painted { plain, hatched }
    }
}

/// Pixels between columns of shares.
pub const SIDE_GAP: usize = 8;

impl Picture<'_> {
    /// Share read, mass kept, recall.
    pub fn shares(&self, line: &Line) -> [Option<f64>; 3] {
        let quality = self.qualities.get(&line.read.step).map(|pair| pair.map(f64::from));
        let known = |share: f64| (!share.is_nan()).then_some(share);
        let [mass, recall] = [0, 1].map(|at| quality.and_then(|pair| known(pair[at])));
        [self.whose.share(&line.read), mass, recall]
    }
}

impl Inks {
    fn shares(self) -> [Color32; 3] {
        [self.read, self.quality[0], self.quality[1]]
    }
}

fn mix(parts: [(Color32, f32); 4]) -> Color32 {
    if let Some((color, _)) = parts.iter().find(|(_, share)| *share > 0.999) {
        return *color;
    }
    let sum = |c: fn(&Color32) -> u8| parts.iter().map(|(color, share)| f32::from(c(color)) * share).sum::<f32>() as u8;
    Color32::from_rgb(sum(|c| c.r()), sum(|c| c.g()), sum(|c| c.b()))
}

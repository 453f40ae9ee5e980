//! The bit map of a page: a texel a bit, coloured by plane and by the token that owns it.

use super::super::Scene;
use super::section;
use crate::store::Place;
use crate::units;
use eframe::egui::{self, Color32, ColorImage, TextureHandle, TextureOptions};
use kvarto::engine::PageFacts;
use kvarto::format::{FormatRegistry, Layout, Per};
use kvarto::shape::{PageGeometry, Side};
use std::collections::BTreeMap;

/// Whose a bit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    /// Its plane, planes of values first; [`PADDING`] for none.
    plane: u8,
    token: u16,
    /// The first channel that it is of.
    channel: u16,
}

const PADDING: u8 = u8::MAX;

/// A layout's bits.
struct Map {
    owners: Vec<Owner>,
    row_bits: usize,
    /// Name and words of each plane.
    planes: Vec<(&'static str, String)>,
    padding: usize,
}

type Key = (String, Side, usize, usize);

/// Layouts that were drawn.
pub struct Bits {
    formats: FormatRegistry,
    side: Side,
    drawn: BTreeMap<Key, Result<(TextureHandle, Map, String), String>>,
}

impl Default for Bits {
    fn default() -> Self {
        Bits { formats: FormatRegistry::builtin(), side: Side::K, drawn: BTreeMap::new() }
    }
}

/// Layouts that are kept.
const MOST_DRAWN: usize = 24;

/// Width from which both sides stand beside each other.
const BOTH: f32 = 560.0;

impl Bits {
    /// Draws the sides of a page.
    pub fn show(&mut self, ui: &mut egui::Ui, scene: &Scene<'_>, place: Place, page: &PageFacts) {
        section(ui, "Bits", "a texel a bit · hue by plane, brighter by token");
        let Some(group) = scene.store.header.groups.get(place.group) else {
            ui.weak("Head sizes: not in this trace.");
            return;
        };
        let tokens = scene.store.page_tokens(place.group) as usize;
        let sides = [(Side::K, &page.formats.0, group.k_dim), (Side::V, &page.formats.1, group.v_dim)];
        if ui.available_width() >= BOTH {
            ui.columns(2, |columns| {
                for (ui, (side, format, dim)) in columns.iter_mut().zip(sides) {
                    ui.vertical(|ui| self.side(ui, (format.to_string(), side, tokens, dim as usize), place));
                }
            });
            return;
        }
        ui.horizontal(|ui| {
            for (side, format, _) in sides {
                ui.selectable_value(&mut self.side, side, format!("{} {format}", side.as_str().to_uppercase()));
            }
        });
        let chosen = self.side;
        for (side, format, dim) in sides.into_iter().filter(|(side, ..)| *side == chosen) {
            self.side(ui, (format.to_string(), side, tokens, dim as usize), place);
        }
    }

    fn side(&mut self, ui: &mut egui::Ui, key: Key, place: Place) {
        if self.drawn.len() > MOST_DRAWN {
            self.drawn.clear();
        }
        let formats = &self.formats;
        let drawn = self.drawn.entry(key).or_insert_with_key(|key| draw(ui.ctx(), formats, key));
        let (texture, map, caption) = match drawn {
            Ok(drawn) => drawn,
            Err(why) => {
                ui.label(why.as_str());
                return;
            }
        };
        ui.label(caption.as_str());
        ui.horizontal_wrapped(|ui| {
            for (plane, (name, words)) in map.planes.iter().enumerate() {
                let (rect, _) = ui.allocate_exact_size(egui::vec2(10.0, 10.0), egui::Sense::hover());
                ui.painter().rect_filled(rect, 1.0, color(plane, 0.8));
                ui.label(egui::RichText::new(format!("{name}: {words}")).small());
            }
            if map.padding > 0 {
                ui.label(
                    egui::RichText::new(format!("black: {} bits of padding", units::count(map.padding as u64))).small(),
                );
            }
        });
        let [columns, rows] = texture.size().map(|side| side as f32);
        let scale = (ui.available_width() / columns).min(4.0);
        let (rect, response) = ui.allocate_exact_size(egui::vec2(columns, rows) * scale, egui::Sense::hover());
        ui.painter().image(
            texture.id(),
            rect,
            egui::Rect::from_min_max(egui::Pos2::ZERO, egui::pos2(1.0, 1.0)),
            Color32::WHITE,
        );
        if let Some(pointer) = response.hover_pos() {
            let at = (pointer - rect.min) / scale;
            let bit = at.y.max(0.0) as usize * map.row_bits + (at.x.max(0.0) as usize).min(map.row_bits - 1);
            response.on_hover_text_at_pointer(map.words(bit, place));
        }
    }
}

fn draw(context: &egui::Context, formats: &FormatRegistry, key: &Key) -> Result<(TextureHandle, Map, String), String> {
    let (format, side, tokens, head_dim) = (&key.0, key.1, key.2, key.3);
    let Ok((_, known)) = formats.by_name(format) else {
        return Err(format!("{format} is no format that comes with the library: its layout is not known here."));
    };
    let codec = known.codec(side, PageGeometry { tokens, head_dim }).map_err(|error| error.to_string())?;
    let layout = codec.layout();
    let map = Map::of(layout);
    let caption = format!(
        "{} {format}: {} B, {:.3} bits a value, {} bits a row",
        side.as_str().to_uppercase(),
        units::count(layout.page_bytes() as u64),
        layout.resident_bits_per_value(),
        map.row_bits
    );
    let name = format!("bits {format} {} {tokens} {head_dim}", side.as_str());
    let texture = context.load_texture(name, map.picture(tokens), TextureOptions::NEAREST);
    Ok((texture, map, caption))
}

impl Map {
    fn of(layout: &Layout) -> Self {
        let bits = layout.page_words * 32;
        // Rows of whole 16-byte units, so many that the picture is about as high as it is wide.
        let row_bits = [256, 512, 1024].into_iter().find(|row| bits <= row * row).unwrap_or(2048);
        let mut owners = vec![Owner { plane: PADDING, token: 0, channel: 0 }; bits];
        let mut own = |(word, shift): (usize, u32), count: u32, plane: usize, token: usize, channel: usize| {
            let owner = Owner { plane: plane.min(254) as u8, token: token as u16, channel: channel as u16 };
            let first = word * 32 + shift as usize;
            if let Some(bits) = owners.get_mut(first..first + count as usize) {
                bits.fill(owner);
            }
        };
        let mut planes = Vec::new();
        let (tokens, channels) = (layout.geometry.tokens, layout.geometry.head_dim);
        for (plane, spec) in layout.planes.iter().enumerate() {
            for token in 0..tokens {
                for channel in 0..channels {
                    own(layout.position(plane, token, channel), spec.bits, plane, token, channel);
                }
            }
            let all = units::count(u64::from(spec.bits) * (tokens * channels) as u64);
            planes.push((spec.name, format!("{} a value, {all} bits", spec.bits)));
        }
        for (scalar, spec) in layout.scalars.iter().enumerate() {
            let mut count = 0;
            for (token, channel) in spec.owners(layout.geometry) {
                let plane = layout.planes.len() + scalar;
                own(layout.scalar_position(scalar, token, channel), spec.bits, plane, token, channel);
                count += u64::from(spec.bits);
            }
            planes.push((spec.name, format!("{} {}, {} bits", spec.bits, per(spec.per), units::count(count))));
        }
        let padding = owners.iter().filter(|owner| owner.plane == PADDING).count();
        Map { owners, row_bits, planes, padding }
    }

    fn picture(&self, tokens: usize) -> ColorImage {
        let rows = self.owners.len().div_ceil(self.row_bits).max(1);
        let paint = |owner: &Owner| match owner.plane {
            PADDING => Color32::BLACK,
            plane => color(usize::from(plane), f32::from(owner.token) / tokens.max(1) as f32),
        };
        let mut pixels: Vec<Color32> = self.owners.iter().map(paint).collect();
        pixels.resize(rows * self.row_bits, Color32::TRANSPARENT);
        ColorImage::new([self.row_bits, rows], pixels)
    }

    fn words(&self, bit: usize, place: Place) -> String {
        let Some(owner) = self.owners.get(bit) else { return "beyond the page".into() };
        let at = format!("byte {}, bit {}", bit / 8, bit % 8);
        let Some((name, _)) = self.planes.get(usize::from(owner.plane)) else { return format!("padding · {at}") };
        format!("{name} · token {} of page {}, channel {} · {at}", owner.token, place.number, owner.channel)
    }
}

/// What a scalar belongs to.
pub fn per(per: Per) -> String {
    match per {
        Per::Token => "a token".into(),
        Per::Block(channels) => format!("a block of {channels} channels"),
        Per::Page => "a page".into(),
    }
}

/// Okabe and Ito's hues, which colour-blind eyes tell apart; brighter for later tokens.
fn color(plane: usize, share: f32) -> Color32 {
    const HUES: [[f32; 3]; 6] = [
        [0.0, 114.0, 178.0],
        [230.0, 159.0, 0.0],
        [0.0, 158.0, 115.0],
        [204.0, 121.0, 167.0],
        [240.0, 228.0, 66.0],
        [86.0, 180.0, 233.0],
    ];
    let [r, g, b] = HUES[plane % HUES.len()];
    let light = 0.35 + 0.65 * share;
    Color32::from_rgb((r * light) as u8, (g * light) as u8, (b * light) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_an_unpadded_page_is_painted() {
        let formats = FormatRegistry::builtin();
        for (name, side) in [("f16", Side::K), ("tq3", Side::K), ("tq3", Side::V), ("q8_0", Side::V), ("q4_0", Side::K)]
        {
            let geometry = PageGeometry { tokens: 64, head_dim: 128 };
            let codec = formats.by_name(name).unwrap().1.codec(side, geometry).unwrap();
            let map = Map::of(codec.layout());
            let painted = map.picture(64).pixels.iter().filter(|p| **p != Color32::BLACK).count();
            assert_eq!(painted, codec.layout().page_words * 32, "{name} {side:?}");
            assert_eq!(map.padding, 0);
        }
    }

    #[test]
    fn a_bit_names_the_value_that_it_is_of() {
        let formats = FormatRegistry::builtin();
        for (_, format) in formats.iter() {
            let codec = format.codec(Side::V, PageGeometry { tokens: 32, head_dim: 64 }).unwrap();
            let layout = codec.layout();
            let map = Map::of(layout);
            for (plane, spec) in layout.planes.iter().enumerate() {
                let (word, shift) = layout.position(plane, 21, 43);
                let bits = word * 32 + shift as usize..word * 32 + (shift + spec.bits) as usize;
                let owner = Owner { plane: plane as u8, token: 21, channel: 43 };
                assert!(map.owners[bits].iter().all(|own| *own == owner), "{} {}", format.name(), spec.name);
            }
        }
    }
}

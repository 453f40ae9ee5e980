//! The bit map of one page side: a texel a bit, coloured by plane and by the token that owns it.

use eframe::egui::{self, Color32, ColorImage, TextureHandle, TextureOptions};
use kvarto::format::{FormatRegistry, Layout};
use kvarto::shape::{PAGE_TOKENS, PageGeometry, Side};

/// Which page side is drawn, and its picture.
pub struct LayoutView {
    formats: FormatRegistry,
    format: String,
    side: Side,
    tokens: usize,
    head_dim: usize,
    drawn: Option<(String, Drawn)>,
}

enum Drawn {
    Picture { texture: TextureHandle, caption: String },
    Refused(String),
}

impl Default for LayoutView {
    fn default() -> Self {
        LayoutView {
            formats: FormatRegistry::builtin(),
            format: "tq3".into(),
            side: Side::K,
            tokens: 64,
            head_dim: 128,
            drawn: None,
        }
    }
}

/// Texels a row: eight words, so that 16-byte units stand in pairs.
const ROW_BITS: usize = 256;

impl LayoutView {
    /// Controls above, the picture below.
    pub fn show(&mut self, ui: &mut egui::Ui) {
        ui.horizontal_wrapped(|ui| {
            ui.label("Format");
            let names: Vec<String> = self.formats.iter().map(|(_, f)| f.name().to_string()).collect();
            for name in names {
                ui.selectable_value(&mut self.format, name.clone(), name);
            }
            ui.separator();
            for side in Side::BOTH {
                ui.selectable_value(&mut self.side, side, side.as_str().to_uppercase());
            }
            ui.separator();
            ui.label("Tokens a page");
            for tokens in PAGE_TOKENS {
                ui.selectable_value(&mut self.tokens, tokens, tokens.to_string());
            }
            ui.separator();
            ui.label("Head size");
            for dim in [64, 80, 96, 128, 192, 256] {
                ui.selectable_value(&mut self.head_dim, dim, dim.to_string());
            }
        });
        ui.separator();
        let key = format!("{} {} {} {}", self.format, self.side.as_str(), self.tokens, self.head_dim);
        if self.drawn.as_ref().is_none_or(|(k, _)| *k != key) {
            self.drawn = Some((key.clone(), self.draw(ui.ctx(), &key)));
        }
        match &self.drawn {
            Some((_, Drawn::Picture { texture, caption })) => {
                ui.label(caption);
                egui::ScrollArea::both().show(ui, |ui| {
                    let scale = (ui.available_width() / texture.size()[0] as f32).clamp(1.0, 6.0).floor();
                    ui.image((texture.id(), texture.size_vec2() * scale));
                });
            }
            Some((_, Drawn::Refused(why))) => {
                ui.label(why);
            }
            None => {}
        }
    }

    fn draw(&self, context: &egui::Context, key: &str) -> Drawn {
        let geometry = PageGeometry { tokens: self.tokens, head_dim: self.head_dim };
        let codec = match self.formats.by_name(&self.format).and_then(|(_, f)| f.codec(self.side, geometry)) {
            Ok(codec) => codec,
            Err(error) => return Drawn::Refused(error.to_string()),
        };
        let layout = codec.layout();
        let planes: Vec<&str> =
            layout.planes.iter().map(|p| p.name).chain(layout.scalars.iter().map(|s| s.name)).collect();
        let caption = format!(
            "{} bytes a page side, {:.3} bits a value; planes: {}. A texel a bit, {ROW_BITS} bits a row; hue by plane, \
             brightness by token, black for padding.",
            layout.page_bytes(),
            layout.resident_bits_per_value(),
            planes.join(", ")
        );
        let texture = context.load_texture(key, picture(layout), TextureOptions::NEAREST);
        Drawn::Picture { texture, caption }
    }
}

fn picture(layout: &Layout) -> ColorImage {
    let bits = layout.page_words * 32;
    let mut pixels = vec![Color32::BLACK; bits.next_multiple_of(ROW_BITS)];
    let (tokens, channels) = (layout.geometry.tokens, layout.geometry.head_dim);
    let mut paint = |word: usize, shift: u32, count: u32, plane: usize, token: usize| {
        let color = color(plane, token as f32 / tokens as f32);
        for bit in 0..count {
            pixels[word * 32 + (shift + bit) as usize] = color;
        }
    };
    for (plane, spec) in layout.planes.iter().enumerate() {
        for token in 0..tokens {
            for channel in 0..channels {
                let (word, shift) = layout.position(plane, token, channel);
                paint(word, shift, spec.bits, plane, token);
            }
        }
    }
    for (scalar, spec) in layout.scalars.iter().enumerate() {
        for (token, channel) in spec.owners(layout.geometry) {
            let (word, shift) = layout.scalar_position(scalar, token, channel);
            paint(word, shift, spec.bits, layout.planes.len() + scalar, token);
        }
    }
    ColorImage::new([ROW_BITS, bits.div_ceil(ROW_BITS)], pixels)
}

/// Okabe–Ito hues, which colour-blind eyes tell apart; brighter for later tokens.
fn color(plane: usize, share: f32) -> Color32 {
    const HUES: [[f32; 3]; 4] = [[0.0, 114.0, 178.0], [230.0, 159.0, 0.0], [0.0, 158.0, 115.0], [204.0, 121.0, 167.0]];
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
            let image = picture(codec.layout());
            let painted = image.pixels.iter().filter(|p| **p != Color32::BLACK).count();
            assert_eq!(painted, codec.layout().page_words * 32, "{name} {side:?}");
        }
    }
}

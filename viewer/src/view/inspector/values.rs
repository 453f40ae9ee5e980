//! What a page holds, decoded: heat maps of K and V, scales, bytes.

use super::super::{Act, Scene};
use super::bits::per;
use super::{facts, section};
use crate::palette::Palette;
use crate::store::{Place, Store};
use crate::units;
use eframe::egui::{self, Color32, ColorImage, TextureHandle, TextureOptions};
use kvarto::engine::{Event, PageFacts};
use kvarto::format::{FormatRegistry, mask};
use kvarto::num::f16_value;
use kvarto::shape::{PageGeometry, Side};

/// A side that was decoded.
struct Decoded {
    texture: TextureHandle,
    values: Vec<f32>,
    dim: usize,
    filled: usize,
    largest: f32,
    not_numbers: usize,
    scalars: Vec<String>,
}

/// What a decoded page depends on.
#[derive(Clone, PartialEq)]
struct Of {
    name: String,
    page: (usize, u32, u32),
    dark: bool,
    filled: usize,
}

/// The page that was decoded last, and the one that was asked for.
#[derive(Default)]
pub struct Values {
    asked: Option<(String, u64)>,
    found: Option<(Place, u64, usize, Found)>,
    of: Option<Of>,
    sides: Vec<Result<Decoded, String>>,
    bytes: Vec<u8>,
    scale: Option<(bool, TextureHandle)>,
}

/// Where the trace has the bytes of a page.
#[derive(Clone, Copy, PartialEq)]
enum Found {
    /// In a chunk, at an event.
    Here(usize, u64),
    /// Only of another generation, at an event.
    Other(u32, u64),
    Nowhere,
}

impl Values {
    /// Draws them, or asks for them.
    pub fn show(&mut self, ui: &mut egui::Ui, scene: &Scene<'_>, place: Place, page: &PageFacts, acts: &mut Vec<Act>) {
        let bases = scene.store.header.groups.get(place.group).map(|group| &group.basis);
        let note = bases
            .map_or(String::new(), |b| format!("as stored, in the coordinates of basis {} (K), {} (V)", b[0], b[1]));
        section(ui, "Values", &note);
        match self.find(scene.store, place, page) {
            Found::Nowhere if scene.store.chronicle.data.items().is_empty() => {
                ui.weak("Bytes of pages: not in this trace. `kvarto … --trace FILE --trace-pages N` keeps them.");
            }
            Found::Nowhere => {
                ui.weak("The trace has bytes of other pages, not of this one.");
            }
            Found::Other(generation, event) => {
                ui.horizontal_wrapped(|ui| {
                    ui.weak(format!(
                        "The trace has the bytes of generation {generation}; the page is at generation {} here.",
                        page.generation
                    ));
                    if ui.button("Go there").clicked() {
                        acts.push(Act::Seek(event.saturating_add(1)));
                    }
                });
            }
            Found::Here(chunk, event) => {
                let held = scene.page_data.and_then(|data| match data {
                    Event::PageData { page: of, sides } if same(of, page) => Some(sides),
                    _ => None,
                });
                match held {
                    Some(sides) => self.draw(ui, scene, place, page, sides),
                    None => {
                        if self.asked.as_ref().is_none_or(|(name, asked)| *asked != event || *name != scene.store.name)
                        {
                            self.asked = Some((scene.store.name.clone(), event));
                            acts.push(Act::LoadPageData { chunk, event });
                        }
                        ui.weak("The page's bytes are being read …");
                    }
                }
            }
        }
    }

    /// The newest bytes of the page at or before the cursor.
    fn find(&mut self, store: &Store, place: Place, page: &PageFacts) -> Found {
        let known = (place, store.revision, store.chronicle.data.items().len());
        if let Some((of, revision, length, found)) = &self.found
            && (*of, *revision, *length) == known
        {
            return *found;
        }
        let done = store.events_done();
        let (mut found, mut other) = (Found::Nowhere, Found::Nowhere);
        for data in store.chronicle.data.items().iter().rev() {
            let what = &data.what;
            if (what.group, what.page) != (page.group, page.page) {
                continue;
            }
            if what.generation != page.generation {
                if other == Found::Nowhere {
                    other = Found::Other(what.generation, data.when.event);
                }
            } else if data.when.event < done {
                found = Found::Here(what.chunk, data.when.event);
                break;
            } else {
                // It comes after the cursor: what it says need not be so yet.
                other = Found::Other(what.generation, data.when.event);
            }
        }
        let found = if found == Found::Nowhere { other } else { found };
        self.found = Some((known.0, known.1, known.2, found));
        found
    }

    fn draw(&mut self, ui: &mut egui::Ui, scene: &Scene<'_>, place: Place, page: &PageFacts, sides: &[Vec<u8>; 2]) {
        let filled = facts::filled(scene.store, place) as usize;
        let (dark, name) = (scene.palette.dark, scene.store.name.clone());
        let of = Of { name, page: (page.group, page.page, page.generation), dark, filled };
        if self.of.as_ref() != Some(&of) {
            self.sides = decode(ui.ctx(), scene, place, page, sides, filled);
            self.bytes = sides.concat();
            self.of = Some(of);
        }
        if self.scale.as_ref().is_none_or(|(of, _)| *of != dark) {
            let pixels = (0..65).map(|at| scene.palette.difference(at as f32 / 32.0 - 1.0)).collect();
            let image = ColorImage::new([65, 1], pixels);
            self.scale = Some((dark, ui.ctx().load_texture("values' scale", image, TextureOptions::LINEAR)));
        }
        let scale = self.scale.as_ref().map(|(_, texture)| texture.id());
        let sides = &self.sides;
        ui.columns(2, |columns| {
            for (ui, (side, decoded)) in columns.iter_mut().zip(Side::BOTH.iter().zip(sides)) {
                ui.vertical(|ui| match decoded {
                    Ok(decoded) => decoded.show(ui, *side, scale),
                    Err(why) => drop(ui.label(why.as_str())),
                });
            }
        });
        let title = format!("Bytes ({})", units::count(self.bytes.len() as u64));
        egui::CollapsingHeader::new(title).id_salt("bytes").show(ui, |ui| {
            let height = ui.text_style_height(&egui::TextStyle::Monospace);
            let row = if ui.available_width() > 420.0 { 16 } else { 8 };
            let rows = self.bytes.len().div_ceil(row);
            egui::ScrollArea::vertical().id_salt("bytes").max_height(160.0).show_rows(ui, height, rows, |ui, shown| {
                for at in shown {
                    let bytes = self.bytes.get(at * row..).unwrap_or_default();
                    let hex: Vec<String> = bytes.iter().take(row).map(|byte| format!("{byte:02x}")).collect();
                    ui.monospace(format!("{:06x}  {}", at * row, hex.join(" ")));
                }
            });
        });
    }
}

fn same(a: &PageFacts, b: &PageFacts) -> bool {
    (a.group, a.page, a.generation) == (b.group, b.page, b.generation)
}

impl Decoded {
    fn show(&self, ui: &mut egui::Ui, side: Side, scale: Option<egui::TextureId>) {
        let title = side.as_str().to_uppercase();
        ui.label(format!("{title}: tokens down, {} channels across", self.dim));
        let size = self.texture.size_vec2();
        let factor = (ui.available_width() / size.x.max(1.0)).min(6.0);
        let (rect, response) = ui.allocate_exact_size(size * factor, egui::Sense::hover());
        let whole = egui::Rect::from_min_max(egui::Pos2::ZERO, egui::pos2(1.0, 1.0));
        ui.painter().image(self.texture.id(), rect, whole, Color32::WHITE);
        if let Some(pointer) = response.hover_pos() {
            let at = (pointer - rect.min) / factor;
            let (token, channel) = (at.y.max(0.0) as usize, (at.x.max(0.0) as usize).min(self.dim.saturating_sub(1)));
            let words = match self.values.get(token * self.dim + channel) {
                Some(value) if token < self.filled => format!("{title} · token {token}, channel {channel}: {value:.5}"),
                _ => format!("{title} · token {token}: not filled"),
            };
            response.on_hover_text_at_pointer(words);
        }
        ui.horizontal(|ui| {
            let small = |value: f32| egui::RichText::new(format!("{value:.3}")).small();
            ui.label(small(-self.largest));
            if let Some(scale) = scale {
                let width = (ui.available_width() - 48.0).clamp(16.0, 120.0);
                let (rect, _) = ui.allocate_exact_size(egui::vec2(width, 8.0), egui::Sense::hover());
                ui.painter().image(scale, rect, whole, Color32::WHITE);
            }
            ui.label(small(self.largest));
        });
        if self.not_numbers > 0 {
            ui.colored_label(ui.visuals().error_fg_color, format!("{} values are no numbers", self.not_numbers));
        }
        for scalar in &self.scalars {
            ui.label(egui::RichText::new(scalar).small());
        }
    }
}

fn decode(
    context: &egui::Context,
    scene: &Scene<'_>,
    place: Place,
    page: &PageFacts,
    sides: &[Vec<u8>; 2],
    filled: usize,
) -> Vec<Result<Decoded, String>> {
    let formats = FormatRegistry::builtin();
    let tokens = scene.store.page_tokens(place.group) as usize;
    let group = scene.store.header.groups.get(place.group);
    let dims = group.map_or([0, 0], |group| [group.k_dim as usize, group.v_dim as usize]);
    let names = [&page.formats.0, &page.formats.1];
    let one = |n: usize| {
        decode_side(context, &formats, scene.palette, (Side::BOTH[n], names[n], &sides[n]), [tokens, dims[n], filled])
    };
    vec![one(0), one(1)]
}

fn decode_side(
    context: &egui::Context,
    formats: &FormatRegistry,
    palette: Palette,
    (side, name, bytes): (Side, &str, &[u8]),
    [tokens, dim, filled]: [usize; 3],
) -> Result<Decoded, String> {
    let known = formats.by_name(name);
    let (_, format) = known.map_err(|_| format!("{name} is no format that comes with the library."))?;
    let codec = format.codec(side, PageGeometry { tokens, head_dim: dim }).map_err(|error| error.to_string())?;
    let layout = codec.layout();
    if bytes.len() != layout.page_bytes() {
        return Err(format!("{name}: {} bytes are held, {} are wanted.", bytes.len(), layout.page_bytes()));
    }
    let word = |four: &[u8]| four.iter().rev().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
    let words: Vec<u32> = bytes.chunks(4).map(word).collect();
    let mut values = vec![0.0; layout.geometry.values()];
    codec.decode(&words, 0..tokens, &mut values);
    let held = values.get(..filled.min(tokens) * dim).unwrap_or_default();
    let largest = held.iter().filter(|value| value.is_finite()).fold(0.0f32, |most, value| most.max(value.abs()));
    let not_numbers = held.iter().filter(|value| value.is_nan()).count();
    let paint = |value: &f32| palette.difference(if largest > 0.0 { value / largest } else { *value });
    let mut pixels: Vec<Color32> = held.iter().map(paint).collect();
    pixels.resize(tokens * dim, palette.nothing());
    let title = format!("values {}", side.as_str());
    let texture = context.load_texture(title, ColorImage::new([dim, tokens], pixels), TextureOptions::NEAREST);
    let scalars = layout.scalars.iter().enumerate().map(|(at, spec)| {
        let value = |(token, channel)| {
            let bits = layout.read_scalar(&words, at, token, channel) & mask(spec.bits);
            if spec.bits == 16 { f16_value(bits as u16) } else { f32::from_bits(bits) }
        };
        let all: Vec<f32> = spec.owners(layout.geometry).map(value).collect();
        let (low, high) = all.iter().fold((f32::MAX, f32::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
        format!("{}: {} of {} bits {}, {low:.4} to {high:.4}", spec.name, all.len(), spec.bits, per(spec.per))
    });
    Ok(Decoded { scalars: scalars.collect(), texture, values, dim, filled, largest, not_numbers })
}

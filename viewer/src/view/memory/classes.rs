//! Classes of bytes: their names and looks.

use crate::palette::{self, Palette, Pattern};
use eframe::egui::Color32;
use kvarto::engine::MemoryClasses;
use kvarto::shape::Side;
use std::sync::Arc;

/// A class of bytes, in the order in which areas are stacked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Slots in use of a side in a format.
    Slots(Side, Arc<str>),
    /// Slots in use of formats beyond those that are told apart.
    MoreSlots,
    /// Slots reserved and not in use.
    Free,
    /// Step tables.
    Tables,
    /// Page descriptors.
    Descriptors,
    /// Side planes.
    Planes,
    /// Means and sink logits.
    Bases,
    /// Queries, partial states, staging.
    Scratch,
    /// Weights, activations and the rest of the backend.
    Other,
}

/// Sides and formats that are told apart: a damaged trace may name thousands.
const MOST_SLOT_CLASSES: usize = 24;

/// Bytes by class, sorted and without the empty ones: slots in use, and all else if `everything`.
pub fn of(memory: &MemoryClasses, everything: bool) -> Vec<(Class, u64)> {
    let mut classes: Vec<(Class, u64)> = Vec::with_capacity(memory.pages.len() + 8);
    for (at, part) in memory.pages.iter().enumerate() {
        let known = classes.iter().position(
            |(class, _)| matches!(class, Class::Slots(side, format) if *side == part.side && *format == part.format),
        );
        let class = if at < MOST_SLOT_CLASSES || known.is_some() {
            Class::Slots(part.side, part.format.clone())
        } else {
            Class::MoreSlots
        };
        match classes.iter_mut().find(|(known, _)| *known == class) {
            Some((_, bytes)) => *bytes = bytes.saturating_add(part.bytes),
            None => classes.push((class, part.bytes)),
        }
    }
    if everything {
        classes.extend([
            (Class::Free, memory.free_slot_bytes()),
            (Class::Tables, memory.table_bytes),
            (Class::Descriptors, memory.descriptor_bytes),
            (Class::Planes, memory.side_bytes),
            (Class::Bases, memory.basis_bytes),
            (Class::Scratch, memory.scratch_bytes),
            (Class::Other, memory.other_bytes),
        ]);
    }
    classes.retain(|(_, bytes)| *bytes > 0);
    classes.sort();
    classes
}

/// All of them together.
pub fn sum(classes: &[(Class, u64)]) -> u64 {
    classes.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
}

impl Class {
    /// Its name.
    pub fn name(&self) -> String {
        match self {
            Class::Slots(Side::K, format) => format!("K in {format}"),
            Class::Slots(Side::V, format) => format!("V in {format}"),
            Class::MoreSlots => "K and V in more formats".into(),
            Class::Free => "free slots".into(),
            Class::Tables => "step tables".into(),
            Class::Descriptors => "descriptors".into(),
            Class::Planes => "side planes".into(),
            Class::Bases => "means and bases".into(),
            Class::Scratch => "scratch".into(),
            Class::Other => "weights and other".into(),
        }
    }

    /// More about it.
    pub fn words(&self) -> &'static str {
        match self {
            Class::Slots(Side::K, _) => "Slots in use: keys of pages in this format.",
            Class::Slots(Side::V, _) => "Slots in use: values of pages in this format. The format's colour, lighter.",
            Class::MoreSlots => "Slots in use, of formats beyond those listed.",
            Class::Free => "Slots that are reserved in segments and not in use.",
            Class::Tables => "Tables of words that kernels take a step's work from.",
            Class::Descriptors => "What the cache knows of each page.",
            Class::Planes => "Small records that a selector or policy keeps with every page.",
            Class::Bases => "Means, maps and sink logits.",
            Class::Scratch => "Queries, partial states, staging, memory of selector and policy.",
            Class::Other => "Everything else on the same backend: a model's weights and activations.",
        }
    }

    /// Its colour, that of its darker texels, and which these are.
    pub fn look(&self, palette: Palette) -> (Color32, Color32, Pattern) {
        let other = |number| palette.other(number);
        let (color, pattern) = match self {
            Class::Slots(Side::K, format) => (palette.format(format), palette.pattern(format)),
            Class::Slots(Side::V, format) => {
                (palette.format(format).lerp_to_gamma(Color32::WHITE, 0.45), palette.pattern(format))
            }
            Class::MoreSlots => (palette.format(""), Pattern::Checks),
            Class::Free => (palette.gone(), Pattern::Falling),
            Class::Tables => (other(0), Pattern::Solid),
            Class::Descriptors => (other(1), Pattern::Solid),
            Class::Planes => (other(2), Pattern::Solid),
            Class::Bases => (other(3), Pattern::Solid),
            Class::Scratch => (other(4), Pattern::Rows),
            Class::Other => (other(5), Pattern::Solid),
        };
        let darker = match self {
            Class::Free if palette.dark => palette::dim(color, 1.5),
            Class::Free => palette::dim(color, 0.9),
            _ => palette::dim(color, 0.78),
        };
        (color, darker, pattern)
    }
}

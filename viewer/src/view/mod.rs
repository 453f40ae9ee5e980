//! Views: each a file, each shown as a tile. None knows another.

mod axis;
mod compare;
mod device;
mod inspector;
mod live;
mod mask;
mod memory;
mod page_map;
mod text;
mod timeline;

use crate::live::{LiveStatus, LiveWish, Pace};
use crate::palette::Palette;
use crate::store::{Place, Store};
use eframe::egui;
use kvarto::engine::{Event, SeqId};
use std::ops::Range;

/// What is looked at, in all views.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// The sequence; the first live one where it is gone.
    pub sequence: Option<SeqId>,
    /// Cache group.
    pub group: usize,
    /// The list of pages (`layer in group × KV heads + KV head`), or all.
    pub row: Option<usize>,
    /// The page that was clicked.
    pub page: Option<Place>,
    /// The page under the pointer in some view, in the frame before.
    pub hover: Option<Place>,
    /// Numbers of pages that were brushed.
    pub brush: Option<Range<u32>>,
}

/// What a view looks at.
pub struct Scene<'a> {
    /// The trace at the cursor.
    pub store: &'a Store,
    /// A second trace on the same clock, where two are compared.
    pub other: Option<&'a Store>,
    /// What is selected. Its sequence is live in `store`, if any is.
    pub selection: &'a Selection,
    /// Colours.
    pub palette: Palette,
    /// What a page held ([`Event::PageData`]), of the page that was asked for last.
    pub page_data: Option<&'a Event>,
    /// What a model that runs here says of itself, and how fast it goes.
    pub live: Option<(&'a LiveStatus, Pace)>,
}

/// What a view wishes.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Look at a page, or at none.
    Select(Option<Place>),
    /// The pointer is over a page.
    Hover(Place),
    /// Look at a sequence.
    Sequence(SeqId),
    /// Look at a cache group.
    Group(usize),
    /// Look at a list of pages, or at all.
    Row(Option<usize>),
    /// Mark numbers of pages, or none.
    Brush(Option<Range<u32>>),
    /// Go to where this event is the next one.
    Seek(u64),
    /// Load the bytes of a page: event and chunk of [`crate::store::chronicle::DataPlace`].
    LoadPageData {
        /// The chunk.
        chunk: usize,
        /// Number of the event.
        event: u64,
    },
    /// Open a second trace to compare with, on the same clock.
    Compare(std::path::PathBuf),
    /// Close the second trace.
    EndCompare,
    /// Tell the user something.
    Tell(String),
    /// Load a model and run it here, under a profile.
    StartLive {
        /// A name or a path.
        model: String,
        /// A name or a path.
        profile: String,
    },
    /// Wish something of the model that runs here.
    Live(LiveWish),
}

/// A part of the window that shows one side of a cache.
pub trait View {
    /// A word for flags and files, such as `page-map`.
    fn id(&self) -> &'static str;

    /// Its name in the window.
    fn title(&self) -> &'static str;

    /// Draws it in all of `ui`; wishes go to `acts`. The trace may be empty yet.
    fn show(&mut self, ui: &mut egui::Ui, scene: &Scene<'_>, acts: &mut Vec<Act>);

    /// What it shows as a table: a head line and rows. `None` where it shows nothing of the kind.
    fn table(&self, scene: &Scene<'_>) -> Option<Table>;
}

/// A table for a CSV file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Names of columns, units among them.
    pub head: Vec<String>,
    /// Rows, as long as the head.
    pub rows: Vec<Vec<String>>,
}

/// All views, in the order in which keys show them.
pub fn all() -> Vec<Box<dyn View>> {
    vec![
        Box::new(page_map::PageMap::default()),
        Box::new(mask::Mask::default()),
        Box::new(memory::Memory::default()),
        Box::new(timeline::Timeline::default()),
        Box::new(inspector::Inspector::default()),
        Box::new(text::Text::default()),
        Box::new(compare::Compare::default()),
        Box::new(device::Device::default()),
        Box::new(live::Live::default()),
    ]
}

/// Says that a trace has nothing of the kind that a view shows.
pub fn not_in_this_trace(ui: &mut egui::Ui, what: &str, how: &str) {
    ui.vertical_centered(|ui| {
        ui.add_space(12.0);
        ui.label(egui::RichText::new(format!("{what}: not in this trace")).strong());
        if !how.is_empty() {
            ui.label(egui::RichText::new(how).weak());
        }
    });
}

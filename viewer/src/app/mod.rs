//! The window's contents: bars, tiles, and what becomes of views' wishes.

mod bars;
mod export;
mod sources;

pub use sources::Opening;

use crate::keys;
use crate::layout::{self, Tiled};
use crate::live::{Live, LiveOptions};
use crate::palette::Palette;
use crate::player::Player;
use crate::settings::Settings;
use crate::source::{Connection, Wake};
use crate::transport;
use crate::view::{self, Act, Scene, Selection, View};
use eframe::egui;
use egui_tiles::Tree;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time of a frame that events may take: the rest is for drawing.
const EVENT_TIME: Duration = Duration::from_millis(5);

/// The default fonts, each family completed by the other: texts have arrows and boxes that one of them lacks.
fn fonts() -> egui::FontDefinitions {
    let mut fonts = egui::FontDefinitions::default();
    let names: Vec<String> = fonts.font_data.keys().cloned().collect();
    for family in fonts.families.values_mut() {
        for name in &names {
            if !family.contains(name) {
                family.push(name.clone());
            }
        }
    }
    fonts
}

/// All of the window.
pub struct App {
    /// The trace that is looked at.
    pub player: Player,
    /// A second one, on the same clock.
    pub other: Option<Player>,
    /// What is selected.
    pub selection: Selection,
    /// What is kept between runs.
    pub settings: Settings,
    /// Messages to the user, newest last.
    pub messages: Vec<String>,
    views: Vec<Box<dyn View>>,
    tree: Tree<String>,
    wake: Wake,
    settings_place: Option<PathBuf>,
    path_line: Option<String>,
    help: bool,
    told_faults: usize,
    /// Whether the context has our fonts.
    fonts: bool,
    hover_now: Option<crate::store::Place>,
    tiles: BTreeMap<String, egui::Rect>,
    picture_of: Option<export::Picture>,
    connection: Option<Connection>,
    live: Option<Live>,
    /// Traces of the live model that were opened.
    live_traces: usize,
    /// A step that is gone to once the trace was read so far.
    go_to: Option<u64>,
}

impl App {
    /// With `settings`, which are kept in `place` when the program ends, if it is given.
    pub fn new(context: &egui::Context, settings: Settings, place: Option<PathBuf>) -> Self {
        let views = view::all();
        let repaint = context.clone();
        let mut player = Player::default();
        player.speed = settings.speed;
        App {
            player,
            other: None,
            selection: Selection::default(),
            tree: layout::checked(settings.layout.clone(), &views),
            settings,
            messages: Vec::new(),
            views,
            wake: std::sync::Arc::new(move || repaint.request_repaint()),
            settings_place: place,
            path_line: None,
            help: false,
            told_faults: 0,
            fonts: false,
            hover_now: None,
            tiles: BTreeMap::new(),
            picture_of: None,
            connection: None,
            live: None,
            live_traces: 0,
            go_to: None,
        }
    }

    /// Shows one view alone.
    pub fn alone(&mut self, view: &str) {
        self.tree = layout::alone(view);
    }

    /// Ids of all views.
    pub fn view_ids(&self) -> Vec<&'static str> {
        self.views.iter().map(|view| view.id()).collect()
    }

    /// Opens a second trace to compare with.
    pub fn compare(&mut self, path: &Path) {
        let mut other = Player::default();
        other.open(path, &path.display().to_string(), self.wake.clone());
        self.other = Some(other);
        layout::focus(&mut self.tree, "compare");
    }

    /// Does what flags of a window ask for.
    pub fn begin(&mut self, arguments: &crate::arguments::Arguments) {
        self.go_to = arguments.at;
        if let Some(other) = &arguments.compare {
            self.compare(other);
        }
        match arguments.view.as_deref() {
            Some(view) if self.view_ids().contains(&view) => layout::focus(&mut self.tree, view),
            Some(view) => {
                self.messages.push(format!("there is no view {view}; there are {}", self.view_ids().join(", ")))
            }
            None => {}
        }
    }

    /// Waits until the traces were read, and goes to the end of a step, or of the trace.
    ///
    /// # Errors
    /// A trace that cannot be read at all, in words.
    pub fn settle(&mut self, step: Option<u64>, most: Duration) -> Result<(), String> {
        self.player.settle(step, most);
        if let Some(other) = &mut self.other {
            other.settle(Some(self.player.store.state.step), most);
            if other.store.chronicle.events == 0 {
                let why = other.store.faults.first().cloned();
                return Err(why.unwrap_or_else(|| "the trace to compare with has no events".into()));
            }
        }
        self.choose();
        match self.player.store.events_done() {
            0 => Err(self.player.store.faults.first().cloned().unwrap_or_else(|| "the trace has no events".into())),
            _ => Ok(()),
        }
    }

    /// Keeps the settings.
    pub fn keep(&mut self) {
        self.settings.speed = self.player.speed;
        self.settings.layout = Some(self.tree.clone());
        if let Some(place) = &self.settings_place {
            self.settings.save(place);
        }
    }

    /// The table of a view.
    pub fn table(&self, id: &str) -> Option<view::Table> {
        let view = self.views.iter().find(|view| view.id() == id)?;
        view.table(&self.scene())
    }

    fn palette(&self) -> Palette {
        Palette { dark: self.settings.dark }
    }

    fn scene(&self) -> Scene<'_> {
        Scene {
            store: &self.player.store,
            other: self.other.as_ref().map(|other| &other.store),
            selection: &self.selection,
            palette: self.palette(),
            page_data: self.player.page_data.as_deref(),
            live: None,
        }
    }

    /// Takes in what came and draws everything.
    pub fn ui(&mut self, ui: &mut egui::Ui) {
        let context = ui.ctx().clone();
        if !std::mem::replace(&mut self.fonts, true) {
            context.set_fonts(fonts());
        }
        context.set_theme(if self.settings.dark { egui::Theme::Dark } else { egui::Theme::Light });
        self.take_in(&context);
        egui::Panel::top("top").show(ui, |ui| self.top(ui));
        egui::Panel::bottom("transport").show(ui, |ui| {
            ui.add_space(3.0);
            transport::bar(ui, &mut self.player);
            ui.add_space(1.0);
        });
        if !self.messages.is_empty() {
            egui::Panel::bottom("messages").show(ui, |ui| self.notices(ui));
        }
        let ground = egui::Frame::new().fill(ui.visuals().panel_fill);
        egui::CentralPanel::no_frame().frame(ground).show(ui, |ui| self.tiles(ui));
        if keys::help(&context, &mut self.help) {
            self.help = false;
        }
        self.save_picture(&context);
    }

    /// Lets the selection be of what is there.
    fn choose(&mut self) {
        let live = &self.player.store.state.sequences;
        if self.selection.sequence.is_none_or(|sequence| !live.contains_key(&sequence)) {
            self.selection.sequence = live.keys().next().copied();
            self.selection.page = self.selection.page.filter(|page| Some(page.sequence) == self.selection.sequence);
        }
        let groups = self.player.store.state.groups.len();
        self.selection.group = self.selection.group.min(groups.saturating_sub(1));
    }

    fn take_in(&mut self, context: &egui::Context) {
        let dt = context.input(|input| input.stable_dt);
        self.follow_others();
        let changed = self.player.tick(dt, EVENT_TIME);
        if let Some(other) = &mut self.other {
            other.tick(dt, EVENT_TIME / 2);
            // One clock: steps.
            let step = self.player.store.state.step.min(other.store.chronicle.last_step);
            if other.store.state.step != step && !other.waits() {
                other.seek_step(step);
            }
        }
        if let Some(event) = self.go_to.and_then(|step| self.player.store.chronicle.after_step(step)) {
            self.go_to = None;
            self.player.seek(event);
        }
        self.choose();
        self.selection.hover = self.hover_now.take();
        for fault in self.player.store.faults.iter().skip(self.told_faults) {
            self.messages.push(fault.clone());
        }
        self.told_faults = self.player.store.faults.len();
        let dropped: Vec<PathBuf> =
            context.input(|input| input.raw.dropped_files.iter().map(|file| file.path().to_path_buf()).collect());
        if let Some(path) = dropped.first() {
            self.open(path, Opening::Play);
        }
        keys::take(context, self);
        if changed || self.player.playing && !self.player.at_end() {
            context.request_repaint();
        }
    }

    /// What the keys can do beyond the player.
    pub fn obey(&mut self, wish: keys::Wish) {
        match wish {
            keys::Wish::Help => self.help = !self.help,
            keys::Wish::OpenLine => self.path_line = Some(String::new()),
            keys::Wish::Unselect => {
                self.selection.page = None;
                self.selection.brush = None;
                self.help = false;
                self.path_line = None;
            }
            keys::Wish::View(number) => {
                if let Some(view) = self.views.get(number) {
                    layout::focus(&mut self.tree, view.id());
                }
            }
        }
    }

    fn tiles(&mut self, ui: &mut egui::Ui) {
        let (mut acts, mut export) = (Vec::new(), None);
        let palette = self.palette();
        let status = self.live.as_ref().map(|live| (live.status(), live.pace()));
        let scene = Scene {
            store: &self.player.store,
            other: self.other.as_ref().map(|other| &other.store),
            selection: &self.selection,
            palette,
            page_data: self.player.page_data.as_deref(),
            live: status.as_ref().map(|(status, pace)| (status, *pace)),
        };
        let (views, tiles) = (&mut self.views, &mut self.tiles);
        let mut tiled = Tiled { views, scene, acts: &mut acts, export: &mut export, places: tiles };
        self.tree.ui(&mut tiled, ui);
        acts.into_iter().for_each(|act| self.act(act, ui.ctx()));
        if let Some((view, kind)) = export {
            self.export(&view, kind, ui.ctx());
        }
    }

    /// Grants a wish.
    pub fn act(&mut self, act: Act, context: &egui::Context) {
        match act {
            Act::Select(page) => {
                self.selection.page = page;
                if page.is_some() {
                    layout::focus(&mut self.tree, "inspector");
                }
            }
            Act::Hover(page) => {
                self.hover_now = Some(page);
                // What follows the pointer is drawn in the next frame.
                if self.selection.hover != Some(page) {
                    context.request_repaint();
                }
            }
            Act::Sequence(sequence) => self.selection.sequence = Some(sequence),
            Act::Group(group) => self.selection.group = group,
            Act::Row(row) => self.selection.row = row,
            Act::Brush(brush) => self.selection.brush = brush,
            Act::Seek(event) => {
                self.player.playing = false;
                self.player.follow = false;
                self.player.seek(event);
            }
            Act::LoadPageData { chunk, event } => self.player.load_page_data(chunk, event),
            Act::Compare(path) => self.compare(&path),
            Act::EndCompare => self.other = None,
            Act::Tell(words) => self.messages.push(words),
            Act::StartLive { model, profile } => self.start_live(LiveOptions {
                model,
                profile,
                backend: "auto".into(),
                device: None,
                mass_every: 4,
                pages_every: 8,
                max_tokens: 512,
                prompt: None,
            }),
            Act::Live(wish) => {
                if let Some(live) = &self.live {
                    live.wish(wish);
                }
            }
        }
    }
}

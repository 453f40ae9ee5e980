//! The window's contents: bars, tiles, and what becomes of views' wishes.

use crate::export::{self, Kind};
use crate::icons::{self, Icon};
use crate::keys;
use crate::layout::{self, Tiled};
use crate::live::{Live, LiveOptions, LiveStatus};
use crate::palette::Palette;
use crate::player::Player;
use crate::samples;
use crate::settings::Settings;
use crate::source::{Connection, News, Wake};
use crate::transport;
use crate::view::{self, Act, Scene, Selection, View};
use eframe::egui;
use egui_tiles::Tree;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time of a frame that events may take: the rest is for drawing.
const EVENT_TIME: Duration = Duration::from_millis(5);

/// What a trace is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// To play it from its beginning.
    Play,
    /// To stay at its end while it grows.
    Follow,
    /// To stand still at its beginning.
    Stand,
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
    hover_now: Option<crate::store::Place>,
    tiles: BTreeMap<String, egui::Rect>,
    picture_of: Option<Picture>,
    connection: Option<Connection>,
    live: Option<Live>,
    /// Traces of the live model that were opened.
    live_traces: usize,
    /// A step that is gone to once the trace was read so far.
    go_to: Option<u64>,
}

/// A picture of a view that is being taken.
struct Picture {
    view: String,
    path: PathBuf,
    receiver: std::sync::mpsc::Receiver<std::sync::Arc<egui::ColorImage>>,
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

    /// Opens a trace. What is wrong with it comes as a message.
    pub fn open(&mut self, path: &Path, opening: Opening) {
        self.open_as(path, None, opening);
        self.settings.remember(path);
    }

    /// Opens a trace that comes with the program.
    pub fn open_sample(&mut self, sample: Option<PathBuf>, opening: Opening) {
        match sample {
            Some(path) => self.open_as(&path, Some("sample"), opening),
            None => self.messages.push("the sample cannot be unpacked into the temporary folder: open a file".into()),
        }
    }

    fn open_as(&mut self, path: &Path, name: Option<&str>, opening: Opening) {
        self.player.playing = opening != Opening::Stand;
        self.player.follow = opening == Opening::Follow;
        let name = name.map_or_else(|| path.display().to_string(), Into::into);
        self.player.open(path, &name, self.wake.clone());
        (self.selection, self.told_faults) = (Selection::default(), 0);
    }

    /// Opens a second trace to compare with.
    pub fn compare(&mut self, path: &Path) {
        let mut other = Player::default();
        other.open(path, &path.display().to_string(), self.wake.clone());
        self.other = Some(other);
        layout::focus(&mut self.tree, "compare");
    }

    /// Loads a model and runs it.
    pub fn start_live(&mut self, options: LiveOptions) {
        (self.live, self.live_traces) = (None, 0);
        match Live::start(options, self.wake.clone()) {
            Ok(live) => self.live = Some(live),
            Err(why) => self.messages.push(why),
        }
        layout::focus(&mut self.tree, "live");
    }

    /// What the model that runs here says of itself, if one does.
    pub fn live_status(&self) -> Option<LiveStatus> {
        self.live.as_ref().map(Live::status)
    }

    /// Attaches to a program that serves its events.
    pub fn connect(&mut self, peer: &str) {
        match Connection::open(peer, self.wake.clone()) {
            Ok(connection) => self.connection = Some(connection),
            Err(why) => self.messages.push(why),
        }
    }

    /// Opens what a connection or a model that runs here has begun to write.
    fn follow_others(&mut self) {
        while let Some(news) = self.connection.as_ref().and_then(Connection::news) {
            match news {
                News::Ready(path) => self.open_as(&path, None, Opening::Follow),
                News::Ended(why) => self.messages.push(why),
            }
        }
        let Some(live) = &self.live else { return };
        let traces = live.status().traces;
        if let Some(newest) = traces.get(self.live_traces..).and_then(|new| new.last()).cloned() {
            self.live_traces = traces.len();
            self.open_as(&newest, Some("live"), Opening::Follow);
        }
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

    fn top(&mut self, ui: &mut egui::Ui) {
        ui.add_space(3.0);
        ui.horizontal_wrapped(|ui| {
            let (mut wanted, mut sample) = (None, None);
            ui.menu_button("Open", |ui| {
                if ui.button("A file…   (Ctrl+O, or drop it here)").clicked() {
                    self.path_line = Some(String::new());
                    ui.close();
                }
                ui.separator();
                if ui.button("The sample: Minima-KV at 4,000 tokens").clicked() {
                    sample = Some(samples::minima());
                    ui.close();
                }
                if ui.button("The sample: a chat with a fork").clicked() {
                    sample = Some(samples::chat());
                    ui.close();
                }
                ui.separator();
                for path in &self.settings.recent {
                    if ui.button(path.display().to_string()).clicked() {
                        wanted = Some(path.clone());
                        ui.close();
                    }
                }
            });
            if let Some(path) = wanted {
                self.open(&path, Opening::Play);
            }
            if let Some(sample) = sample {
                self.open_sample(sample, Opening::Play);
            }
            self.choices(ui);
            ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
                if ui.button("?").on_hover_text("Keys (H)").clicked() {
                    self.help = !self.help;
                }
                if icons::button(ui, Icon::Contrast, "Light or dark", "Light or dark").clicked() {
                    self.settings.dark = !self.settings.dark;
                }
                if icons::button(ui, Icon::Layout, "Usual layout", "The usual layout").clicked() {
                    self.tree = layout::usual();
                }
                self.legend(ui);
            });
        });
        if let Some(mut line) = self.path_line.take() {
            let mut keep = true;
            ui.horizontal(|ui| {
                ui.label("Trace");
                let edit = ui.add(egui::TextEdit::singleline(&mut line).desired_width(500.0).hint_text("a .kvtr file"));
                edit.request_focus();
                let entered = ui.input(|input| input.key_pressed(egui::Key::Enter));
                if ui.button("Open").clicked() || entered {
                    keep = false;
                    self.open(Path::new(line.trim()), Opening::Play);
                }
                if ui.button("Compare with it").clicked() {
                    keep = false;
                    self.compare(Path::new(line.trim()));
                }
                if ui.button("Not").clicked() {
                    keep = false;
                }
            });
            self.path_line = keep.then_some(line);
        }
        ui.add_space(2.0);
    }

    fn choices(&mut self, ui: &mut egui::Ui) {
        let store = &self.player.store;
        let title = store.header.model.as_ref().map_or(store.header.command.clone(), |model| model.name.clone());
        ui.strong(format!("{title} · {}", store.header.profile)).on_hover_text(&store.name);
        let name = self.selection.sequence.map_or("no sequence".into(), |s| format!("sequence {}", s.0));
        let sequences = egui::ComboBox::from_id_salt("sequence").selected_text(name).show_ui(ui, |ui| {
            for (sequence, held) in &store.state.sequences {
                let fork = store.chronicle.lineage.of(*sequence).and_then(|life| life.from);
                let from = fork.map_or(String::new(), |(from, at)| format!(", forked from {} at {at}", from.0));
                let words = format!("sequence {}: {} tokens{from}", sequence.0, held.logical);
                ui.selectable_value(&mut self.selection.sequence, Some(*sequence), words);
            }
        });
        icons::name_choice(&sequences, "Sequence");
        if store.state.groups.len() > 1 {
            let words = format!("group {}", self.selection.group);
            let groups = egui::ComboBox::from_id_salt("group").selected_text(words).show_ui(ui, |ui| {
                for (group, facts) in store.state.groups.iter().enumerate() {
                    let kind = store.header.groups.get(group).map_or("", |header| header.kind.as_str());
                    let words = format!("group {group}: {} layers, {kind}", facts.layers.len());
                    ui.selectable_value(&mut self.selection.group, group, words);
                }
            });
            icons::name_choice(&groups, "Cache group");
        }
    }

    fn legend(&self, ui: &mut egui::Ui) {
        let palette = self.palette();
        let mut formats: Vec<&str> = self.player.store.chronicle.formats.iter().collect();
        formats.sort_unstable_by(|a, b| b.cmp(a));
        for format in formats.into_iter().take(12) {
            ui.label(egui::RichText::new(format).small());
            let (rect, _) = ui.allocate_exact_size(egui::vec2(16.0, 12.0), egui::Sense::hover());
            let painter = ui.painter_at(rect);
            painter.rect_filled(rect, 0.0, palette.format(format));
            let (pattern, dark) = (palette.pattern(format), crate::palette::dim(palette.format(format), 0.7));
            for y in 0..12 {
                for x in (0..16).filter(|x| pattern.darker(*x, y)) {
                    let at = rect.min + egui::vec2(x as f32, y as f32);
                    painter.rect_filled(egui::Rect::from_min_size(at, egui::vec2(1.0, 1.0)), 0.0, dark);
                }
            }
        }
    }

    fn notices(&mut self, ui: &mut egui::Ui) {
        let mut gone = None;
        for (at, message) in self.messages.iter().enumerate().rev().take(4) {
            ui.horizontal(|ui| {
                if icons::button(ui, Icon::Close, "Close message", "Close").clicked() {
                    gone = Some(at);
                }
                ui.add(egui::Label::new(egui::RichText::new(message).color(ui.visuals().warn_fg_color)).truncate());
            });
        }
        if let Some(at) = gone {
            self.messages.remove(at);
        }
        if self.messages.len() > 4 {
            ui.weak(format!("and {} more", self.messages.len() - 4));
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

    fn export(&mut self, view: &str, kind: Kind, context: &egui::Context) {
        let path = export::fresh_name(view, self.player.store.state.step, kind);
        match kind {
            Kind::Csv => {
                let written = match self.table(view) {
                    Some(table) => export::write_csv(&table, &path),
                    None => Err(format!("{view} shows nothing that is a table")),
                };
                self.messages.push(written.map_or_else(|why| why, |()| format!("{} was written", path.display())));
            }
            Kind::Png => {
                let (sender, receiver) = std::sync::mpsc::channel();
                self.picture_of = Some(Picture { view: view.into(), path, receiver });
                let wake = self.wake.clone();
                context.request_screenshot(move |image| {
                    // Nobody waits for it where the program has ended.
                    let _ = sender.send(image);
                    wake();
                });
            }
        }
    }

    fn save_picture(&mut self, context: &egui::Context) {
        let Some(image) = self.picture_of.as_ref().and_then(|picture| picture.receiver.try_recv().ok()) else { return };
        let Some(Picture { view, path, .. }) = self.picture_of.take() else { return };
        let part = match self.tiles.get(&view) {
            Some(tile) => image.region(tile, Some(context.pixels_per_point())),
            None => (*image).clone(),
        };
        let written = export::write_png(part.size, part.as_raw(), &path);
        self.messages.push(written.map_or_else(|why| why, |()| format!("{} was written", path.display())));
    }
}

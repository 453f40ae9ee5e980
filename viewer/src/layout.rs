//! How tiles are laid out.

use crate::view::{Act, Scene, View};
use eframe::egui;
use egui_tiles::{Behavior, Container, Linear, LinearDir, Tile, TileId, Tiles, Tree, UiResponse};

/// The layout that a newcomer sees: pages above, what they come to below, details at the side.
pub fn usual() -> Tree<String> {
    let mut tiles = Tiles::default();
    let mut pane = |name: &str| tiles.insert_pane(name.to_string());
    let (map, mask, text) = (pane("page-map"), pane("mask"), pane("text"));
    let (memory, timeline) = (pane("memory"), pane("timeline"));
    let (inspector, compare, device) = (pane("inspector"), pane("compare"), pane("device"));
    let live = pane("live");
    let below = tiles.insert_tab_tile(vec![memory, timeline]);
    let middle = tiles.insert_tab_tile(vec![map, mask, compare]);
    let side = tiles.insert_tab_tile(vec![text, inspector, device, live]);
    let share = |tiles: &mut Tiles<String>, dir, children: [TileId; 2], part: f32| {
        let mut linear = Linear::new(dir, children.to_vec());
        linear.shares.set_share(children[0], part);
        linear.shares.set_share(children[1], 1.0 - part);
        tiles.insert_container(Container::Linear(linear))
    };
    let left = share(&mut tiles, LinearDir::Vertical, [middle, below], 0.62);
    let root = share(&mut tiles, LinearDir::Horizontal, [left, side], 0.68);
    Tree::new(egui::Id::unique("views"), root, tiles)
}

/// One view alone.
pub fn alone(view: &str) -> Tree<String> {
    let mut tiles = Tiles::default();
    let root = tiles.insert_pane(view.to_string());
    Tree::new(egui::Id::unique("view"), root, tiles)
}

/// A layout that was kept, unless views are missing in it or unknown.
pub fn checked(tree: Option<Tree<String>>, views: &[Box<dyn View>]) -> Tree<String> {
    let Some(tree) = tree else { return usual() };
    let mut panes: Vec<&str> = tree
        .tiles
        .tiles()
        .filter_map(|tile| match tile {
            Tile::Pane(name) => Some(name.as_str()),
            Tile::Container(_) => None,
        })
        .collect();
    let mut known: Vec<&str> = views.iter().map(|view| view.id()).collect();
    panes.sort_unstable();
    known.sort_unstable();
    if panes == known { tree } else { usual() }
}

/// Brings a view to the front of its tabs.
pub fn focus(tree: &mut Tree<String>, view: &str) {
    tree.make_active(|_, tile| matches!(tile, Tile::Pane(name) if name == view));
}

/// Draws views as tiles.
pub struct Tiled<'a> {
    /// All views.
    pub views: &'a mut [Box<dyn View>],
    /// What they look at.
    pub scene: Scene<'a>,
    /// What they wish.
    pub acts: &'a mut Vec<Act>,
    /// The view whose table or picture is wished.
    pub export: &'a mut Option<(String, crate::export::Kind)>,
    /// Where they were drawn.
    pub places: &'a mut std::collections::BTreeMap<String, egui::Rect>,
}

impl Behavior<String> for Tiled<'_> {
    fn pane_ui(&mut self, ui: &mut egui::Ui, _tile: TileId, pane: &mut String) -> UiResponse {
        let Some(view) = self.views.iter_mut().find(|view| view.id() == pane) else {
            ui.label(format!("There is no view {pane}."));
            return UiResponse::None;
        };
        self.places.insert(pane.clone(), ui.max_rect());
        ui.painter().rect_filled(ui.max_rect(), 0.0, ui.visuals().panel_fill);
        egui::Frame::new().inner_margin(6).show(ui, |ui| view.show(ui, &self.scene, self.acts));
        UiResponse::None
    }

    fn tab_title_for_pane(&mut self, pane: &String) -> egui::WidgetText {
        self.views.iter().find(|view| view.id() == pane).map_or(pane.as_str(), |view| view.title()).into()
    }

    fn top_bar_right_ui(
        &mut self,
        tiles: &Tiles<String>,
        ui: &mut egui::Ui,
        _tile: TileId,
        tabs: &egui_tiles::Tabs,
        _scroll: &mut f32,
    ) {
        let Some(Tile::Pane(view)) = tabs.active.and_then(|active| tiles.get(active)) else { return };
        ui.menu_button("…", |ui| {
            for (kind, words) in
                [(crate::export::Kind::Csv, "Export as CSV"), (crate::export::Kind::Png, "Export as PNG")]
            {
                if ui.button(words).clicked() {
                    *self.export = Some((view.clone(), kind));
                    ui.close();
                }
            }
        })
        .response
        .on_hover_text("Export this view");
    }

    fn simplification_options(&self) -> egui_tiles::SimplificationOptions {
        egui_tiles::SimplificationOptions { all_panes_must_have_tabs: true, ..Default::default() }
    }
}

//! What is kept between runs.

use crate::player::Speed;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Files that are remembered.
const MOST_RECENT: usize = 10;

/// Kept between runs, in a file of the user's configuration folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Whether the background is dark.
    pub dark: bool,
    /// How fast traces play.
    pub speed: Speed,
    /// Traces that were opened, newest first.
    pub recent: Vec<PathBuf>,
    /// How tiles are laid out.
    pub layout: Option<egui_tiles::Tree<String>>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { dark: true, speed: Speed::Steps(30.0), recent: Vec::new(), layout: None }
    }
}

impl Settings {
    /// The user's file.
    pub fn place() -> Option<PathBuf> {
        dirs::config_dir().map(|folder| folder.join("kvarto").join("viewer.json"))
    }

    /// What is kept in a file. One that is not there or is damaged gives the defaults.
    pub fn load(path: &Path) -> Self {
        let Ok(text) = std::fs::read_to_string(path) else { return Settings::default() };
        let mut settings = serde_json::from_str(&text).unwrap_or_else(|e| {
            log::warn!("{}: {e}; settings begin anew", path.display());
            Settings::default()
        });
        settings.speed = settings.speed.checked();
        settings.recent.truncate(MOST_RECENT);
        settings
    }

    /// Keeps them.
    pub fn save(&self, path: &Path) {
        let written = serde_json::to_string_pretty(self).map_err(std::io::Error::other).and_then(|text| {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            // A program that ends in the middle leaves the old file.
            let part = path.with_extension("part");
            std::fs::write(&part, text)?;
            std::fs::rename(&part, path)
        });
        if let Err(e) = written {
            log::warn!("{}: {e}; settings are not kept", path.display());
        }
    }

    /// Remembers a trace.
    pub fn remember(&mut self, path: &Path) {
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
        self.recent.retain(|known| *known != path);
        self.recent.insert(0, path);
        self.recent.truncate(MOST_RECENT);
    }
}

//! What is looked at: files, samples, programs that serve their events, a model that runs here.

use super::App;
use crate::layout;
use crate::live::{Live, LiveOptions, LiveStatus};
use crate::player::Player;
use crate::source::{Connection, News};
use crate::view::Selection;
use std::path::{Path, PathBuf};

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

impl App {
    /// Opens a trace. What is wrong with it comes as a message.
    pub fn open(&mut self, path: &Path, opening: Opening) {
        self.open_as(path, None, opening);
        self.settings.remember(path);
    }

    /// Opens a trace that comes with the program.
    pub fn open_sample(&mut self, sample: Result<PathBuf, String>, opening: Opening) {
        match sample {
            Ok(path) => self.open_as(&path, Some("sample"), opening),
            Err(why) => self.messages.push(why),
        }
    }

    fn open_as(&mut self, path: &Path, name: Option<&str>, opening: Opening) {
        self.player.playing = opening != Opening::Stand;
        self.player.follow = opening == Opening::Follow;
        let name = name.map_or_else(|| path.display().to_string(), Into::into);
        self.player.open(path, &name, self.wake.clone());
        (self.selection, self.told_faults) = (Selection::default(), 0);
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
            Ok(connection) => {
                self.connection = Some(connection);
                self.player = Player::default();
                self.player.store.name = format!("connecting to {peer}");
            }
            Err(why) => self.messages.push(why),
        }
    }

    /// Opens what a connection or a model that runs here has begun to write.
    pub(super) fn follow_others(&mut self) {
        while let Some(news) = self.connection.as_ref().and_then(Connection::news) {
            match news {
                News::Ready(path) => {
                    let peer = self.connection.as_ref().map(|connection| connection.peer.clone());
                    self.open_as(&path, peer.as_deref(), Opening::Follow);
                }
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
}

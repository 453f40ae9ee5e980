//! A model that runs here while it is looked at: on a thread of its own, traced into a temporary file that the window
//! reads like any other trace.

mod engine;
mod gate;
mod talk;

pub use gate::Pace;

use crate::source::Wake;
use gate::Gate;
use kvarto::wgpu;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// What is run.
pub struct LiveOptions {
    /// A name from `kvarto models list`, or a path that ends in .gguf.
    pub model: String,
    /// A name from `kvarto profiles`, or a path that ends in .toml.
    pub profile: String,
    /// `auto`, `cpu`, `cuda`, `wgpu`, or an API of wgpu with a number, such as `vulkan:0`.
    pub backend: String,
    /// The window's device and queue, where it is shared.
    pub device: Option<(wgpu::Device, wgpu::Queue)>,
    /// Attention by page is sampled in every so manieth step; 0 for never.
    pub mass_every: u32,
    /// The contents of every so manieth page are told; 0 for none.
    pub pages_every: u32,
    /// Most new tokens of an answer.
    pub max_tokens: usize,
    /// The first prompt.
    pub prompt: Option<String>,
}

/// What it does.
#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    /// It is being made ready: what is done, and the share of it.
    Starting(String, Option<f32>),
    /// It waits for a prompt.
    Ready,
    /// It reads a prompt or writes an answer.
    Busy,
    /// It cannot go on at all, and why.
    Failed(String),
}

/// What it says of itself.
#[derive(Clone, Debug)]
pub struct LiveStatus {
    /// What it does.
    pub phase: Phase,
    /// The profile of new sequences.
    pub profile: String,
    /// The model's name.
    pub model: String,
    /// The backend, in words.
    pub backend: String,
    /// What was asked and answered, oldest first.
    pub turns: Vec<Turn>,
    /// The last wish that was refused, and why.
    pub refused: Option<String>,
    /// Traces of this run: a new one for each profile. The newest is the one that grows.
    pub traces: Vec<PathBuf>,
}

/// A prompt and its answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turn {
    /// The number of its sequence.
    pub sequence: u64,
    /// What was asked.
    pub prompt: String,
    /// The answer so far.
    pub answer: String,
    /// Figures of a finished answer, in words.
    pub figures: Option<String>,
}

/// What is wished of it.
#[derive(Clone, Debug, PartialEq)]
pub enum LiveWish {
    /// Answer.
    Prompt {
        /// The words.
        text: String,
        /// In a new sequence; else in the present one.
        fresh: bool,
        /// As a turn of a chat; else as a text to go on with. A sequence stays what it began as.
        chat: bool,
    },
    /// End the answer here.
    Stop,
    /// Use another profile from the next sequence on.
    Profile(String),
    /// Go on from the first tokens of a sequence, in a fork of it.
    Fork {
        /// The sequence.
        sequence: u64,
        /// Tokens in common.
        tokens: u32,
    },
    /// Run, run slowly, or wait before every step.
    Pace(Pace),
    /// One step, where it waits before every one.
    Step,
}

/// A model that runs. Dropped, it stops.
pub struct Live {
    wishes: Sender<LiveWish>,
    gate: Arc<Gate>,
    status: Arc<Mutex<LiveStatus>>,
}

impl Live {
    /// Begins to load it. What goes wrong comes as [`Phase::Failed`].
    ///
    /// # Errors
    /// Where no thread can be had, in words.
    pub fn start(options: LiveOptions, wake: Wake) -> Result<Self, String> {
        let (wishes, heard) = channel();
        let gate = Arc::new(Gate::default());
        let status = Arc::new(Mutex::new(LiveStatus {
            phase: Phase::Starting("beginning".into(), None),
            profile: options.profile.clone(),
            model: options.model.clone(),
            backend: String::new(),
            turns: Vec::new(),
            refused: None,
            traces: Vec::new(),
        }));
        let desk = engine::Desk { status: status.clone(), wake, gate: gate.clone(), files: Vec::new() };
        std::thread::Builder::new()
            .name("live".into())
            .spawn(move || desk.run(options, &heard))
            .map_err(|e| format!("no thread for the model: {e}"))?;
        Ok(Live { wishes, gate, status })
    }

    /// What it says of itself now.
    pub fn status(&self) -> LiveStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Wishes something. It is done in order, but for stops and paces, which act at once.
    pub fn wish(&self, wish: LiveWish) {
        match wish {
            LiveWish::Stop => self.gate.stop(),
            LiveWish::Pace(pace) => self.gate.pace(pace),
            LiveWish::Step => self.gate.step(),
            // A thread that has failed has said so.
            other => drop(self.wishes.send(other)),
        }
    }

    /// How fast it goes.
    pub fn pace(&self) -> Pace {
        self.gate.now()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.gate.end();
    }
}

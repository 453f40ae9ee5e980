//! What every evaluation has at hand: a model on a backend, and what reports say of them.

use super::super::backend;
use super::super::models::Bar;
use super::flags::{CommonFlags, WindowFlags};
use super::tracer::Tracer;
use kvarto::calibration;
use kvarto::engine::Registry;
use kvarto::eval::{Candidate, Folder, Runner, Subject, Text, Window, Windows, corpus};
use kvarto::model::config::ModelConfig;
use kvarto::model::gguf::Gguf;
use kvarto::model::tokenizer::Tokenizer;
use kvarto::model::{LoadOptions, Model, store};
use kvarto::profile::Profile;
use kvarto::{Error, ErrorKind, Result};

/// Rows of the longest steps, prefill and scoring alike.
const CHUNK_TOKENS: usize = 256;

/// A model's file, read, before its weights are anywhere.
pub struct Opened {
    gguf: Gguf,
    pub config: ModelConfig,
    pub tokenizer: Tokenizer,
}

/// A model on a backend.
pub struct Session {
    pub runner: Runner,
    pub subject: Subject,
    pub folder: Option<Folder>,
    /// Whether what the folder holds does not count.
    fresh: bool,
}

impl Opened {
    /// Reads the model's file, fetched first where it is a named one that is not there.
    ///
    /// # Errors
    /// `File` and `Usage` for a model that cannot be had.
    pub fn open(flags: &CommonFlags) -> Result<Self> {
        let bar = Bar::new();
        let path = store::resolve_or_fetch(&flags.model, &bar)?;
        bar.finish();
        let gguf = Gguf::open(&path)?;
        Ok(Opened { config: ModelConfig::from_gguf(&gguf)?, tokenizer: Tokenizer::from_gguf(&gguf)?, gguf })
    }

    /// Names the calibrations that the candidates' bases read: results with others are others.
    ///
    /// # Errors
    /// `File` for one that is missing or of another model.
    pub fn calibrate(&self, candidates: &mut [Candidate]) -> Result<()> {
        let folder = LoadOptions::default().calibrations;
        for candidate in candidates {
            candidate.calibrations = calibration::ids(&candidate.profile, &self.gguf, folder.as_deref())?;
        }
        Ok(())
    }

    /// Loads the model.
    ///
    /// # Errors
    /// What the backend says.
    pub fn load(self, flags: &CommonFlags, registry: Registry) -> Result<Session> {
        let folder = flags.folder()?;
        let mut backend = backend::open(&flags.backend.wanted()?, &flags.backend)?.backend;
        let tracer = Tracer::open(&flags.trace, &flags.model, (&self.gguf, &self.tokenizer), backend.as_mut())?;
        let caps = backend.caps().clone();
        let load = LoadOptions { chunk_tokens: CHUNK_TOKENS, logit_rows: CHUNK_TOKENS, ..LoadOptions::default() };
        let model = Model::load(&self.gguf, backend, Profile::dense(), registry.clone(), &load)?;
        let subject = Subject {
            label: String::new(),
            profile: String::new(),
            calibrations: Vec::new(),
            model: flags.model.clone(),
            model_sha256: self.gguf.sha256().into(),
            architecture: self.config.architecture.name.into(),
            backend: caps.api.clone(),
            adapter: caps.adapter.clone(),
            tier: caps.tier.to_string(),
            version: env!("CARGO_PKG_VERSION").into(),
            command: std::env::args().collect(),
        };
        let mut runner = Runner::new(model, registry, subject.clone());
        if let Some(mut tracer) = tracer {
            runner.on_cache(Box::new(move |model, label| tracer.next(model, label)));
        }
        Ok(Session { runner, subject, folder, fresh: flags.fresh })
    }
}

impl Session {
    /// The folder to look for earlier results in.
    pub fn earlier(&self) -> Option<&Folder> {
        self.folder.as_ref().filter(|_| !self.fresh)
    }
}

/// The texts that the flags name.
///
/// # Errors
/// `File` for one that is not there or no text.
pub fn texts(flags: &WindowFlags) -> Result<Vec<Text>> {
    let texts = flags.text.iter().map(|word| Text::open(&corpus::resolve(word)?)).collect::<Result<Vec<_>>>()?;
    for (at, text) in texts.iter().enumerate() {
        if let Some(same) = texts[..at].iter().find(|before| before.sha256 == text.sha256) {
            let what = format!("texts {} and {} are the same", same.name, text.name);
            return Err(Error::new(ErrorKind::Usage, what, "leave one of them out: windows count as independent"));
        }
    }
    Ok(texts)
}

/// Windows of `tokens` tokens of all texts.
///
/// # Errors
/// `Usage` for a text that is too short.
pub fn windows(flags: &WindowFlags, tokens: usize, texts: &[Text], tokenizer: &Tokenizer) -> Result<Vec<Window>> {
    let cut = Windows { tokens, count: flags.windows };
    let mut windows = Vec::new();
    for (at, text) in texts.iter().enumerate() {
        windows.extend(cut.cut(tokenizer, text, at)?);
    }
    Ok(windows)
}

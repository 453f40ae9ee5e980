//! The forward pass of Llama and its relatives: dense kernels between the engine's append and attend, one recording a
//! step. What sets an architecture apart is data ([`super::config::Architecture`]).

mod cache;
mod fallbacks;
mod forward;
mod kernels;
mod observe;
mod stored;
mod weights;

pub use cache::CacheOptions;
pub use fallbacks::Fallback;
pub use forward::{Answer, Answers, ModelRows};
pub use observe::Observed;
pub use stored::Stored;

use super::config::ModelConfig;
use super::gguf::Gguf;
use super::tokenizer::Tokenizer;
use crate::backend::{Backend, BufferId};
use crate::calibration;
use crate::engine::{Engine, Registry, SeqId};
use crate::error::{Error, ErrorKind, Result};
use crate::num::rope::RopeTable;
use crate::page::ContentKey;
use crate::profile::Profile;
use kernels::Kernels;
use std::path::PathBuf;
use weights::Weights;

/// How a model is loaded.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Positions of a page: 16, 32, 64 or 128.
    pub page_tokens: usize,
    /// Tokens that the cache is first sized for.
    pub context_tokens: usize,
    /// Most rows of a step; longer prompts go in several.
    pub chunk_tokens: usize,
    /// Most rows of a step whose logits can be asked for.
    pub logit_rows: usize,
    /// Bound on the bytes of pages in use.
    pub kv_budget_bytes: Option<u64>,
    /// Where the basis `map` looks for the model's calibration, see [`crate::calibration::path_of`]. By default the
    /// program's folder, where the program is part of the build.
    pub calibrations: Option<PathBuf>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        #[cfg(feature = "store")]
        let calibrations = crate::model::store::calibrations().ok();
        #[cfg(not(feature = "store"))]
        let calibrations = None;
        LoadOptions {
            page_tokens: 64,
            context_tokens: 2048,
            chunk_tokens: 256,
            logit_rows: 16,
            kv_budget_bytes: None,
            calibrations,
        }
    }
}

impl LoadOptions {
    /// What the cache is told.
    fn cache(&self) -> CacheOptions {
        CacheOptions {
            page_tokens: self.page_tokens,
            context_tokens: self.context_tokens,
            kv_budget_bytes: self.kv_budget_bytes,
            ..CacheOptions::default()
        }
    }
}

/// A model on a backend, with its cache.
pub struct Model {
    /// For the hash that names the model, which is not worth its time before a key is asked for.
    gguf: Gguf,
    config: ModelConfig,
    engine: Engine,
    weights: Weights,
    kernels: Kernels,
    /// Of the layers that see all tokens, then of the sliding ones.
    ropes: Vec<RopeTable>,
    buffers: Buffers,
    chunk_tokens: usize,
    logit_rows: usize,
    /// As [`LoadOptions::calibrations`].
    calibrations: Option<PathBuf>,
    /// For the text of tokens, where listeners are to be told of it.
    tells: Option<Tokenizer>,
}

/// Activations of a step of at most `chunk_tokens` rows.
struct Buffers {
    tokens: BufferId,
    /// One for each of the model's tables.
    ropes: Vec<BufferId>,
    indices: BufferId,
    x: BufferId,
    normed: BufferId,
    qkv: BufferId,
    attention: BufferId,
    gate_up: BufferId,
    hidden: BufferId,
    /// Rows as wide as the residual stream, where what a block adds is normalised.
    branch: BufferId,
    last: BufferId,
    logits: BufferId,
    best: BufferId,
}

impl Model {
    /// Uploads the weights and makes every pipeline that a step can need. Calibrations that the profile's bases name are
    /// read, unless the registry has them.
    ///
    /// # Errors
    /// As [`calibration::provide`].
    /// `File`, `Shape` and `Unsupported` for a model that cannot run, naming the key or tensor; `OutOfMemory` when the
    /// device refuses a buffer.
    pub fn load(
        gguf: &Gguf,
        mut backend: Box<dyn Backend>,
        profile: Profile,
        registry: Registry,
        options: &LoadOptions,
    ) -> Result<Self> {
        let config = ModelConfig::from_gguf(gguf)?;
        let registry = calibration::provide(registry, &profile, gguf, options.calibrations.as_deref())?;
        let chunk_tokens = options.chunk_tokens.clamp(1, 1 << 16);
        let logit_rows = options.logit_rows.clamp(1, chunk_tokens);
        let ropes = [&config.rope].into_iter().chain(config.sliding.as_ref().map(|s| &s.rope));
        let ropes = ropes.map(|rope| RopeTable::new(f64::from(rope.base), rope.dim_count, &rope.scaling));
        let ropes = ropes.collect::<Result<Vec<_>>>()?;
        let weights = Weights::load(gguf, &config, backend.as_mut())?;
        let kernels = Kernels::prepare(&config, &Stored::of_file(gguf, &config)?, backend.as_mut())?;
        let buffers = Buffers::new(&config, chunk_tokens, logit_rows, backend.as_mut())?;
        let engine = cache::engine(&config, backend, profile, registry, &options.cache(), chunk_tokens)?;
        let calibrations = options.calibrations.clone();
        let gguf = gguf.clone();
        Ok(Model {
            gguf,
            config,
            engine,
            weights,
            kernels,
            ropes,
            buffers,
            chunk_tokens,
            logit_rows,
            calibrations,
            tells: None,
        })
    }

    /// Makes every kernel that [`Model::load`] would make, without reading a weight. On a
    /// [`crate::backend::ListingBackend`] it tells which they are.
    ///
    /// # Errors
    /// As [`Model::load`], but for its weights.
    pub fn rehearse(
        gguf: &Gguf,
        backend: Box<dyn Backend>,
        profile: Profile,
        registry: Registry,
        options: &LoadOptions,
    ) -> Result<()> {
        let config = ModelConfig::from_gguf(gguf)?;
        let registry = calibration::provide(registry, &profile, gguf, options.calibrations.as_deref())?;
        Model::rehearse_stored(&config, &Stored::of_file(gguf, &config)?, backend, profile, registry, options)
    }

    /// As [`Model::rehearse`], for a model that need not be there. Calibrations must be in the registry.
    ///
    /// # Errors
    /// As [`Model::rehearse`].
    pub fn rehearse_stored(
        config: &ModelConfig,
        stored: &Stored,
        mut backend: Box<dyn Backend>,
        profile: Profile,
        registry: Registry,
        options: &LoadOptions,
    ) -> Result<()> {
        Kernels::prepare(config, stored, backend.as_mut())?;
        let cache = options.cache();
        cache::engine(config, backend, profile, registry, &cache, options.chunk_tokens.clamp(1, 1 << 16)).map(drop)
    }

    /// The model's shape and constants.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The cache.
    pub fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Content keys of a sequence's pages, see [`Engine::content_keys`]. The first call reads the whole model file for
    /// the hash that names it.
    ///
    /// # Errors
    /// `Shape` for an unknown sequence.
    pub fn content_keys(&mut self, seq: SeqId) -> Result<Vec<Option<ContentKey>>> {
        if self.engine.model_hash().is_none() {
            self.engine.set_model_hash(self.gguf.sha256());
        }
        self.engine.content_keys(seq, 0)
    }

    /// From here on tells whoever listens to the engine which tokens steps give to the cache, with their text
    /// ([`crate::engine::Event::Tokens`]); `None` for no longer.
    pub fn tell_tokens(&mut self, tokenizer: Option<Tokenizer>) {
        self.tells = tokenizer;
    }

    /// Bytes of the weights on the device.
    pub fn weight_bytes(&self) -> u64 {
        self.weights.bytes
    }

    /// What runs by another route than was wanted: recorded at load, and the cache's own of the newest step.
    pub fn fallbacks(&self) -> Vec<Fallback> {
        let deferred = Fallback::of_cache(&self.engine.stats(), self.engine.profile());
        self.weights.fallbacks.iter().cloned().chain(deferred).collect()
    }

    /// Most rows of a step.
    pub fn chunk_tokens(&self) -> usize {
        self.chunk_tokens
    }

    /// Most rows of a step whose logits can be asked for.
    pub fn logit_rows(&self) -> usize {
        self.logit_rows
    }

    /// Appends `tokens` in steps of at most [`Model::chunk_tokens`] rows and answers for the last of them.
    /// `stop` is asked, with the tokens done, between steps and within them as [`Model::step_unless`] does;
    /// `Interrupted` when it says so, with the whole steps so far kept.
    ///
    /// # Errors
    /// `Usage` for no tokens; as [`Model::step`].
    pub fn prefill(
        &mut self,
        seq: SeqId,
        tokens: &[u32],
        answer: Answer,
        mut stop: impl FnMut(usize) -> bool,
    ) -> Result<Answers> {
        let mut answers = Answers::default();
        if tokens.is_empty() {
            return Err(Error::new(ErrorKind::Usage, "the prompt has no tokens", "write at least one word"));
        }
        let mut done = 0;
        for chunk in tokens.chunks(self.chunk_tokens) {
            if stop(done) {
                return Err(Error::new(ErrorKind::Interrupted, "stopped during the prefill", ""));
            }
            let answer = if done + chunk.len() == tokens.len() { answer } else { Answer::Nothing };
            let rows = [ModelRows { seq, tokens: chunk, committed: true, answer }];
            answers = self.step_unless(&rows, Some(&mut || stop(done)))?;
            done += chunk.len();
        }
        Ok(answers)
    }
}

impl Buffers {
    fn new(config: &ModelConfig, rows: usize, logit_rows: usize, backend: &mut dyn Backend) -> Result<Self> {
        let q = config.q_heads * config.head_dim;
        let kv = config.kv_heads * config.head_dim;
        let mut floats = |label: &str, count: usize| backend.alloc(label, count as u64 * 4);
        let tables = 1 + usize::from(config.sliding.is_some());
        let branch = if config.architecture.post_norms { rows * config.hidden } else { 1 };
        Ok(Buffers {
            tokens: floats("tokens", rows)?,
            ropes: (0..tables)
                .map(|_| floats("rope table", rows * config.rope.dim_count))
                .collect::<Result<Vec<_>>>()?,
            indices: floats("row indices", rows)?,
            x: floats("residual", rows * config.hidden)?,
            normed: floats("normed", rows * config.hidden)?,
            qkv: floats("qkv", rows * (q + 2 * kv))?,
            attention: floats("attention", rows * q)?,
            gate_up: floats("gate and up", rows * 2 * config.ffn)?,
            hidden: floats("ffn", rows * config.ffn)?,
            branch: floats("branch", branch)?,
            last: floats("last rows", logit_rows * config.hidden)?,
            logits: floats("logits", logit_rows * config.vocab)?,
            best: floats("arg-max", logit_rows)?,
        })
    }
}

//! The cache under a model: made when it is loaded, and exchanged while the weights stay where they are.

use super::super::config::ModelConfig;
use super::Model;
use crate::backend::Backend;
use crate::calibration;
use crate::engine::{AttentionOptions, Engine, EngineOptions, Registry};
use crate::error::Result;
use crate::needs::{TapKind, TapOffer};
use crate::profile::Profile;

/// What a model's cache is told beyond its profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Positions of a page: 16, 32, 64 or 128.
    pub page_tokens: usize,
    /// Tokens that the cache is first sized for.
    pub context_tokens: usize,
    /// Bound on the bytes of pages in use.
    pub kv_budget_bytes: Option<u64>,
    /// Committed tokens that sliding layers keep beyond their window, see [`EngineOptions::rewind_tokens`].
    pub rewind_tokens: usize,
    /// Bytes of a policy's moves in a step, see [`EngineOptions::move_bytes`].
    pub move_bytes: Option<u64>,
    /// Whether each page is a work item of its own, see [`EngineOptions::page_items`].
    pub page_items: bool,
}

impl Default for CacheOptions {
    fn default() -> Self {
        CacheOptions {
            page_tokens: 64,
            context_tokens: 2048,
            kv_budget_bytes: None,
            rewind_tokens: 0,
            move_bytes: None,
            page_items: false,
        }
    }
}

impl Model {
    /// The same weights over an empty cache of another profile; the sequences of the one before end. Nothing is loaded
    /// anew. A model whose new cache is refused is gone.
    ///
    /// # Errors
    /// As [`Engine::with_options`] and [`calibration::provide`].
    pub fn with_cache(self, profile: Profile, registry: Registry, options: &CacheOptions) -> Result<Model> {
        let registry = match &self.gguf {
            Some(gguf) => calibration::provide(registry, &profile, gguf, self.calibrations.as_deref())?,
            None => registry,
        };
        let Model { engine, config, chunk_tokens, .. } = self;
        let engine = self::engine(&config, engine.into_backend(), profile, registry, options, chunk_tokens)?;
        Ok(Model { engine, config, ..self })
    }
}

/// A cache for the model's layers, with every kernel that its steps can need.
pub(super) fn engine(
    config: &ModelConfig,
    backend: Box<dyn Backend>,
    profile: Profile,
    registry: Registry,
    options: &CacheOptions,
    chunk_tokens: usize,
) -> Result<Engine> {
    let shape = config.cache_shape(options.page_tokens);
    let attention = AttentionOptions { scale: Some(config.attention_scale), ..AttentionOptions::default() };
    let engine_options = EngineOptions {
        kv_budget_bytes: options.kv_budget_bytes,
        context_tokens: options.context_tokens,
        chunk_tokens,
        attention: vec![attention; shape.groups.len()],
        rewind_tokens: options.rewind_tokens,
        taps: offers(config),
        move_bytes: options.move_bytes,
        page_items: options.page_items,
        ..EngineOptions::default()
    };
    let mut engine = Engine::with_options(backend, shape, profile, registry, engine_options)?;
    engine.warm_up(&[1, 2, 4, 8, 16], true)?;
    Ok(engine)
}

/// The tensors that the forward pass hands over.
fn offers(config: &ModelConfig) -> Vec<TapOffer> {
    let queries = config.q_heads * config.head_dim;
    let kinds =
        [(TapKind::Hidden, config.hidden), (TapKind::Residual, config.hidden), (TapKind::QueriesPreRope, queries)];
    kinds.map(|(kind, width)| TapOffer { kind, layers: (0..config.layers).collect(), width }).to_vec()
}

//! What is usually asked of CUDA: the shapes, profiles and models whose kernels come with the crate as machine code.
//!
//! Nobody lists kernels by hand: engines and models are made ready on a backend that notes what is asked of it. This is
//! the place to add a shape or a model; `cuda/prebuild` then makes the set anew, and a test fails until it has.

use crate::backend::cuda::{Compiler, DeviceReport, Source, caps, identity, source};
use crate::backend::{Caps, Listed, ListingBackend, Specialisation};
use crate::engine::{Engine, EngineOptions, Registry};
use crate::error::{Error, ErrorKind, Result};
use crate::footprint::NamedShape;
use crate::model::config::{Architecture, ModelConfig, Rope};
use crate::model::llama::{LoadOptions, Model, Stored};
use crate::num::rope::RopeScaling;
use crate::num::weights::WeightType;
use crate::profile::{Profile, builtin};
use std::collections::BTreeSet;

/// Shapes of caches, by the names and shorthands of [`NamedShape`]. Head counts are in the kernels' texts, so these serve
/// models of just these heads.
pub const SHAPES: [&str; 3] = ["smollm2-135m", "llama-3.1-8b", "qwen3.6-27b"];

/// Profiles of [`builtin`] for these shapes.
pub const PROFILES: [&str; 9] =
    ["dense", "fp8", "k8v3", "k4v3", "tq3", "q4_0", "streaming", "minima-kv", "minima-kv-paper"];

/// Tokens of a page: what every profile of [`PROFILES`] has.
const PAGE_TOKENS: usize = 64;

/// A model whose dense kernels are in the set.
struct Usual {
    architecture: &'static str,
    /// Layers, width, width of the feed-forward part, query heads, KV heads, head size.
    counts: [usize; 6],
    /// Types of the embedding and of the blocks.
    types: &'static [(WeightType, WeightType)],
}

/// SmolLM2 135M as `kvarto` fetches it, and in the types that its files usually have.
const MODELS: [Usual; 1] = [Usual {
    architecture: "llama",
    counts: [30, 576, 1536, 9, 3, 64],
    types: &[
        (WeightType::Q4_1, WeightType::Q4_1),
        (WeightType::Wide, WeightType::Q4_1),
        (WeightType::Wide, WeightType::Q4_0),
        (WeightType::Q8_0, WeightType::Q8_0),
        (WeightType::Wide, WeightType::Wide),
        (WeightType::F16, WeightType::F16),
    ],
}];

/// Every kernel of the set, by its key, each once.
///
/// # Errors
/// None but for faults in this file: a name that is not known.
pub fn kernels() -> Result<Vec<Specialisation>> {
    kernels_of(&card())
}

/// As [`kernels`], for a device of these capabilities: it is the same list for all.
///
/// # Errors
/// As [`kernels`].
pub fn kernels_of(caps: &Caps) -> Result<Vec<Specialisation>> {
    let listed = Listed::default();
    let backend = || Box::new(ListingBackend::new(caps.clone(), &listed));
    let registry = Registry::builtin();
    for shape in SHAPES {
        for profile in profiles(&registry)? {
            let shape = NamedShape::parse(shape, PAGE_TOKENS)?.shape;
            let options = EngineOptions::default();
            let mut engine = Engine::with_options(backend(), shape, profile, registry.clone(), options)?;
            engine.warm_up(&[1, 2, 4, 8, 16], true)?;
        }
    }
    for model in &MODELS {
        let config = model.config()?;
        for &(embedding, blocks) in model.types {
            let stored = Stored::uniform(&config, embedding, blocks);
            let options = LoadOptions { calibrations: None, ..LoadOptions::default() };
            Model::rehearse(&config, &stored, backend(), Profile::dense(), registry.clone(), &options)?;
        }
    }
    let mut kernels = listed.kernels();
    kernels.sort_by(|a, b| a.key().cmp(b.key()));
    Ok(kernels)
}

/// The kernels' texts, each once: kernels that differ in names alone share one.
///
/// # Errors
/// As [`kernels`], and those of [`source`].
pub fn sources() -> Result<Vec<(Specialisation, Source)>> {
    let mut seen = BTreeSet::new();
    let mut sources = Vec::new();
    for kernel in kernels()? {
        let source = source(&kernel)?;
        if seen.insert(identity(&source)) {
            sources.push((kernel, source));
        }
    }
    Ok(sources)
}

fn profiles(registry: &Registry) -> Result<Vec<Profile>> {
    let known = builtin::TEXTS.iter().filter(|(name, _)| PROFILES.contains(name));
    known.map(|(name, text)| Profile::parse(text, name, &registry.names())).collect()
}

/// Some card: what kernels are asked for does not depend on which.
fn card() -> Caps {
    let report = DeviceReport {
        index: 0,
        name: "some card".into(),
        capability: (9, 0),
        driver: "13.0".into(),
        memory_bytes: 80 << 30,
        multiprocessors: 132,
        shared_bytes: 227 << 10,
        l2_bytes: 50 << 20,
        integrated: false,
        refusal: None,
    };
    caps(&report, &Compiler::new(report.capability, None))
}

impl Usual {
    fn config(&self) -> Result<ModelConfig> {
        let [layers, hidden, ffn, q_heads, kv_heads, head_dim] = self.counts;
        let architecture = Architecture::find(self.architecture).ok_or_else(|| {
            Error::new(ErrorKind::Shape, format!("no architecture `{}`", self.architecture), "mend src/usual.rs")
        })?;
        Ok(ModelConfig {
            architecture,
            layers,
            hidden,
            ffn,
            q_heads,
            kv_heads,
            head_dim,
            // What follows is in no kernel's text.
            vocab: 1 << 15,
            rms_eps: 1e-5,
            rope: Rope {
                dim_count: head_dim,
                base: 10_000.0,
                pairing: architecture.pairing,
                scaling: RopeScaling::None,
            },
            sliding: None,
            attention_scale: 1.0,
            context_length: 1 << 13,
            tied_output: true,
        })
    }
}

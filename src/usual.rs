//! What is usually asked of CUDA: the shapes, profiles and models whose kernels come with the crate as machine code.
//!
//! Nobody lists kernels by hand: engines and models are made ready on a backend that notes what is asked of it. This is
//! the place to add a shape or a model; `cuda/prebuild` then makes the set anew, and a test fails until it has.

use crate::backend::cuda::{Compiler, DeviceReport, Source, caps, identity, prebuilt, source};
use crate::backend::{Caps, Listed, ListingBackend, Specialisation};
use crate::engine::{Engine, EngineOptions, Registry};
use crate::error::{Error, ErrorKind, Result};
use crate::footprint::NamedShape;
use crate::model::config::{Architecture, ModelConfig, Rope};
use crate::model::llama::{LoadOptions, Model, Stored};
use crate::num::rope::RopeScaling;
use crate::num::weights::WeightType;
use crate::profile::{Profile, builtin};
use std::collections::BTreeMap;

/// Shapes of caches, by the names and shorthands of [`NamedShape`], and profiles of [`builtin`] for each. Head counts are in
/// the kernels' texts, so these serve models of just these heads. With `dense`, those of Minima-KV bring every kernel of
/// `streaming`, `fp8`, `tq3` and, but for the published one, `k4v3`. Everything here is in the program: some 4 MB.
pub const CACHES: [(&str, &[&str]); 3] = [
    ("smollm2-135m", &["dense", "k8v3", "q4_0", "minima-kv", "minima-kv-paper"]),
    ("llama-3.1-8b", &["dense", "k8v3", "minima-kv", "minima-kv-paper"]),
    ("qwen3.6-27b", &["dense", "minima-kv-paper"]),
];

/// Tokens of a page: what each of these profiles has.
const PAGE_TOKENS: usize = 64;

/// A model whose dense kernels are in the set.
struct Usual {
    architecture: &'static str,
    /// Layers, width, width of the feed-forward part, query heads, KV heads, head size.
    counts: [usize; 6],
    /// Types of the embedding and of the blocks.
    types: &'static [(WeightType, WeightType)],
}

/// SmolLM2 135M as `kvarto` fetches it, and as most of its files are stored (`Wide` is made of the K types).
const MODELS: [Usual; 1] = [Usual {
    architecture: "llama",
    counts: [30, 576, 1536, 9, 3, 64],
    types: &[
        (WeightType::Q8_0, WeightType::Q4_1),
        (WeightType::Q8_0, WeightType::Q8_0),
        (WeightType::Wide, WeightType::Wide),
    ],
}];

/// A kernel of the set.
#[derive(Clone, Debug)]
pub struct UsualKernel {
    /// The kernel.
    pub kernel: Specialisation,
    /// Its text.
    pub source: Source,
    /// Whether the models or the first of [`CACHES`] ask for it. PTX takes more room than cubins, so it is of these alone.
    pub first: bool,
}

impl UsualKernel {
    /// Whether the set of a target has its code: see [`prebuilt::holds`].
    pub fn is_held_for(&self, target: &str) -> bool {
        prebuilt::holds(target, &self.source, self.first)
    }
}

/// Every kernel of the set by the identity of its text: kernels that differ in names alone share one.
///
/// # Errors
/// None but for faults in this file, such as a name that is not known; those of [`source`].
pub fn kernels() -> Result<BTreeMap<u128, UsualKernel>> {
    kernels_of(&card())
}

/// As [`kernels`], for a device of these capabilities: it is the same list for all.
///
/// # Errors
/// As [`kernels`].
pub fn kernels_of(caps: &Caps) -> Result<BTreeMap<u128, UsualKernel>> {
    let registry = Registry::builtin();
    let mut kernels = BTreeMap::new();
    for (at, (shape, profiles)) in CACHES.into_iter().enumerate() {
        let listed = Listed::default();
        for name in profiles {
            let backend = Box::new(ListingBackend::new(caps.clone(), &listed));
            let shape = NamedShape::parse(shape, PAGE_TOKENS)?.shape;
            let profile = profile(name, &registry)?;
            let mut engine = Engine::with_options(backend, shape, profile, registry.clone(), EngineOptions::default())?;
            engine.warm_up(&[1, 2, 4, 8, 16], true)?;
        }
        add(&mut kernels, &listed, at == 0)?;
    }
    let listed = Listed::default();
    for model in &MODELS {
        let config = model.config()?;
        for &(embedding, blocks) in model.types {
            let backend = Box::new(ListingBackend::new(caps.clone(), &listed));
            let stored = Stored::uniform(&config, embedding, blocks);
            let options = LoadOptions { calibrations: None, ..LoadOptions::default() };
            Model::rehearse_stored(&config, &stored, backend, Profile::dense(), registry.clone(), &options)?;
        }
    }
    add(&mut kernels, &listed, true)?;
    Ok(kernels)
}

/// Adds what was listed.
fn add(kernels: &mut BTreeMap<u128, UsualKernel>, listed: &Listed, first: bool) -> Result<()> {
    for kernel in listed.kernels() {
        let source = source(&kernel)?;
        kernels.entry(identity(&source)).or_insert(UsualKernel { kernel, source, first }).first |= first;
    }
    Ok(())
}

fn profile(name: &str, registry: &Registry) -> Result<Profile> {
    let found = builtin::TEXTS.iter().find(|(known, _)| *known == name);
    let (_, text) = found.ok_or_else(|| mistaken(format!("no profile `{name}`")))?;
    Profile::parse(text, name, &registry.names())
}

fn mistaken(what: String) -> Error {
    Error::new(ErrorKind::Shape, what, "mend src/usual.rs")
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
        let architecture = Architecture::find(self.architecture)
            .ok_or_else(|| mistaken(format!("no architecture `{}`", self.architecture)))?;
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

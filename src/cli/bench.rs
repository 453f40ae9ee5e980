//! `kvarto bench`: attention over real pages and a model's generation, verified, then timed.

mod report;
mod suite;

use super::backend::{self, BackendFlags, Chosen};
use super::cache_flags::CacheFlags;
use super::models::Bar;
use super::output::{self, say};
use super::trace_flags::{EventFlags, Opened, TraceFlags};
use bytesize::ByteSize;
use clap::{Args, Subcommand};
use kvarto::backend::{Backend, Caps};
use kvarto::bench::{
    AttentionBench, AttentionReport, Fill, GenerationBench, Mix, Work, check_depth, copy_bytes_per_s, held_steps,
    prompt_unit,
};
use kvarto::engine::Registry;
use kvarto::footprint::{Estimator, NamedShape};
use kvarto::model::config::ModelConfig;
use kvarto::model::gguf::Gguf;
use kvarto::model::tokenizer::Tokenizer;
use kvarto::model::{LoadOptions, Model, store};
use kvarto::num::weights::WeightType;
use kvarto::profile::Profile;
use kvarto::shape::CacheShape;
use kvarto::{Error, ErrorKind};
use std::path::PathBuf;
use std::process::ExitCode;
use suite::SuiteFlags;

/// Measure attention and generation.
#[derive(Debug, Args)]
pub struct BenchCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// One new row for each sequence over a filled cache, one layer
    Decode(AttentionFlags),
    /// A chunk of new rows over a filled cache, one layer
    Prefill {
        #[command(flatten)]
        flags: AttentionFlags,
        /// New rows of each sequence
        #[arg(long, default_value_t = 512, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
        rows: u32,
    },
    /// A model's prefill to a depth, and single tokens from there on
    Generate(GenerateFlags),
    /// A named list of decode benches, conformance first, in one file that can be sent in
    Suite(Box<SuiteFlags>),
}

#[derive(Debug, Args)]
struct AttentionFlags {
    /// A named shape (see `kvarto plan`), or q32k8d128
    #[arg(long, default_value = "q32k8d128", value_name = "SHAPE")]
    shape: String,
    /// Sequences
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    batch: u32,
    /// Tokens that each sequence holds beforehand
    #[arg(long, default_value_t = 8192, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    context: u32,
    #[command(flatten)]
    cache: CacheFlags,
    /// Repetitions that count
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    repetitions: u32,
    /// Go round as many layers as hold this many bytes, so that caches hold little of the next one's; 0 for one layer
    #[arg(long, default_value = "512MiB", value_name = "SIZE")]
    cold: ByteSize,
    /// Every page a work item of its own: the result's bits depend on nothing that the plan otherwise splits by
    #[arg(long)]
    page_items: bool,
    #[command(flatten)]
    common: CommonFlags,
}

#[derive(Debug, Args)]
struct GenerateFlags {
    /// A name from `kvarto models list`, or a path that ends in .gguf
    #[arg(long, default_value = "smollm2-135m", value_name = "NAME-or-FILE")]
    model: String,
    /// Random weights in the shape of a model, without its file: tiny, smollm2-135m, llama-3.2-1b, llama-3.1-8b
    #[arg(long, value_name = "SHAPE", conflicts_with = "model")]
    shape: Option<String>,
    /// How a shape's weights are stored: f32, f16, bf16, q4_0, q4_1, q8_0, wide
    #[arg(long, default_value = "q4_0", value_name = "TYPE", requires = "shape")]
    weights: String,
    /// Fill the cache with random rows; the model's own prefill does otherwise, and is timed
    #[arg(long)]
    fill_rows: bool,
    /// Tokens in the cache before the first timed one
    #[arg(long, default_value_t = 512, value_name = "N")]
    depth: usize,
    /// Timed single-token steps
    #[arg(long, default_value_t = 64, value_name = "N")]
    tokens: usize,
    #[command(flatten)]
    cache: CacheFlags,
    #[command(flatten)]
    common: CommonFlags,
}

#[derive(Debug, Args)]
struct CommonFlags {
    #[command(flatten)]
    backend: BackendFlags,
    #[command(flatten)]
    trace: TraceFlags,
    /// Write JSON
    #[arg(long)]
    json: bool,
    /// Also write the JSON to a new file in this folder
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

impl BenchCommand {
    /// Whether the answer is wanted as JSON.
    pub fn json(&self) -> bool {
        match &self.what {
            What::Decode(flags) | What::Prefill { flags, .. } => flags.common.json,
            What::Generate(flags) => flags.common.json,
            What::Suite(flags) => flags.json,
        }
    }
}

/// Runs the command: 1 where a suite has failures.
pub fn run(command: &BenchCommand) -> anyhow::Result<ExitCode> {
    match &command.what {
        What::Decode(flags) => one(&flags.common, "decode", || attention(flags, Work::Decode)),
        What::Prefill { flags, rows } => {
            one(&flags.common, "prefill", || attention(flags, Work::Prefill { rows: *rows }))
        }
        What::Generate(flags) => one(&flags.common, "generate", || generate(flags)),
        What::Suite(flags) => suite::run(flags),
    }
}

/// Runs one bench and writes what it gives, as JSON and as text.
fn one(
    common: &CommonFlags,
    name: &str,
    bench: impl FnOnce() -> anyhow::Result<(serde_json::Value, String)>,
) -> anyhow::Result<ExitCode> {
    // Before anything is measured: what cannot be kept should not take minutes first.
    let place = common.out.as_ref().map(|folder| report::Place::reserve(folder, name)).transpose()?;
    let (json, text) = bench()?;
    let written = output::write(&if common.json { output::json(&json, true) } else { output::escaped_lines(&text) });
    if let Some(place) = place {
        say(&format!("kept in {}", place.keep(&json)?.display()));
    }
    written?;
    Ok(ExitCode::SUCCESS)
}

/// Formats of the pages: one pair, or several by a hash.
fn profile(cache: &CacheFlags, registry: Registry) -> kvarto::Result<(Profile, Registry)> {
    let Some(mix) = cache.mix() else {
        return Ok((cache.profile(&registry)?, registry));
    };
    let mix = Mix::parse(mix, &registry.formats)?;
    let plain = CacheFlags { kv: None, ..cache.clone() };
    let profile = Profile { policy: "mix".into(), ..plain.profile(&registry)? };
    // Rotated rows serve every format, and all pages of a group share a basis.
    let wants = mix.shares().iter().any(|s| registry.formats.by_name(&s.format).is_ok_and(|(_, f)| f.wants_rotation()));
    let basis = |word: Option<String>| word.or_else(|| wants.then(|| "hadamard".into()));
    let profile =
        Profile { k_basis: basis(profile.k_basis.clone()), v_basis: basis(profile.v_basis.clone()), ..profile };
    Ok((profile, registry.with_policy("mix", move || mix.clone())?))
}

/// One layer's shape, and as many layers as `cold` bytes need.
fn layers(flags: &AttentionFlags, profile: &Profile, registry: &Registry) -> kvarto::Result<CacheShape> {
    let word = match flags.shape.rsplit_once('d') {
        Some((_, size)) if !size.is_empty() && size.bytes().all(|b| b.is_ascii_digit()) => format!("{}l1", flags.shape),
        _ => flags.shape.clone(),
    };
    let named = NamedShape::parse(&word, profile.page_tokens)?;
    let full = named.shape.groups.into_iter().find(|g| g.kind == kvarto::shape::GroupKind::Full);
    let mut group = full.ok_or_else(|| Error::new(ErrorKind::Usage, format!("{word} has no full attention"), ""))?;
    group.layers = vec![0];
    let one = CacheShape { groups: vec![group.clone()] };
    let bytes = Estimator::new(&one, profile, registry)?.at(flags.context.into()).slot_bytes();
    let bytes = bytes.saturating_mul(flags.batch.into()).max(1);
    // More layers than this only take longer to fill.
    group.layers = (0..flags.cold.as_u64().div_ceil(bytes).clamp(1, 64) as usize).collect();
    Ok(CacheShape { groups: vec![group] })
}

fn attention(flags: &AttentionFlags, work: Work) -> anyhow::Result<(serde_json::Value, String)> {
    attention_on(flags, work, || open(&flags.common))
}

/// On the backend that `open` gives, once the flags are known to be right.
fn attention_on(
    flags: &AttentionFlags,
    work: Work,
    open: impl FnOnce() -> kvarto::Result<(Box<dyn Backend>, Caps)>,
) -> anyhow::Result<(serde_json::Value, String)> {
    let (profile, registry) = profile(&flags.cache, Registry::builtin())?;
    let shape = layers(flags, &profile, &registry)?;
    // A mix names its formats itself: the refusal is to be each one's own.
    if let Some(mix) = flags.cache.mix() {
        for share in Mix::parse(mix, &registry.formats)?.shares() {
            for side in kvarto::shape::Side::BOTH {
                registry.formats.by_name(&share.format)?.1.codec(side, shape.groups[0].geometry(side))?;
            }
        }
    }
    let trace = flags.common.trace.open(&EventFlags::default())?;
    let (mut backend, caps) = open()?;
    let copy = copy_bytes_per_s(backend.as_mut(), if caps.software { 64 << 20 } else { 1 << 30 })?;
    let bench = AttentionBench {
        shape,
        profile,
        registry,
        batch: flags.batch,
        context: flags.context,
        work,
        page_items: flags.page_items,
        repetitions: flags.repetitions,
    };
    let mut tracing = None;
    let measured: AttentionReport = bench.run_watched(backend, |engine| {
        let start = |trace: Opened| trace.with_copy_rate(copy).start(engine, "bench attention", None);
        tracing = trace.map(start).transpose()?;
        Ok(())
    })?;
    if let Some(tracing) = tracing {
        tracing.finish();
    }
    Ok(report::attention(&bench, &flags.shape, &flags.cache, &caps, copy, &measured))
}

fn generate(flags: &GenerateFlags) -> anyhow::Result<(serde_json::Value, String)> {
    let registry = Registry::builtin();
    let profile = flags.cache.profile(&registry)?;
    let fill = if flags.fill_rows { Fill::Rows } else { Fill::Prefill };
    let load = LoadOptions {
        page_tokens: profile.page_tokens,
        context_tokens: flags.depth.saturating_add(held_steps(flags.tokens)),
        logit_rows: 1,
        ..LoadOptions::default()
    };
    let bench = |unit| GenerationBench { unit, depth: flags.depth, steps: flags.tokens, fill };
    let report = |name: &str, caps: &Caps, bench: &GenerationBench, measured| {
        report::generation(name, (&flags.cache, &profile), caps, bench, measured)
    };
    if let Some(shape) = &flags.shape {
        let config = ModelConfig::named(shape)?;
        let weight = weight_type(&flags.weights)?;
        check_depth(flags.depth, flags.tokens, config.context_length, fill)?;
        if flags.common.trace.trace.is_some() {
            return Err(Error::new(ErrorKind::Usage, "--trace with --shape: a trace names its model's file", "").into());
        }
        let (backend, caps) = open(&flags.common)?;
        let bench = bench((0..61).map(|at| (at * 37 + 11) % config.vocab as u32).collect());
        let mut model = Model::random(config, weight, backend, profile.clone(), registry, &load)?;
        let measured = bench.run(&mut model)?;
        return Ok(report(&format!("{shape} of random {} weights", flags.weights), &caps, &bench, &measured));
    }
    let bar = Bar::new();
    let path = store::resolve_or_fetch(&flags.model, &bar)?;
    bar.finish();
    let gguf = Gguf::open(&path)?;
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    check_depth(flags.depth, flags.tokens, ModelConfig::from_gguf(&gguf)?.context_length, fill)?;
    let mut trace = flags.common.trace.open(&EventFlags::default())?;
    let (mut backend, caps) = open(&flags.common)?;
    if let Some(trace) = &mut trace {
        trace.measure(backend.as_mut());
    }
    let bench = bench(prompt_unit(&tokenizer)?);
    let mut model = Model::load(&gguf, backend, profile.clone(), registry, &load)?;
    let start = |trace: Opened| trace.start_model(&mut model, &tokenizer, (&flags.model, &gguf), "bench generate");
    let tracing = trace.map(start).transpose()?;
    let measured = bench.run(&mut model)?;
    if let Some(tracing) = tracing {
        tracing.finish();
    }
    Ok(report(&flags.model, &caps, &bench, &measured))
}

/// The type of weights by its name.
fn weight_type(name: &str) -> kvarto::Result<WeightType> {
    WeightType::ALL.into_iter().find(|t| t.as_str().eq_ignore_ascii_case(name)).ok_or_else(|| {
        let names = WeightType::ALL.map(|t| t.as_str().to_lowercase()).join(", ");
        Error::new(ErrorKind::Usage, format!("--weights {}", name.escape_debug()), format!("give one of {names}"))
    })
}

fn open(flags: &CommonFlags) -> kvarto::Result<(Box<dyn Backend>, Caps)> {
    let Chosen { backend, why } = backend::open(&flags.backend.wanted()?, &flags.backend)?;
    let caps = backend.caps().clone();
    say(&format!("backend   {} ({why})", caps.title()));
    Ok((backend, caps))
}

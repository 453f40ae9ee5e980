//! `kvarto generate`: a prompt in, an answer out, and one line of figures.

use super::arguments;
use super::backend::{self, BackendFlags, Chosen};
use super::cache_flags::CacheFlags;
use super::interrupt;
use super::models::Bar;
use super::output::{self, Out, say};
use super::report::{bytes, figure};
use super::sampling_flags::SamplingFlags;
use super::trace_flags::{EventFlags, Opened, TraceFlags, Tracing};
use clap::{Args, ValueEnum};
use kvarto::backend::{Caps, Timing};
use kvarto::engine::Registry;
use kvarto::model::chat_template::{ChatTemplate, Message};
use kvarto::model::conversation::refuse_control;
use kvarto::model::generate::{FinishReason, GenerateOptions, Generation, check_context, generate};
use kvarto::model::gguf::Gguf;
use kvarto::model::tokenizer::Tokenizer;
use kvarto::model::{LoadOptions, Model, store};
use kvarto::{Error, ErrorKind};
use std::cell::RefCell;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

/// Generate text from a prompt.
#[derive(Debug, Args)]
pub struct GenerateCommand {
    /// The prompt
    #[arg(required_unless_present = "prompt_file", conflicts_with = "prompt_file")]
    prompt: Option<String>,
    /// Read the prompt from a file, `-` for standard input; one line break at its end is left out
    #[arg(long, value_name = "FILE")]
    prompt_file: Option<PathBuf>,
    /// Put the prompt into the model's chat template, as the user's turn
    #[arg(long)]
    chat: bool,
    /// Most new tokens
    #[arg(long, allow_negative_numbers = true, value_parser = arguments::count, default_value_t = 128, value_name = "N")]
    max_tokens: usize,
    #[command(flatten)]
    sampling: SamplingFlags,
    /// A text that ends the answer; may be given several times
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// A name from `kvarto models list`, or a path that ends in .gguf
    #[arg(long, default_value = "smollm2-135m", value_name = "NAME-or-FILE")]
    model: String,
    #[command(flatten)]
    backend: BackendFlags,
    #[command(flatten)]
    cache: CacheFlags,
    #[command(flatten)]
    trace: TraceFlags,
    #[command(flatten)]
    events: EventFlags,
    /// What to time, shown at the end
    #[arg(long, value_enum, default_value_t = TimingWord::None)]
    timing: TimingWord,
    /// One JSON object on standard output in place of the text
    #[arg(long)]
    pub json: bool,
}

/// How finely to time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TimingWord {
    None,
    Steps,
    Kernels,
}

/// Runs the command.
pub fn run(command: &GenerateCommand, verbose: u8) -> anyhow::Result<ExitCode> {
    let cancelled = interrupt::wish_to_stop()?;
    let options = GenerateOptions {
        max_tokens: command.max_tokens,
        sampler: command.sampling.options()?,
        stop: command.stop.clone(),
    };
    let registry = Registry::builtin();
    let profile = command.cache.profile(&registry)?;
    let wanted = command.backend.wanted()?;
    let text = prompt(command)?;

    let bar = Bar::new();
    let path = store::resolve_or_fetch(&command.model, &bar)?;
    bar.finish();
    let gguf = Gguf::open(&path)?;
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    let ids = match command.chat {
        true => chat_prompt(&gguf, &tokenizer, text)?,
        false => tokenizer.encode(&text, false)?,
    };
    let config = kvarto::model::config::ModelConfig::from_gguf(&gguf)?;
    if ids.is_empty() {
        return Err(Error::new(ErrorKind::Usage, "the prompt is empty", "write at least one word").into());
    }
    check_context(ids.len(), command.max_tokens, config.context_length)?;

    let mut trace = command.trace.open(&command.events)?;
    let load = LoadOptions {
        page_tokens: profile.page_tokens,
        context_tokens: ids.len() + command.max_tokens,
        logit_rows: 1,
        ..LoadOptions::default()
    };
    let rehearse = |backend| Model::rehearse(&gguf, backend, profile.clone(), registry.clone(), &load);
    let Chosen { mut backend, why } = backend::open_for(&wanted, &command.backend, rehearse)?;
    if let Some(trace) = &mut trace {
        trace.measure(backend.as_mut());
    }
    let caps = backend.caps().clone();
    let mut model = Model::load(&gguf, backend, profile, registry, &load)?;
    let timing = match command.timing {
        TimingWord::None => Timing::None,
        TimingWord::Steps => Timing::Steps,
        TimingWord::Kernels => Timing::Kernels,
    };
    model.engine().set_timing(timing)?;
    introduce(&mut model, &caps, &why, &path, verbose);
    let start = |trace: Opened| trace.start_model(&mut model, &tokenizer, (&command.model, &gguf), "generate");
    let tracing = trace.map(start).transpose()?;

    let seq = model.engine().create()?;
    let quiet = command.json;
    // An answer that nobody can read any more is not made to its end.
    let out = RefCell::new(Out::stdout());
    let stop_asked = || cancelled.load(Ordering::SeqCst) || out.borrow().ended();
    let result = generate(
        &mut model,
        &tokenizer,
        seq,
        &ids,
        &options,
        |piece| {
            if !quiet {
                out.borrow_mut().speak(piece);
            }
        },
        stop_asked,
    );
    let traced = tracing.map(Tracing::finish);
    let mut out = out.into_inner();
    if !quiet {
        // What was said stays on its own line, apart from an error.
        out.write("\n");
    }
    let generation = result?;
    if command.json {
        let mut report = json(command, &gguf, &mut model, &generation, ids.len());
        report["trace"] = traced.unwrap_or_default();
        out.write(&output::json(&report, true));
    } else {
        summary(&mut model, &generation);
    }
    times(&mut model, command.timing)?;
    out.result()?;
    Ok(match generation.finish_reason {
        FinishReason::Cancelled if !out.closed() => ExitCode::from(130),
        _ => ExitCode::SUCCESS,
    })
}

fn prompt(command: &GenerateCommand) -> kvarto::Result<String> {
    let fault = |path: &std::path::Path, e: &dyn std::fmt::Display| {
        Error::new(ErrorKind::File, format!("--prompt-file {}: {e}", path.display()), "give a readable UTF-8 text file")
    };
    let mut text = match (&command.prompt, &command.prompt_file) {
        (Some(text), _) => return Ok(text.clone()),
        (None, Some(path)) if path.as_os_str() == "-" => {
            std::io::read_to_string(std::io::stdin()).map_err(|e| fault(path, &e))?
        }
        (None, Some(path)) => std::fs::read_to_string(path).map_err(|e| fault(path, &e))?,
        (None, None) => return Err(Error::new(ErrorKind::Usage, "no prompt", "give a prompt or --prompt-file")),
    };
    // Editors and `echo` end a text with a line break that is not meant: the model would begin a new line after it.
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

/// The prompt in the model's template. Control tokens are the template's to write, not the user's.
fn chat_prompt(gguf: &Gguf, tokenizer: &Tokenizer, text: String) -> kvarto::Result<Vec<u32>> {
    refuse_control(tokenizer, &text)?;
    let rendered = ChatTemplate::from_gguf(gguf)?.render(&[Message::new("user", text)], true)?;
    tokenizer.encode(&rendered, true)
}

/// Says on standard error what was chosen and why.
pub fn introduce(model: &mut Model, caps: &Caps, why: &str, path: &std::path::Path, verbose: u8) {
    let weights = model.weight_bytes();
    let config = model.config().clone();
    let engine = model.engine();
    let p = engine.profile().clone();
    let bases = engine.bases();
    say(&format!("backend   {} ({why})", caps.title()));
    let masked = caps.masked.iter().map(|word| format!(", {word}")).collect::<String>();
    say(&format!("kernels   {} tier{masked}", caps.tier));
    say(&format!("profile   {}; selector {}, policy {}", p.name, p.selector, p.policy));
    say(&format!(
        "pages     {} tokens; K {} ({}), V {} ({}); first {} and newest {} tokens exact",
        engine.shape().groups[0].page_tokens,
        p.k,
        bases[0].0,
        p.v,
        bases[0].1,
        p.exact_sink_tokens,
        p.exact_tail_tokens
    ));
    if verbose > 0 {
        say(&format!(
            "model     {} ({} layers, {} query and {} KV heads of {}), {} of weights, {}",
            config.architecture.name,
            config.layers,
            config.q_heads,
            config.kv_heads,
            config.head_dim,
            bytes(weights),
            path.display()
        ));
    }
}

fn summary(model: &mut Model, generation: &Generation) {
    let stats = model.engine().stats();
    let first = model.engine().sequences().next();
    let context = first.and_then(|s| model.engine().lengths(s).ok()).map_or(0, |l| l.cached);
    say(&format!(
        "prefill {} tok/s, decode {} tok/s, context {context} tokens, KV {}, bits a value: resident {}, read {}, metadata {}",
        figure(generation.prefill_tokens_per_s()),
        figure(generation.decode_tokens_per_s()),
        bytes(stats.memory.used_slot_bytes),
        figure(stats.resident_bits_per_value),
        figure(stats.read_bits_per_value),
        figure(stats.metadata_bits_per_value),
    ));
}

fn times(model: &mut Model, timing: TimingWord) -> kvarto::Result<()> {
    if timing == TimingWord::None {
        return Ok(());
    }
    let mut times = model.engine().take_times()?;
    times.sort_by_key(|t| std::cmp::Reverse(t.nanoseconds));
    let total: u64 = times.iter().map(|t| t.nanoseconds).sum();
    for t in &times {
        say(&format!(
            "{:>12} {:>8} dispatches {:>10.2} ms {:>5.1} %",
            t.kernel,
            t.dispatches,
            t.nanoseconds as f64 / 1e6,
            t.nanoseconds as f64 * 100.0 / total.max(1) as f64
        ));
    }
    Ok(())
}

fn json(
    command: &GenerateCommand,
    gguf: &Gguf,
    model: &mut Model,
    generation: &Generation,
    prompt_tokens: usize,
) -> serde_json::Value {
    let architecture = model.config().architecture.name;
    let fallbacks: Vec<_> = model
        .fallbacks()
        .iter()
        .map(|f| {
            serde_json::json!({
                "layer": f.layer,
                "kernel": f.kernel,
                "format": f.format,
                "wanted": f.wanted,
                "used": f.used,
                "reason": f.reason,
            })
        })
        .collect();
    let engine = model.engine();
    let (stats, profile, bases) = (engine.stats(), engine.profile().clone(), engine.bases());
    let ids = engine.basis_ids()[0];
    let ids = (ids.0.to_string(), ids.1.to_string());
    let page_tokens = engine.shape().groups[0].page_tokens;
    let backend = engine.backend();
    let caps = backend.caps().clone();
    let device_peak = backend.peak_bytes();
    let on_host = caps.kind == kvarto::backend::BackendKind::Cpu;
    let pages: Vec<_> =
        stats.pages.iter().map(|((k, v), pages)| serde_json::json!({"k": k, "v": v, "pages": pages})).collect();
    let route = |((k, v), r): (&(String, String), &kvarto::engine::Routes)| serde_json::json!({"k": k, "v": v, "decode": r.decode, "prefill": r.prefill});
    let routes: Vec<_> = stats.routes.iter().map(route).collect();
    serde_json::json!({
        "schema": 1,
        "version": env!("CARGO_PKG_VERSION"),
        "model": {"name": command.model, "sha256": gguf.sha256(), "architecture": architecture},
        "text": generation.text,
        "token_ids": generation.token_ids,
        "finish_reason": generation.finish_reason.as_str(),
        "seed": generation.seed,
        "backend": caps.api,
        "adapter": caps.adapter,
        "tier": caps.tier,
        "masked": caps.masked,
        "profile": profile.name,
        "kv": {"k": profile.k, "v": profile.v},
        "basis": {"k": bases[0].0, "v": bases[0].1},
        "basis_ids": {"k": ids.0, "v": ids.1},
        "page_tokens": page_tokens,
        "exact_sink_tokens": profile.exact_sink_tokens,
        "exact_tail_tokens": profile.exact_tail_tokens,
        "prompt_tokens": prompt_tokens,
        "new_tokens": generation.token_ids.len(),
        "prefill_tokens_per_s": generation.prefill_tokens_per_s(),
        "decode_tokens_per_s": generation.decode_tokens_per_s(),
        "resident_bits_per_value": stats.resident_bits_per_value,
        "read_bits_per_value": stats.read_bits_per_value,
        "metadata_bits_per_value": stats.metadata_bits_per_value,
        "total_bits_per_value": stats.total_bits_per_value(),
        "kv_bytes": {"device": stats.memory.used_slot_bytes, "host": 0, "disk": 0},
        "allocator_bytes": stats.memory.allocator_bytes(),
        "reserved_bytes": stats.memory.allocated(),
        "peak_host_bytes": peak_host_bytes(),
        "peak_device_bytes": if on_host { None } else { Some(device_peak) },
        "pages": pages,
        "routes": routes,
        "moves": {
            "conversions": stats.conversions, "bytes": stats.moved_bytes, "policy_conversions": stats.policy_pages,
            "policy_bytes": stats.policy_bytes, "evicted": stats.evicted, "put_off": stats.put_off,
            "policy_host_s": stats.policy_time.as_secs_f64(),
        },
        "fallbacks": fallbacks,
    })
}

/// The most memory this process ever held, where the system tells.
fn peak_host_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

//! `kvarto eval attention`.

use super::super::output;
use super::flags::AttentionFlags;
use super::progress::Meter;
use super::session::{self, Opened};
use kvarto::engine::Registry;
use kvarto::eval::AttentionErrors;
use kvarto::{Error, ErrorKind, Result};
use serde_json::{Value, json};

/// Runs the command; the text for standard output.
///
/// # Errors
/// `Usage` for windows that do not fit; as [`kvarto::eval::Runner::attention_errors`].
pub fn run(flags: &AttentionFlags, registry: Registry, meter: &mut Meter) -> Result<String> {
    flags.check()?;
    flags.common.backend.wanted()?;
    let candidates = flags.profiles.candidates(&registry)?;
    let texts = session::texts(&flags.windows)?;
    let opened = Opened::open(&flags.common)?;
    let mut windows = Vec::new();
    for &tokens in &flags.windows.window {
        if tokens > opened.config.context_length {
            let what = format!("windows of {tokens} tokens; the model has {} positions", opened.config.context_length);
            return Err(Error::new(ErrorKind::Usage, what, "give a smaller --window"));
        }
        windows.extend(session::windows(&flags.windows, tokens, &texts, &opened.tokenizer)?);
    }
    let mut session = opened.load(&flags.common, registry)?;
    // More rows than a window has are refused by the run.
    let work = |tokens: usize| {
        let rows = flags.rows.min(tokens);
        (tokens - rows + rows * candidates.len()) as u64
    };
    meter.begin(windows.iter().map(|w| work(w.ids.len())).sum());
    let mut runs: Vec<Value> = Vec::new();
    let mut text = String::new();
    for window in &windows {
        let (name, tokens) = (&texts[window.text].name, window.ids.len());
        let exact = session.runner.exact_attention(&window.ids, flags.rows, meter)?;
        text += &format!("{name}, window {} of {tokens} tokens, {} queries\n", window.index, flags.rows);
        for candidate in &candidates {
            let errors = session.runner.attention_errors(&exact, candidate, meter)?;
            text += &lines(&errors);
            runs.push(json!({
                "text": name, "text_sha256": texts[window.text].sha256, "window": window.index, "start": window.start,
                "tokens": tokens, "rows": flags.rows, "profile": errors.label, "mean": errors.mean(),
                "heads": errors.heads, "cache": errors.cache,
            }));
        }
    }
    let profiles: serde_json::Map<_, _> =
        candidates.iter().map(|c| (c.label.clone(), c.profile.to_toml().into())).collect();
    let subject = &session.subject;
    let whole = json!({
        "schema": 1, "version": subject.version, "command": subject.command, "profiles": profiles,
        "model": {"name": subject.model, "sha256": subject.model_sha256, "architecture": subject.architecture},
        "backend": subject.backend, "adapter": subject.adapter, "tier": subject.tier,
        "error": "mean over queries of |o - exact|^2 / |exact|^2; exact: attention in f64 over keys and values of 16 bits",
        "runs": runs,
    });
    let whole = output::json(&whole, true);
    if let Some(folder) = &session.folder {
        folder.write("attention.json", whole.as_bytes())?;
        folder.write("attention.txt", text.as_bytes())?;
    }
    Ok(if flags.common.json { whole } else { text })
}

fn lines(errors: &AttentionErrors) -> String {
    let mut out = format!("  {}: relative squared error {:.3e}, mean of all heads\n", errors.label, errors.mean());
    for (layer, error) in errors.layers() {
        let own = errors.heads.iter().filter(|h| h.layer == layer);
        let worst = own.max_by(|a, b| a.error.total_cmp(&b.error));
        let worst = worst.map_or(String::new(), |h| format!(", most in head {} ({:.2e})", h.head, h.error));
        out += &format!("    layer {layer:>3}  {error:.3e}{worst}\n");
    }
    out
}

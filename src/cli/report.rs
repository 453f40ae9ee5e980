//! How the program speaks: errors, and numbers with their units.

use super::output::{self, Out};
use serde_json::{Value, json};

/// Writes an error: to standard error, or as JSON to standard output. JSON that cannot be written goes the first way.
pub fn fault(error: &anyhow::Error, json: bool) {
    let own = error.chain().find_map(|e| e.downcast_ref::<kvarto::Error>());
    let (kind, message, remedy) = match own {
        Some(e) => (e.kind().as_str(), e.message().to_string(), e.remedy().to_string()),
        None => ("error", format!("{error:#}"), String::new()),
    };
    if !json || !object(kind, &message, &remedy) {
        say(&message, &remedy);
    }
}

/// Writes what is wrong with the command line as JSON to standard output.
pub fn usage(error: &clap::Error) {
    let text = error.to_string();
    let message = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
    let remedy = "see `kvarto --help` or the command's --help";
    if !object("usage", message, remedy) {
        say(message, remedy);
    }
}

/// Writes an error as one JSON object; false when somebody reads and it could not be written.
fn object(kind: &str, message: &str, remedy: &str) -> bool {
    let value: Value = json!({"error": {"kind": kind, "message": message, "remedy": remedy}});
    let mut out = Out::stdout();
    out.write(&output::json(&value, false));
    out.result().is_ok()
}

/// An error in words. Its further lines are set in, so that none can pass for a line of ours.
fn say(message: &str, remedy: &str) {
    let mut text = format!("error: {}", message.replace('\n', "\n    "));
    if !remedy.is_empty() {
        text += &format!("\n  help: {}", remedy.replace('\n', "\n    "));
    }
    output::say(&text);
}

/// `12.3`, `0.45`, `1234`: three figures or so; `-` for nothing.
pub fn figure(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(v) if v.abs() >= 100.0 => format!("{v:.0}"),
        Some(v) if v.abs() >= 10.0 => format!("{v:.1}"),
        Some(v) => format!("{v:.2}"),
    }
}

/// `1.5 MiB`.
pub fn bytes(value: u64) -> String {
    indicatif::BinaryBytes(value).to_string()
}

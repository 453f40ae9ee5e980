//! How the program speaks: errors, and numbers with their units.

use std::io::{ErrorKind as IoKind, Write};

/// Writes an error: to standard error, or as JSON to standard output.
pub fn fault(error: &anyhow::Error, json: bool) {
    let own = error.chain().find_map(|e| e.downcast_ref::<kvarto::Error>());
    if json {
        let (kind, message, remedy) = match own {
            Some(e) => (e.kind().as_str(), e.message().to_string(), e.remedy().to_string()),
            None => ("error", format!("{error:#}"), String::new()),
        };
        let object = serde_json::json!({"error": {"kind": kind, "message": message, "remedy": remedy}});
        // A closed pipe is all that can fail here, and then nobody reads.
        let _ = writeln!(std::io::stdout(), "{object}");
        return;
    }
    let mut err = std::io::stderr();
    let _ = match own {
        Some(e) if !e.remedy().is_empty() => writeln!(err, "error: {}\n  help: {}", e.message(), e.remedy()),
        _ => writeln!(err, "error: {error:#}"),
    };
}

/// Writes what is wrong with the command line as JSON to standard output.
pub fn usage(error: &clap::Error) {
    let text = error.to_string();
    let message = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
    let object = serde_json::json!({
        "error": {"kind": "usage", "message": message, "remedy": "see `kvarto --help` or the command's --help"}
    });
    // A closed pipe is all that can fail here, and then nobody reads.
    let _ = writeln!(std::io::stdout(), "{object}");
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

/// Writes to standard output. A reader that has had enough (`| head`) is no error.
pub fn emit(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != IoKind::BrokenPipe => Err(e.into()),
        _ => Ok(()),
    }
}

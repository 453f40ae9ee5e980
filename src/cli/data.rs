//! `kvarto data`: public texts to evaluate on.

use super::output;
use clap::{Args, Subcommand};
use indicatif::HumanBytes;
use kvarto::eval::corpus::{self, Corpus, REGISTRY};
use serde_json::json;
use std::path::Path;

/// List, fetch and find public texts.
#[derive(Clone, Debug, Args)]
pub struct DataCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// The texts known by name, and which of them are on this machine
    List {
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Get a named text out of its Debian package (apt-get download; nothing is installed), verify it and keep it
    Fetch {
        /// A name from `kvarto data list`
        name: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Print where a named text is; an error if it is not on this machine
    Path {
        /// A name from `kvarto data list`, or a file
        #[arg(value_name = "NAME-or-FILE")]
        name: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
}

impl DataCommand {
    /// Whether the answer is wanted as JSON.
    pub fn json(&self) -> bool {
        let (Action::List { json } | Action::Fetch { json, .. } | Action::Path { json, .. }) = &self.action;
        *json
    }
}

/// Runs the command.
pub fn run(command: &DataCommand) -> anyhow::Result<()> {
    let text = match &command.action {
        Action::List { json } => list(*json)?,
        Action::Fetch { name, json } => place(name, &Corpus::of_user()?.fetch(corpus::find(name)?)?, *json),
        Action::Path { name, json } => place(name, &corpus::resolve(name)?, *json),
    };
    Ok(output::write(&text)?)
}

/// Where a text is, as a line or as JSON.
fn place(name: &str, path: &Path, json: bool) -> String {
    match json {
        true => output::json(&json!({ "name": name, "path": path.display().to_string() }), true),
        false => format!("{}\n", path.display()),
    }
}

fn list(json: bool) -> anyhow::Result<String> {
    let corpus = Corpus::of_user()?;
    let here = |entry| corpus.cached(entry).map(|path| path.display().to_string());
    if json {
        let texts: Vec<_> = REGISTRY
            .iter()
            .map(|entry| {
                json!({
                    "name": entry.name,
                    "about": entry.about,
                    "license": entry.license,
                    "package": entry.package,
                    "bytes": entry.bytes,
                    "sha256": entry.sha256,
                    "path": here(entry),
                })
            })
            .collect();
        let list = json!({ "folder": corpus.folder().display().to_string(), "texts": texts });
        return Ok(output::json(&list, true));
    }
    let width = REGISTRY.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for entry in REGISTRY {
        let state = if here(entry).is_some() { "here" } else { "not fetched" };
        let size = HumanBytes(entry.bytes).to_string();
        out += &format!("{:width$}  {size:>10}  {state:<11}  {:<13}  {}\n", entry.name, entry.license, entry.about);
    }
    Ok(out + &format!("kept in {}\n", corpus.folder().display()))
}

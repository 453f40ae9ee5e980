//! `kvarto models`: the models known by name, and what is in a model's file.

mod info;
mod progress;

use std::path::Path;

use clap::{Args, Subcommand};
use indicatif::HumanBytes;
use serde_json::json;

use kvarto::model::gguf::Gguf;
use kvarto::model::store::{self, REGISTRY, Store};

use super::output;

pub use progress::Bar;

/// List, fetch and look into models.
#[derive(Clone, Debug, Args)]
pub struct ModelsCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// The models known by name, and which of them are on this machine
    List {
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Download a named model, verify it and keep it in the cache
    Fetch {
        /// A name from `kvarto models list`
        name: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Print where a named model's file is; an error if it is not on this machine
    Path {
        /// A name from `kvarto models list`, or a path that ends in .gguf
        #[arg(value_name = "NAME-or-FILE")]
        name: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// What a model's file holds: shape, tensors, tokenizer, cache size a token
    Info {
        /// A name from `kvarto models list`, or a path that ends in .gguf
        #[arg(value_name = "NAME-or-FILE")]
        name: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
}

impl ModelsCommand {
    /// Whether the answer is wanted as JSON.
    pub fn json(&self) -> bool {
        let (Action::List { json }
        | Action::Fetch { json, .. }
        | Action::Path { json, .. }
        | Action::Info { json, .. }) = &self.action;
        *json
    }
}

/// Runs the command; results go to standard output, progress to standard error.
pub fn run(command: ModelsCommand) -> anyhow::Result<()> {
    match command.action {
        Action::List { json } => Ok(output::write(&list(json)?)?),
        Action::Fetch { name, json } => {
            let entry = store::find(&name)?;
            let bar = Bar::new();
            let path = Store::of_user()?.fetch(entry, &bar)?;
            bar.finish();
            Ok(output::write(&place(&name, &path, json))?)
        }
        Action::Path { name, json } => Ok(output::write(&place(&name, &store::resolve(&name)?, json))?),
        Action::Info { name, json } => {
            let path = store::resolve(&name)?;
            let gguf = Gguf::open(&path)?;
            let report = info::Report::of(&path, &gguf);
            let text = if json { output::json(&report.json(), true) } else { report.text() };
            Ok(output::write(&text)?)
        }
    }
}

/// Where a model's file is, as a line or as JSON.
fn place(name: &str, path: &Path, json: bool) -> String {
    match json {
        true => output::json(&json!({ "name": name, "path": path.display().to_string() }), true),
        false => format!("{}\n", path.display()),
    }
}

fn list(json: bool) -> anyhow::Result<String> {
    let store = Store::of_user()?;
    if json {
        let models: Vec<_> = REGISTRY
            .iter()
            .map(|entry| {
                json!({
                    "name": entry.name,
                    "about": entry.about,
                    "license": entry.license,
                    "terms": entry.terms,
                    "bytes": entry.bytes,
                    "sha256": entry.sha256,
                    "path": store.cached(entry).map(|path| path.display().to_string()),
                })
            })
            .collect();
        let list = json!({ "folder": store.folder().display().to_string(), "models": models });
        return Ok(output::json(&list, true));
    }
    let width = REGISTRY.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for entry in REGISTRY {
        let state = if store.cached(entry).is_some() { "here" } else { "not fetched" };
        let size = HumanBytes(entry.bytes).to_string();
        out += &format!("{:width$}  {size:>10}  {state:<11}  {:<10}  {}\n", entry.name, entry.license, entry.about);
    }
    Ok(out + &format!("kept in {}\n", store.folder().display()))
}

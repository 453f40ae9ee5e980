//! `kvarto profiles`: what a cache can do, by name, and what a name stands for.

use super::cache_flags::apply;
use super::output;
use clap::{Args, Subcommand};
use kvarto::engine::Registry;
use kvarto::profile::{Draft, Profile, builtin};
use serde_json::json;

/// List profiles, and print one.
#[derive(Clone, Debug, Args)]
pub struct ProfilesCommand {
    #[command(subcommand)]
    action: Option<Action>,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// The profiles known by name (the same as no word)
    List {
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a profile as a file, with every value that it leaves out
    Show {
        /// A name from `kvarto profiles`, or a path that ends in .toml
        #[arg(value_name = "NAME-or-FILE")]
        name: String,
        /// Change a value, such as policy.recent_tokens=1024; may be given several times
        #[arg(long, value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
}

impl ProfilesCommand {
    /// Whether the answer is wanted as JSON.
    pub fn json(&self) -> bool {
        let below = match &self.action {
            Some(Action::List { json } | Action::Show { json, .. }) => *json,
            None => false,
        };
        self.json || below
    }
}

/// Runs the command.
pub fn run(command: &ProfilesCommand) -> anyhow::Result<()> {
    let registry = Registry::builtin();
    if let Some(Action::Show { name, set, .. }) = &command.action {
        let mut draft = Draft::load(name)?;
        apply(&mut draft, set)?;
        let profile = draft.read(&registry.names())?;
        let text = match command.json() {
            true => output::json(&json!({"name": profile.name, "toml": profile.to_toml()}), true),
            false => output::escaped_lines(&profile.to_toml()),
        };
        return Ok(output::write(&text)?);
    }
    let profiles: Vec<Profile> =
        builtin::names().map(|name| Profile::load(name, &registry.names())).collect::<kvarto::Result<_>>()?;
    if command.json() {
        let entry = |p: &Profile| json!({"name": p.name, "summary": p.summary, "source": p.source});
        let list = json!({"schema": 1, "profiles": profiles.iter().map(entry).collect::<Vec<_>>()});
        return Ok(output::write(&output::json(&list, true))?);
    }
    let width = profiles.iter().map(|p| p.name.len()).max().unwrap_or(0);
    let line = |p: &Profile| format!("{:width$}  {} ({})\n", p.name, p.summary, p.source);
    Ok(output::write(&profiles.iter().map(line).collect::<String>())?)
}

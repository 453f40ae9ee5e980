//! A profile in the making: a file's tree, changed by settings, then read.

use super::tree::{self, Node, Table};
use super::{Names, Profile, builtin};
use crate::bounded;
use crate::error::{Error, ErrorKind, Result};
use crate::format::words;
use crate::parameters::{Place, Value};
use std::path::Path;

/// A profile's text, not read yet: settings change it, and errors name the file, line and column of what they mean.
#[derive(Clone, Debug)]
pub struct Draft {
    pub(super) root: Table,
}

/// One value to set in a profile: `policy.recent_tokens=1024`.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Keys from the outermost table on.
    pub path: Vec<String>,
    /// The value.
    pub value: Value,
    /// What errors call it, such as the flag it came by.
    pub place: Place,
}

impl Setting {
    /// Reads `KEY.KEY=VALUE`; the value is TOML, and a bare word that is none is a text.
    ///
    /// # Errors
    /// `Usage` for what is neither.
    pub fn parse(text: &str) -> Result<Self> {
        let place = Place::new(format!("--set {text}"));
        let example = "write KEY.KEY=VALUE, such as policy.recent_tokens=1024";
        let (path, word) = text.split_once('=').ok_or_else(|| place.refuse("no = in it", example))?;
        let keys = toml_edit::Key::parse(path).map_err(|_| place.refuse(format!("{path:?} is no key"), example))?;
        let word = word.trim();
        let value = match word.parse::<toml_edit::Value>() {
            Ok(value) => tree::plain(&value).map_err(|e| place.of(e))?,
            Err(_) if bare(word) => Value::Text(word.into()),
            Err(e) => {
                let what = format!("{word:?} is no TOML value: {}", e.message().trim().replace('\n', ", "));
                return Err(place.refuse(what, "quote a text that is not one bare word"));
            }
        };
        Ok(Setting { path: keys.iter().map(|k| k.get().to_string()).collect(), value, place })
    }
}

/// A word that needs no quotes to be meant as a text.
fn bare(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "_-+./:*%".contains(c))
}

impl Draft {
    /// A profile that comes with the crate, by its name, or any file, by a path that ends in `.toml` or has a `/` in
    /// it.
    ///
    /// # Errors
    /// `Usage` for a name that is none, with the nearest; `File` for a file that cannot be read; `Usage` with file,
    /// line and column for one that is not TOML.
    pub fn load(word: &str) -> Result<Self> {
        if let Some((_, text)) = builtin::TEXTS.iter().find(|(name, _)| *name == word) {
            return Draft::parse(text, &format!("{word}.toml"));
        }
        if !word.ends_with(".toml") && !word.contains(['/', '\\']) {
            let remedy = words::suggest(word, builtin::names());
            let message = format!("no profile is named `{}`", word.escape_debug());
            return Err(Error::new(ErrorKind::Usage, message, remedy + "; or give a path that ends in .toml"));
        }
        let fault =
            |what: String| Error::new(ErrorKind::File, format!("profile {word}: {what}"), "give a readable TOML file");
        const MOST: u64 = 1 << 20;
        let bytes = bounded::read(Path::new(word), MOST).map_err(fault)?;
        let text = String::from_utf8(bytes)
            .map_err(|e| fault(format!("it is no UTF-8 text (byte {})", e.utf8_error().valid_up_to())))?;
        Draft::parse(&text, word)
    }

    /// Reads a file's text; `file` is how errors name it.
    ///
    /// # Errors
    /// `Usage` with file, line and column for what is not TOML.
    pub fn parse(text: &str, file: &str) -> Result<Self> {
        Ok(Draft { root: tree::parse(text, file)? })
    }

    /// A profile made by code; errors call what it says `origin`.
    ///
    /// # Errors
    /// None for a profile that prints as it was made.
    pub fn of(profile: &Profile, origin: &str) -> Result<Self> {
        let mut draft = Draft::parse(&profile.to_toml(), origin)?;
        move_places(&mut draft.root, &Place::new(origin));
        Ok(draft)
    }

    /// Sets one value. A new name of the selector or policy drops the parameters of the one before.
    ///
    /// # Errors
    /// `Usage` where no single value can stand.
    pub fn set(&mut self, setting: &Setting) -> Result<()> {
        let place = &setting.place;
        let Some((last, tables)) = setting.path.split_last() else { return Err(place.refuse("no key", "name one")) };
        let mut table = &mut self.root;
        for key in tables {
            table = table.table_mut(key, place)?;
        }
        let section = matches!(tables, [one] if one == "selector" || one == "policy");
        if section && last == "name" {
            let same = table.get("name").is_some_and(|e| matches!(&e.node, Node::Value(v, _) if *v == setting.value));
            if !same {
                table.entries.clear();
            }
        }
        if let Some(entry) = table.get(last)
            && !matches!(entry.node, Node::Value(..))
        {
            let what = format!("{last:?} is {}, not one value", entry.node.kind());
            return Err(place.refuse(what, "name one of its keys, or write a file"));
        }
        table.put(last, setting.value.clone(), place);
        Ok(())
    }

    /// Reads what the keys mean.
    ///
    /// # Errors
    /// `Usage` with the place of an unknown key, format, basis, selector, policy or parameter, and the nearest word
    /// there is; or of a value out of range.
    pub fn read(&self, names: &Names<'_>) -> Result<Profile> {
        super::read::profile(&self.root, names)
    }
}

/// Calls every place `place`: lines of a text that nobody wrote tell nothing.
fn move_places(table: &mut Table, place: &Place) {
    table.place = place.clone();
    for entry in &mut table.entries {
        entry.at = place.clone();
        match &mut entry.node {
            Node::Value(_, at) => *at = place.clone(),
            Node::Table(table) => move_places(table, place),
            Node::Tables(tables) => tables.iter_mut().for_each(|table| move_places(table, place)),
        }
    }
}

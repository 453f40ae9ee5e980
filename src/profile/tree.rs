//! A profile's file as a tree of values, each with its place, before anything is known of what the keys mean.

use crate::error::{Error, ErrorKind, Result};
use crate::parameters::{Place, Value};
use toml_edit::{Document, Item, TableLike};

/// A table of a profile's file.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub place: Place,
    pub entries: Vec<Entry>,
}

/// A key and what stands under it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub key: String,
    /// Where the key stands.
    pub at: Place,
    pub node: Node,
}

/// What stands under a key.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Value(Value, Place),
    Table(Table),
    Tables(Vec<Table>),
}

impl Node {
    /// What it is, for errors.
    pub fn kind(&self) -> &'static str {
        match self {
            Node::Value(value, _) => value.kind(),
            Node::Table(_) => "a table",
            Node::Tables(_) => "a list of tables",
        }
    }
}

impl Table {
    /// What stands under `key`.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.key == key)
    }

    /// The table under `key`, made where there is none.
    pub fn table_mut(&mut self, key: &str, place: &Place) -> Result<&mut Table> {
        let at = match self.entries.iter().position(|e| e.key == key) {
            Some(at) => at,
            None => {
                let node = Node::Table(Table { place: place.clone(), entries: Vec::new() });
                self.entries.push(Entry { key: key.into(), at: place.clone(), node });
                self.entries.len() - 1
            }
        };
        match &mut self.entries[at].node {
            Node::Table(table) => Ok(table),
            other => Err(place.refuse(format!("{key:?} is {}, not a table", other.kind()), "name a key of a table")),
        }
    }

    /// Puts `value` under `key`.
    pub fn put(&mut self, key: &str, value: Value, place: &Place) {
        let node = Node::Value(value, place.clone());
        match self.entries.iter_mut().find(|e| e.key == key) {
            Some(entry) => (entry.node, entry.at) = (node, place.clone()),
            None => self.entries.push(Entry { key: key.into(), at: place.clone(), node }),
        }
    }
}

/// Reads a file's text; `file` is how errors name it.
///
/// # Errors
/// `Usage` with file, line and column.
pub(super) fn parse(text: &str, file: &str) -> Result<Table> {
    let source = Source { text, file };
    let document = Document::parse(text).map_err(|e| {
        let start = e.span().map_or(0, |span| span.start);
        source.place(Some(start)).refuse(e.message().trim().replace('\n', ", "), "write TOML, https://toml.io")
    })?;
    source.table(document.as_table(), source.place(Some(0)))
}

struct Source<'a> {
    text: &'a str,
    file: &'a str,
}

impl Source<'_> {
    /// Line and column, both from 1, of a byte.
    fn place(&self, at: Option<usize>) -> Place {
        let Some(before) = at.and_then(|at| self.text.get(..at)) else { return Place::new(self.file) };
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
        Place::new(format!("{}:{line}:{column}", self.file))
    }

    fn table(&self, table: &dyn TableLike, place: Place) -> Result<Table> {
        let mut entries = Vec::new();
        for (key, item) in table.iter() {
            let at = self.place(table.key(key).and_then(toml_edit::Key::span).map(|span| span.start));
            entries.push(Entry { key: key.into(), node: self.node(item, &at)?, at });
        }
        Ok(Table { place, entries })
    }

    fn node(&self, item: &Item, at: &Place) -> Result<Node> {
        let place = item.span().map_or_else(|| at.clone(), |span| self.place(Some(span.start)));
        if let Some(table) = item.as_table_like() {
            // A dotted key's table has no brackets to point at.
            return Ok(Node::Table(self.table(table, at.clone())?));
        }
        if let Some(tables) = item.as_array_of_tables() {
            let place = |t: &toml_edit::Table| t.span().map_or_else(|| at.clone(), |span| self.place(Some(span.start)));
            return Ok(Node::Tables(tables.iter().map(|t| self.table(t, place(t))).collect::<Result<_>>()?));
        }
        if let Some(array) = item.as_array()
            && !array.is_empty()
            && array.iter().all(toml_edit::Value::is_inline_table)
        {
            let tables = array.iter().filter_map(toml_edit::Value::as_inline_table);
            return Ok(Node::Tables(tables.map(|t| self.table(t, place.clone())).collect::<Result<_>>()?));
        }
        let Some(value) = item.as_value() else { return Err(place.refuse("nothing stands there", "give a value")) };
        Ok(Node::Value(plain(value).map_err(|e| place.of(e))?, place))
    }
}

/// A TOML value without its dress.
pub(super) fn plain(value: &toml_edit::Value) -> Result<Value> {
    use toml_edit::Value as Toml;
    Ok(match value {
        Toml::String(text) => Value::Text(text.value().clone()),
        Toml::Integer(n) => Value::Integer(*n.value()),
        Toml::Float(x) => Value::Number(*x.value()),
        Toml::Boolean(flag) => Value::Flag(*flag.value()),
        Toml::Array(items) => Value::List(items.iter().map(plain).collect::<Result<_>>()?),
        Toml::Datetime(_) | Toml::InlineTable(_) => {
            let message = format!("a {} stands there", value.type_name());
            return Err(Error::new(ErrorKind::Usage, message, "give a text, a number, true or false, or a list"));
        }
    })
}

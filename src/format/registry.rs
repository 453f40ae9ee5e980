//! The formats of an engine, by name and by number.

use std::sync::Arc;

use super::Format;
use crate::error::{Error, ErrorKind, Result};

/// A format's number: built-in formats below 128, others from 128.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FormatId(pub u8);

impl FormatId {
    /// The first number of formats that are not built in.
    pub const FIRST_EXTERNAL: u8 = 128;
}

/// Formats under their numbers; no two share a name.
#[derive(Clone)]
pub struct FormatRegistry {
    entries: Vec<(FormatId, Arc<dyn Format>)>,
}

impl FormatRegistry {
    /// The formats that come with the library. Numbers are stored in files: never reuse one.
    pub fn builtin() -> Self {
        FormatRegistry { entries: vec![] }
    }

    /// The registry with `format` under the next free external number.
    ///
    /// `Usage` if its name is taken or all 128 external numbers are.
    pub fn with(mut self, format: Arc<dyn Format>) -> Result<Self> {
        let name = format.name();
        if self.entries.iter().any(|(_, f)| f.name() == name) {
            let message = format!("two page formats are named `{name}`");
            return Err(Error::new(ErrorKind::Usage, message, "give the new one another name"));
        }
        let external = self.entries.iter().filter(|(id, _)| id.0 >= FormatId::FIRST_EXTERNAL).count();
        let Ok(id) = u8::try_from(usize::from(FormatId::FIRST_EXTERNAL) + external) else {
            return Err(Error::new(
                ErrorKind::Usage,
                "128 external page formats are registered, the most there can be",
                "",
            ));
        };
        self.entries.push((FormatId(id), format));
        Ok(self)
    }

    /// The format named `name`; `Usage`, with the nearest names, if there is none.
    pub fn by_name(&self, name: &str) -> Result<(FormatId, &Arc<dyn Format>)> {
        match self.entries.iter().find(|(_, f)| f.name() == name) {
            Some((id, format)) => Ok((*id, format)),
            None => Err(Error::new(ErrorKind::Usage, format!("no page format is named `{name}`"), "")),
        }
    }

    /// The format under `id`, if any.
    pub fn get(&self, id: FormatId) -> Option<&Arc<dyn Format>> {
        self.entries.iter().find(|(i, _)| *i == id).map(|(_, f)| f)
    }

    /// All formats in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (FormatId, &Arc<dyn Format>)> {
        self.entries.iter().map(|(id, f)| (*id, f))
    }
}

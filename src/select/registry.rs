//! Selectors by name.

use super::{Dense, Selector, Window};
use crate::error::{Error, ErrorKind, Result};
use crate::format::words;
use crate::profile::Making;
use std::sync::Arc;

/// Makes a selector for one engine from the profile's parameters, which it checks.
pub type MakeSelector = Arc<dyn Fn(&Making<'_>) -> Result<Arc<dyn Selector>> + Send + Sync>;

/// Selectors that profiles may name.
#[derive(Clone)]
pub struct SelectorRegistry(Vec<(String, MakeSelector)>);

impl SelectorRegistry {
    /// The built-in selectors.
    pub fn builtin() -> Self {
        SelectorRegistry(vec![
            ("dense".into(), plain(Arc::new(Dense))),
            ("window".into(), Arc::new(|making| Ok(Arc::new(Window::make(making)?)))),
        ])
    }

    /// Adds one without parameters; every engine uses the same.
    ///
    /// # Errors
    /// `Usage` when the name is taken.
    pub fn with(self, selector: Arc<dyn Selector>) -> Result<Self> {
        let name = selector.name().to_string();
        self.with_maker(&name, plain(selector))
    }

    /// Adds one that is made from a profile's parameters.
    ///
    /// # Errors
    /// `Usage` when the name is taken.
    pub fn with_maker(mut self, name: &str, make: MakeSelector) -> Result<Self> {
        if self.names().any(|n| n == name) {
            return Err(Error::new(
                ErrorKind::Usage,
                format!("selector {name:?} is there already"),
                "choose another name",
            ));
        }
        self.0.push((name.into(), make));
        Ok(self)
    }

    /// The selector of that name.
    ///
    /// # Errors
    /// `Usage` naming those there are, or a parameter that the selector refuses.
    pub fn make(&self, name: &str, making: &Making<'_>) -> Result<Arc<dyn Selector>> {
        match self.0.iter().find(|(n, _)| n == name) {
            Some((_, make)) => make(making),
            None => {
                let remedy = words::suggest(name, self.names());
                Err(Error::new(ErrorKind::Usage, format!("no selector {name:?}"), remedy))
            }
        }
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }
}

fn plain(selector: Arc<dyn Selector>) -> MakeSelector {
    let owner = format!("selector {}", selector.name());
    Arc::new(move |making| {
        making.parameters.reader(&owner).finish()?;
        Ok(selector.clone())
    })
}

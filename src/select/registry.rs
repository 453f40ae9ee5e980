//! Selectors by name.

use super::{Dense, Selector, Window};
use crate::error::{Error, ErrorKind, Result};
use std::sync::Arc;

/// Selectors that profiles may name.
#[derive(Clone)]
pub struct SelectorRegistry(Vec<Arc<dyn Selector>>);

impl SelectorRegistry {
    /// The built-in selectors.
    pub fn builtin() -> Self {
        SelectorRegistry(vec![Arc::new(Dense), Arc::new(Window::default())])
    }

    /// Adds one.
    ///
    /// # Errors
    /// `Usage` when the name is taken.
    pub fn with(mut self, selector: Arc<dyn Selector>) -> Result<Self> {
        if self.0.iter().any(|s| s.name() == selector.name()) {
            return Err(Error::new(
                ErrorKind::Usage,
                format!("selector {:?} is there already", selector.name()),
                "choose another name",
            ));
        }
        self.0.push(selector);
        Ok(self)
    }

    /// The selector of that name.
    ///
    /// # Errors
    /// `Usage` naming those there are.
    pub fn by_name(&self, name: &str) -> Result<&Arc<dyn Selector>> {
        self.0.iter().find(|s| s.name() == name).ok_or_else(|| {
            let names: Vec<&str> = self.0.iter().map(|s| s.name()).collect();
            Error::new(ErrorKind::Usage, format!("no selector {name:?}"), format!("selectors: {}", names.join(", ")))
        })
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Selector>> {
        self.0.iter()
    }
}

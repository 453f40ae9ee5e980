//! What names in a profile stand for: formats, bases, selectors, policies. No globals.

use crate::error::Result;
use crate::format::{Format, FormatRegistry};
use crate::policy::{self, MakePolicy, Policy, PolicyRegistry};
use crate::profile::Names;
use crate::select::{MakeSelector, Selector, SelectorRegistry};
use std::sync::Arc;

/// Formats, selectors and policies that an engine may use.
#[derive(Clone)]
pub struct Registry {
    /// Page formats.
    pub formats: FormatRegistry,
    /// Selectors.
    pub selectors: SelectorRegistry,
    /// Policies.
    pub policies: PolicyRegistry,
}

impl Registry {
    /// Everything that comes with the crate.
    pub fn builtin() -> Self {
        Registry {
            formats: FormatRegistry::builtin(),
            selectors: SelectorRegistry::builtin(),
            policies: PolicyRegistry::builtin(),
        }
    }

    /// Adds a format.
    ///
    /// # Errors
    /// `Usage` when the name is taken.
    pub fn with_format(mut self, format: Arc<dyn Format>) -> Result<Self> {
        self.formats = self.formats.with(format)?;
        Ok(self)
    }

    /// Adds a selector.
    ///
    /// # Errors
    /// `Usage` when the name is taken.
    pub fn with_selector(mut self, selector: Arc<dyn Selector>) -> Result<Self> {
        self.selectors = self.selectors.with(selector)?;
        Ok(self)
    }

    /// Adds a selector that is made from a profile's parameters.
    ///
    /// # Errors
    /// `Usage` when the name is taken.
    pub fn with_selector_maker(mut self, name: &str, make: MakeSelector) -> Result<Self> {
        self.selectors = self.selectors.with_maker(name, make)?;
        Ok(self)
    }

    /// Adds a policy without parameters; `make` makes one for each engine that names it.
    ///
    /// # Errors
    /// `Usage` when the name is taken.
    pub fn with_policy<P: Policy + 'static>(
        self,
        name: &str,
        make: impl Fn() -> P + Send + Sync + 'static,
    ) -> Result<Self> {
        self.with_policy_maker(name, policy::plain(name, move || Box::new(make())))
    }

    /// Adds a policy that is made from a profile's parameters.
    ///
    /// # Errors
    /// `Usage` when the name is taken.
    pub fn with_policy_maker(mut self, name: &str, make: MakePolicy) -> Result<Self> {
        self.policies = self.policies.with(name, make)?;
        Ok(self)
    }

    /// What names in a profile stand for.
    pub fn names(&self) -> Names<'_> {
        Names { formats: &self.formats, selectors: &self.selectors, policies: &self.policies }
    }
}

//! Policies by name. A policy has state, so the registry holds makers.

use super::{AgeAnchor, Keep, Policy, Streaming};
use crate::error::{Error, ErrorKind, Result};
use crate::format::words;
use crate::profile::Making;
use std::sync::Arc;

/// Makes a policy for one engine from the profile's parameters, which it checks.
pub type MakePolicy = Arc<dyn Fn(&Making<'_>) -> Result<Box<dyn Policy>> + Send + Sync>;

/// Policies that profiles may name.
#[derive(Clone)]
pub struct PolicyRegistry(Vec<(String, MakePolicy)>);

impl PolicyRegistry {
    /// The built-in policies.
    pub fn builtin() -> Self {
        PolicyRegistry(vec![
            ("keep".into(), plain("keep", || Box::new(Keep))),
            ("age-anchor".into(), Arc::new(|making| Ok(Box::new(AgeAnchor::make(making)?)))),
            ("streaming".into(), Arc::new(|making| Ok(Box::new(Streaming::make(making)?)))),
        ])
    }

    /// Adds one.
    ///
    /// # Errors
    /// `Usage` when the name is taken.
    pub fn with(mut self, name: &str, make: MakePolicy) -> Result<Self> {
        if self.0.iter().any(|(n, _)| n == name) {
            return Err(Error::new(
                ErrorKind::Usage,
                format!("policy {name:?} is there already"),
                "choose another name",
            ));
        }
        self.0.push((name.into(), make));
        Ok(self)
    }

    /// A fresh policy of that name.
    ///
    /// # Errors
    /// `Usage` naming those there are, or a parameter that the policy refuses.
    pub fn make(&self, name: &str, making: &Making<'_>) -> Result<Box<dyn Policy>> {
        match self.0.iter().find(|(n, _)| n == name) {
            Some((_, make)) => make(making),
            None => {
                let remedy = words::suggest(name, self.names());
                Err(Error::new(ErrorKind::Usage, format!("no policy {name:?}"), remedy))
            }
        }
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }
}

/// A maker for a policy without parameters.
pub(crate) fn plain(name: &str, make: impl Fn() -> Box<dyn Policy> + Send + Sync + 'static) -> MakePolicy {
    let owner = format!("policy {name}");
    Arc::new(move |making| {
        making.parameters.reader(&owner).finish()?;
        Ok(make())
    })
}

//! Policies by name. A policy has state, so the registry holds makers.

use super::{Keep, Policy};
use crate::error::{Error, ErrorKind, Result};
use std::sync::Arc;

/// Makes a policy for one engine.
pub type MakePolicy = Arc<dyn Fn() -> Box<dyn Policy> + Send + Sync>;

/// Policies that profiles may name.
#[derive(Clone)]
pub struct PolicyRegistry(Vec<(String, MakePolicy)>);

impl PolicyRegistry {
    /// The built-in policies.
    pub fn builtin() -> Self {
        PolicyRegistry(vec![("keep".into(), Arc::new(|| Box::new(Keep)))])
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
    /// `Usage` naming those there are.
    pub fn make(&self, name: &str) -> Result<Box<dyn Policy>> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, make)| make()).ok_or_else(|| {
            let names: Vec<&str> = self.0.iter().map(|(n, _)| n.as_str()).collect();
            Error::new(ErrorKind::Usage, format!("no policy {name:?}"), format!("policies: {}", names.join(", ")))
        })
    }
}

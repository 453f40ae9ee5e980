//! What names in a profile stand for: formats, bases, selectors, policies. No globals.

use crate::basis::{Calibration, CalibrationSource};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Format, FormatRegistry};
use crate::policy::{self, MakePolicy, Policy, PolicyRegistry};
use crate::profile::Names;
use crate::select::{MakeSelector, Selector, SelectorRegistry};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Formats, selectors, policies and calibrations that an engine may use.
#[derive(Clone)]
pub struct Registry {
    /// Page formats.
    pub formats: FormatRegistry,
    /// Selectors.
    pub selectors: SelectorRegistry,
    /// Policies.
    pub policies: PolicyRegistry,
    /// Calibrations that bases of a profile are made from.
    calibrations: BTreeMap<CalibrationSource, Arc<Calibration>>,
}

impl Registry {
    /// Everything that comes with the crate.
    pub fn builtin() -> Self {
        Registry {
            formats: FormatRegistry::builtin(),
            selectors: SelectorRegistry::builtin(),
            policies: PolicyRegistry::builtin(),
            calibrations: BTreeMap::new(),
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

    /// Adds what a basis of a profile calls by `source`; one that is there already is replaced.
    pub fn with_calibration(mut self, source: CalibrationSource, calibration: Arc<Calibration>) -> Self {
        self.calibrations.insert(source, calibration);
        self
    }

    /// Whether a calibration is there.
    pub fn has_calibration(&self, source: &CalibrationSource) -> bool {
        self.calibrations.contains_key(source)
    }

    /// The calibration that a profile calls by `source`.
    ///
    /// # Errors
    /// `Usage` where there is none, which says how to give one.
    pub fn calibration(&self, source: &CalibrationSource) -> Result<&Arc<Calibration>> {
        self.calibrations.get(source).ok_or_else(|| {
            let what = match source {
                CalibrationSource::OfModel => {
                    "the basis `map` needs the model's calibration, and none was given".into()
                }
                CalibrationSource::File(path) => {
                    format!("the calibration {path:?} was not read: it belongs to a model")
                }
            };
            let remedy = "run a model with it, give the engine one with Registry::with_calibration, or use hadamard";
            Error::new(ErrorKind::Usage, what, remedy)
        })
    }

    /// What names in a profile stand for.
    pub fn names(&self) -> Names<'_> {
        Names { formats: &self.formats, selectors: &self.selectors, policies: &self.policies }
    }
}

//! Coordinates that pages hold rows in: as they come, rotated, rotated about a mean, or mapped as calibrated.
//!
//! A basis changes neither scores nor outputs but for rounding: queries are turned like keys,
//! outputs are turned back. One stands for each side of a cache group. What is calibrated differs by layer and KV head
//! ([`Calibration`]); the others are the same for all ([`Basis`]).

use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::format::words;

mod calibration;
mod choice;
mod hadamard;
mod mean;
mod none;

pub use calibration::{CalibratedHead, Calibration, HeadMap, LayerMaps, MOST_CONDITION};
pub use choice::{BasisChoice, CALIBRATION_EXTENSION, CalibrationSource};
pub use hadamard::HadamardBasis;
pub use mean::MeanBasis;
pub use none::NoBasis;

/// A change of coordinates for rows of one side.
///
/// `mean` is a head's mean row, of as many channels as the row it comes with; a basis that does not
/// remove means ignores it, and one that does treats `None` as a mean of zeros.
pub trait Basis: Send + Sync {
    /// The word for it in profiles, such as `hadamard`.
    fn name(&self) -> &str;

    /// One line for a list of bases.
    fn summary(&self) -> &str;

    /// Whether rows are turned by [`rotate`](crate::num::rotate), which kernels must then do too.
    fn rotates(&self) -> bool;

    /// Whether a mean row is taken off before storing.
    fn removes_mean(&self) -> bool;

    /// From a row of K or V to what pages store, in place.
    ///
    /// # Panics
    /// If `mean` has another length than `row`.
    fn forward(&self, mean: Option<&[f32]>, row: &mut [f32]);

    /// From a query to what it is multiplied with stored keys as, in place. Returns q·μ, to be added
    /// to every score (ahead of the attention scale); 0 without a mean.
    ///
    /// # Panics
    /// If `mean` has another length than `q`.
    fn query(&self, mean: Option<&[f32]>, q: &mut [f32]) -> f32;

    /// From a weighted mean of stored values (weights summing to 1) to the output, in place.
    ///
    /// # Panics
    /// If `mean` has another length than `o`.
    fn inverse(&self, mean: Option<&[f32]>, o: &mut [f32]);
}

/// The bases that need no calibration, by name.
#[derive(Clone)]
pub struct BasisRegistry {
    entries: Vec<Arc<dyn Basis>>,
}

impl BasisRegistry {
    /// `none`, `hadamard` and `mean`.
    pub fn builtin() -> Self {
        BasisRegistry { entries: vec![Arc::new(NoBasis), Arc::new(HadamardBasis), Arc::new(MeanBasis)] }
    }

    /// The registry with `basis`; `Usage` if its name is taken.
    pub fn with(mut self, basis: Arc<dyn Basis>) -> Result<Self> {
        if self.entries.iter().any(|b| b.name() == basis.name()) {
            let message = format!("two bases are named `{}`", basis.name());
            return Err(Error::new(ErrorKind::Usage, message, "give the new one another name"));
        }
        self.entries.push(basis);
        Ok(self)
    }

    /// The basis named `name`; `Usage`, with the nearest names, if there is none.
    pub fn by_name(&self, name: &str) -> Result<&Arc<dyn Basis>> {
        self.entries.iter().find(|b| b.name() == name).ok_or_else(|| {
            let remedy = words::suggest(name, self.entries.iter().map(|b| b.name()));
            Error::new(ErrorKind::Usage, format!("no basis is named `{name}`"), remedy)
        })
    }

    /// All bases.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Basis>> {
        self.entries.iter()
    }
}

/// Asserts that a mean fits a row.
fn check(mean: Option<&[f32]>, row: &[f32]) {
    if let Some(mean) = mean {
        assert_eq!(mean.len(), row.len(), "channels of a mean and of a row");
    }
}

#[cfg(test)]
mod tests;

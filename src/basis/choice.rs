//! What a profile can write as a basis: a name, or a calibration and what to take from it.

use super::BasisRegistry;
use crate::error::{Error, ErrorKind, Result};
use crate::format::words;

/// How a calibration's file ends.
pub const CALIBRATION_EXTENSION: &str = ".kvcal";

/// The basis of a side, as profiles and `--basis` write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BasisChoice {
    /// A basis without calibration, by its name: see [`BasisRegistry`].
    Named(String),
    /// `mean:FILE.kvcal`: calibrated means taken off, then the Hadamard transform of `hadamard`.
    FixedMean(CalibrationSource),
    /// `map`, `FILE.kvcal` or `map:FILE.kvcal`: calibrated means taken off, then a calibrated matrix.
    Map(CalibrationSource),
}

/// Where a calibration comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CalibrationSource {
    /// The model's own, where `kvarto calibrate` puts it unless told otherwise.
    OfModel,
    /// A file, by its path.
    File(String),
}

impl BasisChoice {
    /// Reads a word of a profile.
    ///
    /// # Errors
    /// `Usage`, with the nearest words, for one that is none of these.
    pub fn parse(word: &str) -> Result<Self> {
        if word == "map" {
            return Ok(BasisChoice::Map(CalibrationSource::OfModel));
        }
        if word.ends_with(CALIBRATION_EXTENSION) {
            let (mean, path) = match (word.strip_prefix("mean:"), word.strip_prefix("map:")) {
                (Some(path), _) => (true, path),
                (_, path) => (false, path.unwrap_or(word)),
            };
            let source = CalibrationSource::File(path.into());
            return Ok(if mean { BasisChoice::FixedMean(source) } else { BasisChoice::Map(source) });
        }
        let bases = BasisRegistry::builtin();
        if bases.iter().any(|basis| basis.name() == word) {
            return Ok(BasisChoice::Named(word.into()));
        }
        let names = bases.iter().map(|basis| basis.name()).chain(["map"]);
        let remedy = format!("{}, FILE.kvcal and mean:FILE.kvcal", words::suggest(word, names));
        Err(Error::new(ErrorKind::Usage, format!("no basis is named `{word}`"), remedy))
    }

    /// The calibration that it is made from.
    pub fn source(&self) -> Option<&CalibrationSource> {
        match self {
            BasisChoice::Named(_) => None,
            BasisChoice::FixedMean(source) | BasisChoice::Map(source) => Some(source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_names_files_and_means_of_files() {
        let file = |path: &str| CalibrationSource::File(path.into());
        for (word, want) in [
            ("none", BasisChoice::Named("none".into())),
            ("mean", BasisChoice::Named("mean".into())),
            ("map", BasisChoice::Map(CalibrationSource::OfModel)),
            ("a/b.kvcal", BasisChoice::Map(file("a/b.kvcal"))),
            ("map:b.kvcal", BasisChoice::Map(file("b.kvcal"))),
            ("mean:b.kvcal", BasisChoice::FixedMean(file("b.kvcal"))),
        ] {
            assert_eq!(BasisChoice::parse(word).unwrap(), want, "{word}");
        }
        for word in ["", "maps", "hadamart", "mean:", "mean:b", "b.kvca", "KVCAL"] {
            let error = BasisChoice::parse(word).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage, "{word}");
            assert!(error.remedy().contains("map") && error.remedy().contains("FILE.kvcal"), "{error}");
        }
    }
}

//! Parameters of selectors and policies: named values from a profile, each with the place it was written at, and a
//! reader that checks them where they are used.

use crate::error::{Error, ErrorKind, Result};
use crate::format::{FormatRegistry, words};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Where a value was written: `FILE:LINE:COLUMN`, or the flag that gave it. Empty for values made by code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place(Option<Arc<str>>);

impl Place {
    /// The place that `words` name.
    pub fn new(words: impl Into<Arc<str>>) -> Self {
        Place(Some(words.into()))
    }

    /// A `Usage` error about what stands here.
    pub fn refuse(&self, message: impl fmt::Display, remedy: impl Into<String>) -> Error {
        self.of(Error::new(ErrorKind::Usage, message.to_string(), remedy))
    }

    /// The same error, led by the place.
    pub fn of(&self, error: Error) -> Error {
        match &self.0 {
            Some(place) => error.context(place),
            None => error,
        }
    }
}

/// A value as profiles write them.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Integer(i64),
    /// Any other number.
    Number(f64),
    /// `true` or `false`.
    Flag(bool),
    /// A text.
    Text(String),
    /// Several values.
    List(Vec<Value>),
}

impl Value {
    /// What it is, for errors.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Integer(_) => "a whole number",
            Value::Number(_) => "a number with a fraction",
            Value::Flag(_) => "true or false",
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
        }
    }
}

/// Named values of one selector or policy. Places do not count when two are compared.
#[derive(Clone, Debug, Default)]
pub struct Parameters(Vec<(String, Value, Place)>);

impl PartialEq for Parameters {
    fn eq(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(|(a, b)| a.0 == b.0 && a.1 == b.1)
    }
}

impl Parameters {
    /// The same with `name` set to `value`.
    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.put(name, value, Place::default());
        self
    }

    /// Sets `name`, written at `place`.
    pub fn put(&mut self, name: &str, value: Value, place: Place) {
        match self.0.iter_mut().find(|(n, ..)| n == name) {
            Some(entry) => (entry.1, entry.2) = (value, place),
            None => self.0.push((name.into(), value, place)),
        }
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value, _)| (name.as_str(), value))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads them for `owner`, such as `policy streaming`.
    pub fn reader(&self, owner: impl Into<String>) -> Reader<'_> {
        Reader { given: self, owner: owner.into(), read: Parameters::default() }
    }
}

/// Reads parameters by name, with defaults and bounds; [`Reader::finish`] refuses what nobody asked for.
#[derive(Debug)]
pub struct Reader<'a> {
    given: &'a Parameters,
    owner: String,
    /// Everything asked for, with its value.
    read: Parameters,
}

impl Reader<'_> {
    fn find(&self, name: &str) -> Option<(&Value, &Place)> {
        self.given.0.iter().find(|(n, ..)| n == name).map(|(_, value, place)| (value, place))
    }

    fn keep(&mut self, name: &str, value: Value) {
        let place = self.find(name).map(|(_, place)| place.clone()).unwrap_or_default();
        self.read.put(name, value, place);
    }

    /// An error about the parameter `name`, where it was written.
    pub fn refuse(&self, name: &str, what: impl fmt::Display, remedy: impl Into<String>) -> Error {
        let place = self.find(name).map(|(_, place)| place.clone()).unwrap_or_default();
        place.refuse(format!("{name} of {}: {what}", self.owner), remedy)
    }

    /// A whole number within `range`.
    ///
    /// # Errors
    /// `Usage` naming the parameter, its bounds and the value given.
    pub fn count(&mut self, name: &str, default: usize, range: RangeInclusive<usize>) -> Result<usize> {
        let bounds = || format!("give a whole number from {} to {}", range.start(), range.end());
        let value = match self.find(name) {
            None => default,
            Some((&Value::Integer(n), _)) => match usize::try_from(n) {
                Ok(n) if range.contains(&n) => n,
                _ => return Err(self.refuse(name, format!("{n} is out of range"), bounds())),
            },
            Some((other, _)) => return Err(self.refuse(name, format!("{} stands there", other.kind()), bounds())),
        };
        self.keep(name, Value::Integer(i64::try_from(value).unwrap_or(i64::MAX)));
        Ok(value)
    }

    /// A number within `range`; whole ones are taken as well.
    ///
    /// # Errors
    /// `Usage` naming the parameter, its bounds and the value given.
    pub fn number(&mut self, name: &str, default: f64, range: RangeInclusive<f64>) -> Result<f64> {
        let bounds = || format!("give a number from {} to {}", range.start(), range.end());
        let value = match self.find(name) {
            None => default,
            Some((&Value::Integer(n), _)) => n as f64,
            Some((&Value::Number(x), _)) => x,
            Some((other, _)) => return Err(self.refuse(name, format!("{} stands there", other.kind()), bounds())),
        };
        // A NaN is in no range.
        if !range.contains(&value) {
            return Err(self.refuse(name, format!("{value} is out of range"), bounds()));
        }
        self.keep(name, Value::Number(value));
        Ok(value)
    }

    /// A text.
    ///
    /// # Errors
    /// `Usage` when something else stands there.
    pub fn text(&mut self, name: &str, default: &str) -> Result<String> {
        let value = match self.find(name) {
            None => default.to_string(),
            Some((Value::Text(text), _)) => text.clone(),
            Some((other, _)) => {
                return Err(self.refuse(name, format!("{} stands there", other.kind()), "give a text"));
            }
        };
        self.keep(name, Value::Text(value.clone()));
        Ok(value)
    }

    /// The name of a format.
    ///
    /// # Errors
    /// `Usage` when it is none, with the nearest.
    pub fn format(&mut self, name: &str, default: &str, formats: &FormatRegistry) -> Result<String> {
        let word = self.text(name, default)?;
        formats.by_name(&word).map_err(|e| self.refuse(name, e.message(), e.remedy()))?;
        Ok(word)
    }

    /// Every parameter that was asked for, defaults included.
    ///
    /// # Errors
    /// `Usage` naming the first parameter given that was not, with the nearest that there is.
    pub fn finish(self) -> Result<Parameters> {
        let known = || self.read.0.iter().map(|(name, ..)| name.as_str());
        for (name, _, place) in &self.given.0 {
            if !known().any(|k| k == name) {
                let remedy = match self.read.is_empty() {
                    true => "leave it out: there are no parameters".into(),
                    false => words::suggest(name, known()),
                };
                return Err(place.refuse(format!("{} has no parameter {name:?}", self.owner), remedy));
            }
        }
        Ok(self.read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_kinds_and_unknown_names_are_refused_by_name_and_place() {
        let mut given = Parameters::default().with("tokens", Value::Integer(7));
        given.put("tokns", Value::Flag(true), Place::new("a.toml:3:1"));
        given.put("share", Value::Number(f64::NAN), Place::new("a.toml:4:1"));
        let mut reader = given.reader("policy x");
        assert_eq!(reader.count("tokens", 1, 0..=9).unwrap(), 7);
        assert!(reader.count("tokens", 1, 0..=6).unwrap_err().message().contains("7 is out of range"));
        assert!(reader.text("tokens", "").unwrap_err().message().contains("a whole number"));
        assert!(reader.number("share", 0.5, 0.0..=1.0).unwrap_err().message().contains("share of policy x"));
        let error = reader.finish().unwrap_err();
        assert_eq!(error.message(), "a.toml:3:1: policy x has no parameter \"tokns\"");
        assert!(error.remedy().contains("did you mean `tokens`"), "{error}");
    }

    #[test]
    fn what_is_left_out_takes_its_default_and_is_told() {
        let given = Parameters::default().with("b", Value::Integer(2));
        let mut reader = given.reader("policy x");
        assert_eq!(reader.count("a", 4, 0..=9).unwrap(), 4);
        assert_eq!(reader.number("b", 0.5, 0.0..=9.0).unwrap(), 2.0);
        let read = reader.finish().unwrap();
        assert_eq!(read, Parameters::default().with("a", Value::Integer(4)).with("b", Value::Number(2.0)));
    }
}

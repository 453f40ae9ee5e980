//! Format names as small numbers.

use std::sync::Arc;

/// A format's place in [`Names`].
pub type Name = u16;

/// Names in the order in which they came.
#[derive(Clone, Debug, Default)]
pub struct Names(Vec<Arc<str>>);

impl Names {
    /// The place of `name`, which is made where there is none. A trace with more than 65 535 names, which no engine
    /// writes, has the further ones taken for the last.
    pub fn place(&mut self, name: &Arc<str>) -> Name {
        let at = self.0.iter().position(|known| known == name);
        let at = at.unwrap_or_else(|| {
            if self.0.len() < usize::from(Name::MAX) {
                self.0.push(name.clone());
            }
            self.0.len() - 1
        });
        at as Name
    }

    /// The name at a place.
    pub fn at(&self, place: Name) -> &str {
        self.0.get(usize::from(place)).map_or("?", |name| name)
    }

    /// All names.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|name| name.as_ref())
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

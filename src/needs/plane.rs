//! Side planes: what a selector or a policy keeps with every page.

use super::Wanted;
use crate::backend::KernelDecl;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::plane::{PlanePlace, check};
use crate::kernel::summarise_box;
use crate::shape::CacheGroup;

/// A record that the engine keeps with every page, and the kernel that fills it from rows as they are appended, keys and
/// values in their original coordinates.
///
/// The record lives and dies with its page, is copied where the page is, and counts as metadata. Partly filled pages have
/// theirs. Where tokens were taken back it covers those as well: see [`crate::kernel::plane`].
#[derive(Clone, Debug)]
pub struct PlaneSpec {
    /// Names it among the planes of an engine.
    pub name: String,
    /// Computes it; declared as [`crate::kernel::plane`] says.
    pub kernel: &'static KernelDecl,
    /// Words (of 32 bits) of a record for pages of a cache group; 0 where the group's pages need none.
    pub words: fn(&CacheGroup) -> usize,
}

impl PlaneSpec {
    /// Quest's boxes: the smallest and largest key of a page by channel ([`summarise_box`]; arXiv 2406.10774 §3.3).
    pub fn boxes() -> Self {
        PlaneSpec { name: "box".into(), kernel: &summarise_box::DECL, words: |group| summarise_box::words(group.k_dim) }
    }
}

/// The planes of a cache group's pages, side by side in one record; each begins at a multiple of 16 bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlaneSet {
    planes: Vec<(PlaneSpec, PlanePlace)>,
}

impl PlaneSet {
    /// The planes that `wanted` declare for a group.
    ///
    /// # Errors
    /// `Usage` for one name with two kernels or sizes, naming who declares it; `Shape` for a kernel that is not declared
    /// as plane kernels are, or a record beyond 2³² words.
    pub fn new(group: &CacheGroup, wanted: &[Wanted]) -> Result<Self> {
        let mut planes: Vec<(PlaneSpec, PlanePlace)> = Vec::new();
        let mut owners: Vec<&str> = Vec::new();
        let mut at = 0u32;
        for Wanted { who, needs } in wanted {
            for spec in &needs.planes {
                check(spec.kernel).map_err(|error| error.context(format!("{who}, side plane {:?}", spec.name)))?;
                let words = (spec.words)(group);
                if let Some(i) = planes.iter().position(|(other, _)| other.name == spec.name) {
                    let (other, place) = &planes[i];
                    if !std::ptr::eq(other.kernel, spec.kernel) || place.words as usize != words {
                        return Err(Error::new(
                            ErrorKind::Usage,
                            format!(
                                "{} and {who} both declare the side plane {:?}, not the same",
                                owners[i], spec.name
                            ),
                            "give one of them another name",
                        ));
                    }
                    continue;
                }
                let end = u32::try_from(words).ok().and_then(|words| at.checked_add(words.next_multiple_of(4)));
                let Some(end) = end.filter(|end| *end < 1 << 28) else {
                    let message = format!("{who}: side plane {:?} of {words} words is too large", spec.name);
                    return Err(Error::new(ErrorKind::Shape, message, "a record holds less than 2^28 words"));
                };
                planes.push((spec.clone(), PlanePlace { record_words: 0, at, words: words as u32 }));
                owners.push(who);
                at = end;
            }
        }
        planes.iter_mut().for_each(|(_, place)| place.record_words = at);
        Ok(PlaneSet { planes })
    }

    /// Bytes of a record; 0 without planes.
    pub fn record_bytes(&self) -> u64 {
        u64::from(self.record_words()) * 4
    }

    /// Words of a record; 0 without planes.
    pub fn record_words(&self) -> u32 {
        self.planes.first().map_or(0, |(_, place)| place.record_words)
    }

    /// Planes that take words, with their places.
    pub fn iter(&self) -> impl Iterator<Item = &(PlaneSpec, PlanePlace)> {
        self.planes.iter().filter(|(_, place)| place.words > 0)
    }

    /// The place of a plane.
    ///
    /// # Errors
    /// `Usage` for a name that nobody declared, naming those there are.
    pub fn place(&self, name: &str) -> Result<PlanePlace> {
        let found = self.planes.iter().find(|(spec, _)| spec.name == name).map(|(_, place)| *place);
        found.ok_or_else(|| {
            let names: Vec<&str> = self.planes.iter().map(|(spec, _)| spec.name.as_str()).collect();
            Error::new(
                ErrorKind::Usage,
                format!("no side plane {name:?}"),
                format!("planes declared here: {}", if names.is_empty() { "none".into() } else { names.join(", ") }),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::needs::Needs;
    use crate::shape::CacheShape;

    fn wanted(who: &str, planes: Vec<PlaneSpec>) -> Wanted {
        Wanted { who: who.into(), needs: Needs { planes, ..Needs::default() } }
    }

    #[test]
    fn planes_stand_side_by_side_and_shared_ones_once() {
        let group = &CacheShape::uniform(1, 2, 1, 40, 16).groups[0];
        let odd = PlaneSpec { name: "odd".into(), words: |_| 3, ..PlaneSpec::boxes() };
        let none = PlaneSpec { name: "none".into(), words: |_| 0, ..PlaneSpec::boxes() };
        let both = [wanted("a", vec![odd, PlaneSpec::boxes()]), wanted("b", vec![PlaneSpec::boxes(), none])];
        let set = PlaneSet::new(group, &both).unwrap();
        assert_eq!((set.record_words(), set.record_bytes(), set.iter().count()), (44, 176, 2));
        assert_eq!(set.place("odd").unwrap(), PlanePlace { record_words: 44, at: 0, words: 3 });
        assert_eq!(set.place("box").unwrap(), PlanePlace { record_words: 44, at: 4, words: 40 });
        assert!(set.place("boxes").unwrap_err().remedy().contains("odd, box"));
        let other = PlaneSpec { words: |_| 8, ..PlaneSpec::boxes() };
        let error = PlaneSet::new(group, &[wanted("a", vec![other]), both[1].clone()]).unwrap_err();
        assert!(error.kind() == ErrorKind::Usage && error.message().contains("a and b"), "{error}");
        let huge = PlaneSpec { words: |_| 1 << 29, ..PlaneSpec::boxes() };
        assert!(PlaneSet::new(group, &[wanted("a", vec![huge])]).is_err());
        assert_eq!(PlaneSet::new(group, &[wanted("a", Vec::new())]).unwrap().record_bytes(), 0);
    }
}

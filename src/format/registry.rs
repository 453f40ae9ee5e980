//! The formats of an engine, by name and by number.

use std::sync::Arc;

use super::{Bf16, F16, F32, Format, Fp8, Q3Affine, Q4_0, Q8_0, Tq2, Tq3, Tq3Nested, Tq4, words};
use crate::error::{Error, ErrorKind, Result};

/// A format's number: built-in formats below 128, others from 128.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FormatId(pub u8);

impl FormatId {
    /// The first number of formats that are not built in.
    pub const FIRST_EXTERNAL: u8 = 128;
}

/// Formats under their numbers; no two share a name.
#[derive(Clone)]
pub struct FormatRegistry {
    entries: Vec<(FormatId, Arc<dyn Format>)>,
}

impl FormatRegistry {
    /// The formats that come with the library. Numbers are stored in files: never reuse one.
    pub fn builtin() -> Self {
        let formats: [(u8, Arc<dyn Format>); 11] = [
            (0, Arc::new(F32)),
            (1, Arc::new(F16)),
            (2, Arc::new(Bf16)),
            (3, Arc::new(Fp8)),
            (4, Arc::new(Tq3)),
            (5, Arc::new(Tq2)),
            (6, Arc::new(Tq4)),
            (7, Arc::new(Q8_0)),
            (8, Arc::new(Q4_0)),
            (9, Arc::new(Q3Affine)),
            (10, Arc::new(Tq3Nested)),
        ];
        FormatRegistry { entries: formats.into_iter().map(|(id, format)| (FormatId(id), format)).collect() }
    }

    /// The registry with `format` under the next free external number.
    ///
    /// `Usage` if its name is taken or is none that a profile can say, or all 128 external numbers are taken.
    pub fn with(mut self, format: Arc<dyn Format>) -> Result<Self> {
        let name = format.name();
        if name.is_empty() || name.contains(|c: char| c == ',' || c == '=' || c.is_whitespace() || c.is_control()) {
            let message = format!("a page format cannot be named {name:?}");
            return Err(Error::new(ErrorKind::Usage, message, "use a word without commas, equals signs and blanks"));
        }
        if self.entries.iter().any(|(_, f)| f.name() == name) {
            let message = format!("two page formats are named `{name}`");
            return Err(Error::new(ErrorKind::Usage, message, "give the new one another name"));
        }
        let external = self.entries.iter().filter(|(id, _)| id.0 >= FormatId::FIRST_EXTERNAL).count();
        let Ok(id) = u8::try_from(usize::from(FormatId::FIRST_EXTERNAL) + external) else {
            return Err(Error::new(
                ErrorKind::Usage,
                "128 external page formats are registered, the most there can be",
                "",
            ));
        };
        self.entries.push((FormatId(id), format));
        Ok(self)
    }

    /// The format named `name`; `Usage`, with the nearest names, if there is none.
    pub fn by_name(&self, name: &str) -> Result<(FormatId, &Arc<dyn Format>)> {
        match self.entries.iter().find(|(_, f)| f.name() == name) {
            Some((id, format)) => Ok((*id, format)),
            None => {
                let remedy = words::suggest(name, self.entries.iter().map(|(_, f)| f.name()));
                Err(Error::new(ErrorKind::Usage, format!("no page format is named `{name}`"), remedy))
            }
        }
    }

    /// The format under `id`, if any.
    pub fn get(&self, id: FormatId) -> Option<&Arc<dyn Format>> {
        self.entries.iter().find(|(i, _)| *i == id).map(|(_, f)| f)
    }

    /// All formats in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (FormatId, &Arc<dyn Format>)> {
        self.entries.iter().map(|(id, f)| (*id, f))
    }
}

impl std::fmt::Debug for FormatRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.entries.iter().map(|(id, format)| (id.0, format.name()))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The built-in names in the order of their numbers, which files hold.
    const BUILTIN: [&str; 11] = ["f32", "f16", "bf16", "fp8", "tq3", "tq2", "tq4", "q8_0", "q4_0", "q3_affine", "tq3n"];

    /// A format of another name that borrows a built-in codec.
    struct Other(&'static str);

    impl Format for Other {
        fn name(&self) -> &str {
            self.0
        }

        fn summary(&self) -> &str {
            "for a test"
        }

        fn wants_rotation(&self) -> bool {
            false
        }

        fn codec(
            &self,
            side: crate::shape::Side,
            geometry: crate::shape::PageGeometry,
        ) -> Result<Arc<dyn super::super::Codec>> {
            F32.codec(side, geometry)
        }
    }

    #[test]
    fn names_and_numbers_are_unique() -> Result<()> {
        let registry = FormatRegistry::builtin();
        let names: Vec<_> = registry.iter().map(|(id, f)| (id.0, f.name())).collect();
        let numbered: Vec<_> = (0..).zip(BUILTIN).collect();
        assert_eq!(names, numbered);
        let registry = registry.with(Arc::new(Other("mine")))?;
        let (id, format) = registry.by_name("mine")?;
        assert_eq!((id, format.name()), (FormatId(128), "mine"));
        assert_eq!(registry.get(id).map(|f| f.name()), Some("mine"));
        assert!(registry.get(FormatId(77)).is_none());
        let error = registry.with(Arc::new(Other("fp8"))).expect_err("the name is taken");
        assert_eq!(error.kind(), ErrorKind::Usage);
        Ok(())
    }

    #[test]
    fn unknown_names_get_the_nearest() {
        let registry = FormatRegistry::builtin();
        let Err(error) = registry.by_name("tq5") else { panic!("there is no tq5") };
        assert_eq!(
            error.to_string(),
            "no page format is named `tq5` (did you mean `tq2`? There are f32, f16, bf16, fp8, tq3, tq2, tq4, q8_0, q4_0, q3_affine, tq3n)"
        );
    }

    #[test]
    fn external_numbers_run_out() {
        let names: Vec<&'static str> = (0..129).map(|i| &*Box::leak(format!("x{i}").into_boxed_str())).collect();
        let mut registry = FormatRegistry::builtin();
        for name in &names[..128] {
            registry = registry.with(Arc::new(Other(name))).expect("128 fit");
        }
        assert!(registry.get(FormatId(255)).is_some());
        assert!(registry.with(Arc::new(Other(names[128]))).is_err());
    }
}

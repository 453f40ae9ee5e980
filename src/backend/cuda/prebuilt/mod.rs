//! Machine code that comes with the crate (the feature `prebuilt`): one file of `cuda/prebuilt` for each architecture, made
//! by `cuda/prebuild` from the kernels that the module `usual` lists.
//!
//! Code is found by the identity of its text, so that a set older than the sources serves what has stayed as it was.

mod archive;

pub use archive::{Archive, write};

use super::source::Source;
use std::sync::OnceLock;

/// What machine code is made for: cubins, each for the cards that [`serving`] names, and PTX, which a newer card's driver
/// compiles.
pub const TARGETS: [&str; 6] = ["sm_80", "sm_89", "sm_90a", "sm_100f", "sm_120f", PTX];

/// The target of PTX. It has no instruction that cards lost later, but neither conversions of 8-bit floats nor launches
/// that overlap.
const PTX: &str = "compute_80";

/// The targets whose cubins run on a compute capability, the best first; none for cards that are newer, and for those below
/// 8.0.
pub fn serving(capability: (u32, u32)) -> &'static [&'static str] {
    match capability {
        (8, 9) => &["sm_89", "sm_80"],
        // The same major version, and no lower minor one.
        (8, 0..) => &["sm_80"],
        (9, 0) => &["sm_90a"],
        // Families share what is beyond the common instructions.
        (10, 0 | 3) => &["sm_100f"],
        (12, 0 | 1) => &["sm_120f"],
        _ => &[],
    }
}

/// Whether the set of a target has code of a text: `sm_89` only of those that convert 8-bit floats by its instructions, since
/// code of `sm_80` runs there too; PTX, which takes more room than cubins, only of the `first` ones, as
/// the module `usual` calls them.
pub fn holds(target: &str, source: &Source, first: bool) -> bool {
    match target {
        "sm_89" => source.text.contains("__CUDA_ARCH__ >= 890"),
        PTX => first,
        _ => true,
    }
}

/// The sets that a card's driver takes.
#[derive(Debug, Default)]
pub struct Prebuilt {
    /// The best first, the last with every kernel.
    cubins: Vec<Set>,
    ptx: Option<Set>,
}

/// A file, and its stream once something of it was wanted.
#[derive(Debug)]
struct Set {
    archive: Archive<'static>,
    stream: OnceLock<Option<Vec<u8>>>,
}

impl Prebuilt {
    /// The sets for a card of this compute capability, whose driver speaks CUDA `driver`: cubins load in drivers of their
    /// compiler's major version and later ones, PTX in those of its compiler's version and later.
    pub fn of(capability: (u32, u32), driver: (u32, u32)) -> Self {
        let targets = serving(capability);
        let loads = |set: &Set| driver.0 >= set.archive.compiler().0;
        let cubins = targets.iter().filter_map(|target| Set::of(target)).filter(loads).collect();
        let newer = capability >= (8, 0) && targets.is_empty();
        let ptx = Some(PTX).filter(|_| newer).and_then(Set::of).filter(|set| driver >= set.archive.compiler());
        Prebuilt { cubins, ptx }
    }

    /// The target and the number of kernels, if there are any for the card.
    pub fn held(&self) -> Option<(&'static str, usize)> {
        let best = self.cubins.first().or(self.ptx.as_ref())?;
        let whole = self.cubins.last().or(self.ptx.as_ref())?;
        Some((best.archive.target(), whole.archive.len()))
    }

    /// The cubin of a text.
    pub fn cubin(&self, identity: u128) -> Option<&[u8]> {
        self.cubins.iter().find_map(|set| set.code(identity))
    }

    /// The PTX of a text, with a zero at its end.
    pub fn ptx(&self, identity: u128) -> Option<&[u8]> {
        self.ptx.as_ref()?.code(identity)
    }
}

impl Set {
    fn of(target: &str) -> Option<Set> {
        let archive = embedded(target)?;
        Some(Set { archive, stream: OnceLock::new() })
    }

    fn code(&self, identity: u128) -> Option<&[u8]> {
        let place = self.archive.find(identity)?;
        let unpack = || self.archive.unpack().inspect_err(|e| log::warn!("{e}")).ok();
        self.stream.get_or_init(unpack).as_deref()?.get(place)
    }
}

/// The set of a target of [`TARGETS`]; none in a build without the feature `prebuilt`.
pub fn embedded(target: &str) -> Option<Archive<'static>> {
    let (_, bytes) = FILES.iter().find(|(name, _)| *name == target)?;
    Archive::parse(bytes).inspect_err(|e| log::warn!("{target}: {e}")).ok()
}

#[cfg(feature = "prebuilt")]
macro_rules! file {
    ($target:literal) => {
        ($target, include_bytes!(concat!("../../../../cuda/prebuilt/", $target, ".kvcubins")).as_slice())
    };
}

#[cfg(feature = "prebuilt")]
static FILES: &[(&str, &[u8])] =
    &[file!("sm_80"), file!("sm_89"), file!("sm_90a"), file!("sm_100f"), file!("sm_120f"), file!("compute_80")];

#[cfg(not(feature = "prebuilt"))]
static FILES: &[(&str, &[u8])] = &[];

#[cfg(test)]
mod tests {
    use super::{FILES, Prebuilt, TARGETS, embedded, serving};

    #[test]
    fn every_card_has_a_target_or_ptx() {
        for (capability, first) in [
            ((8, 0), "sm_80"),
            ((8, 6), "sm_80"),
            ((8, 7), "sm_80"),
            ((8, 9), "sm_89"),
            ((9, 0), "sm_90a"),
            ((10, 0), "sm_100f"),
            ((10, 3), "sm_100f"),
            ((12, 0), "sm_120f"),
            ((12, 1), "sm_120f"),
        ] {
            let targets = serving(capability);
            assert_eq!(targets.first(), Some(&first));
            // The last has every kernel.
            assert_ne!(targets.last(), Some(&"sm_89"));
            assert!(targets.iter().all(|target| TARGETS.contains(target)));
        }
        for other in [(7, 5), (11, 0), (12, 2), (13, 0)] {
            assert!(serving(other).is_empty());
        }
    }

    #[test]
    fn a_driver_gets_what_it_loads() {
        assert!(FILES.is_empty() || FILES.iter().map(|(name, _)| *name).eq(TARGETS));
        let Some(archive) = embedded("sm_90a") else { return assert!(FILES.is_empty()) };
        let (major, minor) = archive.compiler();
        assert_eq!(Prebuilt::of((9, 0), (major, 0)).held(), Some(("sm_90a", archive.len())));
        assert_eq!(Prebuilt::of((9, 0), (major - 1, 9)).held(), None);
        assert_eq!(Prebuilt::of((7, 5), (99, 0)).held(), None);
        assert_eq!(Prebuilt::of((13, 0), (major, minor)).held().map(|held| held.0), Some("compute_80"));
        assert_eq!(Prebuilt::of((13, 0), (major - 1, 9)).held(), None);
        let ada = Prebuilt::of((8, 9), (major, 0)).held().expect("sets");
        assert_eq!(Some(ada.1), embedded("sm_80").map(|archive| archive.len()));
    }
}

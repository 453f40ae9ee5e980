//! What is known of an architecture: whether the kernels ran on it, or were only assembled for it.

use std::fmt;

/// What is known of an architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Conformance and benches ran on it, and are on record (`assets/bench`).
    Ran,
    /// The tests assemble its kernels; no such device has run them.
    Assembled,
    /// Its kernels come from the same texts as others'; neither tests nor a device have tried them.
    Untried,
}

/// Compute capabilities that tests assemble for, and whether runs are on record. A run on another kind of device is to be
/// entered here, with its record in `assets/bench`.
const KNOWN: [((u32, u32), Standing); 8] = [
    ((8, 0), Standing::Assembled),
    ((8, 6), Standing::Assembled),
    ((8, 9), Standing::Assembled),
    ((9, 0), Standing::Ran),
    ((10, 0), Standing::Assembled),
    ((10, 3), Standing::Assembled),
    ((12, 0), Standing::Assembled),
    ((12, 1), Standing::Assembled),
];

impl Standing {
    /// Of a compute capability.
    pub fn of(capability: (u32, u32)) -> Self {
        KNOWN.iter().find(|(known, _)| *known == capability).map_or(Standing::Untried, |(_, standing)| *standing)
    }

    /// Every compute capability that tests assemble kernels for, rising.
    pub fn known() -> impl Iterator<Item = ((u32, u32), Standing)> {
        KNOWN.into_iter()
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Standing::Ran => "runs on record",
            Standing::Assembled => "assembled, not yet run on this hardware",
            Standing::Untried => "neither assembled nor run on this hardware",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Standing;

    #[test]
    fn blackwell_is_assembled_and_not_yet_run() {
        for capability in [(10, 0), (10, 3), (12, 0), (12, 1)] {
            assert_eq!(Standing::of(capability).to_string(), "assembled, not yet run on this hardware");
        }
        assert_eq!(Standing::of((9, 0)), Standing::Ran);
        assert_eq!(Standing::of((11, 0)), Standing::Untried);
    }
}

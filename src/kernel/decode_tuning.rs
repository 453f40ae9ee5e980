//! How decode attention on tensor cores is laid out: by what a side's pages cost to read, and by architecture.
//!
//! Figures of compute capability 9.0 are measured (see [`super::decode_tiles`]). Those of others are no measurement: they
//! are what the assembler gives registers for without spilling (`cuda/BLACKWELL.md`, `tests/blackwell.rs`).

use super::attention::AttentionShape;
use crate::backend::{Caps, CodecUse};
use crate::error::{Error, ErrorKind, Result};

/// The feature, in [`Caps::features`], of a device whose products take pages of e4m3 as they are.
pub const E4M3_PRODUCTS: &str = "e4m3_products";

/// Parts of a query and of a weight in products of e4m3, which has four digits. By their arithmetic, against attention
/// over the same pages in f64 and as a share of the largest output, on data that are normal or have outliers
/// (`tests/blackwell.rs`): queries in 1 part err by up to 3.5e-1, in 2 by 9e-3, in 3 by 6e-4, where
/// [`crate::conformance::HALF_TOLERANCE`] is 5e-3; weights in 1 part by 2e-2 whatever the queries. Three parts cost what
/// four would: a product takes two.
pub const E4M3_PARTS: [u32; 2] = [3, 2];

/// A kind of tensor cores: what [`super::tier::Tier`] knows of a device of CUDA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TensorCores {
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Whether products with pages of e4m3 take the codes as they are, instead of as 16-bit floats.
    pub e4m3: bool,
}

impl TensorCores {
    /// Those of compute capability 9.0, on which what is chosen here was measured.
    pub const MEASURED: TensorCores = TensorCores { capability: (9, 0), e4m3: false };

    /// What a device of CUDA's says by its features: its target (`sm_120a`) and [`E4M3_PRODUCTS`].
    pub fn of(caps: &Caps) -> Self {
        let target = caps.features.iter().find_map(|feature| capability(feature));
        TensorCores {
            capability: target.unwrap_or(Self::MEASURED.capability),
            e4m3: caps.features.iter().any(|feature| feature == E4M3_PRODUCTS),
        }
    }

    /// Whether there are products of warpgroups, which Hopper alone has.
    pub fn warpgroups(self) -> bool {
        self.capability.0 == 9
    }

    /// What a device of this capability uses unless it is told otherwise: products of e4m3 where they are instructions of
    /// its own. 9.0 and 10.x widen codes to 16 bits, in more instructions than converting takes.
    pub fn usual(capability: (u32, u32)) -> Self {
        TensorCores { capability, e4m3: Architecture::of(capability).own_e4m3 }
    }
}

/// [`Caps::features`] of a device of CUDA's.
pub(crate) fn features(capability: (u32, u32), target: &str) -> Vec<String> {
    let e4m3 = TensorCores::usual(capability).e4m3.then(|| E4M3_PRODUCTS.to_string());
    [target.to_string()].into_iter().chain(e4m3).collect()
}

/// Sets or clears [`E4M3_PRODUCTS`].
///
/// # Errors
/// `Unsupported` below compute capability 8.9, which has no such products.
pub(crate) fn choose_e4m3(features: &mut Vec<String>, capability: (u32, u32), wanted: bool) -> Result<()> {
    if wanted && capability < (8, 9) {
        let (major, minor) = capability;
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!("products of e4m3 on compute capability {major}.{minor}; 8.9 is the lowest that has them"),
            "leave them out: pages of fp8 are converted to 16 bits there",
        ));
    }
    features.retain(|feature| feature != E4M3_PRODUCTS);
    features.extend(wanted.then(|| E4M3_PRODUCTS.to_string()));
    Ok(())
}

/// The compute capability of a target, `sm_120a`.
fn capability(target: &str) -> Option<(u32, u32)> {
    let digits = target.strip_prefix("sm_")?.trim_end_matches(|c: char| c.is_ascii_lowercase());
    let number: u32 = digits.parse().ok()?;
    Some((number / 10, number % 10))
}

/// What sets architectures apart.
struct Architecture {
    /// Compute capabilities from this one on, up to the next row's.
    from: (u32, u32),
    /// Threads where four query vectors and heads of up to 128 leave a choice: both sides of one kind of pages, and of
    /// two. Warps go to four schedulers, so 256 have 255 registers each and 384 have 168.
    threads: [u32; 2],
    /// Tiles of e4m3 keys asked for ahead.
    fp8_keys: u32,
    /// Whether the next step's keys are asked for whether or not there is one: without the condition the assembler does
    /// not write the loop twice, which takes registers.
    always_ask: bool,
    /// Whether products of e4m3 are instructions of its own.
    own_e4m3: bool,
}

/// By rising capability.
const ARCHITECTURES: [Architecture; 5] = [
    Architecture { from: (8, 0), threads: [384, 384], fp8_keys: 2, always_ask: false, own_e4m3: false },
    Architecture { from: (8, 9), threads: [256, 256], fp8_keys: 2, always_ask: false, own_e4m3: true },
    // Measured.
    Architecture { from: (9, 0), threads: [384, 384], fp8_keys: 2, always_ask: false, own_e4m3: false },
    // 54 GB/s a multiprocessor: most loads under way.
    Architecture { from: (10, 0), threads: [384, 256], fp8_keys: 1, always_ask: true, own_e4m3: false },
    // 10 GB/s a multiprocessor.
    Architecture { from: (12, 0), threads: [256, 256], fp8_keys: 2, always_ask: true, own_e4m3: true },
];

impl Architecture {
    fn of(capability: (u32, u32)) -> &'static Architecture {
        ARCHITECTURES.iter().rev().find(|a| a.from <= capability).unwrap_or(&ARCHITECTURES[0])
    }
}

/// What a side's pages cost to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// Values of 16 bits.
    Halves,
    /// e4m3 codes.
    Fp8,
    /// Codes of 2 or 3 bits.
    FewBits,
    /// Codes of 4 bits, whose table takes most registers.
    FourBits,
}

impl Reading {
    fn of(side: &CodecUse) -> Self {
        let bits = side.codec.layout().planes.iter().map(|plane| plane.bits).sum::<u32>();
        match (side.codec.tiles().is_some_and(|tiles| tiles.bytes), bits) {
            (true, 4) => Reading::FourBits,
            (true, _) => Reading::FewBits,
            (false, 8) => Reading::Fp8,
            (false, _) => Reading::Halves,
        }
    }

    fn in_bytes(self) -> bool {
        matches!(self, Reading::FewBits | Reading::FourBits)
    }
}

/// What one side of a page costs a multiprocessor, in bytes of a 16-bit page that it reads in the same time. Measured
/// with half of an H200's multiprocessors at work, which memory does not bound: f16 323 us, fp8 190, tq3 104 for what
/// 128 of them do in 247, 133 and 65; codes of 2 and 4 bits by their ratio to tq3 with all at work.
pub(crate) fn cost(side: &CodecUse) -> u64 {
    let layout = side.codec.layout();
    let values = (layout.geometry.tokens * layout.geometry.head_dim) as u64;
    let bits = layout.planes.iter().map(|plane| plane.bits).sum::<u32>();
    // Thousandths of the 2 bytes of a value.
    let share = match (Reading::of(side), bits) {
        (Reading::Halves, _) => 1000,
        (Reading::Fp8, _) => 590,
        (Reading::FewBits, 2) => 270,
        (Reading::FewBits, _) => 320,
        (Reading::FourBits, _) => 510,
    };
    values * 2 * share / 1000
}

/// How a block is laid out.
pub(super) struct Tuning {
    pub threads: u32,
    /// Query vectors that share loads.
    pub chunk: u32,
    /// Tokens that a warp takes at a time.
    pub step: u32,
    /// Tiles of keys and groups of values that are asked for ahead.
    pub ahead: [u32; 2],
    /// See [`Architecture::always_ask`].
    pub always_ask: bool,
    /// Parts of queries and of weights in products of e4m3; 0 where there are none.
    pub parts: [u32; 2],
}

impl Tuning {
    pub fn of(shape: &AttentionShape, sides: [&CodecUse; 2], rows: usize, cores: TensorCores) -> Self {
        let architecture = Architecture::of(cores.capability);
        let [k, v] = sides.map(Reading::of);
        let page = shape.page_tokens as u32;
        let chunk = if rows * shape.group <= 4 { 4 } else { 8 };
        let wide = shape.k_dim.max(shape.v_dim) > 128;
        let step = match (k.in_bytes() || v.in_bytes(), k == Reading::Halves && v == Reading::Halves) {
            (true, _) => 64,
            (false, true) => 16,
            (false, false) => 32,
        };
        // Registers bound all of it: 65,536 over the block's threads, 255 at most.
        let mixed = k.in_bytes() != v.in_bytes();
        let keys = match k {
            _ if wide && chunk > 4 => 0,
            Reading::FewBits => 4,
            Reading::FourBits => 2,
            Reading::Fp8 if !mixed => architecture.fp8_keys,
            _ => 1,
        };
        let values = match v {
            _ if wide && chunk > 4 => u32::from(v == Reading::Fp8),
            Reading::FewBits if !mixed => 4,
            Reading::FewBits | Reading::FourBits => 2,
            _ => 1,
        };
        let threads = if chunk == 4 && !wide { architecture.threads[usize::from(k != v)] } else { 256 };
        let parts = |side, parts| if cores.e4m3 && side == Reading::Fp8 { parts } else { 0 };
        Tuning {
            threads,
            chunk,
            step: step.min(page),
            ahead: [keys, values],
            always_ask: architecture.always_ask,
            parts: [parts(k, E4M3_PARTS[0]), parts(v, E4M3_PARTS[1])],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Architecture, TensorCores, capability, choose_e4m3, features};

    #[test]
    fn architectures_are_found_by_their_target() {
        let targets = ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_121a", "e4m3_products", "sm_"];
        let read = [Some((8, 0)), Some((8, 9)), Some((9, 0)), Some((10, 0)), Some((10, 3)), Some((12, 1)), None, None];
        assert_eq!(targets.map(capability), read);
        let rows = [(8, 6), (8, 9), (9, 0), (10, 3), (11, 0), (12, 1), (7, 5)].map(|c| Architecture::of(c).from);
        assert_eq!(rows, [(8, 0), (8, 9), (9, 0), (10, 0), (10, 0), (12, 0), (8, 0)]);
        // Whoever uses them has them.
        for number in 80..=130 {
            let capability = (number / 10, number % 10);
            let usual = TensorCores::usual(capability);
            let mut features = features(capability, &format!("sm_{number}a"));
            let chosen = choose_e4m3(&mut features, capability, true);
            assert_eq!(chosen.is_ok(), capability >= (8, 9), "{number}");
            assert!(chosen.is_ok() || !usual.e4m3, "{number}");
            assert!(choose_e4m3(&mut features, capability, false).is_ok() && features.len() == 1, "{features:?}");
        }
    }
}

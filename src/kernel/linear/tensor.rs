//! The linear layer on tensor cores, by CUDA's own texts: one for few rows, one for many.
//!
//! Not the portable kernel's texts, but their contract. Weights go from memory to shared memory as they are stored, and from
//! there straight to fragments of `mma.sync`: codes as f16, which holds them all, their scales behind the products. An
//! activation is two numbers of 16 bits, what rounding gives and what it leaves, so that 22 bits of it count (16 beside bf16
//! and f32 weights): errors are within 1e-5 of the sum of the products' sizes, as the portable kernel's are. Measured, they
//! are below 2e-7 beside codes and f16, 1.2e-6 beside bf16, 1.7e-6 beside f32. Beside f16 an activation of more than 524,000
//! overflows, and the result is not a number.
//!
//! What was measured on an H200 on 2026-12-01 by a harness around the texts (launches of one graph, weights not in the
//! second-level cache; bytes of weights a second over what a copy moves, 4.03 to 4.20 TB/s; 4096 columns and one row where
//! nothing else is said):
//! - outputs 4096, 28,672, 128,256: q4_0 7.5 us, 26.8 us, 101 us (0.31, 0.61, 0.73); q8_0 10.3, 39.8, 151 (0.43, 0.78, 0.91);
//!   f16 11.1, 65.0, 262 (0.72, 0.86, 0.96). 14,336 columns, 4096 outputs: 17.4 us, 23.1 us, 36.3 us (0.47, 0.67, 0.80). A
//!   launch that finds next to nothing to do takes 2.6 us. q4_0 is bound by neither memory nor issue: waits, not located;
//! - q4_0 with 16, 8 or 4 warps to a row and stages of 8 blocks: 0.68, 0.73, 0.73 of 128,256 outputs; q8_0 in stages of 4: 0.68;
//! - the compiler's own two instructions for `word & mask | bits`, and lines' addresses made anew for each stage: q4_0 0.54;
//! - scales without loads of their own (pairs of blocks): level, 0.73 for 0.72 and 0.91 for 0.90;
//! - two rows of fragments at once (8 rows of q8_0): 97 us for 28,672 outputs, two passes of 4 rows 88 us;
//! - many rows: 110 to 125 TFLOP/s whatever the tile (128 x 64, 128 x 128, 256 x 128, 64 x 64, 128 x 256; 28,672 outputs, 256 or
//!   2048 rows), cuBLAS in bf16 640 to 810. Each counts twice on the tensor cores, which give 635 to `mma.sync` alone. With one
//!   rounding instead of two numbers: 165, and errors of 2.5e-5, which the tests refuse. Making fragments of activations once,
//!   ahead of the kernel, was not tried, nor `wgmma`.

use super::{DECL, LinearPath};
use crate::backend::{Caps, Constant, CudaText, KernelDecl, Specialisation};
use crate::error::Result;
use crate::kernel::tier::Tier;
use crate::num::weights::WeightType;

/// A kernel of the linear layer's contract. It has no WGSL: [`specialise`] is asked for it by devices of CUDA's alone.
const fn declaration(text: &'static str, constants: &'static [&'static str]) -> KernelDecl {
    KernelDecl {
        name: "linear",
        bindings: DECL.bindings,
        params: DECL.params,
        constants,
        codecs: &[],
        cpu: DECL.cpu,
        wgsl: "",
        cuda: Some(CudaText {
            text,
            serves: |_| true,
            threads: |spec| spec.u32("WORKGROUP"),
            shared_bytes: |spec| spec.u32("SHARED_BYTES"),
            overlaps: true,
        }),
    }
}

/// Few rows: memory sets the speed.
pub static FEW: KernelDecl = declaration(
    concat!(
        include_str!("../../../cuda/linear/products.cuh"),
        include_str!("../../../cuda/linear/stored.cuh"),
        include_str!("../../../cuda/linear/stages.cuh"),
        include_str!("../../../cuda/linear/fragments.cuh"),
        include_str!("../../../cuda/linear/few.cuh"),
        include_str!("../../../cuda/linear.cu")
    ),
    &[
        "WORKGROUP",
        "WEIGHT",
        "COLUMNS",
        "ACCUMULATE",
        "ROW_TILE",
        "OUT_TILE",
        "SPLIT",
        "RANGE",
        "STAGE",
        "DEPTH",
        "SHARED_BYTES",
        "BLOCKS_AN_SM",
        "WARP_TILES",
        "X_SHARED",
        "MOST_GROUPS",
    ],
);

/// Many rows: arithmetic sets the speed.
pub static MANY: KernelDecl = declaration(
    concat!(
        include_str!("../../../cuda/linear/products.cuh"),
        include_str!("../../../cuda/linear/stored.cuh"),
        include_str!("../../../cuda/linear/stages.cuh"),
        include_str!("../../../cuda/linear/fragments.cuh"),
        include_str!("../../../cuda/linear/many.cuh"),
        include_str!("../../../cuda/linear.cu")
    ),
    &[
        "WORKGROUP",
        "WEIGHT",
        "COLUMNS",
        "ACCUMULATE",
        "ROW_TILE",
        "OUT_TILE",
        "SPLIT",
        "RANGE",
        "STAGE",
        "DEPTH",
        "SHARED_BYTES",
        "BLOCKS_AN_SM",
        "WARPS_ROWS",
        "X_PARTS",
        "AT_ONCE",
    ],
);

/// What the kernels are laid out for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Shared memory that a block may ask for, bytes.
    pub shared_bytes: u32,
}

impl Machine {
    /// Of a device whose tensor cores serve; `None` for others.
    pub fn of(caps: &Caps) -> Option<Self> {
        let multiprocessors = caps.multiprocessors.filter(|_| Tier::of(caps).tiles.is_some())?;
        Some(Machine { multiprocessors, shared_bytes: caps.max_workgroup_bytes })
    }
}

/// Whether `specialisation` is of these kernels.
pub(super) fn is_tensor(specialisation: &Specialisation) -> bool {
    specialisation.decl.wgsl.is_empty()
}

/// The kernel for a path; `None` where the portable one serves: many rows of f32 weights, which two numbers of 16 bits do
/// not hold, and devices with too little shared memory.
///
/// # Errors
/// `Unsupported` for a column count that the type does not take.
pub fn specialise(
    machine: Machine,
    weight: WeightType,
    columns: u32,
    accumulate: bool,
    path: LinearPath,
) -> Result<Option<Specialisation>> {
    weight.row_bytes(columns as usize)?;
    let stored = Stored::new(weight, columns);
    let own = match path {
        LinearPath::OneRow => few(machine, &stored, 1),
        // Eight rows at once of bytes take more registers than there are: two passes are faster.
        LinearPath::FewRows if stored.weight.bytes_of_32() > 32 && stored.codes() => few(machine, &stored, 4),
        LinearPath::FewRows => few(machine, &stored, 8).or_else(|| few(machine, &stored, 4)),
        LinearPath::ManyRows => many(machine, &stored),
    };
    let Some((decl, mut constants)) = own else { return Ok(None) };
    constants.extend([
        ("WEIGHT", Constant::U32(weight.code())),
        ("COLUMNS", Constant::U32(columns)),
        ("ACCUMULATE", Constant::Bool(accumulate)),
    ]);
    Specialisation::new(decl, &constants, Vec::new()).map(Some)
}

type Layout = (&'static KernelDecl, Vec<(&'static str, Constant)>);

/// A matrix's rows, in blocks of 32 columns.
struct Stored {
    weight: WeightType,
    row_bytes: u32,
    block_bytes: u32,
    blocks: u32,
}

impl Stored {
    fn new(weight: WeightType, columns: u32) -> Self {
        let block_bytes = weight.bytes_of_32() as u32;
        Stored { weight, row_bytes: columns / 8 * (block_bytes / 2) / 2, block_bytes, blocks: columns.div_ceil(32) }
    }

    /// Blocks of a stage of many rows: about 128 to 180 bytes of a row, and an even number.
    fn stage(&self) -> u32 {
        match self.weight {
            WeightType::F32 | WeightType::F16 | WeightType::BF16 => 2,
            WeightType::Q4_0 | WeightType::Q4_1 => 8,
            WeightType::Q8_0 | WeightType::Wide => 4,
        }
    }

    /// How few rows are laid out where there is room: blocks of a stage, most warps that share a row, and tiles of 16
    /// outputs of a warp. Codes are decoded side by side, the more of them the better.
    fn tuning(&self, rows: u32) -> [u32; 3] {
        match self.weight {
            WeightType::F32 => [1, 16, 1],
            WeightType::F16 | WeightType::BF16 => [2, 16, 1],
            WeightType::Q4_0 | WeightType::Q4_1 if rows == 1 => [16, 16, 1],
            WeightType::Q8_0 if rows == 1 => [8, 8, 2],
            WeightType::Q4_0 | WeightType::Q4_1 | WeightType::Q8_0 | WeightType::Wide => [8, 16, 1],
        }
    }

    fn codes(&self) -> bool {
        !matches!(self.weight, WeightType::F32 | WeightType::F16 | WeightType::BF16)
    }

    /// Bytes between rows of a stage in shared memory, as the text counts them.
    fn pitch(&self, stage: u32, split: u32, range: u32) -> u32 {
        let lined = self.row_bytes.is_multiple_of(16)
            && (stage * self.block_bytes).is_multiple_of(16)
            && (split == 1 || (range * self.block_bytes).is_multiple_of(16));
        let lines = (stage * self.block_bytes + if lined { 0 } else { 14 }).div_ceil(16);
        16 * (lines | 1)
    }

    fn offsets(&self) -> bool {
        matches!(self.weight, WeightType::Q4_1 | WeightType::Wide)
    }

    /// Warps that share a row's columns. Long rows are cut where stages begin at whole lines, short ones so that a warp has
    /// about six blocks: there latency is what counts.
    fn split(&self, stage: u32, most: u32) -> u32 {
        let unit = stage.max(8);
        let whole = |split: &u32| self.blocks.is_multiple_of(*split) && (self.blocks / split).is_multiple_of(unit);
        match (1..=most).rev().find(whole) {
            Some(split @ 4..) if self.long() => split,
            _ => self.blocks.div_ceil(6).min(16),
        }
    }

    fn long(&self) -> bool {
        self.blocks >= 64
    }
}

/// Bytes in flight that keep a multiprocessor's share of memory busy, more than enough.
const AHEAD: u32 = 40_000;

fn few(machine: Machine, stored: &Stored, rows: u32) -> Option<Layout> {
    let [stage, ..] = stored.tuning(rows);
    let stages = std::iter::successors(Some(stage), |stage| (*stage > 1).then_some(stage / 2));
    // Activations that are made ready once are worth more than long stages.
    let mut fits = stages.clone().filter_map(|stage| few_of(machine, stored, rows, stage, true));
    // More than four rows are not worth making ready again for each tile.
    let mut again = stages.filter(|_| rows <= 4).filter_map(|stage| few_of(machine, stored, rows, stage, false));
    fits.next().or_else(|| again.next())
}

fn few_of(machine: Machine, stored: &Stored, rows: u32, stage: u32, x_shared: bool) -> Option<Layout> {
    let [longest, most, warp_tiles] = stored.tuning(rows);
    let split = stored.split(longest, most);
    let range = stored.blocks.div_ceil(split);
    let stage = stage.min(range);
    let warps = split * (6 / split).max(1);
    let warp_tiles = if stored.long() { warp_tiles } else { 1 };
    let own = 16 * warp_tiles;
    let stage_bytes = own * stored.pitch(stage, split, range);
    let depth = (2..4).find(|depth| warps * depth * stage_bytes >= AHEAD).unwrap_or(4);
    let groups = rows.div_ceil(4);
    let x_lanes = if rows == 1 { 8 } else { 32 };
    let sums = if stored.offsets() { 16 * stored.blocks * groups } else { 0 };
    let activations = if x_shared { 16 * stored.blocks * groups * x_lanes + sums } else { 0 };
    let shared = activations + 8 * warps * rows * own + warps * depth * stage_bytes;
    if shared > machine.shared_bytes {
        return None;
    }
    // Codes take registers to decode: 128 for each thread.
    let threads = if stored.codes() && stored.long() { 512 } else { 1024 };
    let resident = (threads / (32 * warps)).min((machine.shared_bytes + 1024) / (shared + 1024)).max(1);
    let constants = vec![
        ("WORKGROUP", Constant::U32(32 * warps)),
        ("ROW_TILE", Constant::U32(rows)),
        ("OUT_TILE", Constant::U32(warps / split * own)),
        ("SPLIT", Constant::U32(split)),
        ("RANGE", Constant::U32(range)),
        ("STAGE", Constant::U32(stage)),
        ("DEPTH", Constant::U32(depth)),
        ("SHARED_BYTES", Constant::U32(shared)),
        ("BLOCKS_AN_SM", Constant::U32(resident)),
        ("WARP_TILES", Constant::U32(warp_tiles)),
        ("X_SHARED", Constant::Bool(x_shared)),
        ("MOST_GROUPS", Constant::U32(machine.multiprocessors * resident)),
    ];
    Some((&FEW, constants))
}

fn many(machine: Machine, stored: &Stored) -> Option<Layout> {
    const WARPS: u32 = 8;
    const PARTS: u32 = 2;
    let (rows, outs) = (super::TILE, 128);
    if stored.weight == WeightType::F32 {
        return None;
    }
    let stage = stored.stage();
    let stage_bytes = outs * stored.pitch(stage, 1, stored.blocks);
    // As many stages as were quickest, or as there is room for: two at least, one that comes and one that is used.
    let shared = |depth: u32| 2 * (rows / 8 * PARTS * 512) + 8 * rows + depth * stage_bytes;
    let quickest = if stage < 8 { 4 } else { 2 };
    let depth = (2..=quickest).rev().find(|depth| shared(*depth) <= machine.shared_bytes)?;
    let shared = shared(depth);
    let constants = vec![
        ("WORKGROUP", Constant::U32(32 * WARPS)),
        ("ROW_TILE", Constant::U32(rows)),
        ("OUT_TILE", Constant::U32(outs)),
        ("SPLIT", Constant::U32(1)),
        ("RANGE", Constant::U32(stored.blocks)),
        ("STAGE", Constant::U32(stage)),
        ("DEPTH", Constant::U32(depth)),
        ("SHARED_BYTES", Constant::U32(shared)),
        ("BLOCKS_AN_SM", Constant::U32(2)),
        ("WARPS_ROWS", Constant::U32(2)),
        ("X_PARTS", Constant::U32(PARTS)),
        ("AT_ONCE", Constant::U32(4)),
    ];
    Some((&MANY, constants))
}

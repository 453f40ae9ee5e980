//! The linear layer on tensor cores, by CUDA's own texts: one for few rows, one for many.
//!
//! Not the portable kernel's texts, but their contract. Weights go from memory to shared memory as they are stored, and from
//! there straight to fragments of `mma.sync`: codes as f16, which holds them all, their scales behind the products. An
//! activation is two numbers of 16 bits, what rounding gives and what it leaves, so that 22 bits of it count (16 beside bf16
//! and f32 weights): errors are within 1e-5 of the sum of the products' sizes, as the portable kernel's are.

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
        cuda: Some(CudaText { text, serves: |_| true, threads: |spec| spec.u32("WORKGROUP"), overlaps: false }),
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
        let multiprocessors = caps.multiprocessors.filter(|_| Tier::of(caps).tiles)?;
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

    /// Blocks of a stage of few rows, where there is room: those of codes are decoded side by side, and the more of them
    /// the better.
    fn stage_of_few(&self) -> u32 {
        match self.weight {
            WeightType::F32 => 1,
            WeightType::F16 | WeightType::BF16 => 2,
            WeightType::Wide => 4,
            WeightType::Q4_0 | WeightType::Q4_1 | WeightType::Q8_0 => 8,
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
    fn split(&self) -> u32 {
        let whole = |split: &u32| self.blocks.is_multiple_of(*split) && (self.blocks / split).is_multiple_of(8);
        match (1..=16).rev().find(whole) {
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
    let stages = std::iter::successors(Some(stored.stage_of_few()), |stage| (*stage > 1).then_some(stage / 2));
    // Activations that are made ready once are worth more than long stages.
    let mut fits = stages.clone().filter_map(|stage| few_of(machine, stored, rows, stage, true));
    // More than four rows are not worth making ready again for each tile.
    let mut again = stages.filter(|_| rows <= 4).filter_map(|stage| few_of(machine, stored, rows, stage, false));
    fits.next().or_else(|| again.next())
}

fn few_of(machine: Machine, stored: &Stored, rows: u32, stage: u32, x_shared: bool) -> Option<Layout> {
    let split = stored.split();
    let range = stored.blocks.div_ceil(split);
    let stage = stage.min(range);
    let warps = split * (6 / split).max(1);
    let (warp_tiles, own) = (1, 16);
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
    let depth = if stage < 8 { 4 } else { 2 };
    let shared = 2 * (rows / 8 * PARTS * 512) + 8 * rows + depth * stage_bytes;
    if shared > machine.shared_bytes {
        return None;
    }
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

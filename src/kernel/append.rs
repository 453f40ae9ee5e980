//! Writes the K and V of new tokens into their open pages, in the basis of each side.

use super::attention::{AttentionShape, ROW_WORDS, check_geometry};
use super::maps::{self, Region};
use super::tables::{Means, descriptor, item, range, split_disjoint};
use super::{MeanPlace, RowView, SideBases, SideBasis};
use crate::backend::{
    BindingDecl, BufferSlice, CodecUse, Constant, CpuCall, Dispatch, Element, KernelDecl, ParamDecl, PipelineId,
    Specialisation,
};
use crate::error::{Error, ErrorKind, Result};
use crate::format::Codec;
use crate::num;
use rayon::prelude::*;

/// The kernel.
pub static DECL: KernelDecl = KernelDecl {
    name: "append",
    bindings: &[
        BindingDecl::read("k_in", Element::F32),
        BindingDecl::read("v_in", Element::F32),
        BindingDecl::read("tables", Element::U32),
        BindingDecl::read("descs", Element::U32),
        BindingDecl::read("means", Element::F32),
        BindingDecl::read("maps", Element::F32),
        BindingDecl::write("k_slab", Element::U32),
        BindingDecl::write("v_slab", Element::U32),
    ],
    params: &[
        ParamDecl::u32("items_at"),
        ParamDecl::u32("rows_at"),
        ParamDecl::u32("k_offset"),
        ParamDecl::u32("k_stride"),
        ParamDecl::u32("v_offset"),
        ParamDecl::u32("v_stride"),
        ParamDecl::u32("mean_stride"),
        ParamDecl::u32("mean_layer_at"),
    ],
    constants: &[
        "WORKGROUP",
        "KV_HEADS",
        "K_DIM",
        "V_DIM",
        "K_WORDS",
        "V_WORDS",
        "K_ROTATE",
        "K_MEAN",
        "K_FIXED",
        "K_MAP",
        "V_ROTATE",
        "V_MEAN",
        "V_FIXED",
        "V_MAP",
        "V_REGION",
    ],
    codecs: &["k", "v"],
    cpu,
    wgsl: include_str!("../../shaders/append.wgsl"),
    cuda: None,
};

/// Words of an append item in `tables`: row, token_in_page, desc_list, 0.
pub const ITEM_WORDS: usize = 4;

/// In a descriptor list: this head's page is of another class, and another dispatch writes it.
pub const NO_PAGE: u32 = u32::MAX;

/// Buffers of a dispatch.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// New keys: head `h`, channel `c` of a row at element `h * k_dim + c`.
    pub k_in: RowView,
    /// New values, likewise.
    pub v_in: RowView,
    /// The step's tables.
    pub tables: BufferSlice,
    /// Page descriptors.
    pub descs: BufferSlice,
    /// Means, `[mean_slot][layer][kv_head][k_dim + v_dim]`; any buffer where no side removes a mean.
    pub means: BufferSlice,
    /// The layer's calibrated means and maps of both sides, see [`super::maps`]; any buffer that is not written where
    /// no side has some.
    pub maps: BufferSlice,
    /// Slab of open K pages, written.
    pub k_slab: BufferSlice,
    /// Slab of open V pages, written.
    pub v_slab: BufferSlice,
}

/// Parameters of a dispatch.
#[derive(Clone, Copy, Debug)]
pub struct Args {
    /// Tokens to append.
    pub items: u32,
    /// First word of the items in `tables`.
    pub items_at: u32,
    /// First word of the rows in `tables`.
    pub rows_at: u32,
    /// Where the layer's means are.
    pub means: MeanPlace,
}

/// Specialises for token-writable formats and the bases of both sides; the CPU ignores `workgroup`.
///
/// # Errors
/// `Shape` for a codec of another geometry, `Unsupported` for one that cannot write a single token.
pub fn specialise(
    shape: &AttentionShape,
    k: CodecUse,
    v: CodecUse,
    bases: SideBases,
    workgroup: u32,
) -> Result<Specialisation> {
    check_geometry(DECL.name, "K", &k, shape.page_tokens, shape.k_dim)?;
    check_geometry(DECL.name, "V", &v, shape.page_tokens, shape.v_dim)?;
    for codec in [&k, &v] {
        if !codec.codec.token_writable() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("format {} cannot take tokens one at a time", codec.format),
                "keep open pages in f16, bf16 or f32",
            ));
        }
    }
    Specialisation::new(
        &DECL,
        &[
            ("WORKGROUP", Constant::U32(workgroup)),
            ("KV_HEADS", Constant::U32(shape.kv_heads as u32)),
            ("K_DIM", Constant::U32(shape.k_dim as u32)),
            ("V_DIM", Constant::U32(shape.v_dim as u32)),
            ("K_WORDS", Constant::U32(k.codec.layout().page_words as u32)),
            ("V_WORDS", Constant::U32(v.codec.layout().page_words as u32)),
            ("K_ROTATE", Constant::Bool(bases.k.rotate)),
            ("K_MEAN", Constant::Bool(bases.k.mean)),
            ("K_FIXED", Constant::Bool(bases.k.fixed)),
            ("K_MAP", Constant::Bool(bases.k.map)),
            ("V_ROTATE", Constant::Bool(bases.v.rotate)),
            ("V_MEAN", Constant::Bool(bases.v.mean)),
            ("V_FIXED", Constant::Bool(bases.v.fixed)),
            ("V_MAP", Constant::Bool(bases.v.map)),
            ("V_REGION", Constant::U32(maps::region_floats(bases.k, shape.kv_heads, shape.k_dim) as u32)),
        ],
        vec![k, v],
    )
}

/// One dispatch over `args.items` tokens; `kv_heads` is the shape's.
pub fn dispatch(pipeline: PipelineId, kv_heads: usize, buffers: &Buffers, args: &Args) -> Dispatch {
    Dispatch {
        pipeline,
        groups: args.items * kv_heads as u32 * 2,
        params: vec![
            args.items_at,
            args.rows_at,
            buffers.k_in.offset,
            buffers.k_in.stride,
            buffers.v_in.offset,
            buffers.v_in.stride,
            args.means.stride,
            args.means.layer_at,
        ],
        bindings: vec![
            buffers.k_in.slice,
            buffers.v_in.slice,
            buffers.tables,
            buffers.descs,
            buffers.means,
            buffers.maps,
            buffers.k_slab,
            buffers.v_slab,
        ],
    }
}

fn cpu(call: &mut CpuCall<'_>) -> Result<()> {
    let spec = call.spec;
    let heads = spec.usize("KV_HEADS");
    let (k_dim, v_dim) = (spec.usize("K_DIM"), spec.usize("V_DIM"));
    let tables = call.read::<u32>("tables");
    let descs = call.read::<u32>("descs");
    let means =
        Means { stride: call.index("mean_stride"), layer_at: call.index("mean_layer_at"), head_floats: k_dim + v_dim };
    let mean_values = call.read::<f32>("means");
    let map_values = call.read::<f32>("maps");
    let basis = |side: &str| {
        let flag = |what: &str| spec.flag(&format!("{side}_{what}"));
        SideBasis { rotate: flag("ROTATE"), mean: flag("MEAN"), fixed: flag("FIXED"), map: flag("MAP") }
    };
    let (k_basis, v_basis) = (basis("K"), basis("V"));
    let v_region = match v_basis.fixed {
        true => range(map_values, spec.usize("V_REGION"), maps::region_floats(v_basis, heads, v_dim), "maps of V")?,
        false => &[],
    };
    let (items_at, rows_at) = (call.index("items_at"), call.index("rows_at"));
    let items = call.groups as usize / (2 * heads).max(1);

    // Tokens in the order of their slots: a thread gets whole slots, and the order within one is fixed.
    let mut writes = [Vec::with_capacity(items * heads), Vec::with_capacity(items * heads)];
    for index in 0..items {
        let [row, token, desc_list, _] = item::<ITEM_WORDS>(tables, items_at, index)?;
        let [_, _, _, mean_slot] = item::<ROW_WORDS>(tables, rows_at, row)?;
        let pages = range(tables, desc_list, heads, "descriptor list")?.iter().enumerate();
        for (head, &id) in pages.filter(|&(_, &id)| id != NO_PAGE) {
            let descriptor = descriptor(descs, id as usize)?;
            let mean_at = means.at(mean_slot, head);
            writes[0].push(Write { slot: descriptor.k_slot, token, row, head, mean_at });
            writes[1].push(Write { slot: descriptor.v_slot, token, row, head, mean_at: mean_at + k_dim });
        }
    }
    let [k_writes, v_writes] = writes;
    let (k_in, v_in) = (call.read::<f32>("k_in"), call.read::<f32>("v_in"));
    let sides = [
        Write::all(
            k_writes,
            call.write("k_slab"),
            SideIn {
                codec: spec.codec("k"),
                words: spec.usize("K_WORDS"),
                basis: k_basis,
                maps: Region { floats: map_values, basis: k_basis, dim: k_dim },
                rows: k_in,
                offset: call.index("k_offset"),
                stride: call.index("k_stride"),
                dim: k_dim,
                means: mean_values,
            },
        ),
        Write::all(
            v_writes,
            call.write("v_slab"),
            SideIn {
                codec: spec.codec("v"),
                words: spec.usize("V_WORDS"),
                basis: v_basis,
                maps: Region { floats: v_region, basis: v_basis, dim: v_dim },
                rows: v_in,
                offset: call.index("v_offset"),
                stride: call.index("v_stride"),
                dim: v_dim,
                means: mean_values,
            },
        ),
    ];
    sides.into_iter().collect()
}

/// One side's input rows and how to store them.
struct SideIn<'a> {
    codec: &'a dyn Codec,
    words: usize,
    basis: SideBasis,
    maps: Region<'a>,
    rows: &'a [f32],
    offset: usize,
    stride: usize,
    dim: usize,
    means: &'a [f32],
}

/// One token of one head and side.
struct Write {
    slot: usize,
    token: usize,
    row: usize,
    head: usize,
    mean_at: usize,
}

impl Write {
    fn all(mut writes: Vec<Write>, slab: &mut [u32], side: SideIn<'_>) -> Result<()> {
        writes.sort_by_key(|w| w.slot);
        let pages: Vec<_> = writes
            .chunk_by(|a, b| a.slot == b.slot)
            .map(|page| (page[0].slot.saturating_mul(side.words), side.words, page))
            .collect();
        split_disjoint(slab, pages, "page slot")?.into_par_iter().try_for_each(|(writes, page)| {
            let (mut row, mut scratch) = (vec![0.0; side.dim], Vec::new());
            writes.iter().try_for_each(|write| write.one(page, &mut row, &mut scratch, &side))
        })
    }

    fn one(&self, page: &mut [u32], row: &mut [f32], scratch: &mut Vec<f32>, side: &SideIn<'_>) -> Result<()> {
        let tokens = side.codec.layout().geometry.tokens;
        if self.token >= tokens {
            let message = format!("token {} of a page of {tokens}", self.token);
            return Err(Error::new(ErrorKind::Shape, message, ""));
        }
        let start = side.offset + self.row.saturating_mul(side.stride) + self.head * side.dim;
        row.copy_from_slice(range(side.rows, start, side.dim, "row of K or V")?);
        if side.basis.mean {
            let mean = range(side.means, self.mean_at, side.dim, "mean")?;
            row.iter_mut().zip(mean).for_each(|(x, m)| *x -= m);
        }
        if side.basis.fixed {
            row.iter_mut().zip(side.maps.mean(self.head)?).for_each(|(x, m)| *x -= m);
        }
        if side.basis.map {
            maps::transform(side.maps.matrix(self.head, 0)?, row, scratch);
        }
        if side.basis.rotate {
            num::rotate(row);
        }
        side.codec.write_token(page, self.token, row);
        Ok(())
    }
}

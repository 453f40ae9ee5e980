//! Which kernels a backend compiles, and which formats it can hold at which head sizes.

use super::{HEAD_DIM, KV_HEADS, PAGE_TOKENS, Q_HEADS};
use crate::backend::{Backend, CodecUse, Specialisation};
use crate::engine::pipelines::{WORKGROUP, tile_rows};
use crate::error::{Error, ErrorKind, Result};
use crate::format::FormatRegistry;
use crate::kernel::attention::AttentionShape;
use crate::kernel::gated_mul::Activation;
use crate::kernel::linear::{self, LinearPath};
use crate::kernel::plane::{self, PlanePlace};
use crate::kernel::tier::Tier;
use crate::kernel::{
    SideBases, SideBasis, add, append, argmax, convert, copy_slots, decode, embed, gated_mul, gather, head_norm, mean,
    merge, prefill, query, rms_norm, rope, summarise_box,
};
use crate::num::rope::Pairing;
use crate::num::weights::WeightType;
use crate::shape::{PageGeometry, Side};
use std::time::{Duration, Instant};

/// Head sizes that [`formats`] is usually asked about.
pub const HEAD_SIZES: [usize; 5] = [64, 80, 96, 128, 256];

/// What became of a kernel.
#[derive(Clone, Debug)]
pub struct KernelReport {
    /// Its name.
    pub kernel: &'static str,
    /// Specialisations that compile.
    pub compiled: usize,
    /// Time taken by them all.
    pub time: Duration,
    /// Specialisations that do not: key and reason.
    pub refused: Vec<(String, Error)>,
}

/// Whether a side can be held in a format at a head size.
#[derive(Clone, Debug)]
pub struct Support {
    /// The format's name.
    pub format: String,
    /// Keys or values.
    pub side: Side,
    /// Channels.
    pub head_dim: usize,
    /// Bits that a value takes, scales included.
    pub bits_per_value: f64,
    /// Why not; none where it runs.
    pub refusal: Option<Error>,
}

fn codec(formats: &FormatRegistry, name: &str, side: Side, tokens: usize, head_dim: usize) -> Result<CodecUse> {
    let codec = formats.by_name(name)?.1.codec(side, PageGeometry { tokens, head_dim })?;
    Ok(CodecUse { format: name.into(), codec })
}

/// Prepares the kernels of the cache and, with `rows` query rows, of a small model, in every format of the crate.
///
/// # Errors
/// `Device` and `DeviceLost` only: what does not compile is in the report.
pub fn kernels(backend: &mut dyn Backend) -> Result<Vec<KernelReport>> {
    let formats = FormatRegistry::builtin();
    let names: Vec<&str> = formats.iter().map(|(_, f)| f.name()).collect();
    let mut specs = attention(backend, &formats, &names)?;
    specs.extend(dense()?);
    prepare(backend, specs)
}

/// Prepares the kernels of the cache for one format on both sides.
///
/// # Errors
/// As [`kernels`].
pub fn kernels_for(backend: &mut dyn Backend, format: &str) -> Result<Vec<KernelReport>> {
    let specs = attention(backend, &FormatRegistry::builtin(), &[format])?;
    prepare(backend, specs)
}

fn prepare(backend: &mut dyn Backend, specs: Vec<Specialisation>) -> Result<Vec<KernelReport>> {
    let mut reports: Vec<KernelReport> = Vec::new();
    for spec in specs {
        let start = Instant::now();
        let made = backend.prepare(&spec);
        let name = spec.decl.name;
        if !reports.iter().any(|r| r.kernel == name) {
            reports.push(KernelReport { kernel: name, compiled: 0, time: Duration::ZERO, refused: Vec::new() });
        }
        let Some(report) = reports.iter_mut().find(|r| r.kernel == name) else { continue };
        report.time += start.elapsed();
        match made {
            Ok(_) => report.compiled += 1,
            Err(error) if matches!(error.kind(), ErrorKind::Device | ErrorKind::DeviceLost) => return Err(error),
            Err(error) => report.refused.push((spec.key().into(), error)),
        }
    }
    Ok(reports)
}

fn attention(backend: &dyn Backend, formats: &FormatRegistry, names: &[&str]) -> Result<Vec<Specialisation>> {
    let shape = AttentionShape {
        kv_heads: KV_HEADS,
        group: Q_HEADS / KV_HEADS,
        k_dim: HEAD_DIM,
        v_dim: HEAD_DIM,
        page_tokens: PAGE_TOKENS,
        window: false,
        softcap: false,
    };
    let tile = tile_rows(backend.caps(), &shape) as usize;
    let codec = |name: &str, side| codec(formats, name, side, PAGE_TOKENS, HEAD_DIM);
    let words = summarise_box::words(HEAD_DIM) as u32;
    let place = PlanePlace { record_words: words, at: 0, words };
    let boxes = plane::specialise(&summarise_box::DECL, &shape, place, WORKGROUP)?;
    let mut specs = vec![mean::specialise(&shape, WORKGROUP)?, boxes];
    let tier = Tier::of(backend.caps());
    for basis in [SideBasis::NONE, SideBasis::HADAMARD, SideBasis::MEAN, SideBasis::MAP] {
        specs.push(query::specialise(&shape, basis, WORKGROUP)?);
        specs.push(merge::specialise(&shape, basis, false, WORKGROUP)?);
        let bases = SideBases { k: basis, v: basis };
        specs.push(append::specialise(&shape, codec("f16", Side::K)?, codec("f16", Side::V)?, bases, WORKGROUP)?);
    }
    for &name in names {
        let (k, v) = (codec(name, Side::K)?, codec(name, Side::V)?);
        // The open pages of this format's profile.
        let open = if name == "f32" { "f32" } else { "f16" };
        if name == "f32" {
            specs.push(append::specialise(&shape, k.clone(), v.clone(), SideBases::default(), WORKGROUP)?);
        }
        for rows in [1, 4] {
            specs.push(decode::specialise(&shape, k.clone(), v.clone(), rows, tier, WORKGROUP)?);
        }
        specs.push(prefill::specialise(&shape, k.clone(), v.clone(), tile, tier, WORKGROUP)?);
        if name != open {
            for (side, own) in [(Side::K, &k), (Side::V, &v)] {
                specs.push(convert::specialise(codec(open, side)?, own.clone(), WORKGROUP)?);
                specs.push(convert::specialise(own.clone(), codec(open, side)?, WORKGROUP)?);
            }
        } else {
            specs.push(copy_slots::specialise(k.codec.layout().page_words, WORKGROUP)?);
        }
    }
    Ok(specs)
}

fn dense() -> Result<Vec<Specialisation>> {
    let width = (Q_HEADS * HEAD_DIM) as u32;
    let mut specs = vec![
        add::specialise()?,
        argmax::specialise()?,
        gather::specialise()?,
        rms_norm::specialise(width)?,
        rope::specialise(HEAD_DIM as u32, HEAD_DIM as u32, Pairing::Adjacent)?,
        rope::specialise(HEAD_DIM as u32, HEAD_DIM as u32, Pairing::HalfSplit)?,
        gated_mul::specialise(Activation::Silu)?,
        gated_mul::specialise(Activation::GeluTanh)?,
        head_norm::specialise(HEAD_DIM as u32)?,
    ];
    for weight in WeightType::ALL {
        specs.push(embed::specialise(weight, width)?);
        for path in LinearPath::ALL {
            specs.push(linear::specialise(weight, width, false, path)?);
        }
    }
    Ok(specs)
}

/// Asks every format of the crate, for each side and each of `head_sizes`, whether it takes pages of 64 tokens, and the
/// backend whether it compiles the kernels that read them. A software rasteriser, where compiling is slow, is asked at
/// the largest head size only, where limits bind first.
///
/// # Errors
/// `Device` and `DeviceLost` only: refusals are in the report.
pub fn formats(backend: &mut dyn Backend, head_sizes: &[usize]) -> Result<Vec<Support>> {
    const TOKENS: usize = 64;
    let formats = FormatRegistry::builtin();
    let largest = head_sizes.iter().max();
    let software = backend.caps().software;
    let mut supports = Vec::new();
    for (_, format) in formats.iter() {
        for &head_dim in head_sizes {
            let sides = Side::BOTH.map(|side| codec(&formats, format.name(), side, TOKENS, head_dim));
            let compiled = match &sides {
                [Ok(k), Ok(v)] if !software || Some(&head_dim) == largest => {
                    compile(backend, k.clone(), v.clone(), TOKENS, head_dim)
                }
                _ => Ok(()),
            };
            if let Err(error) = &compiled
                && matches!(error.kind(), ErrorKind::Device | ErrorKind::DeviceLost)
            {
                return Err(error.clone());
            }
            for (side, codec) in Side::BOTH.into_iter().zip(&sides) {
                supports.push(Support {
                    format: format.name().into(),
                    side,
                    head_dim,
                    bits_per_value: codec.as_ref().map_or(f64::NAN, |c| c.codec.layout().resident_bits_per_value()),
                    refusal: codec.as_ref().err().cloned().or_else(|| compiled.as_ref().err().cloned()),
                });
            }
        }
    }
    Ok(supports)
}

fn compile(backend: &mut dyn Backend, k: CodecUse, v: CodecUse, page_tokens: usize, head_dim: usize) -> Result<()> {
    let shape = AttentionShape {
        kv_heads: KV_HEADS,
        group: Q_HEADS / KV_HEADS,
        k_dim: head_dim,
        v_dim: head_dim,
        page_tokens,
        window: false,
        softcap: false,
    };
    let (tile, tier) = (tile_rows(backend.caps(), &shape) as usize, Tier::of(backend.caps()));
    backend.prepare(&decode::specialise(&shape, k.clone(), v.clone(), 1, tier, WORKGROUP)?)?;
    backend.prepare(&prefill::specialise(&shape, k, v, tile, tier, WORKGROUP)?)?;
    Ok(())
}

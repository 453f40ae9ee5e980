//! Whether the numbers that are timed are right.

use super::attention::{AttentionBench, Work};
use super::data::{self, Kind};
use crate::backend::{BackendKind, Caps, CpuBackend};
use crate::engine::{Engine, EngineOptions, Input, Output, SeqRows};
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::tier::Tier;
use crate::shape::{PageGeometry, Side};
use std::collections::BTreeSet;

/// Errors of one sequence's output, relative to its root mean square.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quality {
    /// The worst, against attention over the exact keys and values in f64: what the formats cost.
    pub worst_of_exact: f64,
    /// The root mean square of the same.
    pub rms_of_exact: f64,
    /// The worst against the CPU backend over the same pages: what the kernels cost. `None` on the CPU itself.
    pub worst_of_cpu: Option<f64>,
}

/// Worst error that another backend's kernels may have against the CPU's, in f32 and where it multiplies in f16.
const OF_CPU: [f64; 2] = [1e-3, 2e-2];
/// Root mean square error of the output against exact values, for pages of one format on these Gaussian-like data: half
/// as much again as the built-in formats were seen to have (8 query heads of 64 or 32 of 128, 700 to 32,768 tokens).
fn limit_of_exact(format: &str) -> f64 {
    match format {
        "f32" => 1e-5,
        "f16" => 6e-4,
        "bf16" => 4e-3,
        "q8_0" => 1e-2,
        "fp8" => 6e-2,
        "q4_0" | "tq4" => 0.18,
        "tq3" | "tq3n" | "q3_affine" => 0.45,
        // tq2, and formats from elsewhere.
        _ => 0.9,
    }
}

/// Whether products with a format are made in f16 where an adapter has it.
fn multiplies_in_half(bench: &AttentionBench, caps: &Caps, format: &str) -> bool {
    let geometry = PageGeometry { tokens: bench.shape.groups[0].page_tokens, head_dim: bench.shape.groups[0].k_dim };
    let codec = bench.registry.formats.by_name(format).and_then(|(_, format)| format.codec(Side::K, geometry));
    codec.is_ok_and(|codec| Tier::of(caps).in_half(codec.as_ref()))
}

/// Compares `out`, `[rows][query heads][v_dim]`, of which the first sequence's first, middle and last rows are looked at.
pub(super) fn check(bench: &AttentionBench, caps: &Caps, out: &[f32]) -> Result<Quality> {
    let group = &bench.shape.groups[0];
    let rows = match bench.work {
        Work::Decode => 1,
        Work::Prefill { rows } => rows,
    };
    let width = group.q_heads * group.v_dim;
    let sampled: BTreeSet<u32> = [0, rows / 2, rows - 1].into();
    let of_row = |row: u32| &out[row as usize * width..(row as usize + 1) * width];
    let (mut worst_of_exact, mut rms_of_exact) = (0.0, 0.0);
    for &row in &sampled {
        let (worst, rms) = errors(of_row(row), &exact(bench, bench.context + row));
        (worst_of_exact, rms_of_exact) = (greater(worst_of_exact, worst), greater(rms_of_exact, rms));
    }
    let worst_of_cpu = match caps.kind {
        BackendKind::Cpu => None,
        _ => {
            let mut worst = 0.0;
            for (row, same) in on_cpu(bench, &sampled)? {
                let same: Vec<f64> = same.into_iter().map(f64::from).collect();
                worst = greater(worst, errors(of_row(row), &same).0);
            }
            Some(worst)
        }
    };
    let formats = bench.formats();
    let limit = formats.iter().map(|format| limit_of_exact(format)).fold(0.0, f64::max);
    let in_half = bench.work == Work::Decode || Tier::of(caps).tiles.is_some();
    let half = in_half && formats.iter().any(|format| multiplies_in_half(bench, caps, format));
    let of_cpu = OF_CPU[usize::from(half)];
    // Asked so that NaN is wrong.
    let right = rms_of_exact < limit && worst_of_cpu.is_none_or(|worst| worst < of_cpu);
    if !right {
        return Err(Error::new(
            ErrorKind::Device,
            format!(
                "the attention to be timed is wrong: root mean square error {rms_of_exact:.1e} of exact values (limit \
                 {limit}), worst error {:.1e} of the CPU's (limit {of_cpu})",
                worst_of_cpu.unwrap_or(f64::NAN)
            ),
            "run `kvarto doctor` for this adapter",
        ));
    }
    Ok(Quality { worst_of_exact, rms_of_exact, worst_of_cpu })
}

/// Worst and root mean square of the differences, in units of the reference's root mean square.
fn errors(got: &[f32], wanted: &[f64]) -> (f64, f64) {
    let size = (wanted.iter().map(|x| x * x).sum::<f64>() / wanted.len() as f64).sqrt();
    let differences: Vec<f64> = got.iter().zip(wanted).map(|(&g, w)| (f64::from(g) - w).abs() / size).collect();
    let worst = differences.iter().copied().fold(0.0, greater);
    (worst, (differences.iter().map(|d| d * d).sum::<f64>() / differences.len() as f64).sqrt())
}

/// The greater of two, NaN if `b` is, unlike `f64::max`.
fn greater(a: f64, b: f64) -> f64 {
    if b <= a { a } else { b }
}

/// Attention of the first sequence's row at `position` over its exact rows, `[query heads][v_dim]`.
fn exact(bench: &AttentionBench, position: u32) -> Vec<f64> {
    let group = &bench.shape.groups[0];
    let places: Vec<(u32, u32)> = (0..=position).map(|p| (0, p)).collect();
    let k = data::rows(Kind::K, &places, group.kv_heads * group.k_dim);
    let v = data::rows(Kind::V, &places, group.kv_heads * group.v_dim);
    let q = data::rows(Kind::Q, &[(0, position)], group.q_heads * group.k_dim);
    let scale = 1.0 / (group.k_dim as f64).sqrt();
    let mut out = vec![0.0; group.q_heads * group.v_dim];
    for (head, out) in out.chunks_exact_mut(group.v_dim).enumerate() {
        let q = &q[head * group.k_dim..][..group.k_dim];
        let kv_head = head / group.group_size();
        let dot = |row: &[f32]| -> f64 {
            let row = &row[kv_head * group.k_dim..][..group.k_dim];
            row.iter().zip(q).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>() * scale
        };
        let logits: Vec<f64> = k.chunks_exact(group.kv_heads * group.k_dim).map(dot).collect();
        let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.iter().map(|l| (l - most).exp()).sum();
        for (row, logit) in v.chunks_exact(group.kv_heads * group.v_dim).zip(&logits) {
            let p = (logit - most).exp() / sum;
            for (o, &x) in out.iter_mut().zip(&row[kv_head * group.v_dim..]) {
                *o += p * f64::from(x);
            }
        }
    }
    out
}

/// Outputs of `sampled` new rows of the first sequence on the CPU backend, over pages made the same way: each row attends
/// alone, behind those before it.
fn on_cpu(bench: &AttentionBench, sampled: &BTreeSet<u32>) -> Result<Vec<(u32, Vec<f32>)>> {
    let mut shape = bench.shape.clone();
    let group = &mut shape.groups[0];
    group.layers.truncate(1);
    let (layer, group) = (group.layers[0], group.clone());
    let backend = Box::new(CpuBackend::new(0)?);
    let mut engine =
        Engine::with_options(backend, shape, bench.profile.clone(), bench.registry.clone(), EngineOptions::default())?;
    let seq = engine.create()?;
    let (kw, vw, qw) = (group.kv_heads * group.k_dim, group.kv_heads * group.v_dim, group.q_heads * group.k_dim);
    let mut held = 0;
    while held < bench.context {
        let count = 1024.min(bench.context - held);
        let places: Vec<(u32, u32)> = (held..held + count).map(|p| (0, p)).collect();
        let mut step = engine.begin_step(&[SeqRows { seq, rows: count, committed: true }])?;
        let (k, v) = (data::rows(Kind::K, &places, kw), data::rows(Kind::V, &places, vw));
        step.append(layer, Input::Host(&k), Input::Host(&v))?;
        step.finish()?;
        held += count;
    }
    for _ in 0..3 {
        engine.begin_step(&[SeqRows { seq, rows: 0, committed: true }])?.finish()?;
    }
    let (mut outputs, mut held) = (Vec::new(), 0);
    let input = |first: u32, rows: u32| {
        let places: Vec<(u32, u32)> = (first..first + rows).map(|r| (0, bench.context + r)).collect();
        (places.clone(), data::rows(Kind::K, &places, kw), data::rows(Kind::V, &places, vw))
    };
    for &row in sampled {
        if row > held {
            let (_, k, v) = input(held, row - held);
            let mut step = engine.begin_step(&[SeqRows { seq, rows: row - held, committed: false }])?;
            step.append(layer, Input::Host(&k), Input::Host(&v))?;
            step.finish()?;
        }
        let (places, k, v) = input(row, 1);
        let q = data::rows(Kind::Q, &places, qw);
        let mut out = vec![f32::NAN; group.q_heads * group.v_dim];
        let mut step = engine.begin_step(&[SeqRows { seq, rows: 1, committed: false }])?;
        step.append(layer, Input::Host(&k), Input::Host(&v))?;
        step.attend(layer, Input::Host(&q), Output::Host(&mut out))?;
        step.finish()?;
        outputs.push((row, out));
        held = row + 1;
    }
    Ok(outputs)
}

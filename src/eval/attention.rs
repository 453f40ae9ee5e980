//! What a cache does to attention itself: the real model's queries over a profile's pages against f64 attention over the
//! exact rows, by layer and query head.

use super::figures::CacheFigures;
use super::prefill::Prefill;
use super::runner::{Candidate, Progress, Runner};
use crate::engine::{Input, Output, SeqId, SeqRows};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Answer, Model, ModelRows, Observed};
use crate::profile::Profile;
use crate::shape::{CacheShape, GroupKind, Side};
use rayon::prelude::*;
use serde::Serialize;

/// Exact attention of a window's last tokens, by layer.
#[derive(Clone, Debug)]
pub struct ExactAttention {
    prefill: Prefill,
    /// Queries, keys and values of the rows asked about, and where they stand.
    rows: Vec<Observed>,
    /// `[layer][row][query head][dim]`, in f64.
    outputs: Vec<Vec<f64>>,
}

/// A head's error: mean over rows of ‖o − exact‖² / ‖exact‖².
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeadError {
    /// Model layer.
    pub layer: usize,
    /// Query head.
    pub head: usize,
    /// The mean relative squared error.
    pub error: f64,
    /// The largest of any row.
    pub worst: f64,
}

/// A profile's errors.
#[derive(Clone, Debug, Serialize)]
pub struct AttentionErrors {
    /// The profile's label.
    pub label: String,
    /// By layer, then query head.
    pub heads: Vec<HeadError>,
    /// The cache at the end.
    pub cache: CacheFigures,
}

impl AttentionErrors {
    /// Mean over all heads.
    pub fn mean(&self) -> f64 {
        self.heads.iter().map(|h| h.error).sum::<f64>() / self.heads.len().max(1) as f64
    }

    /// Means of the layers, in order.
    pub fn layers(&self) -> Vec<(usize, f64)> {
        let mut layers: Vec<(usize, f64)> = Vec::new();
        for run in self.heads.chunk_by(|a, b| a.layer == b.layer) {
            layers.push((run[0].layer, run.iter().map(|h| h.error).sum::<f64>() / run.len() as f64));
        }
        layers
    }
}

impl Runner {
    /// Runs `tokens` on a dense cache and computes the exact attention of the last `rows` of them: over keys and values
    /// as 16 bits hold them, the rows' own as the model made them.
    ///
    /// # Errors
    /// `Usage` for fewer than two tokens or no rows; as [`Runner::run`].
    pub fn exact_attention(
        &mut self,
        tokens: &[u32],
        rows: usize,
        progress: &mut dyn Progress,
    ) -> Result<ExactAttention> {
        let most = tokens.len().saturating_sub(2);
        if rows == 0 || rows > most {
            let what = format!("attention of {rows} rows at the end of {} tokens", tokens.len());
            let remedy = format!("give 1 to {most} rows, or a longer window");
            return Err(Error::new(ErrorKind::Usage, what, remedy));
        }
        let dense = Profile { k_basis: Some("none".into()), v_basis: Some("none".into()), ..Profile::dense() };
        self.exchange(dense, tokens.len(), tokens.len())?;
        self.with_model(|model| {
            let history = tokens.len() - rows;
            progress.stage("prefill");
            let seq = model.engine().create()?;
            model.prefill(seq, &tokens[..history], Answer::Nothing, |_| progress.stopped())?;
            progress.advance(history as u64);
            let prefill = Prefill::take(model.engine(), seq, history)?;
            let mut seen = Vec::new();
            for chunk in tokens[history..].chunks(model.chunk_tokens()) {
                let step = [ModelRows { seq, tokens: chunk, committed: true, answer: Answer::Nothing }];
                let mut layer = 0;
                model.observe(&step, |now| {
                    join(&mut seen, layer, now);
                    layer += 1;
                    Ok(())
                })?;
            }
            let scale = model.config().attention_scale;
            let shape = model.engine().shape().clone();
            progress.stage("exact");
            let outputs = seen.iter().map(|rows| exact(&shape, &prefill, rows, scale)).collect::<Result<_>>()?;
            Ok(ExactAttention { prefill, rows: seen, outputs })
        })
    }

    /// The same queries over the cache of a candidate, one row a step.
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub fn attention_errors(
        &mut self,
        exact: &ExactAttention,
        candidate: &Candidate,
        progress: &mut dyn Progress,
    ) -> Result<AttentionErrors> {
        let named = |e: Error| match e.kind() {
            ErrorKind::Interrupted => e,
            _ => e.context(format!("profile {}", candidate.label)),
        };
        progress.stage(&candidate.label);
        let count = exact.rows.first().map_or(0, |rows| rows.positions.len());
        self.take_up(candidate, exact.prefill.tokens() + count).map_err(named)?;
        self.with_model(|model| {
            let chunk = model.chunk_tokens();
            let seq = model.engine().create()?;
            exact.prefill.replay(model.engine(), seq, chunk)?;
            let heads = model.config().q_heads;
            let mut errors = vec![(0.0f64, 0.0f64); exact.rows.len() * heads];
            for row in 0..count {
                if progress.stopped() {
                    return Err(Error::new(ErrorKind::Interrupted, "stopped while measuring attention", ""));
                }
                attend_row(model, seq, exact, row, &mut errors)?;
                progress.advance(1);
            }
            let head = |(at, (sum, worst)): (usize, (f64, f64))| HeadError {
                layer: exact.rows[at / heads].layer,
                head: at % heads,
                error: sum / count as f64,
                worst,
            };
            let heads = errors.into_iter().enumerate().map(head).collect();
            Ok(AttentionErrors { label: candidate.label.clone(), heads, cache: CacheFigures::of(model.engine()) })
        })
        .map_err(named)
    }
}

/// Adds a step's rows of a layer to those before.
fn join(seen: &mut Vec<Observed>, layer: usize, now: Observed) {
    match seen.get_mut(layer) {
        None => seen.push(now),
        Some(held) => {
            held.positions.extend(now.positions);
            held.q.extend(now.q);
            held.k.extend(now.k);
            held.v.extend(now.v);
            held.output.extend(now.output);
        }
    }
}

/// One step of one row through all layers, and its errors.
fn attend_row(
    model: &mut Model,
    seq: SeqId,
    exact: &ExactAttention,
    row: usize,
    errors: &mut [(f64, f64)],
) -> Result<()> {
    let heads = model.config().q_heads;
    let mut step = model.engine().begin_step(&[SeqRows { seq, rows: 1, committed: true }])?;
    for (at, (rows, wanted)) in exact.rows.iter().zip(&exact.outputs).enumerate() {
        let count = rows.positions.len();
        let cut = |list: &'_ [f32]| -> std::ops::Range<usize> {
            let width = list.len() / count;
            row * width..(row + 1) * width
        };
        step.append(rows.layer, Input::Host(&rows.k[cut(&rows.k)]), Input::Host(&rows.v[cut(&rows.v)]))?;
        let width = wanted.len() / count;
        let mut out = vec![f32::NAN; width];
        step.attend(rows.layer, Input::Host(&rows.q[cut(&rows.q)]), Output::Host(&mut out))?;
        let dim = width / heads;
        for (head, (out, wanted)) in out.chunks(dim).zip(wanted[row * width..].chunks(dim)).enumerate() {
            let off: f64 = out.iter().zip(wanted).map(|(&o, w)| (f64::from(o) - w).powi(2)).sum();
            let size: f64 = wanted.iter().map(|w| w * w).sum();
            let error = off / size.max(f64::MIN_POSITIVE);
            if !error.is_finite() {
                return Err(Error::new(
                    ErrorKind::Device,
                    format!("layer {}, head {head} answers with what is no number", rows.layer),
                    "run `kvarto doctor` for the device and its formats",
                ));
            }
            let sum = &mut errors[at * heads + head];
            *sum = (sum.0 + error, sum.1.max(error));
        }
    }
    step.finish()?;
    Ok(())
}

/// Attention in f64 of a layer's rows over the prefill's and their own.
fn exact(shape: &CacheShape, prefill: &Prefill, rows: &Observed, scale: f32) -> Result<Vec<f64>> {
    let (index, _) = shape
        .locate(rows.layer)
        .ok_or_else(|| Error::new(ErrorKind::Shape, format!("layer {} is in no cache group", rows.layer), ""))?;
    let group = &shape.groups[index];
    let (count, q_heads, kv_heads) = (rows.positions.len(), group.q_heads, group.kv_heads);
    let (k_dim, v_dim) = (group.k_dim, group.v_dim);
    let mut held = Vec::with_capacity(kv_heads);
    for head in 0..kv_heads {
        let own = |list: &[f32], dim: usize| -> Vec<f32> {
            list.chunks(kv_heads * dim).flat_map(|row| row[head * dim..][..dim].to_vec()).collect()
        };
        let mut k = prefill.head(rows.layer, Side::K, head, kv_heads)?;
        k.extend(own(&rows.k, k_dim));
        let mut v = prefill.head(rows.layer, Side::V, head, kv_heads)?;
        v.extend(own(&rows.v, v_dim));
        held.push((k, v));
    }
    let one = |at: usize| -> Vec<f64> {
        let (row, head) = (at / q_heads, at % q_heads);
        let q = &rows.q[at * k_dim..][..k_dim];
        let (k, v) = &held[head / (q_heads / kv_heads)];
        let end = prefill.tokens() + row + 1;
        let start = match group.kind {
            GroupKind::Window(window) => end.saturating_sub(window),
            _ => 0,
        };
        let dot = |t: usize| -> f64 {
            let key = &k[t * k_dim..][..k_dim];
            q.iter().zip(key).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>() * f64::from(scale)
        };
        let scores: Vec<f64> = (start..end).map(dot).collect();
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (mut sum, mut out) = (0.0, vec![0.0f64; v_dim]);
        for (t, score) in (start..end).zip(scores) {
            let weight = (score - most).exp();
            sum += weight;
            out.iter_mut().zip(&v[t * v_dim..]).for_each(|(o, &x)| *o += weight * f64::from(x));
        }
        out.iter_mut().for_each(|o| *o /= sum);
        out
    };
    let outputs: Vec<Vec<f64>> = (0..count * q_heads).into_par_iter().map(one).collect();
    Ok(outputs.concat())
}

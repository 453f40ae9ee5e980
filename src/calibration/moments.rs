//! Moments of a model's queries, keys and values over a text, and the maps that follow from them.

use super::solve::{self, Moments};
use crate::basis::{HeadMap, LayerMaps};
use crate::error::{Error, ErrorKind, Result};
use crate::model::config::ModelConfig;
use crate::model::{Model, Observed};
use rayon::prelude::*;

/// Sums over rows of one head: their number, values, products and largest norm.
#[derive(Clone, Debug)]
struct Sums {
    rows: u64,
    first: Vec<f64>,
    second: Vec<f64>,
    largest: f64,
}

impl Sums {
    fn new(dim: usize) -> Self {
        Sums { rows: 0, first: vec![0.0; dim], second: vec![0.0; dim * dim], largest: 0.0 }
    }

    /// Counts a row; one that is not `counted` only for the largest norm.
    fn add(&mut self, row: &[f32], wide: &mut Vec<f64>, counted: bool) {
        wide.clear();
        wide.extend(row.iter().map(|&x| f64::from(x)));
        self.largest = self.largest.max(wide.iter().map(|x| x * x).sum::<f64>().sqrt());
        if !counted {
            return;
        }
        self.rows += 1;
        self.first.iter_mut().zip(&*wide).for_each(|(s, x)| *s += x);
        for (x, products) in wide.iter().zip(self.second.chunks_exact_mut(row.len())) {
            products.iter_mut().zip(&*wide).for_each(|(s, y)| *s += x * y);
        }
    }

    fn mean(&self) -> Vec<f64> {
        self.first.iter().map(|x| x / self.rows.max(1) as f64).collect()
    }

    /// `E[x xᵀ]`.
    fn moment(&self) -> Vec<f64> {
        self.second.iter().map(|x| x / self.rows.max(1) as f64).collect()
    }

    /// The same about the mean.
    fn covariance(&self) -> Vec<f64> {
        let (mean, n) = (self.mean(), self.first.len());
        self.moment().iter().enumerate().map(|(at, x)| x - mean[at / n] * mean[at % n]).collect()
    }
}

/// One KV head: its keys, its values, and all queries that attend to it.
#[derive(Clone, Debug)]
struct HeadSums {
    k: Sums,
    v: Sums,
    q: Sums,
    /// `WᵀW` of the output projection's columns of its query heads.
    output: Vec<f64>,
}

/// Gathers what a calibration is made from.
#[derive(Clone, Debug)]
pub struct Calibrator {
    /// `[layer][KV head]`.
    layers: Vec<Vec<HeadSums>>,
    dim: usize,
    group: usize,
    skipped: u32,
}

/// Second-order moments of all layers and KV heads, `[layers][KV heads][dim][dim]` each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SecondMoments {
    /// Covariance of keys.
    pub k: Vec<f32>,
    /// Second moment of the queries that attend to them.
    pub q: Vec<f32>,
    /// Covariance of values.
    pub v: Vec<f32>,
    /// `WᵀW` of the output projection.
    pub output: Vec<f32>,
}

impl Calibrator {
    /// For a model; rows at positions below `skipped` are left out of the moments, since profiles keep them exact: the
    /// first token of a text is like no other.
    ///
    /// # Errors
    /// `File` and `Unsupported` for an output projection that cannot be read.
    pub fn new(model: &Model, skipped: u32) -> Result<Self> {
        let &ModelConfig { layers, q_heads, kv_heads, head_dim: dim, .. } = model.config();
        let group = q_heads / kv_heads;
        let layers = (0..layers).map(|layer| {
            let weights = model.output_projection(layer)?;
            let head = |head: usize| {
                let mut output = Sums::new(dim);
                let mut wide = Vec::new();
                for row in weights.chunks_exact(q_heads * dim) {
                    let columns = row.chunks_exact(dim).skip(head * group).take(group);
                    columns.for_each(|part| output.add(part, &mut wide, true));
                }
                HeadSums { k: Sums::new(dim), v: Sums::new(dim), q: Sums::new(dim), output: output.second }
            };
            Ok((0..kv_heads).into_par_iter().map(head).collect())
        });
        Ok(Calibrator { layers: layers.collect::<Result<_>>()?, dim, group, skipped })
    }

    /// Counts a layer's rows of a step ([`Model::observe`]).
    ///
    /// # Errors
    /// `Shape` for a layer or rows of another model.
    pub fn add(&mut self, seen: &Observed) -> Result<()> {
        let (dim, group, skipped) = (self.dim, self.group, self.skipped);
        let rows = seen.positions.len();
        let heads = self.layers.get_mut(seen.layer).filter(|heads| {
            let width = rows * heads.len() * dim;
            seen.k.len() == width && seen.v.len() == width && seen.q.len() == width * group
        });
        let Some(heads) = heads else {
            let message = format!("layer {} with {} floats of queries for {rows} rows", seen.layer, seen.q.len());
            return Err(Error::new(ErrorKind::Shape, message, "observe the model that the calibrator was made for"));
        };
        let count = heads.len();
        heads.par_iter_mut().enumerate().for_each(|(head, sums)| {
            let mut wide = Vec::with_capacity(dim);
            for (row, &position) in seen.positions.iter().enumerate() {
                let counted = position >= skipped;
                let at = row * count + head;
                sums.k.add(part(&seen.k, at, dim), &mut wide, counted);
                sums.v.add(part(&seen.v, at, dim), &mut wide, counted);
                (at * group..(at + 1) * group).for_each(|q| sums.q.add(part(&seen.q, q, dim), &mut wide, counted));
            }
        });
        Ok(())
    }

    /// Rows counted so far.
    pub fn rows(&self) -> u64 {
        self.layers.first().and_then(|heads| heads.first()).map_or(0, |head| head.k.rows)
    }

    /// Means and maps of every layer and KV head.
    ///
    /// # Errors
    /// `Device` where the model gave values that are not finite.
    pub fn maps(&self) -> Result<Vec<LayerMaps>> {
        let side = |sums: &Sums, weight: &[f64]| -> Result<HeadMap> {
            let (mean, covariance) = (sums.mean(), sums.covariance());
            if mean.iter().chain(&covariance).chain(weight).any(|x| !x.is_finite()) {
                let message = "the model's queries, keys or values are not all finite";
                return Err(Error::new(ErrorKind::Device, message, "check the model file; run `kvarto doctor`"));
            }
            let norm = mean.iter().map(|x| x * x).sum::<f64>().sqrt();
            let largest = sums.largest + norm;
            let map = solve::map(&Moments { dim: self.dim, covariance: &covariance, weight, largest });
            Ok(HeadMap { mean: mean.iter().map(|&x| x as f32).collect(), map })
        };
        let layer = |heads: &Vec<HeadSums>| -> Result<LayerMaps> {
            let k = heads.par_iter().map(|head| side(&head.k, &head.q.moment())).collect::<Result<_>>()?;
            let v = heads.par_iter().map(|head| side(&head.v, &head.output)).collect::<Result<_>>()?;
            Ok(LayerMaps { k, v })
        };
        self.layers.par_iter().map(layer).collect()
    }

    /// The moments that the maps were made from.
    pub fn moments(&self) -> SecondMoments {
        let heads = || self.layers.iter().flatten();
        let all = |of: &dyn Fn(&HeadSums) -> Vec<f64>| heads().flat_map(of).map(|x| x as f32).collect();
        SecondMoments {
            k: all(&|head| head.k.covariance()),
            q: all(&|head| head.q.moment()),
            v: all(&|head| head.v.covariance()),
            output: all(&|head| head.output.clone()),
        }
    }
}

/// The `at`-th row of `dim` values.
fn part(rows: &[f32], at: usize, dim: usize) -> &[f32] {
    &rows[at * dim..(at + 1) * dim]
}

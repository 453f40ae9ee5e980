//! Calibrated means and maps of a model: what `map` and `mean:FILE` are made from.
//!
//! K is stored as k' = F(k − μ) and a query turned to q' = F⁻ᵀq, with q·μ beside it: q'·k' + q·μ = q·k. V is stored as
//! v' = F(v − μ) and, weights summing to 1, o = F⁻¹o' + μ. Which F is best for a codec is a matter of calibration; any
//! that is well conditioned changes results by rounding alone.

use crate::error::{Error, ErrorKind, Result};
use crate::num::invert;
use crate::shape::Side;
use rayon::prelude::*;

/// A KV head's mean and map on one side.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadMap {
    /// μ, `[dim]`.
    pub mean: Vec<f32>,
    /// F, `[dim][dim]` by rows.
    pub map: Vec<f32>,
}

/// One layer's maps, of each side by KV head.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LayerMaps {
    /// Of keys.
    pub k: Vec<HeadMap>,
    /// Of values.
    pub v: Vec<HeadMap>,
}

/// A head's mean, map and the map's inverse.
#[derive(Clone, Debug, PartialEq)]
pub struct CalibratedHead {
    mean: Vec<f32>,
    map: Vec<f32>,
    inverse: Vec<f32>,
}

/// Means and maps of all layers of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    id: String,
    layers: Vec<[Vec<CalibratedHead>; 2]>,
}

/// The most that ‖F‖·‖F⁻¹‖/dim (Frobenius norms; 1 for a rotation) may be: what rounding is multiplied by, about.
pub const MOST_CONDITION: f64 = 1e3;

impl CalibratedHead {
    fn new(head: HeadMap, what: &str) -> Result<Self> {
        let dim = head.mean.len();
        let fault = |message: String| {
            let remedy = "calibrate the model again";
            Err(Error::new(ErrorKind::Shape, format!("the calibration of {what}: {message}"), remedy))
        };
        if dim == 0 || dim.checked_mul(dim) != Some(head.map.len()) {
            return fault(format!("a mean of {dim} values beside a map of {}", head.map.len()));
        }
        if head.mean.iter().chain(&head.map).any(|x| !x.is_finite()) {
            return fault("it holds values that are not finite".into());
        }
        let wide: Vec<f64> = head.map.iter().map(|&x| f64::from(x)).collect();
        let Some(inverse) = invert(&wide, dim) else { return fault("its map has no inverse".into()) };
        let norm = |matrix: &[f64]| matrix.iter().map(|x| x * x).sum::<f64>().sqrt();
        let condition = norm(&wide) * norm(&inverse) / dim as f64;
        let narrow: Vec<f32> = inverse.iter().map(|&x| x as f32).collect();
        if condition.is_nan() || condition > MOST_CONDITION || narrow.iter().any(|x| !x.is_finite()) {
            return fault(format!("its map has a condition of {condition:.0}, at most {MOST_CONDITION} is safe"));
        }
        Ok(CalibratedHead { mean: head.mean, map: head.map, inverse: narrow })
    }

    /// μ, `[dim]`.
    pub fn mean(&self) -> &[f32] {
        &self.mean
    }

    /// F, `[dim][dim]` by rows.
    pub fn map(&self) -> &[f32] {
        &self.map
    }

    /// F⁻¹, likewise; its columns are the rows of F⁻ᵀ.
    pub fn inverse(&self) -> &[f32] {
        &self.inverse
    }

    /// From a row of K or V to what pages store.
    ///
    /// # Panics
    /// If `row` has another length than the mean.
    pub fn forward(&self, row: &[f32]) -> Vec<f32> {
        assert_eq!(row.len(), self.mean.len(), "channels of a mean and of a row");
        let about: Vec<f32> = row.iter().zip(&self.mean).map(|(x, m)| x - m).collect();
        product(&self.map, &about)
    }

    /// From a query to what it is multiplied with stored keys as, and q·μ, to be added to every score.
    ///
    /// # Panics
    /// If `q` has another length than the mean.
    pub fn query(&self, q: &[f32]) -> (Vec<f32>, f32) {
        assert_eq!(q.len(), self.mean.len(), "channels of a mean and of a query");
        let mut turned = vec![0.0; q.len()];
        for (x, row) in q.iter().zip(self.inverse.chunks_exact(q.len())) {
            turned.iter_mut().zip(row).for_each(|(t, m)| *t += x * m);
        }
        (turned, q.iter().zip(&self.mean).map(|(a, b)| a * b).sum())
    }

    /// From a weighted mean of stored values (weights summing to 1) to the output.
    ///
    /// # Panics
    /// If `o` has another length than the mean.
    pub fn output(&self, o: &[f32]) -> Vec<f32> {
        assert_eq!(o.len(), self.mean.len(), "channels of a mean and of an output");
        let mut out = product(&self.inverse, o);
        out.iter_mut().zip(&self.mean).for_each(|(x, m)| *x += m);
        out
    }
}

/// A matrix by rows times a vector.
fn product(matrix: &[f32], vector: &[f32]) -> Vec<f32> {
    matrix.chunks_exact(vector.len()).map(|row| row.iter().zip(vector).map(|(a, b)| a * b).sum()).collect()
}

impl Calibration {
    /// Means and maps by model layer. `id` names them in content keys: equal ids promise equal maps.
    ///
    /// # Errors
    /// `Shape` naming layer, head and side of a map that is not square, not finite or has no safe inverse
    /// ([`MOST_CONDITION`]).
    pub fn new(id: impl Into<String>, layers: Vec<LayerMaps>) -> Result<Self> {
        let side = |layer: usize, heads: Vec<HeadMap>, side: Side| -> Result<Vec<CalibratedHead>> {
            let named = |(at, head)| CalibratedHead::new(head, &format!("layer {layer}, {} head {at}", side.as_str()));
            heads.into_iter().enumerate().map(named).collect()
        };
        let ready = layers.into_par_iter().enumerate();
        let ready = ready.map(|(at, layer)| Ok([side(at, layer.k, Side::K)?, side(at, layer.v, Side::V)?]));
        Ok(Calibration { id: id.into(), layers: ready.collect::<Result<_>>()? })
    }

    /// What content keys call it.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Layers of the model that it was made for.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// A side's KV heads of a model layer; none beyond the last.
    pub fn heads(&self, layer: usize, side: Side) -> &[CalibratedHead] {
        self.layers.get(layer).map_or(&[], |sides| &sides[side as usize])
    }
}

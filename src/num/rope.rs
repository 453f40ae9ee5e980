//! Rotary position embedding on the host: frequencies, their scalings, and tables of cosines and sines.
//!
//! Kernels read a table made here in f64, because WGSL's own sine is only good to 2^-11.

use crate::error::{Error, ErrorKind, Result};
use std::f64::consts::TAU;

/// Which two values of a head turn together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pairing {
    /// `(0, 1), (2, 3), ..`: ggml's "NORM".
    Adjacent,
    /// `(0, n/2), (1, n/2 + 1), ..` with `n` turning values: ggml's "NEOX".
    HalfSplit,
}

/// How rotary frequencies are stretched past the context of the first training.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    #[default]
    None,
    /// Every frequency divided by `factor`.
    Linear {
        /// Above 0.
        factor: f32,
    },
    /// Pair `i`'s frequency divided by `factors[i]` (GGUF tensor `rope_freqs.weight`).
    Llama3 {
        /// One a pair, above 0.
        factors: Vec<f32>,
    },
    /// Llama 3.1's bands: slow pairs divided by `factor`, fast ones left, a linear blend between.
    Llama3Bands {
        /// Divides slow frequencies.
        factor: f32,
        /// Turns over the original context below which a pair is slow.
        low: f32,
        /// Turns above which a pair is fast; more than `low`.
        high: f32,
        /// Positions of the first training.
        original: f32,
    },
    /// YaRN, "NTK by parts" (arXiv 2309.00071, section 3.2), with its attention factor.
    Yarn {
        /// How much longer than `original_context`.
        factor: f32,
        /// Positions of the first training.
        original_context: f32,
        /// Turns over the original context above which a pair is left alone (32).
        beta_fast: f32,
        /// Turns below which a pair is interpolated in full (1).
        beta_slow: f32,
        /// What cosines and sines are multiplied by; `0.1 ln(factor) + 1` when not given.
        attn_factor: Option<f32>,
    },
}

/// Frequencies of the turning pairs of a head.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeTable {
    frequencies: Vec<f64>,
    attention_factor: f64,
}

impl RopeTable {
    /// Frequencies `base^(-2i / rotary_dim)`, scaled; `rotary_dim` is how many values of a head turn.
    ///
    /// # Errors
    /// `Unsupported` for an odd or empty `rotary_dim`, and for parameters that no frequency follows from.
    pub fn new(base: f64, rotary_dim: usize, scaling: &RopeScaling) -> Result<Self> {
        if rotary_dim == 0 || !rotary_dim.is_multiple_of(2) {
            return Err(refuse(format!("{rotary_dim} turning values a head: they come in pairs")));
        }
        if !(base > 1.0 && base.is_finite()) {
            return Err(refuse(format!("rotary base {base}: it is a number above 1")));
        }
        let dim = rotary_dim as f64;
        let mut frequencies: Vec<f64> = (0..rotary_dim / 2).map(|i| base.powf(-2.0 * i as f64 / dim)).collect();
        let mut attention_factor = 1.0;
        match scaling {
            RopeScaling::None => {}
            RopeScaling::Linear { factor } => {
                let factor = positive("factor", *factor)?;
                frequencies.iter_mut().for_each(|f| *f /= factor);
            }
            RopeScaling::Llama3 { factors } => {
                if factors.len() != frequencies.len() {
                    return Err(refuse(format!("{} rotary factors for {} pairs", factors.len(), frequencies.len())));
                }
                for (f, &by) in frequencies.iter_mut().zip(factors) {
                    *f /= positive("factor of a pair", by)?;
                }
            }
            RopeScaling::Llama3Bands { factor, low, high, original } => {
                let (factor, original) = (positive("factor", *factor)?, positive("original context", *original)?);
                let (low, high) = (positive("low", *low)?, positive("high", *high)?);
                if high <= low {
                    return Err(refuse(format!("rotary bands from {low} to {high} turns: the second must be larger")));
                }
                for f in &mut frequencies {
                    let turns = original * *f / TAU;
                    let keep = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                    *f = keep * *f + (1.0 - keep) * *f / factor;
                }
            }
            RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, attn_factor } => {
                let (factor, original) =
                    (positive("factor", *factor)?, positive("original context", *original_context)?);
                let (fast, slow) = (positive("beta_fast", *beta_fast)?, positive("beta_slow", *beta_slow)?);
                // The pair that makes `turns` turns over the original context.
                let pair = |turns: f64| dim * (original / (turns * TAU)).ln() / (2.0 * base.ln());
                let first = pair(fast).floor().max(0.0);
                let mut last = pair(slow).ceil().min(dim - 1.0);
                if first == last {
                    last += 0.001;
                }
                for (i, f) in frequencies.iter_mut().enumerate() {
                    let stretch = ((i as f64 - first) / (last - first)).clamp(0.0, 1.0);
                    *f = stretch * *f / factor + (1.0 - stretch) * *f;
                }
                attention_factor = match attn_factor {
                    Some(given) => positive("attention factor", *given)?,
                    None if factor > 1.0 => 0.1 * factor.ln() + 1.0,
                    None => 1.0,
                };
            }
        }
        Ok(RopeTable { frequencies, attention_factor })
    }

    /// Radians a position, pair by pair.
    pub fn frequencies(&self) -> &[f64] {
        &self.frequencies
    }

    /// What cosines and sines are multiplied by: 1 except for YaRN.
    pub fn attention_factor(&self) -> f64 {
        self.attention_factor
    }

    /// The kernels' table for rows at `positions`: `[rows][pairs][cos, sin]`, the attention factor in both.
    pub fn rows(&self, positions: &[u32]) -> Vec<f32> {
        let mut table = Vec::with_capacity(positions.len() * self.frequencies.len() * 2);
        for &position in positions {
            for &frequency in &self.frequencies {
                let (sin, cos) = (f64::from(position) * frequency).sin_cos();
                table.push((cos * self.attention_factor) as f32);
                table.push((sin * self.attention_factor) as f32);
            }
        }
        table
    }
}

fn positive(what: &str, value: f32) -> Result<f64> {
    if value > 0.0 && value.is_finite() {
        Ok(f64::from(value))
    } else {
        Err(refuse(format!("rotary {what} {value}: it is a number above 0")))
    }
}

fn refuse(message: String) -> Error {
    Error::new(ErrorKind::Unsupported, message, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_holds_cosines_and_sines() {
        let table = RopeTable::new(10_000.0, 8, &RopeScaling::None).unwrap();
        let rows = table.rows(&[0, 3, 1_000_003]);
        assert_eq!(rows.len(), 3 * 8);
        assert_eq!(&rows[..4], [1.0, 0.0, 1.0, 0.0]);
        for (row, position) in [(1, 3.0f64), (2, 1_000_003.0)] {
            for pair in 0..4 {
                let angle = position * 10f64.powi(-pair);
                let at = row * 8 + 2 * pair as usize;
                assert!((f64::from(rows[at]) - angle.cos()).abs() < 1e-6, "{angle}");
                assert!((f64::from(rows[at + 1]) - angle.sin()).abs() < 1e-6, "{angle}");
            }
        }
    }

    #[test]
    fn factors_divide_and_yarn_scales() {
        let plain = RopeTable::new(10_000.0, 4, &RopeScaling::None).unwrap();
        let divided = RopeTable::new(10_000.0, 4, &RopeScaling::Llama3 { factors: vec![1.0, 8.0] }).unwrap();
        assert_eq!(divided.frequencies()[0], plain.frequencies()[0]);
        assert_eq!(divided.frequencies()[1], plain.frequencies()[1] / 8.0);
        let yarn = |attn_factor| RopeScaling::Yarn {
            factor: 4.0,
            original_context: 2048.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attn_factor,
        };
        let given = RopeTable::new(10_000.0, 64, &yarn(Some(1.5))).unwrap();
        assert_eq!(given.rows(&[0])[0], 1.5);
        let own = RopeTable::new(10_000.0, 64, &yarn(None)).unwrap();
        assert!((own.attention_factor() - (0.1 * 4f64.ln() + 1.0)).abs() < 1e-15);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (base, dim, scaling) in [
            (10_000.0, 0, RopeScaling::None),
            (10_000.0, 7, RopeScaling::None),
            (f64::NAN, 8, RopeScaling::None),
            (1.0, 8, RopeScaling::None),
            (10_000.0, 8, RopeScaling::Linear { factor: 0.0 }),
            (10_000.0, 8, RopeScaling::Linear { factor: f32::NAN }),
            (10_000.0, 8, RopeScaling::Llama3 { factors: vec![1.0; 3] }),
            (10_000.0, 8, RopeScaling::Llama3Bands { factor: 8.0, low: 4.0, high: 4.0, original: 8192.0 }),
        ] {
            let error = RopeTable::new(base, dim, &scaling).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        }
    }
}

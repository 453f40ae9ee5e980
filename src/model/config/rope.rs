//! What the file says about rotary position embedding and sliding windows, held against the heads and the context.

use super::{Keys, Rope, Sliding, unsupported};
use crate::error::{Error, ErrorKind, Result};
use crate::model::gguf::{GgmlType, dequantize};
use crate::num::rope::RopeScaling;

/// How often the slowest pair may turn within the context: positions look alike after one turn, and no known model
/// goes far beyond.
const MOST_TURNS: f64 = 16.0;

impl Keys<'_> {
    /// Of the layers that see all tokens: heads of `head_dim` values, a size that `head_source` states, over `context` positions.
    pub(super) fn rope(&self, head_dim: usize, head_source: &str, context: usize) -> Result<Rope> {
        const COUNT: &str = "rope.dimension_count";
        let dim_count = self.optional_count(COUNT, 2, 4096)?.unwrap_or(head_dim);
        if dim_count != head_dim {
            return Err(self.wrong(COUNT, dim_count, &format!("{head_dim}, the values of a head ({head_source}),")));
        }
        let base = self.float("rope.freq_base", 10_000.0, 1.001..=1e12)?;
        let scaling = self.scaling(dim_count / 2, context)?;
        let rope = Rope { dim_count, base, pairing: self.architecture.pairing, scaling };
        self.check_turns(&rope, context)?;
        Ok(rope)
    }

    /// The context of the first training, which is part of the present one.
    fn original_context(&self, context: usize) -> Result<usize> {
        const ORIGINAL: &str = "rope.scaling.original_context_length";
        match self.count(ORIGINAL, 1, 1 << 24)? {
            original if original <= context => Ok(original),
            original => {
                let wanted = format!("at most key `{}`, which is {context},", self.key("context_length"));
                Err(self.wrong(ORIGINAL, original, &wanted))
            }
        }
    }

    /// Refuses a context in which the slowest pair turns more often than [`MOST_TURNS`] times.
    fn check_turns(&self, rope: &Rope, context: usize) -> Result<()> {
        let (stretch, source) = match &rope.scaling {
            RopeScaling::Linear { factor } | RopeScaling::Yarn { factor, .. } => {
                (*factor, format!("key `{}`", self.key("rope.scaling.factor")))
            }
            RopeScaling::Llama3 { factors } => {
                (factors.iter().copied().fold(1.0, f32::max), "tensor `rope_freqs.weight`".into())
            }
            _ => (1.0, "nothing".into()),
        };
        let exponent = (rope.dim_count - 2) as f64 / rope.dim_count as f64;
        let turn = std::f64::consts::TAU * f64::from(rope.base).powf(exponent) * f64::from(stretch);
        let most = (MOST_TURNS * turn).floor();
        if context as f64 <= most {
            return Ok(());
        }
        let wanted = format!(
            "at most {most} ({MOST_TURNS} turns of the slowest pair: key `{}` {}, {} values, stretched {stretch} times by {source})",
            self.key("rope.freq_base"),
            rope.base,
            rope.dim_count,
        );
        Err(self.wrong("context_length", context, &wanted))
    }

    /// The sliding layers, where the architecture has some and the file names a window.
    pub(super) fn sliding(&self, full: &Rope, context: usize) -> Result<Option<Sliding>> {
        const KEY: &str = "attention.sliding_window";
        let window = self.optional_count(KEY, 0, 1 << 30)?.unwrap_or(0);
        let Some(pattern) = &self.architecture.sliding else {
            if window == 0 || window >= context {
                return Ok(None);
            }
            return Err(unsupported(
                format!(
                    "key `{}` is {window}; layers of `{}` are run over the whole context only",
                    self.key(KEY),
                    self.architecture.name
                ),
                "use a model whose sliding window is off",
            ));
        };
        if window == 0 {
            return Ok(None);
        }
        let full_every = self.optional_count("attention.sliding_window_pattern", 1, 4096)?;
        let base = self.float("rope.freq_base_swa", pattern.rope_base, 1.001..=1e12)?;
        let rope = Rope { base, scaling: RopeScaling::None, ..full.clone() };
        Ok(Some(Sliding { window, full_every: full_every.unwrap_or(pattern.full_every), rope }))
    }

    fn scaling(&self, pairs: usize, context: usize) -> Result<RopeScaling> {
        let key = self.key("rope.scaling.type");
        let kind = self.gguf.optional::<&str>(&key)?;
        // Older converters wrote the linear factor alone.
        let linear = self.float("rope.scale_linear", 1.0, 1e-6..=1e6)?;
        let factor = self.float("rope.scaling.factor", linear, 0.0..=1e6)?;
        let scaling = match kind {
            Some("yarn") => RopeScaling::Yarn {
                factor: if factor > 0.0 {
                    factor
                } else {
                    return Err(self.wrong("rope.scaling.factor", factor, "a positive number"));
                },
                original_context: self.original_context(context)? as f32,
                beta_fast: self.float("rope.scaling.yarn_beta_fast", 32.0, 0.0..=1e6)?,
                beta_slow: self.float("rope.scaling.yarn_beta_slow", 1.0, 0.0..=1e6)?,
                // The file's factor comes on top of YaRN's own temperature correction.
                attn_factor: Some(
                    self.float("rope.scaling.attn_factor", 1.0, 1e-6..=1e6)? * (1.0 + 0.1 * factor.max(1.0).ln()),
                ),
            },
            // A factor of 0 means "none" to other readers.
            None | Some("linear") if factor != 1.0 && factor != 0.0 => RopeScaling::Linear { factor },
            None | Some("linear" | "none" | "") => RopeScaling::None,
            Some(other) => {
                return Err(unsupported(
                    format!("key `{key}` is `{}`; none, linear and yarn are run", other.escape_debug()),
                    "use another model",
                ));
            }
        };
        let Some(tensor) = self.gguf.find_tensor("rope_freqs.weight") else { return Ok(scaling) };
        if scaling != RopeScaling::None {
            return Err(unsupported(
                format!("tensor `rope_freqs.weight` together with scaling `{}`", kind.unwrap_or("linear")),
                "use a model with one of the two",
            ));
        }
        if tensor.ty != GgmlType::F32 || tensor.shape != [pairs as u64] {
            return Err(Error::new(
                ErrorKind::Shape,
                format!("tensor `rope_freqs.weight` is {} {:?}; F32 [{pairs}] is wanted", tensor.ty, tensor.shape),
                "convert the model anew",
            ));
        }
        let factors = dequantize(tensor, self.gguf.tensor_bytes(tensor)?)?;
        match factors.iter().find(|f| !(f.is_finite() && **f > 0.0)) {
            Some(bad) => Err(Error::new(
                ErrorKind::File,
                format!("tensor `rope_freqs.weight` holds {bad}; its factors must be positive and finite"),
                "the file is damaged; fetch it again",
            )),
            None => Ok(RopeScaling::Llama3 { factors }),
        }
    }
}

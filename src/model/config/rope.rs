//! Rotary position embedding and sliding windows, as a file's keys say them.

use super::{Keys, Rope, Sliding, unsupported};
use crate::error::{Error, ErrorKind, Result};
use crate::model::gguf::{GgmlType, dequantize};
use crate::num::rope::RopeScaling;

impl Keys<'_> {
    /// Of the layers that see all tokens.
    pub(super) fn rope(&self, head_dim: usize) -> Result<Rope> {
        let dim_count = self.optional_count("rope.dimension_count", 2, head_dim)?.unwrap_or(head_dim);
        if !dim_count.is_multiple_of(2) {
            return Err(self.wrong("rope.dimension_count", dim_count, "an even number"));
        }
        let base = self.float("rope.freq_base", 10_000.0, 1.001..=1e12)?;
        Ok(Rope { dim_count, base, pairing: self.architecture.pairing, scaling: self.scaling(dim_count / 2)? })
    }

    /// The sliding layers, where the architecture has some and the file names a window.
    pub(super) fn sliding(&self, full: &Rope) -> Result<Option<Sliding>> {
        const KEY: &str = "attention.sliding_window";
        let window = self.optional_count(KEY, 0, 1 << 30)?.unwrap_or(0);
        let Some(pattern) = &self.architecture.sliding else {
            let context = self.count("context_length", 1, 1 << 30)?;
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

    fn scaling(&self, pairs: usize) -> Result<RopeScaling> {
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
                original_context: self.count("rope.scaling.original_context_length", 1, 1 << 30)? as f32,
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
